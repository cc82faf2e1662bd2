import torch

from conf.training import TrainSettings
from nets.source import Batch
from nets.training_rows import trained_rows
from tests.test_nets.test_training import SETTINGS


def settings(**fields: object) -> TrainSettings:
    return SETTINGS.model_copy(update=fields)


def batch_of(ids: list[list[int]], chosen: list[list[int]]) -> Batch:
    """Windows whose trunk would have written `chosen[b][p]` after row p."""
    ids_BT, top_BT = torch.tensor(ids), torch.tensor(chosen)
    width = ids_BT.shape[1]
    return Batch(
        ids_BT,
        torch.full((len(ids),), width),
        torch.zeros(len(ids), width, 4),
        top_BT[:, :, None],
        torch.ones(len(ids), width, 1),
    )


def test_all_rows_are_trained_unless_said_otherwise() -> None:
    assert trained_rows(SETTINGS, 1, batch_of([[1, 2, 3]], [[2, 3, 4]])) is None


def test_on_path_leaves_out_later_steps_of_chains_fed_with_foreign_tokens() -> None:
    # The trunk after 1, 2, 3, 9, 5 says 2, 3, 4, 5, 6: token 9 at row 3 is not its own.
    batch = batch_of([[1, 2, 3, 9, 5]], [[2, 3, 4, 5, 6]])
    found = trained_rows(settings(on_path=True, depth=3), 1, batch)
    assert found is not None
    assert found[0, :, 0].tolist() == [True] * 5
    # Step 2 from p was fed tokens p+1 and p+2: 2, 3 from row 0; 3, 9 from row 1; …
    assert found[0, :, 1].tolist() == [True, False, False, False, False]
    assert not found[0, :, 2].any()


def test_anchors_depend_on_seed_and_step_alone_and_keep_their_share() -> None:
    batch = batch_of([[0] * 500] * 8, [[0] * 500] * 8)
    drawn = trained_rows(settings(anchors=0.25), 7, batch)
    torch.manual_seed(99)
    again = trained_rows(settings(anchors=0.25), 7, batch)
    other = trained_rows(settings(anchors=0.25), 8, batch)
    assert drawn is not None
    assert again is not None
    assert other is not None
    assert drawn.equal(again)
    assert not drawn.equal(other)
    assert drawn[:, :, 1].equal(drawn[:, :, 2])
    # 4,000 draws of 1 in 4: a standard deviation of 27.
    assert abs(int(drawn[:, :, 1].sum()) - 1000) < 5 * 27

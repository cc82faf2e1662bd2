import torch

from conf.training import TrainSettings
from nets.ranks import Share
from nets.source import Batch
from nets.training_rows import trained_rows
from tests.test_nets.test_training import SETTINGS

WHOLE = Share(0, 8, 8)  # of a batch of at most 8 windows


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
    assert trained_rows(SETTINGS, 1, batch_of([[1, 2, 3]], [[2, 3, 4]]), WHOLE) is None


def test_on_path_leaves_out_later_steps_of_chains_fed_with_foreign_tokens() -> None:
    # The trunk after 1, 2, 3, 9, 5 says 2, 3, 4, 5, 6: token 9 at row 3 is not its own.
    batch = batch_of([[1, 2, 3, 9, 5]], [[2, 3, 4, 5, 6]])
    found = trained_rows(settings(on_path=True, depth=3), 1, batch, WHOLE)
    assert found is not None
    assert found[0, :, 0].tolist() == [True] * 5
    # Step 2 from p was fed tokens p+1 and p+2: 2, 3 from row 0; 3, 9 from row 1; …
    assert found[0, :, 1].tolist() == [True, False, False, False, False]
    assert not found[0, :, 2].any()


def test_anchors_depend_on_seed_and_step_alone_and_keep_their_share() -> None:
    batch = batch_of([[0] * 500] * 8, [[0] * 500] * 8)
    drawn = trained_rows(settings(anchors=0.25), 7, batch, WHOLE)
    torch.manual_seed(99)
    again = trained_rows(settings(anchors=0.25), 7, batch, WHOLE)
    other = trained_rows(settings(anchors=0.25), 8, batch, WHOLE)
    assert drawn is not None
    assert again is not None
    assert other is not None
    assert drawn.equal(again)
    assert not drawn.equal(other)
    assert drawn[:, :, 1].equal(drawn[:, :, 2])
    # 4,000 draws of 1 in 4: a standard deviation of 27.
    assert abs(int(drawn[:, :, 1].sum()) - 1000) < 5 * 27


def test_a_share_of_a_batch_draws_the_rows_it_has_in_the_whole() -> None:
    whole = trained_rows(
        settings(anchors=0.25), 7, batch_of([[0] * 50] * 3, [[0] * 50] * 3), Share(0, 3, 3)
    )
    last = trained_rows(
        settings(anchors=0.25), 7, batch_of([[0] * 50] * 2, [[0] * 50] * 2), Share(1, 3, 3)
    )
    assert whole is not None
    assert last is not None
    assert last.equal(whole[1:])

"""What the inspector computes itself, against hand-worked numbers."""

import pytest

from ui.contents import CodecRow, Difference, Rate, SetMeasure
from ui.inspector.heal_list import asked_for
from ui.inspector.pareto import front, pareto_plot
from ui.inspector.rounds import DepthCurve, shares


def measure(*rates: float) -> SetMeasure:
    steps = tuple(Rate(step=j, rate=r, rows=9) for j, r in enumerate(rates, start=1))
    return SetMeasure(drafts_held=0.0, rows=9, hold_rates=steps)


def test_shares_of_rounds_are_where_a_chain_breaks() -> None:
    # Half break at once; of the other half a fifth breaks at step 2.
    assert shares(measure(0.5, 0.8)) == pytest.approx((0.5, 0.1, 0.4))
    assert shares(SetMeasure(drafts_held=0, rows=0)) is None


def test_speed_is_tokens_a_round_over_its_cost() -> None:
    curve = DepthCurve("healed", (0.0, 0.8, 1.4), (0.0, 0.7, 1.2), (0.0, 0.9, 1.6))
    fast = curve.speed(verify=1.2, draft=0.2)
    assert fast.held == pytest.approx((1.0, 1.8 / 1.4, 2.4 / 1.6))
    assert fast.low == pytest.approx((1.0, 1.7 / 1.4, 2.2 / 1.6))
    assert fast.best == 2
    assert curve.speed(verify=3.0, draft=0.5).best == 0


def codec(name: str, size: int, held: float, to_keep: float | None = None) -> CodecRow:
    paired = None if to_keep is None else Difference(value=to_keep, se=0.01, windows=9)
    return CodecRow(codec=name, draft_bytes=size, file_bytes=size, drafts_held=held,
                    to_keep=paired)  # fmt: skip


def test_the_front_holds_what_no_smaller_codec_equals() -> None:
    rows = [
        *(codec("keep", 700, 2.56), codec("q8", 350, 2.56, 0.0)),
        *(codec("q4", 200, 2.50, -0.06), codec("bad", 300, 2.49, -0.07)),
        codec("q2", 100, 2.1, -0.46),
    ]
    assert [row.codec for row in front(rows)] == ["q2", "q4", "q8"]
    assert "Smallest as good as keep: q8" in pareto_plot(rows)


@pytest.mark.parametrize(
    ("config", "title", "data"),
    [
        (
            "student: a/b/folded.cmf\ndata: [x/code.txt, {name: chat}]",
            "folded",
            ("code", "chat"),
        ),
        ("heal: {student: m.cmf, data: [{path: p/t.jsonl}]}", "m", ("t",)),
        ("[not, a, mapping", "the command", ()),
        ("student: [1]\ndata: 7\ntrain: none", "the command", ()),
        ("!!python/object/apply:os.system ['true']", "the command", ()),
    ],
)
def test_a_configuration_is_read_or_left(
    config: str, title: str, data: tuple[str, ...]
) -> None:
    asked = asked_for(config, "the command")
    assert (asked.title, asked.data) == (title, data)

"""Axes, thinning and escaping of the SVG builders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.curves import Point, thin
from ui.plots import Axis, element, nice_axis


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.41, 0.826], (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
        ([0.0, 2.11], (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)),
        ([5.0, 5.0], (5.0, 5.1, 5.2, 5.3, 5.4, 5.5)),
        ([47.5, 84.6], (40.0, 50.0, 60.0, 70.0, 80.0, 90.0)),
    ],
)
def test_ticks_are_round_and_hold_the_values(
    values: list[float], ticks: tuple[float, ...]
) -> None:
    assert nice_axis(values).ticks == pytest.approx(ticks)


# Down to a spread of 1e-6 of the value: below that, the ticks drown in rounding.
@given(
    st.floats(-1e6, 1e6, allow_nan=False),
    st.floats(1.0, 1e6, allow_nan=False),
    st.integers(2, 6),
)
def test_any_values_fit_between_the_ends(low: float, spread: float, intervals: int) -> None:
    axis = nice_axis([low, low + spread], intervals=intervals)
    slack = (axis.high - axis.low) * 1e-6
    assert axis.low - slack <= low
    assert low + spread <= axis.high + slack
    assert 2 <= len(axis.ticks) <= intervals + 1


@pytest.mark.parametrize(
    ("ticks", "places"),
    [
        ((0.0, 10.0), 0),
        ((0.0, 0.5), 1),
        ((0.0, 0.25), 2),
        ((1.9, 1.95), 2),
        ((0.0, 2.5), 1),
    ],
)
def test_tick_labels_have_the_decimals_they_need(
    ticks: tuple[float, float], places: int
) -> None:
    assert Axis(ticks[0], ticks[1], ticks).places == places


def test_thinning_keeps_the_spike_and_the_order() -> None:
    points = [Point(step, 1.0) for step in range(10_000)]
    points[4_321] = Point(4_321, 99.0)
    kept = thin(points, limit=100)
    assert len(kept) <= 100
    assert Point(4_321, 99.0) in kept
    assert [point.step for point in kept] == sorted(point.step for point in kept)


def test_elements_escape_text_and_attributes() -> None:
    made = element("text", '<b>&"', x="1%", aria_label='">', class_="g")
    assert (
        made == '<text x="1%" aria-label="&#34;&gt;" class="g">&lt;b&gt;&amp;&#34;</text>'
    )

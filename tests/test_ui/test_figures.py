"""Spelled numbers against literals written by hand."""

from datetime import UTC, datetime

import pytest

from ui import figures

NB = "\u00a0"


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        (1.005, 2, "1.00"),  # binary 1.00499…
        (-0.0094, 3, "−0.009"),
        (-0.0004, 2, "0.00"),
        (1234.5, 1, "1,234.5"),
        (-1234.5, 0, "−1,234"),
        (None, 2, "–"),
    ],
)
def test_fixed_decimals_have_a_true_minus_and_no_signed_zero(
    value: float | None, places: int, text: str
) -> None:
    assert figures.fixed(value, places) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.96, "+0.96"), (-0.02, "−0.02"), (0.001, "0.00"), (10.0, "+10.00")],
)
def test_signed_marks_gain_and_loss_but_not_nothing(value: float, text: str) -> None:
    assert figures.signed(value) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((1.96, 2.06), "1.96–2.06"),
        ((-0.02, 0.04), f"−0.02{NB}to{NB}0.04"),
        (None, "–"),
    ],
)
def test_intervals_never_read_as_a_subtraction(
    interval: tuple[float, float] | None, text: str
) -> None:
    assert figures.span(interval) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2e-3, "2 × 10⁻³"),
        (1.5e-5, "1.5 × 10⁻⁵"),
        (-3e4, "−3 × 10⁴"),
        (0.0, "0"),
        (1e-12, "1 × 10⁻¹²"),
    ],
)
def test_scientific_uses_superscripts(value: float, text: str) -> None:
    assert figures.scientific(value).replace(NB, " ") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.02, "20 ms"),
        (0.4, "0.4 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (245, "4 min 05 s"),
        (4320, "1 h 12 min"),
        (7199.9, "2 h 00 min"),
    ],
)
def test_durations_do_not_overflow_their_unit(seconds: float, text: str) -> None:
    assert figures.duration(seconds).replace(NB, " ") == text


def test_sizes_of_a_column_share_unit_and_decimals() -> None:
    column = figures.sizes([1_183_488, 598_272, 316_416])
    assert (column.unit, column.texts) == ("MB", ("1.183", "0.598", "0.316"))
    assert figures.size(183_421_300).replace(NB, " ") == "183 MB"
    assert figures.size(812) == f"812{NB}B"
    assert figures.size(0) == f"0{NB}B"
    assert figures.size(999_999_999_999_999_999) == f"1,000,000{NB}TB"


def test_dates_are_the_same_in_every_locale() -> None:
    assert figures.day(datetime(2026, 12, 1, 20, 8, tzinfo=UTC)) == "1 Dec 2026, 20:08"


def test_only_long_hex_is_shortened() -> None:
    assert figures.digest("4f0c" + "0" * 56 + "91d2") == "4f0c…91d2"
    assert figures.digest("records") == "records"
    assert figures.digest("deadbeef") == "deadbeef"

"""How a number is spelled, in one place: true minus, a no-break space before the unit.

`None` is a figure that was not measured and is spelled `–` everywhere.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

MINUS = "\u2212"
NO_BREAK = "\u00a0"
ABSENT = "\u2013"
MONTHS = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
UNITS = ("B", "kB", "MB", "GB", "TB")
SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
DIGEST = re.compile(r"[0-9a-f]{16,}")


def fixed(value: float | None, places: int = 2) -> str:
    """`1,234.50`, `−0.02`; a value that rounds to zero carries no sign."""
    if value is None:
        return ABSENT
    text = f"{abs(value):,.{places}f}"
    return MINUS + text if value < 0 and float(text.replace(",", "")) else text


def signed(value: float | None, places: int = 2) -> str:
    """`+0.96`, `−0.02`, and `0.00` for what rounds to zero."""
    text = fixed(value, places)
    return f"+{text}" if value is not None and value > 0 and text.strip("0.,") else text


def with_error(value: float, half_width: float, places: int = 2) -> str:
    """`+0.96 ± 0.05`, both with the same decimals."""
    return f"{signed(value, places)}{NO_BREAK}±{NO_BREAK}{fixed(half_width, places)}"


def span(interval: tuple[float, float] | None, places: int = 2) -> str:
    """`1.96–2.06`; with a negative end `−0.02 to 0.04`, since `−0.02–0.04` misreads."""
    if interval is None:
        return ABSENT
    low, high = interval
    joint = f"{NO_BREAK}to{NO_BREAK}" if low < 0 else ABSENT
    return fixed(low, places) + joint + fixed(high, places)


def percent(rate: float | None, places: int = 1) -> str:
    """A rate from 0 to 1 in per cent, without the sign: `58.8`, for a column headed %."""
    return fixed(None if rate is None else 100 * rate, places)


def percent_sign(rate: float | None, places: int = 1) -> str:
    """`58.8 %`, for running text."""
    text = percent(rate, places)
    return text if rate is None else f"{text}{NO_BREAK}%"


def count(number: int | None) -> str:
    """`30,586`."""
    return ABSENT if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 window`, `57 windows`."""
    return f"{count(number)}{NO_BREAK}{noun}{'' if number == 1 else 's'}"


def scientific(value: float | None) -> str:
    """`2 × 10⁻³`, `1.5 × 10⁻⁵`; `0` for zero."""
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.2e}".split("e")
    digits = mantissa.rstrip("0").rstrip(".").replace("-", MINUS)
    return f"{digits}{NO_BREAK}×{NO_BREAK}{power_of_ten(int(exponent))}"


def power_of_ten(exponent: int) -> str:
    """`10⁻³`."""
    return f"10{str(exponent).translate(SUPERSCRIPT)}"


def duration(seconds: float) -> str:
    """`20 ms`, `0.4 s`, `41 s`, `4 min 05 s`, `1 h 12 min`."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f}{NO_BREAK}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}{NO_BREAK}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}{NO_BREAK}s"
    if whole < 3600:
        return f"{whole // 60}{NO_BREAK}min {whole % 60:02}{NO_BREAK}s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}{NO_BREAK}h {minutes % 60:02}{NO_BREAK}min"


def day(moment: datetime) -> str:
    """`1 Dec 2026, 20:18`, the same in every locale."""
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}, {moment:%H:%M}"


def digest(text: str) -> str:
    """`4f0c…91d2` for a long hex digest; anything else stays as it is."""
    return f"{text[:4]}…{text[-4:]}" if DIGEST.fullmatch(text) else text


def size(size_bytes: int) -> str:
    """`183 MB`, `1.24 GB`, `812 B`: three significant digits, powers of 1000."""
    column = sizes([size_bytes])
    return f"{column.texts[0]}{NO_BREAK}{column.unit}"


@dataclass(frozen=True)
class SizeColumn:
    """Sizes that stand under each other: one unit, the same decimals."""

    unit: str
    texts: tuple[str, ...]


def sizes(sizes_bytes: Sequence[int]) -> SizeColumn:
    """The column in the unit of its largest size, with decimals enough for its smallest."""
    largest = max(sizes_bytes, default=0)
    rank = min(int(math.log10(largest) // 3) if largest else 0, len(UNITS) - 1)
    scaled = [value / 1000**rank for value in sizes_bytes]
    smallest = min((value for value in scaled if value > 0), default=1.0)
    places = 0 if rank == 0 else min(max(2 - math.floor(math.log10(smallest)), 0), 3)
    return SizeColumn(UNITS[rank], tuple(fixed(value, places) for value in scaled))

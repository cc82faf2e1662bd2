"""How many times as quick more workers are: small plots side by side, with ui's elements.

Both axes double from line to line, so a pass that scales follows the dotted line. Each line
has its name where it is highest.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

import ui
from ui.plots import Axis, element

WIDTH, HEIGHT, APART, LEFT, TOP, FOOT = 208, 176, 64, 44, 44, 52
COLUMNS = 3
STYLES = ("tokens.css", "plots.css")
LABEL_WIDTH, LABEL_HEIGHT = 44.0, 13.0

Speeds = Sequence[tuple[int, float]]  # workers, and how many times as quick as one
Place = tuple[float, float]  # pixels from the panel's upper left corner


def scale_svg(panels: Mapping[str, Mapping[str, Speeds]]) -> str:
    """A whole SVG file: a panel for each name, three in a row, in it a line for each."""
    drawn = []
    for place, (title, lines) in enumerate(panels.items()):
        down, across = divmod(place, COLUMNS)
        x, y = LEFT + across * (WIDTH + APART), TOP + down * (HEIGHT + TOP + FOOT)
        panel = _panel(title, lines)
        drawn.append(
            element("svg", *panel, x=x, y=y, width=WIDTH, height=HEIGHT, overflow="visible")
        )
    width = LEFT + COLUMNS * (WIDTH + APART)
    height = math.ceil(len(panels) / COLUMNS) * (TOP + HEIGHT + FOOT)
    ground = element("rect", width="100%", height="100%", fill="var(--bg)")
    svg = element(
        "svg", element("style", Markup(_styles())), ground, *drawn,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=width,
        height=height, role="img", aria_label="; ".join(panels),
    )  # fmt: skip
    return f"{svg}\n"


def _styles() -> str:
    """The report's colours and marks, in the file itself: it stands alone."""
    folder = Path(ui.__file__).parent
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in STYLES)


def _panel(title: str, lines: Mapping[str, Speeds]) -> list[Markup]:
    every = [point for speeds in lines.values() for point in speeds]
    x_axis = _doublings(max(workers for workers, _ in every))
    y_axis = _doublings(max(4.0, *(times for _, times in every)))
    parts = [element("text", title, x=0, y=-18, font_weight="600")]
    parts += _frame(x_axis, y_axis)
    top = 2 ** min(x_axis.high, y_axis.high)
    parts.append(_line([_at(x_axis, y_axis, n, n) for n in (1.0, top)], "1 4", 1.0))
    taken: list[Place] = []
    for place, (name, speeds) in enumerate(lines.items()):
        points = [_at(x_axis, y_axis, workers, times) for workers, times in speeds]
        parts.append(_line(points, "none", 0.4 + 0.6 * (place + 1) / len(lines)))
        parts += _named(name, min(points, key=lambda point: point[1]), taken)
    return parts


def _doublings(most: float) -> Axis:
    """From 1 to the power of two that holds this, a tick a doubling."""
    last = math.ceil(math.log2(most))
    return Axis(0.0, float(last), tuple(float(n) for n in range(last + 1)))


def _at(x_axis: Axis, y_axis: Axis, workers: float, times: float) -> Place:
    x, y = x_axis.share(math.log2(workers)), y_axis.share(math.log2(times))
    return WIDTH * x, HEIGHT * (1 - y)


def _frame(x_axis: Axis, y_axis: Axis) -> list[Markup]:
    parts = []
    for tick in y_axis.ticks:
        y, kind = HEIGHT * (1 - y_axis.share(tick)), "g" if tick else "ax"
        parts.append(element("line", class_=kind, x1=0, x2=WIDTH, y1=y, y2=y))
        parts.append(element("text", f"{2**tick:g}", x=-8, y=y + 4, text_anchor="end"))
    for tick in x_axis.ticks[::2]:
        x = WIDTH * x_axis.share(tick)
        number = f"{2**tick:g}"
        parts.append(element("text", number, x=x, y=HEIGHT + 17, text_anchor="middle"))
    words = "workers; times as quick as one"
    return [*parts, element("text", words, x=0, y=HEIGHT + 34)]


def _line(points: Sequence[Place], dash: str, opacity: float) -> Markup:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return element("polyline", class_="line fine", points=places, stroke_dasharray=dash,
                   stroke_opacity=opacity)  # fmt: skip


def _named(name: str, best: Place, taken: list[Place]) -> list[Markup]:
    """A ring about the highest point and the name above it, above other names there."""
    x, y = best[0], best[1] - 10
    while any(abs(x - u) < LABEL_WIDTH and abs(y - v) < LABEL_HEIGHT for u, v in taken):
        y -= 1
    taken.append((x, y))
    ring = element("circle", class_="ring", cx=best[0], cy=best[1], r=3)
    text = element("text", name, x=x, y=y, text_anchor="middle", stroke="var(--bg)",
                   stroke_width=4, paint_order="stroke")  # fmt: skip
    return [ring, text]

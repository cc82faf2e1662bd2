"""A plot as an SVG file of its own, for pages that show images and not our style sheet."""

from markupsafe import Markup

from ui.report import style

WIDTH, MARGIN, HEIGHT = 640, 24, 100


def standing_alone(plot: Markup) -> str:
    """A strip from `ui.plots`, 640 by 100 pixels, with its colours inside."""
    css = f"{style()}\nsvg.page {{ background: var(--bg); }}"
    assert "<" not in css, "it would close the style element"
    page = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
    inner = f'x="{MARGIN}" width="{WIDTH - 2 * MARGIN}" overflow="visible"'
    return f'<svg class="page" {page}><style>{css}</style><svg {inner}>{plot}</svg></svg>'

"""What a window's page says of each token, and of the chain that is looked at."""

from dataclasses import dataclass
from typing import Literal

from ui.inspector.spelling import Spelling, shown
from ui.inspector.window_data import Chains, Measures, Role, Window

Shown = Literal["stale", "healed", "difference"]
VIEW = 256  # tokens of a page
P_LEVELS = (0.05, 0.2, 0.5, 0.8)


@dataclass(frozen=True)
class Token:
    """A token with the class it is coloured by, and that class in words."""

    at: int
    text: str
    look: str
    said: str
    begins_line: bool
    begins_record: bool


@dataclass(frozen=True)
class Top:
    """The best four of whoever predicts a token, with what became of the first."""

    who: str
    said: str
    fill: str
    rows: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class StepLine:
    """A step of the chain: the trunk's choice, and by role (class, text) of its draft."""

    step: int
    trunk: str
    drafts: tuple[tuple[Role, str, str], ...]


@dataclass(frozen=True)
class Panel:
    """The chain from `start` whose step `step` predicts token `at`."""

    at: int
    start: int
    step: int
    reads: str
    lines: tuple[StepLine, ...]
    kept: tuple[tuple[Role, int], ...]
    tops: tuple[Top, ...]


def start_of(at: int, colour: str) -> tuple[int, int]:
    """The (start, step) that token `at` is coloured by: `p` and `kept` look at step 1."""
    if colour == "kept":
        return at, 1
    step = int(colour) if colour.isdigit() else 1
    return at - step - 1, step


def tokens_of(
    window: Window, shown_draft: Shown, colour: str, spelling: Spelling, begin: int
) -> tuple[Token, ...]:
    """The tokens of a page, coloured."""
    found = []
    for at in range(begin, min(begin + VIEW, len(window.ids))):
        look, said = _look(window, shown_draft, colour, at)
        text = spelling.text(int(window.ids[at]))
        was_line_end = at > begin and "\n" in spelling.text(int(window.ids[at - 1]))
        found.append(
            Token(
                at,
                shown(text),
                look,
                said,
                was_line_end,
                at == begin or at in window.record_starts,
            )
        )
    return tuple(found)


def _look(window: Window, draft: Shown, colour: str, at: int) -> tuple[str, str]:
    if colour == "p":
        return _p_look(window.trunk_p(at), at)
    start, step = start_of(at, colour)
    if start < 0 or not window.chains:
        return "none", "no chain reaches it"
    if draft == "difference":
        return _difference(window.chains, colour, start, step)
    if draft not in window.chains:
        return "none", f"no {draft} draft was measured"
    if colour == "kept":
        kept = int(window.chains[draft].kept[start])
        return f"{draft} k{min(kept, 5)}", f"{kept} kept from here"
    return _step_look(window.chains[draft], draft, start, step)


def _step_look(chains: Chains, draft: Role, start: int, step: int) -> tuple[str, str]:
    if not chains.counted[start, step - 1]:
        return "none", "did not count"
    is_hit = bool(chains.hit[start, step - 1])
    return (f"{draft} hold", "held") if is_hit else (f"{draft} miss", "missed")


def _p_look(p: float | None, at: int) -> tuple[str, str]:
    if at == 0:
        return "none", "nothing came before it"
    if p is None:
        return "p0", "trunk: below its kept tokens"
    return f"p{sum(p >= level for level in P_LEVELS)}", f"trunk: {100 * p:.1f} %"


def _difference(
    chains: dict[Role, Chains], colour: str, start: int, step: int
) -> tuple[str, str]:
    if len(chains) < 2:
        return "none", "only one draft was measured"
    before, after = chains["stale"], chains["healed"]
    if colour == "kept":
        change = int(after.kept[start] - before.kept[start])
    else:
        change = int(after.hit[start, step - 1]) - int(before.hit[start, step - 1])
    if change > 0:
        return "gained", f"gained {change}"
    return ("lost", f"lost {-change}") if change < 0 else ("", "no difference")


def panel_of(window: Window, measures: Measures, at: int, colour: str) -> Panel | None:
    """The chain that token `at` is coloured by; None where no chain reaches it."""
    start, step = start_of(at, colour)
    length = len(window.ids)
    if not 0 <= start < length - 1:
        return None
    steps = [j for j in range(1, measures.depth + 1) if start + j < length]
    if step not in steps:
        return None
    return Panel(
        start + step + 1,
        start,
        step,
        measures.spelling.alone(int(window.ids[start + 1])),
        tuple(_line(window, measures.spelling, start, j) for j in steps),
        tuple((role, int(c.kept[start])) for role, c in window.chains.items()),
        _tops(window, measures.spelling, start, step),
    )


def _line(window: Window, spelling: Spelling, start: int, step: int) -> StepLine:
    drafts: list[tuple[Role, str, str]] = []
    for role, chains in window.chains.items():
        look, text = "not", "not reached"
        if chains.counted[start, step - 1]:
            look = "hit" if chains.hit[start, step - 1] else "mis"
            text = spelling.alone(int(chains.top_id[start, step - 1, 0]))
        drafts.append((role, look, text))
    return StepLine(
        step, spelling.alone(int(window.top_id[start + step, 0])), tuple(drafts)
    )


def _tops(window: Window, spelling: Spelling, start: int, step: int) -> tuple[Top, ...]:
    row = start + step
    best = [
        (spelling.alone(int(i)), float(p))
        for i, p in zip(window.top_id[row, :4], window.top_p[row, :4], strict=True)
    ]
    found = [Top("Trunk", "what a verify accepts", "pt", tuple(best))]
    for role, chains in window.chains.items():
        if not chains.counted[start, step - 1]:
            continue
        pairs = zip(
            chains.top_id[start, step - 1], chains.top_p[start, step - 1], strict=True
        )
        rows = tuple((spelling.alone(int(i)), float(p)) for i, p in pairs)
        said = "held" if chains.hit[start, step - 1] else "missed"
        found.append(
            Top(f"{role.title()} draft", said, "ps" if role == "stale" else "ph", rows)
        )
    return tuple(found)

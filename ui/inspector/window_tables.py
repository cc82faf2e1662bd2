"""The tables of a window's page as data: its tokens, and the chain that is looked at."""

from ui.inspector.answer import Cell, Table, as_table
from ui.inspector.window_data import Measures, Window
from ui.inspector.window_view import Panel

LOOKS = {"hit": "held", "mis": "missed", "not": "not reached"}


def tokens_table(window: Window, measures: Measures) -> Table:
    """By token: its id, text, trunk's p; and by draft what is kept from there."""
    roles = tuple(window.chains)
    steps = range(1, measures.depth + 1)
    columns = ["position", "id", "text", "trunk_p", *(f"{r}_kept" for r in roles)]
    flags = ("counted", "hit")
    columns += [f"{r}_{what}_{j}" for r in roles for j in steps for what in flags]
    rows = []
    for at, token in enumerate(window.ids.tolist()):
        row: list[Cell]
        row = [at, token, measures.spelling.text(token), window.trunk_p(at)]
        row += [int(window.chains[r].kept[at]) for r in roles]
        row += [bool(plane[at, j - 1]) for r in roles for j in steps
                for plane in (window.chains[r].counted, window.chains[r].hit)]  # fmt: skip
        rows.append(row)
    return as_table(columns, rows)


def chain_table(panel: Panel) -> Table:
    """By step: what it predicts, the trunk's choice, each draft's and what became of it."""
    roles = [role for role, _ in panel.kept]
    columns = ["start", "step", "position", "trunk"]
    columns += [f"{role}_{what}" for role in roles for what in ("draft", "state")]
    rows = []
    for line in panel.lines:
        row: list[Cell] = [panel.start, line.step, panel.start + line.step + 1, line.trunk]
        for _, look, text in line.drafts:
            row += [None if look == "not" else text, LOOKS[look]]
        rows.append(row)
    return as_table(columns, rows)


def top4_table(panel: Panel) -> Table:
    """The best four tokens of the trunk and of each draft that counts, with their p."""
    rows = [
        (panel.at, top.who, top.said, place, text, p)
        for top in panel.tops
        for place, (text, p) in enumerate(top.rows, start=1)
    ]
    return as_table(("position", "who", "state", "place", "token", "p"), rows)

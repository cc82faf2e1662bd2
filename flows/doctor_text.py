"""What an examination says: a table on a terminal, lines elsewhere, JSON for scripts."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from flows.command import tell
from flows.doctor import Examination
from tasks.checkup import Finding, Level
from tasks.probe_text import table_of

ORDER: tuple[Level, ...] = ("blocks", "biases", "fact")
STYLES: dict[Level, str] = {"blocks": "bold red", "biases": "yellow", "fact": "dim"}


def examination_json(found: Examination) -> dict[str, Any]:
    """`{"model", "findings": [{"level", "where", "what", "todo"}], "probe", "blocks"}`."""
    return {
        "model": str(found.model),
        "findings": [asdict(one) for one in found.findings],
        "probe": None if found.probe is None else dict(found.probe),
        "blocks": len(found.blocking),
    }


def tell_examination(found: Examination) -> None:
    """All of it on stdout, what blocks first."""
    if sys.stdout.isatty():
        _print_table(found)
    else:
        tell("\n".join(_lines(found)))
    if found.probe is not None:
        tell("\n".join(["", "the draft, read in each way", *table_of(found.probe)]))
    tell(f"\n{_verdict(found)}")


def _lines(found: Examination) -> Iterator[str]:
    for one in _ordered(found):
        todo = f"; {one.todo}" if one.todo else ""
        yield f"{one.level:8}{one.where}: {one.what}{todo}"


def _print_table(found: Examination) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("", "where", "what", "what to do"):
        table.add_column(head, overflow="fold")
    for one in _ordered(found):
        mark = Text(one.level, style=STYLES[one.level])
        table.add_row(mark, Text(one.where), Text(one.what), Text(one.todo))
    Console().print(table)


def _ordered(found: Examination) -> list[Finding]:
    return sorted(found.findings, key=lambda one: ORDER.index(one.level))


def _verdict(found: Examination) -> str:
    count = len(found.blocking)
    if not count:
        return "nothing here blocks a heal"
    return f"{count} {'finding blocks' if count == 1 else 'findings block'} a heal"

"""`heal doctor --json` on a model, and what it told."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from flows.cli import app
from tests.small_heal import WINDOW

SMALL = [
    "--set",
    f"pack.window={WINDOW}",
    "--set",
    "train.depth=2",
    "--set",
    "measure.depth=2",
]


@dataclass(frozen=True)
class Told:
    """What the command said and how it ended."""

    code: int
    report: dict[str, Any]

    def of(self, level: str) -> list[str]:
        """`where: what; todo` of every finding of a level."""
        return [
            f"{one['where']}: {one['what']}; {one['todo']}"
            for one in self.report["findings"]
            if one["level"] == level
        ]

    def blocking(self) -> str:
        """The one thing that blocks."""
        assert (self.code, self.report["blocks"]) == (2, 1), self.report
        (only,) = self.of("blocks")
        return only


def examined(model: Path, *line: str) -> Told:
    store = ["--store", str(model.parent / "doctor store")]
    done = CliRunner().invoke(app, ["doctor", str(model), *line, *store, "--json"])
    assert isinstance(done.exception, SystemExit | None), done.exception
    return Told(done.exit_code, json.loads(done.stdout) if done.stdout else {})

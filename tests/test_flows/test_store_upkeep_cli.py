"""`heal store gc`, `pin`, `export` and `import` on a whole heal."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from flows.cli import app
from tests.small_heal import Ground, heal


def invoked(store: Path, *line: str) -> Any:
    return CliRunner().invoke(app, ["store", *line, "--store", str(store)])


def test_gc_keeps_a_heal_that_a_report_reaches(ground: Ground) -> None:
    """The store of `finished` has no book of runs: only the report leads to it all."""
    told = json.loads(invoked(ground.store, "gc", "--grace", "0", "--json").stdout)
    assert (told["wastes"], told["freed"]) == ([], False)
    less = json.loads(
        invoked(ground.store, "gc", "--keep", "0", "--grace", "0", "--json").stdout
    )
    assert len(less["wastes"]) == told["kept"] > 10
    dry = invoked(ground.store, "gc", "--keep", "0", "--grace", "0").stdout
    assert "would free" in dry
    assert "--yes frees them" in dry
    young = invoked(ground.store, "gc", "--keep", "0").stdout
    assert young.startswith("nothing to free that is older than 1 h 00 min (--grace)\n")
    report = next((ground.store / "report").iterdir()).name
    assert invoked(ground.store, "pin", report[:10]).exit_code == 0
    again = invoked(ground.store, "gc", "--keep", "0", "--grace", "0", "--yes", "--json")
    assert json.loads(again.stdout)["wastes"] == []
    assert invoked(ground.store, "unpin", report[:10]).exit_code == 0
    done = invoked(ground.store, "gc", "--keep", "0", "--grace", "0", "--yes")
    assert "freed" in done.stdout
    assert not list(ground.store.glob("*/*/record.json"))
    assert heal(ground.config(), ground.store).made  # and is simply made again


def test_an_imported_heal_is_found(finished: Ground, tmp_path: Path) -> None:
    report = next((finished.store / "report").iterdir()).name
    bundle, other = tmp_path / "heal.tar", tmp_path / "other"
    out = invoked(finished.store, "export", report[:12], str(bundle), "--json")
    assert out.exit_code == 0, out.stderr
    taken = invoked(other, "import", str(bundle), "--json")
    assert taken.exit_code == 0, taken.stderr
    assert len(json.loads(taken.stdout)["new"]) == len(json.loads(out.stdout)["artifacts"])
    assert heal(finished.config(), other).made == []


def test_what_is_no_export_is_bad_input(tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_text("no tar" * 200)
    for path in (note, tmp_path / "absent"):
        done = invoked(tmp_path / "store", "import", str(path))
        assert done.exit_code == 2
        assert str(path) in done.stderr

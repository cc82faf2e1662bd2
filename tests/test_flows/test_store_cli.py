"""`heal store` as a user and a script see it."""

import json
import shutil
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from flows.cli import app
from tests.small_heal import Ground


def invoked(ground: Ground, *line: str) -> Any:
    return CliRunner().invoke(app, ["store", *line, "--store", str(ground.store)])


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_ls_lists_every_artifact_with_its_size(finished: Ground) -> None:
    told = json.loads(invoked(finished, "ls", "--json").stdout)
    records = finished.store.glob("*/*/record.json")
    sizes = {
        f"{r.parent.parent.name}/{r.parent.name}": folder_bytes(r.parent) for r in records
    }
    assert {one["name"]: one["size_bytes"] for one in told["artifacts"]} == sizes
    said = invoked(finished, "ls", "trunk_shard").stdout.splitlines()
    assert len(said) == 8
    assert said[-1].startswith("7 artifacts, ")
    assert all(len(line) <= 80 for line in said[:-1])


def test_du_adds_up(finished: Ground) -> None:
    told = json.loads(invoked(finished, "du", "--json").stdout)
    assert told["total"] == folder_bytes(finished.store)
    assert told["folders"]["trunk_shard"] == folder_bytes(finished.store / "trunk_shard")
    assert "in " + str(finished.store) in invoked(finished, "du").stdout


def test_verify_says_what_is_wrong_and_fails(ground: Ground) -> None:
    whole = invoked(ground, "verify", "--deep")
    assert (whole.exit_code, "every byte is as written" in whole.stdout) == (0, True)
    (measured, *_) = (ground.store / "measure_draft").iterdir()
    shutil.rmtree(measured / "hit")
    done = invoked(ground, "verify")
    assert done.exit_code == 1
    assert f"{measured}/hit/zarr.json: is missing" in done.stdout
    assert "1 damaged: the next run makes what it needs again" in done.stdout
    told = json.loads(invoked(ground, "verify", "--json").stdout)
    assert list(told["problems"]) == [f"measure_draft/{measured.name}"]
    assert invoked(ground, "verify", "trunk_pass").exit_code == 0


def test_rm_takes_out_what_nothing_needs(ground: Ground) -> None:
    refused = invoked(ground, "rm", "trunk_shard")
    assert refused.exit_code == 1
    assert "is a part of trunk_pass/" in refused.stderr
    assert len(list((ground.store / "trunk_shard").iterdir())) == 7
    done = invoked(ground, "rm", "trunk_shard", "trunk_pass", "--json")
    assert done.exit_code == 0, done.stderr
    assert len(json.loads(done.stdout)["removed"]) == 8
    assert not list((ground.store / "trunk_shard").iterdir())


def test_rm_empties_what_was_set_aside(ground: Ground) -> None:
    aside = ground.store / "damaged" / "report-1"
    aside.mkdir(parents=True)
    (aside / "half").write_bytes(b"123")
    done = invoked(ground, "rm", "damaged")
    assert "removed 0 artifacts, 3 B in all" in done.stdout
    assert not aside.exists()

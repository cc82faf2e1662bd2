"""A trunk that is streamed in a whole heal, and what a plan says of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from store.store import Store
from tasks.stage import Runtime
from tests.small_heal import Ground, HealRun, heal


def planned(ground: Ground, folder: Path, store: Path, **changes: Any) -> dict[str, Any]:
    config = folder / "small.yaml"
    config.write_text(yaml.safe_dump(ground.config(**changes)))
    line = ["plan", str(config), "--store", str(store), "--json"]
    said: dict[str, Any] = json.loads(CliRunner().invoke(app, line).stdout)
    return said


def trunk_notes(plan: dict[str, Any]) -> list[str]:
    """What a plan says of trunks: of one trunk one line, though two passes read it."""
    return [note for note in plan["notes"] if note.startswith("trunk: ")]


def test_a_plan_says_how_the_trunk_is_held_and_by_which_numbers(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, topk = tmp_path / "new", {"topk": 9}
    for store, changes in ((new, {}), (ground.store, {"trunk": topk})):
        (said,) = trunk_notes(planned(ground, tmp_path, store, **changes))
        assert said.startswith("trunk: held in memory; all of it in f32 needs ")
        assert said.endswith(" are free")
    forced = {"placement": "stream", "device": "cpu"}
    (said,) = trunk_notes(planned(ground, tmp_path, new, runtime=forced))
    assert said.startswith("trunk: streamed layer by layer, as runtime.placement says")
    # Less is free than the head's buffers take: a trunk that small is no help.
    monkeypatch.setattr("tasks.placement.free_memory", lambda _: 5_000_000)
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(ground.config()))
    refused = CliRunner().invoke(app, ["plan", str(config), "--store", str(new)])
    assert refused.exit_code == 2
    assert "5 MB are free" in refused.stderr


def test_a_plan_in_which_no_trunk_runs_says_nothing_of_it(
    ground: Ground, tmp_path: Path
) -> None:
    told = planned(ground, tmp_path, ground.store, train={"lr": 3e-3})
    assert told["notes"] == []


def artifacts(run: HealRun) -> dict[str, str]:
    """Everything but the report, whose pages tell times."""
    store = run.runtime.store
    return {a.name: a.content_digest for a in store.artifacts() if a.stage != "report"}


def test_a_streamed_heal_is_the_resident_one(ground: Ground, tmp_path: Path) -> None:
    fresh: dict[str, Any] = {"start_from_last_layer": True}
    wanted = heal(ground.config(**fresh), tmp_path / "resident")
    streamed = tmp_path / "streamed"
    runtime = Runtime(store=Store(streamed), placement="stream")
    found = heal(ground.config(**fresh), streamed, runtime)
    assert {"start_draft", "trunk_pass"} <= {name.split()[0] for name in found.made}
    assert artifacts(found) == artifacts(wanted)

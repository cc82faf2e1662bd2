"""A whole heal on text the trunk wrote, records apart or not: what counts, and the plan."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.plan import plan_run
from tests.small_heal import VOCAB, WINDOW, Ground, HealRun, heal, write_records

# Two records to a window, one token of each the prompt: all the rest is the trunk's own.
WRITE = {"prompt_tokens": 1, "length": WINDOW // 2 - 1, "tokens": 48 * WINDOW, "batch": 32}


def own_text(ground: Ground, tmp_path: Path, **changes: Any) -> dict[str, Any]:
    prompts = write_records(tmp_path / "prompts.jsonl", [[i] for i in range(VOCAB)])
    spec = {"write": {"prompts": str(prompts), **WRITE}, "name": "own"}
    return ground.config(data=[spec], **changes)


def coverage(run: HealRun) -> float | None:
    return run.files.report.measures["healed"].coverage


def test_apart_every_row_of_a_greedy_text_counts_and_together_fewer(
    ground: Ground, tmp_path: Path
) -> None:
    apart = heal(own_text(ground, tmp_path, pack={"isolate": True}), ground.store)
    assert coverage(apart) == 1.0
    together = heal(own_text(ground, tmp_path), ground.store)
    found = coverage(together)
    assert found is not None
    # The first row of each second record has a token before it that the trunk did not see.
    assert found < 1.0
    shared = {"take_prompts", "write_shard", "write_text", "pack_windows"}
    assert not shared & {name.split()[0] for name in together.made}
    assert {"trunk_shard", "trunk_pass"} <= {name.split()[0] for name in together.made}


def missing(ground: Ground) -> set[str]:
    """The stages a plan says would run."""
    return {stage.name for stage in plan_run("small.yaml", [], ground.store).missing}


def test_a_plan_foretells_the_stages_of_own_text(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = own_text(ground, tmp_path, pack={"isolate": True}, taps={"layers": [0]})
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(raw))
    monkeypatch.chdir(tmp_path)
    foretold = missing(ground)
    made = heal(raw, ground.store).made
    assert {name.split()[0] for name in made} == foretold
    assert {"write_text", "tap_layers"} <= foretold
    assert heal(raw, ground.store).made == []
    assert missing(ground) == set()

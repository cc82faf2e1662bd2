"""measure_draft: its numbers are those of its arrays, counted in plain loops."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from store.arrays import open_array
from store.artifact import Artifact
from tasks.packed import read_windows
from tasks.trunk_rows import read_rows
from tests.oracles.counts import Counts, by_starts, by_walk
from tests.small_heal import DEPTH, VOCAB, WINDOW, Ground, HealRun, heal, write_records

Values = NDArray[np.generic]


def artifact(run: HealRun, stage: str, label: str = "") -> Artifact:
    (key,) = {
        event.key
        for event in run.runtime.ledger.events
        if event.name == stage and event.label == label
    }
    found = run.runtime.store.load(stage, key)
    assert found is not None
    return found


def held(counts: Counts) -> float:
    """Drafts held a round: the sum of the running products of the rates."""
    total, alive = 0.0, 1.0
    for counted, hit in counts:
        alive *= hit / counted if counted else 0.0
        total += alive
    return total


def added(every: list[Counts]) -> Counts:
    return [[sum(c[step][i] for c in every) for i in (0, 1)] for step in range(DEPTH)]


def test_numbers_are_what_the_arrays_count(finished: Ground) -> None:
    run = heal(finished.config(), finished.store)
    measure = artifact(run, "measure_draft", "healed keep")
    packed = read_windows(artifact(run, "pack_windows"))
    rows = read_rows(artifact(run, "trunk_pass"), run.runtime)
    read = {
        name: open_array(measure.path, name)[:]
        for name in ("counted", "hit", "window", "length", "draft_top4_id", "draft_top4_p")
    }
    walks, starts = [], []
    for place, window in enumerate(read["window"]):
        length = int(read["length"][place])
        ids = [int(i) for i in packed.ids[window, :length]]
        own = [int(i) for i in rows.read("topk_id", int(window))[:length, 0]]
        drafted = [[int(i) for i in row] for row in read["draft_top4_id"][place, :, :, 0]]
        walks.append(by_walk(ids, own, drafted))
        starts.append(by_starts(ids, own, drafted))
    walk = added(walks)
    assert walk[0][1] > 20  # it holds something
    numbers = measure.numbers
    assert numbers["drafts_held"] == pytest.approx(held(walk))
    assert numbers["drafts_held_starts"] == pytest.approx(held(added(starts)))
    assert [rate["rows"] for rate in numbers["hold_rates"]] == [c for c, _ in walk]
    assert numbers["rows"] == walk[0][0]
    assert numbers["coverage"] == added(starts)[0][0] / sum(
        packed.length[held_out] - 1 for held_out in packed.held_out
    )
    assert numbers["by_set"]["own"]["drafts_held"] == numbers["drafts_held"]
    assert (read["hit"] <= read["counted"]).all()
    assert (np.diff(read["draft_top4_p"][read["counted"]]) <= 0).all()


def test_text_the_trunk_would_not_write_has_no_rates(
    ground: Ground, tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    foreign = [[int(i) for i in draw.integers(VOCAB, size=WINDOW)] for _ in range(60)]
    data = write_records(tmp_path / "noise.jsonl", foreign)
    run = heal(ground.config(data=[str(data)], train={"steps": 2}), ground.store)
    healed = run.files.report.measures["healed"]
    assert healed.coverage is not None
    assert healed.coverage < 0.05
    assert healed.hold_rates[1].rate is None
    assert healed.hold_rates[1].rows == 0
    json.dumps(healed.model_dump(mode="json"), allow_nan=False)
    assert run.files.page.is_file()

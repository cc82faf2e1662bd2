"""Measure-only runs: nothing trains; other codecs carry the draft as it is."""

import json
from pathlib import Path

import numpy as np
import pytest

from cmfio.reader import open_container
from conf.errors import ConfigError
from flows.summary import measures_json
from tasks.packed import read_windows
from tests.small_heal import Ground, heal, small_ground, write_records


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return small_ground(tmp_path_factory.mktemp("measure"))


ONLY = {"epochs": 0, "steps": None}


def test_every_window_is_measured_and_nothing_written(
    untouched: Ground, tmp_path: Path
) -> None:
    out = tmp_path / "keep.cmf"
    raw = untouched.config(
        train=ONLY,
        pack={"hold_all": True},
        outputs=[{"codec": "keep", "path": str(out)}],
    )
    run = heal(raw, untouched.store)
    assert [name.split()[0] for name in run.made] == [
        *("pack_windows", *["trunk_shard"] * run.made.count("trunk_shard")),
        *("trunk_pass", "measure_draft", "report"),
    ]
    packed = run.runtime.store.load("pack_windows", run.path("pack_windows").name)
    assert packed is not None
    windows = read_windows(packed)
    assert windows.is_held_out.all()
    # Every record, in one stream: nothing is left out but a last, too short window.
    assert windows.length.sum() > 40 * len(untouched.records) - 32
    report = run.files.report
    assert set(report.measures) == {"stale"}
    assert report.measures["stale"].windows == len(windows.length)
    assert report.training is None
    assert not out.exists()
    assert run.files.page.is_file()


def test_other_codecs_carry_the_draft_as_it_is(untouched: Ground, tmp_path: Path) -> None:
    out = tmp_path / "f32.cmf"
    outputs = [{"codec": "f32", "path": str(out)}]
    run = heal(untouched.config(train=ONLY, outputs=outputs), untouched.store)
    assert set(run.files.report.measures) == {"stale"}
    assert [row.codec for row in run.files.report.codecs] == ["f32"]
    with open_container(untouched.student) as before, open_container(out) as after:
        assert set(before.entries) == set(after.entries)
        for name in before.entries:
            np.testing.assert_array_equal(before.tensor(name), after.tensor(name), name)
        provenance = after.header.provenance
    assert isinstance(provenance, dict)
    said = provenance["mtp_heal"]
    assert said["steps"] is None
    assert said["heldout_kl_best"] is None
    assert said["chain"] == 2
    assert run.files.report.measures["stale"].drafts_held == pytest.approx(
        run.files.report.codecs[0].drafts_held
    )


def test_few_records_are_enough_to_measure(untouched: Ground, tmp_path: Path) -> None:
    data = write_records(tmp_path / "two.jsonl", untouched.records[:2])
    raw = untouched.config(data=[str(data)], train=ONLY, pack={"hold_all": True})
    run = heal(raw, untouched.store)
    told = measures_json(run.files.report)["stale"]
    assert told["windows"] == 2  # 80 tokens in windows of 32; the last 16 are too few
    assert told["tokens_a_round"] == 1 + told["drafts_held"]
    json.dumps(told, allow_nan=False)


def test_sampled_text_tells_what_whole_chains_hold(
    untouched: Ground, tmp_path: Path
) -> None:
    prompts = write_records(tmp_path / "prompts.jsonl", [[i] for i in range(40)])
    write = {
        "prompts": str(prompts),
        "prompt_tokens": 1,
        "length": 15,
        "tokens": 640,
        "batch": 32,
        "temperature": 0.7,
    }
    data = [{"write": write, "name": "own"}]
    pack = {"hold_all": True, "isolate": True}
    run = heal(untouched.config(data=data, train=ONLY, pack=pack), untouched.store)
    (chains,) = run.files.report.measures["stale"].sampled_chains
    assert chains.temperature == 0.7
    assert chains.rows == 40 * 15  # 40 records of 16 tokens, all but the last a start
    assert 0 < chains.sampled[0] <= chains.sampled[1] <= 2
    assert chains.greedy[0] <= chains.greedy[1]
    assert "Drafts held under sampling" in run.files.page.read_text(encoding="utf-8")


def test_holding_all_out_leaves_nothing_to_train_on(untouched: Ground) -> None:
    with pytest.raises(ConfigError, match="nothing to train on"):
        heal(untouched.config(pack={"hold_all": True}), untouched.store)

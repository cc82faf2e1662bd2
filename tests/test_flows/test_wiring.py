"""The wiring of a heal: found by a probe before the long pass, given, or by the format."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cmfio.reader import open_container
from conf.base import RAW, Wiring
from conf.load import check
from conf.schema import RunConfig
from flows.cli import app
from flows.ground import Ground as Laid
from flows.ground import lay_ground, open_sets
from flows.plan import plan_run
from store.store import Store
from store.tables import read_table
from tasks.errors import InputError
from tasks.model_file import open_model
from tasks.progress import SilentProgress
from tasks.stage import Runtime
from tests.planted import planted_ground
from tests.small_heal import WINDOW, Ground, as_healed, heal

WIRINGS = [Wiring(hidden=h, chain=c) for h in ("raw", "normed") for c in ("raw", "normed")]
MIXED = Wiring(hidden="normed", chain="raw")
PROBE = ["sample_windows", "trunk_shard probe", "trunk_pass probe", "probe_draft"]


def laid(ground: Ground, runtime: Runtime | None = None, **changes: Any) -> Laid:
    runtime = runtime or Runtime(store=Store(ground.store))
    raw = ground.config(**{"probe": {"wiring": "auto"}, **changes})
    config = check(RunConfig, raw, "small")
    model = open_model(config.student, runtime)
    return lay_ground(model, config, open_sets(config, runtime), runtime)


@pytest.mark.parametrize("planted", WIRINGS, ids=lambda wiring: wiring.text)
def test_the_planted_wiring_is_what_measuring_uses(planted: Wiring, tmp_path: Path) -> None:
    found = laid(planted_ground(tmp_path, planted))
    assert found.found.said == {**planted.model_dump(), "by": "probe"}
    assert found.measure.wiring == planted
    assert found.found.probe is not None
    assert found.found.probe.numbers["outcome"] == "clear"


def test_a1_a_heal_trains_as_the_probe_found_and_says_so(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, MIXED)
    config = ground.config(probe={"wiring": "auto"}, train={"steps": 2})
    run = heal(config, ground.store)
    assert run.made[:5] == ["pack_windows", *PROBE]  # before the pass over all windows
    for stage in ("train_draft", "measure_draft"):
        manifest = json.loads((run.path(stage) / "manifest.json").read_bytes())
        assert manifest["settings"]["wiring"] == MIXED.model_dump(), stage
    with open_container(run.path("rewrite_model") / "model.cmf") as healed:
        header = healed.header.model_dump()
    said = header["provenance"]["mtp_heal"]["wiring"]
    assert said == {"hidden": "normed", "chain": "raw", "by": "probe"}
    page = run.files.page.read_text()
    assert "Read as hidden normed, chain raw: it names more" in page
    probe = run.files.report.probe
    assert probe is not None
    assert {len(probe.readings), len(probe.controls)} == {8, 2}
    first = {
        one.hidden: one.agreement[0]
        for one in probe.readings
        if (one.chain, one.order) == ("raw", "emb_hid")
    }
    assert first["normed"] == 1  # made to be right
    assert first["raw"] < 0.5
    again = heal(config, ground.store)
    assert again.made == []


def test_a1_the_wrong_wiring_costs_what_is_measured_and_trained(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, MIXED)
    held, loss = {}, {}
    for wiring in (MIXED, RAW):
        config = ground.config(probe={"wiring": wiring.model_dump()}, train={"steps": 1})
        run = heal(config, ground.store)
        held[wiring.text] = run.files.report.measures["stale"].drafts_held
        log = read_table(run.path("train_draft") / "log.arrow").to_pylist()
        loss[wiring.text] = log[1]["loss"]
    assert held["normed/raw"] == 2  # depth 2, made to be right
    assert held["raw/raw"] < 0.5
    assert loss["raw/raw"] > 2 * loss["normed/raw"]


def test_a_plan_supposes_the_format_s_wiring_and_the_run_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = planted_ground(tmp_path, RAW)
    raw = ground.config(probe={"wiring": "auto"}, train={"steps": 2})
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(raw))
    monkeypatch.chdir(tmp_path)
    named = [stage.name for stage in plan_run("small.yaml", [], ground.store).missing]
    assert named[:5] == ["pack_windows", *(name.split()[0] for name in PROBE)]
    heal(raw, ground.store)
    assert plan_run("small.yaml", [], ground.store).missing == []


def test_a3_swapped_halves_are_refused_before_the_long_pass(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW, is_swapped=True)
    runtime = Runtime(store=Store(ground.store))
    with pytest.raises(InputError) as caught:
        laid(ground, runtime)
    said = str(caught.value)
    assert "reads the hidden row first and the embedding second" in said
    assert "swap the two halves of the columns of model.mtp.eh_proj.weight" in said
    best = said.splitlines()[2]
    assert best.split() == ["raw", "raw", "hidden", "1.000", "1.000", "2.000", "best"]
    labels = {event.label for event in runtime.ledger.events if "trunk" in event.name}
    assert labels == {"probe"}


def test_a_draft_of_noise_is_refused_with_the_ways_on(
    ground: Ground, tmp_path: Path
) -> None:
    noise = planted_ground(tmp_path, RAW)
    config = tmp_path / "run.yaml"
    raw = ground.config(data=[str(noise.data)], probe={"wiring": "auto"})
    config.write_text(yaml.safe_dump(raw))
    done = CliRunner().invoke(app, ["run", str(config), "--store", str(ground.store)])
    assert done.exit_code == 2, done.stderr
    assert "no more often than a constant guess, under any wiring" in done.stderr
    for way in ("`init`", "start_from_last_layer: true", "probe.wiring"):
        assert way in done.stderr
    assert "\\n" not in done.stderr
    assert done.stderr.splitlines()[-1].split()[:3] == ["a", "constant", "guess"]


def test_a7_windows_that_repeat_are_refused(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW)
    line = json.loads(ground.data.read_text().splitlines()[0])["ids"]
    numbered = [{"ids": [*line[:-1], i]} for i in range(60)]  # no exact duplicates
    ground.data.write_text("".join(json.dumps(record) + "\n" for record in numbered))
    with pytest.raises(InputError, match="windows repeat each other"):
        laid(ground)


def test_the_same_text_given_twice_tells_a_probe_no_more_than_once(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW, k=0.05)
    runtime, path = Runtime(store=Store(ground.store)), str(ground.data)
    once, twice = (
        laid(ground, runtime, data=data).found.probe
        for data in ([path], [path, {"path": path, "name": "again"}])
    )
    assert once is not None
    assert twice is not None
    for number in ("windows", "rows", "readings", "controls", "outcome"):
        assert once.numbers[number] == twice.numbers[number], number


def test_one_window_of_text_over_and_over_can_t_be_probed(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW)
    first = {"ids": json.loads(ground.data.read_text().splitlines()[0])["ids"][:WINDOW]}
    ground.data.write_text(60 * (json.dumps(first) + "\n"))
    with pytest.raises(InputError, match="1 windows to probe, copies left out"):
        laid(ground, pack={"window": WINDOW, "split": "windows"})


def test_a_given_wiring_is_used_unprobed(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW)
    runtime = Runtime(store=Store(ground.store))
    found = laid(ground, runtime, probe={"wiring": MIXED.model_dump()})
    assert (found.found.said, found.measure.wiring) == (
        {**MIXED.model_dump(), "by": "config"},
        MIXED,
    )
    assert "probe_draft" not in {event.name for event in runtime.ledger.events}


def test_a_tie_goes_to_the_wiring_that_a_heal_wrote_the_draft_for(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW, k=0.0)  # no reading differs
    runtime = Runtime(store=Store(ground.store))
    assert laid(ground, runtime).measure.wiring == RAW
    healed = replace(ground, student=as_healed(ground.student, MIXED))
    assert laid(healed, runtime).measure.wiring == MIXED


@pytest.mark.parametrize("record", [MIXED, RAW], ids=lambda wiring: wiring.text)
def test_a_record_that_the_probe_denies_is_told(record: Wiring, tmp_path: Path) -> None:
    progress = SilentProgress()
    ground = planted_ground(tmp_path, RAW)
    healed = replace(ground, student=as_healed(ground.student, record))
    found = laid(healed, Runtime(store=Store(ground.store), progress=progress))
    assert found.measure.wiring == RAW
    denied = "a heal wrote it for normed/raw (hidden/chain), which names fewer"
    assert (denied in "\n".join(progress.said)) is (record == MIXED)


def test_the_record_of_a_draft_that_init_replaces_says_nothing(tmp_path: Path) -> None:
    progress = SilentProgress()
    ground = planted_ground(tmp_path, RAW)
    healed = replace(ground, student=as_healed(ground.student, MIXED))
    runtime = Runtime(store=Store(ground.store), progress=progress)
    found = laid(healed, runtime, init=str(ground.student))
    assert found.measure.wiring == RAW
    assert "the draft's wiring: hidden raw, chain raw" in progress.said


def test_a_fresh_draft_is_wired_as_the_format_has_it(tmp_path: Path) -> None:
    found = laid(planted_ground(tmp_path, MIXED), start_from_last_layer=True)
    assert found.found.said == {**RAW.model_dump(), "by": "format"}


def test_with_init_its_block_is_probed_behind_the_student_s_projection(
    tmp_path: Path,
) -> None:
    ground = planted_ground(tmp_path, MIXED)
    (tmp_path / "other").mkdir()
    other = planted_ground(tmp_path / "other", RAW)
    found = laid(ground, init=str(other.student))
    # The projection is what the wiring was planted in: it stays the student's.
    assert found.measure.wiring == MIXED
    assert found.found.probe is not None
    assert found.found.probe.manifest.inputs["init"] is not None


def test_what_a_few_windows_leave_open_more_windows_tell(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW, k=0.05)  # another wiring loses a row in fifty
    runtime = Runtime(store=Store(ground.store))
    found = laid(ground, runtime)
    asked = [event.key for event in runtime.ledger.events if event.name == "probe_draft"]
    first = runtime.store.load("probe_draft", asked[0])
    assert first is not None
    assert first.numbers["outcome"] == "unclear"
    assert found.found.probe is not None
    probe = found.found.probe.numbers
    assert [first.numbers["windows"], probe["windows"]] == [4, 16]
    assert (len(asked), probe["outcome"], found.measure.wiring) == (2, "clear", RAW)


def test_what_all_rounds_leave_open_ends_with_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.wiring.MOST_ROUNDS", 1)
    with pytest.raises(InputError, match="rows don't tell which wiring") as caught:
        laid(planted_ground(tmp_path, RAW, k=0.05))
    assert "take more windows (probe.windows: 16)" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1 + 1 + 8 + 3  # heads, readings, controls

"""What is reported: section G of the cases that other projects met."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from conf.base import RAW
from flows.cli import app
from nets.hold import measure_holds
from tests.builders import model_of, write_model
from tests.planted import planted_ground, trunk_choices
from tests.small_heal import VOCAB, WINDOW, Ground, heal, write_records
from tests.test_nets.test_hold import TEXT, arrays_of
from tests.test_ui.pages import read_page
from ui.contents import Report
from ui.report import render

ONLY = {"epochs": 0, "steps": None, "depth": 3}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """A draft that says what the trunk says, on text the trunk would write."""
    ground = planted_ground(tmp_path_factory.mktemp("planted"), RAW)
    own = trunk_choices(ground.model)
    records = []
    for start in range(60):
        record = [start % VOCAB]
        while len(record) < WINDOW:
            record.append(own[record[-1]])
        records.append(record)
    write_records(ground.data, records)
    return ground


def measured(ground: Ground, student: Path) -> Report:
    raw = ground.config(student=str(student), train=ONLY, measure={"depth": 3})
    return heal(raw, ground.store).files.report


@pytest.mark.parametrize(("sign", "held"), [(1.0, 3.0), (-1.0, 0.0)])
def test_g1_drafts_held_and_tokens_a_round(
    planted: Ground, tmp_path: Path, sign: float, held: float
) -> None:
    """Always right, or with its input turned round always wrong; chains of 3."""
    tensors, name = planted.model.tensors, "model.mtp.eh_proj.weight"
    turned = model_of(planted.model.arch, {**tensors, name: sign * tensors[name]})
    student = write_model(tmp_path / "student.cmf", turned, dtype="f32")
    report = measured(planted, student)
    told = report.measures["stale"]
    assert told.rows > 0
    assert (told.drafts_held, told.tokens_a_round) == (held, held + 1)
    page = read_page(render(report)).text
    assert f"{held:.2f} of 3 drafts per round" in page
    assert f"Tokens a round are one more, the trunk’s own: stale {held + 1:.2f}." in page


def test_g2_a_pattern_of_holds_made_by_hand() -> None:
    """Of all starts 5 of 6 hold step 1 and 2 of 3 step 2, given that step 1 held."""
    steps = measure_holds(arrays_of([TEXT], 8)).starts.steps
    assert [step.rate for step in steps] == pytest.approx([5 / 6, 2 / 3])
    assert [step.running for step in steps] == pytest.approx([5 / 6, 5 / 6 * 2 / 3])


def test_g2_rates_given_the_steps_before_and_over_all_rounds(finished: Ground) -> None:
    report = heal(finished.config(), finished.store).files.report
    told = report.measures["healed"]
    assert told.drafts_held > 0, "the case must have hits"
    product = 1.0
    for rate in told.hold_rates:
        product *= rate.rate or 0.0
        assert rate.running == pytest.approx(product)
    assert told.drafts_held == pytest.approx(sum(r.running or 0 for r in told.hold_rates))
    page = read_page(render(report)).text
    assert "hold rate, %" in page
    assert "over all rounds, %" in page


def test_g4_acceptance_by_temperature_and_the_greedy_count_at_0(finished: Ground) -> None:
    told = heal(finished.config(), finished.store).files.report.measures["healed"]
    assert [one.temperature for one in told.sampling] == [0.0, 0.7, 1.0]
    greedy = told.sampling[0].steps
    for step, rate in zip(greedy, told.hold_rates_starts, strict=True):
        assert step.rows == rate.rows
        for bounds in (step.sampled, step.greedy):
            assert list(bounds or ()) == pytest.approx([rate.rate, rate.rate])
    for one in told.sampling[1:]:
        low, high = one.steps[0].sampled or (0.0, 0.0)
        assert 0 < low <= high < 1
        assert one.steps[0].greedy is not None


def test_g5_one_command_measures_text_of_ones_own(finished: Ground, tmp_path: Path) -> None:
    """No training, no server; two data sets, each with its interval."""
    half = len(finished.records) // 2
    names = ("first", "second")
    parts = (finished.records[:half], finished.records[half:])
    data = [
        {"path": str(write_records(tmp_path / f"{name}.jsonl", part)), "name": name}
        for name, part in zip(names, parts, strict=True)
    ]
    raw = finished.config(data=data, pack={"hold_all": True}, train={"epochs": 0})
    del raw["train"]["steps"]
    config = tmp_path / "measure.yaml"
    config.write_text(yaml.safe_dump(raw))
    done = CliRunner().invoke(app, ["run", str(config), "--store", str(tmp_path / "store")])
    assert done.exit_code == 0, done.stderr
    assert not (tmp_path / "store" / "train_draft").exists()
    for name in names:
        (line,) = [row for row in done.stderr.splitlines() if row.startswith(name)]
        assert line.split()[1] == "stale"
        assert "–" in line  # the interval's ends

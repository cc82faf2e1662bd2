"""`heal run` as a script sees it, and `heal fold`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cmfio.reader import open_container
from flows.cli import app
from tests.builders import TinySpec, tiny_qwen3, write_model
from tests.small_heal import Ground

ROOT = Path(__file__).parents[2]
PROGRAM = """\
import sys
import flows.demo, flows.fold, flows.summary
from flows.cli import main
try:
    main()
finally:
    heavy = sorted({"torch", "transformers"} & set(sys.modules))
    print("imported", *heavy, file=sys.stderr)
"""
MEASURE = {
    "drafts_held",
    "drafts_held_starts",
    "interval",
    "rows",
    "coverage",
    "hold_rates",
    "by_set",
}


def written_config(ground: Ground, folder: Path) -> Path:
    outputs = [{"codec": "keep", "path": str(folder / "out" / "healed.cmf")}]
    config = folder / "small.yaml"
    config.write_text(yaml.safe_dump(ground.config(outputs=outputs)))
    return config


def test_a_run_and_its_cached_repetition_in_another_process(
    ground: Ground, tmp_path: Path
) -> None:
    config = written_config(ground, tmp_path)
    line = ["run", str(config), "--store", str(ground.store), "--set", "train.lr=5e-3"]
    first = CliRunner().invoke(app, [*line, "--json"])
    assert first.exit_code == 0, first.stderr
    told = json.loads(first.stdout)
    second = subprocess.run(
        [sys.executable, "-c", PROGRAM, *line, "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    again = json.loads(second.stdout)
    assert {stage["state"] for stage in again["stages"]} == {"cached"}
    assert "all 14 stages were cached: nothing had to run" in second.stderr
    assert second.stderr.splitlines()[-1] == "imported"
    for part in ("run", "report", "measures"):
        assert again[part] == told[part]
    assert [s["key"] for s in again["stages"]] == [s["key"] for s in told["stages"]]


def test_the_json_object_is_as_documented(ground: Ground, tmp_path: Path) -> None:
    config = written_config(ground, tmp_path)
    line = ["run", str(config), "--store", str(ground.store), "--json"]
    done = CliRunner().invoke(app, line)
    told = json.loads(done.stdout)
    assert told.keys() == {"run", "report", "measures", "stages"}
    assert told["measures"].keys() == {"stale", "healed"}
    for measure in told["measures"].values():
        assert measure.keys() >= MEASURE
        assert measure["by_set"].keys() == {"own"}
        low, high = measure["interval"]
        assert low <= measure["drafts_held"] <= high
    assert told["measures"]["healed"]["drafts_held"] > 0.5  # it was trained: stale holds 0
    assert told["measures"]["stale"]["drafts_held"] == 0
    for stage in told["stages"]:
        assert stage.keys() == {"name", "key", "state", "seconds"}
        assert (ground.store / stage["name"] / stage["key"] / "record.json").is_file()
    page = Path(told["report"])
    assert page.read_text().startswith("<!doctype html>")
    data = json.loads(page.with_name("report.json").read_bytes())
    assert data["measures"]["healed"]["drafts_held"] == pytest.approx(
        told["measures"]["healed"]["drafts_held"]
    )
    assert (tmp_path / "out" / "healed.cmf").is_file()
    assert f"wrote {tmp_path}/out/healed.cmf (keep)" in done.stderr


def test_fold_writes_a_smaller_model_with_the_draft_as_it_was(
    finished: Ground, tmp_path: Path
) -> None:
    out = tmp_path / "folded.cmf"
    line = ["fold", str(finished.student), str(out), "--drop", "0", "--ffn", "0.6"]
    done = CliRunner().invoke(app, [*line, "--store", str(tmp_path / "store")])
    assert done.exit_code == 0, done.stderr
    assert "1 of 2 layers, FFN widths 32 (were 2 × 48; a share is rounded" in done.stderr
    with open_container(out) as folded, open_container(finished.student) as source:
        assert folded.header.arch.num_layers == 1
        # 0.6 of 48 neurons is 28.8; widths are multiples of 32.
        assert folded.entries["model.layers.0.mlp.up_proj.weight"].shape == (32, 32)
        kept = "model.layers.{}.self_attn.o_proj.weight"
        assert folded.payload(kept.format(0)) == source.payload(kept.format(1))
        assert "model.layers.1.self_attn.o_proj.weight" not in folded.entries
        for name in source.entries:
            if name.startswith("model.mtp."):
                assert folded.payload(name) == source.payload(name), name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--drop", "7"], "the model has layers 0 to 1"),
        (["--drop", "0,1"], "must keep one"),
        (["--ffn", "0.5,0.5,0.5"], "each of the 2 layers that stay"),
        (["--drop", "first"], "drop[0] must be a whole number (is 'first')"),
        (["--drop", "0,0"], "names layer 0 more than once"),
        (["--ffn", "0"], "ffn[0] must be more than 0"),
        ([], "name layers with --drop 13,14, or keep a share"),
        (["--ffn", "1"], "name layers with --drop 13,14, or keep a share"),
    ],
)
def test_a_fold_that_cannot_be(
    finished: Ground, tmp_path: Path, options: list[str], words: str
) -> None:
    out = tmp_path / "folded.cmf"
    line = ["fold", str(finished.student), str(out), "--store", str(tmp_path / "store")]
    done = CliRunner().invoke(app, [*line, *options])
    assert done.exit_code == 2
    assert words in done.stderr
    assert not out.exists()


def test_a_share_that_rounding_undoes_is_refused(tmp_path: Path) -> None:
    model = write_model(
        tmp_path / "model.cmf", tiny_qwen3(TinySpec(layers=((4, 2, 64),) * 2))
    )
    out = tmp_path / "folded.cmf"
    line = ["fold", str(model), str(out), "--store", str(tmp_path / "store")]
    done = CliRunner().invoke(app, [*line, "--ffn", "0.9"])  # 57.6 of 64
    assert done.exit_code == 2
    assert "leaves FFN widths of 2 × 64 as they are; give a lower --ffn" in done.stderr
    assert not out.exists()


def test_fold_never_writes_over_its_input(finished: Ground, tmp_path: Path) -> None:
    line = ["fold", str(finished.student), str(finished.student), "--drop", "0"]
    done = CliRunner().invoke(app, [*line, "--store", str(tmp_path / "store")])
    assert done.exit_code == 2
    assert "inputs are never overwritten" in done.stderr


def test_an_unknown_demo_names_the_known_ones() -> None:
    done = CliRunner().invoke(app, ["demo", "--model", "huge"])
    assert done.exit_code == 2
    assert "--model huge: known are tiny, smollm2" in done.stderr


def test_a_failure_that_is_a_defect_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("flows.cli._run", broken)
    done = CliRunner().invoke(app, ["run", "demo"])
    assert isinstance(done.exception, ZeroDivisionError)


def test_an_interrupt_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.cli._run", interrupted)
    done = CliRunner().invoke(app, ["run", "demo"])
    assert done.exit_code == 130
    assert "finished stages are kept" in done.stderr

"""Data, caches, resume: section C of the cases that other projects met, and B9."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from conf.load import check
from conf.schema import RunConfig
from flows.cli import app
from flows.ground import lay_ground, open_sets
from store.arrays import open_array
from store.artifact import Artifact
from store.store import Store
from store.tables import read_table
from tasks.model_file import open_model
from tasks.pack import PackSettings, pack_windows
from tasks.packed import read_windows
from tasks.shard_rows import ShardSettings
from tasks.sources import open_set
from tasks.stage import Runtime
from tasks.trunk_pass import run_trunk
from tasks.trunk_rows import read_rows
from tests.small_heal import VOCAB, WINDOW, Ground, HealRun, heal, write_records
from tests.test_flows.test_bad_input import complaint
from tests.test_ui.pages import read_page
from ui.report import render

WINDOWS = 10


def test_b9_longer_windows_are_measured_place_by_place(ground: Ground) -> None:
    """Trained on windows of 32, measured on 128: each place has its rows and its rate."""
    trained = heal(ground.config(), ground.store).path("rewrite_model") / "model.cmf"
    records = [[*record, *record[::-1], *record, *record] for record in ground.records]
    data = write_records(ground.store.parent / "long.jsonl", records)
    raw = ground.config(
        student=str(trained),
        data=[{"path": str(data), "name": "long"}],
        pack={"window": 4 * WINDOW, "hold_all": True},
        train={"epochs": 0, "steps": None},
    )
    run = heal(raw, ground.store)
    told = run.files.report.measures["stale"]
    places = [(place.first, place.last) for place in told.by_position]
    assert places == [(16 * i, 16 * i + 15) for i in range(8)]
    firsts = [place.hold_rates[0] for place in told.by_position]
    assert sum(first.rows for first in firsts) == told.rows
    assert all(first.rows for first in firsts)
    rates = [first.rate for first in firsts]
    assert rates == pytest.approx(rates_by_place(run, 8, 16))
    assert len(set(rates)) > 1, "the case must hold better in some places"
    page = read_page(render(run.files.report)).text
    assert "0–15" in page
    assert "112–127" in page


def rates_by_place(run: HealRun, places: int, width: int) -> list[float]:
    """The hold rate of step 1 among a greedy decode's rounds that start in each place."""
    folder = run.path("measure_draft")
    counted, hit = (open_array(folder, name)[:] for name in ("counted", "hit"))
    rows, held = [0] * places, [0] * places
    for window in range(len(hit)):
        row = 0
        while row < hit.shape[1]:
            rows[row // width] += int(counted[window, row, 0])
            held[row // width] += int(hit[window, row, 0])
            row += 1 + int(hit[window, row].sum())
    return [h / n for h, n in zip(held, rows, strict=True)]


def plan(ground: Ground, folder: Path, store: Path, **changes: object) -> Result:
    config = folder / "run.yaml"
    config.write_text(yaml.safe_dump(ground.config(**changes)))
    return CliRunner().invoke(app, ["plan", str(config), "--store", str(store)])


def test_c2_a_plan_from_nothing_tells_bytes_a_token_and_in_all(
    finished: Ground, tmp_path: Path
) -> None:
    """32 f32 of a row, 8 kept tokens of 4 + 4 bytes, a logsumexp: 196 bytes a token."""
    large = tmp_path / "large.jsonl"  # more than a plan reads to know its windows
    large.write_text(json.dumps({"ids": [7] * 1000}) + "\n")
    large.write_text(large.read_text() * 1000)
    data = [{"path": str(large), "tokens": 50_000_000, "name": "own"}]
    told = plan(finished, tmp_path, tmp_path / "empty", data=data)
    assert told.exit_code == 0, told.stderr
    said = " ".join(told.stdout.split())
    assert "the trunk's rows take 196 B a token, at most 9.8 GB for 50,000,000" in said
    assert "are free on that disk" in said


def test_c2_a_plan_that_will_not_fit_is_refused_with_both_numbers(
    finished: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deeper = {"topk": 12}
    roomy = plan(finished, tmp_path, finished.store, trunk=deeper)
    assert roomy.exit_code == 0, roomy.stderr
    monkeypatch.setattr("store.space.free_bytes", lambda _: 20_000)
    small = plan(finished, tmp_path, finished.store, trunk=deeper)
    assert small.exit_code == 1
    assert small.stdout == roomy.stdout  # the table says what takes it
    assert re.search(r"this run needs about \d+ kB, 20 kB are free", small.stderr)
    assert "free some or choose another store with --store" in small.stderr


def rows_by_text(
    ground: Ground, records: list[list[int]], root: Path
) -> dict[tuple[int, ...], dict[str, np.ndarray]]:
    """What a pass stores of each window, by the window's tokens."""
    runtime = Runtime(store=Store(root / "store"))
    data = open_set(
        str(write_records(root / "records.jsonl", records)), runtime.store.digests
    )
    packing = PackSettings(
        window=WINDOW, depth=2, split="windows", names=("own",), tokens=(10**6,)
    )
    windows = pack_windows(packing, runtime, sets=[data], tokenizer=None)
    settings = ShardSettings(topk=8, dtype="f32", window=WINDOW, compile=False)
    trunk = open_model(ground.student, runtime).trunk
    rows = read_rows(run_trunk(trunk, windows, settings, 4, runtime), runtime)
    packed = read_windows(windows)
    return {
        tuple(map(int, packed.ids[window])): {
            name: rows.read(name, window) for name in ("hidden", "topk_p", "logsumexp")
        }
        for window in range(len(packed.length))
    }


def test_c3_a_window_has_its_rows_whatever_stands_beside_it(
    finished: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One window a call and four; another order; twice; two that begin alike."""
    draw = np.random.default_rng(4)
    records = draw.integers(VOCAB, size=(WINDOWS, WINDOW)).tolist()
    records[7][:20] = records[2][:20]
    found = []
    for name, rows_a_call, these in (
        ("one", WINDOW, records),
        ("four", 4 * WINDOW, records),
        ("turned", 4 * WINDOW, records[::-1]),
        ("again", WINDOW, records),
    ):
        monkeypatch.setattr("tasks.shard_rows.ROWS_A_CALL", rows_a_call)
        (tmp_path / name).mkdir()
        found.append(rows_by_text(finished, these, tmp_path / name))
    one, *others, again = found
    assert len(one) == WINDOWS
    for text, rows in one.items():
        for name, wanted in rows.items():
            assert np.array_equal(again[text][name], wanted)
            for other in others:  # the same sums of f32 in batches of another size
                np.testing.assert_allclose(other[text][name], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"ids": [1, 2', "line 40 is not JSON"),
        ('{"ids": null}', "a record's `ids` is None, not a list of token ids"),
    ],
)
def test_c5_a_record_that_cannot_be_read_is_no_padding(
    finished: Ground, tmp_path: Path, line: str, words: str
) -> None:
    lines = finished.data.read_text().splitlines()
    data = tmp_path / "own.jsonl"
    data.write_text("\n".join([*lines[:39], line, *lines[39:]]))
    assert words in complaint(finished.config(data=[str(data)]), tmp_path)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_c5_a_table_that_is_none_says_what_to_do(
    finished: Ground, tmp_path: Path, kind: str
) -> None:
    data = tmp_path / f"own.{kind}"
    data.write_bytes(b"no table " * 30)
    said = complaint(finished.config(data=[str(data)]), tmp_path)
    what, _, todo = said.partition("; ")
    if kind == "jsonl":
        assert what.startswith(f"error: data: {data}: line 1 is not JSON (")
        assert todo.startswith("each line is one object")
    else:
        assert what.startswith(f"error: data: {data}: is no readable {kind} file (")
        assert todo == "write it again, or leave it out"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"ids": []}, "has no records with anything in them"),
        ({"ids": [1, 2, 3], "split": "test"}, "a column `split` says `train` somewhere"),
        ({"ids": [1, 2, 3]}, "4 windows of 32 tokens, 0 of them held out"),
    ],
)
def test_c5_nothing_to_train_on_is_no_training(
    finished: Ground, tmp_path: Path, record: dict[str, object], words: str
) -> None:
    data = tmp_path / "none.jsonl"
    data.write_text(f"{json.dumps(record)}\n" * 40)
    assert words in complaint(finished.config(data=[str(data)]), tmp_path)
    assert not list((tmp_path / "own store").glob("train_draft/*"))


def test_c6_a_training_far_too_long_ends_no_worse_than_it_began(ground: Ground) -> None:
    longer = {
        "trainable": "block",
        "lr": 5e-2,
        "steps": 60,
        "eval_every": 6,
        "patience": None,
        "batch": 2,
    }
    few = [{"path": str(ground.data), "tokens": 20 * WINDOW, "name": "own"}]
    run = heal(ground.config(train=longer, data=few), ground.store)
    told = run.files.report
    log = read_table(run.path("train_draft") / "log.arrow").to_pylist()
    held = {row["step"]: row["held"] for row in log if row["held"] is not None}
    assert list(held) == list(range(0, 61, 6))
    assert told.training is not None
    chosen = told.training.chosen_step
    assert max(held.values()) > held[60], "the case must be trained past its best"
    assert held[chosen] > held[60]
    assert held[chosen] >= held[0]
    page = read_page(told_page := run.files.page.read_text()).text
    for title in ("Drafts held", "Held-out KL", "Loss"):
        assert title in page
    assert told_page.count("<svg") > 3


def test_c9_a_record_that_a_border_cuts_is_on_one_side(
    finished: Ground, tmp_path: Path
) -> None:
    """Records of 25 tokens in windows of 32: every border but the first cuts one."""
    records = [[number] * 25 for number in range(200)]
    records[150] = records[3]
    data = [{"path": str(write_records(tmp_path / "r.jsonl", records)), "name": "own"}]
    runtime = Runtime(store=Store(tmp_path / "store"))
    config = check(RunConfig, finished.config(data=data), "small")
    student = open_model(config.student, runtime)
    laid = lay_ground(student, config, open_sets(config, runtime), runtime)
    packed = read_windows(laid.windows)
    sides: dict[bool, set[int]] = {True: set(), False: set()}
    cut = 0
    for window, is_held_out in enumerate(packed.is_held_out):
        ids = packed.ids[window, : packed.length[window]].tolist()
        cut += ids[0] in sides[bool(is_held_out)]
        sides[bool(is_held_out)] |= set(ids)
    assert cut > 100
    assert len(sides[True]) >= 15
    assert not sides[True] & sides[False]
    (told,) = laid.windows.numbers["copies"]
    assert told["found"] == 1


def trunk_rows(ground: Ground, topk: int) -> Artifact:
    runtime = Runtime(store=Store(ground.store))
    config = check(RunConfig, ground.config(trunk={"topk": topk}), "small")
    student = open_model(config.student, runtime)
    return lay_ground(student, config, open_sets(config, runtime), runtime).rows


def test_c10_another_size_makes_its_own_table(ground: Ground) -> None:
    """No head is trimmed here; what a size decides is how many tokens of a row are kept."""
    eight, twelve = trunk_rows(ground, 8), trunk_rows(ground, 12)
    assert eight.key != twelve.key
    runtime = Runtime(store=Store(ground.store))
    for rows, kept in ((eight, 8), (twelve, 12)):
        assert read_rows(rows, runtime).read("topk_id", 0).shape == (WINDOW, kept)
        parts = [part.manifest.settings["topk"] for part in runtime.store.parts(rows)]
        assert set(parts) == {kept}

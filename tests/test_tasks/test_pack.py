"""pack_windows from files: the order, the cap, texts cut into records."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from tokenizers import Tokenizer

from conf.schema import RunConfig
from flows.ground import open_sets, pack_sets
from store.artifact import Artifact
from store.store import Store
from store.tables import read_table
from tasks.errors import InputError
from tasks.model_file import open_model
from tasks.pack import PackSettings, pack_windows, steps_of_epochs
from tasks.packed import TABLE, held_out_copies, read_windows
from tasks.progress import make_progress
from tasks.sources import DataSet, open_set
from tasks.stage import Runtime
from tests.builders import byte_tokenizer, write_model
from tests.oracles.order import reference_order, reference_windows
from tests.small_heal import VOCAB, small_model, write_records

WINDOW, LIMIT = 32, 128


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(store=Store(tmp_path / "store"))


def packed(
    runtime: Runtime,
    folder: Path,
    specs: Sequence[str],
    split: Literal["records", "windows"] = "windows",
) -> Artifact:
    """The specs packed for a model whose tokens are bytes."""
    model = write_model(folder / "model.cmf", small_model(), vocab=byte_tokenizer())
    sets: list[DataSet] = [open_set(spec, runtime.store.digests) for spec in specs]
    settings = PackSettings(
        window=WINDOW,
        depth=3,
        split=split,
        names=tuple(data.name for data in sets),
        tokens=tuple(data.tokens for data in sets),
    )
    tokenizer = open_model(model, runtime).vocab
    return pack_windows(settings, runtime, sets=sets, tokenizer=tokenizer)


def rows(artifact: Artifact) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = read_table(artifact.path / TABLE).to_pylist()
    return listed


def texts(artifact: Artifact) -> list[str]:
    """The records in the windows, spelled again; the last is cut where the windows end."""
    stream: list[int] = []
    starts: list[int] = []
    for row in rows(artifact):
        starts += [len(stream) + start for start in row["record_starts"]]
        stream += row["ids"]
    spell = Tokenizer.from_str(byte_tokenizer().decode()).decode
    return [spell(stream[a:b]) for a, b in pairwise([*starts, len(stream)])]


def cut_at_blank_lines(text: str, limit: int) -> list[str]:
    """In plain words: as much as fits up to a blank line, else a line's end, else all."""
    pieces = []
    while len(text) > limit:
        stop = text.rfind("\n\n", 0, limit) + 2
        if stop == 1:
            stop = text.rfind("\n", 0, limit) + 1
        stop = stop or limit
        pieces.append(text[:stop])
        text = text[stop:]
    return [*pieces, text] if text else pieces


def prose(seed: int, paragraphs: int) -> str:
    """Lines and blank lines at random, of letters and digits: a token a character."""
    draw = random.Random(seed)
    words = [
        "".join(draw.choices("abcdefgh0123", k=draw.randint(1, 12))) for _ in range(90)
    ]
    lines = (
        " ".join(draw.choices(words, k=draw.randint(1, 14))) for _ in range(paragraphs)
    )
    return "".join(line + draw.choice(["\n", "\n\n", "\n"]) for line in lines)


def test_a_long_text_is_cut_into_records_at_blank_lines(
    runtime: Runtime, tmp_path: Path
) -> None:
    text = prose(1, 60)
    (tmp_path / "prose.txt").write_text(text)
    found = texts(packed(runtime, tmp_path, [f"{tmp_path}/prose.txt"]))
    pieces = cut_at_blank_lines(text, LIMIT)
    assert len(pieces) > 15
    wanted = [pieces[place] for place in reference_order(len(pieces))]
    # The windows end a few tokens before the text does.
    assert found[:-1] == wanted[: len(found) - 1]
    assert wanted[len(found) - 1].startswith(found[-1])
    assert len("".join(wanted)) - len("".join(found)) < WINDOW


def test_every_file_of_a_folder_is_cut_by_itself(runtime: Runtime, tmp_path: Path) -> None:
    folder = tmp_path / "prose"
    folder.mkdir()
    written = [prose(seed, 25) for seed in range(5)]
    for number, text in enumerate(written):
        (folder / f"{number}.md").write_text(text)
    found = texts(packed(runtime, tmp_path, [str(folder)]))
    pieces = {piece for text in written for piece in cut_at_blank_lines(text, LIMIT)}
    assert set(found[:-1]) <= pieces
    assert len(set(found)) >= len(pieces) - 1


def test_a_cap_takes_the_first_records_in_the_references_order(
    runtime: Runtime, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "own.jsonl", [[i] * WINDOW for i in range(12)])
    artifact = packed(runtime, tmp_path, [f"{path}@{7 * WINDOW + 20}"])
    order = reference_order(12)
    windows = [row["ids"] for row in rows(artifact)]
    assert windows == [[i] * WINDOW for i in order[:7]] + [[order[7]] * 20]
    assert artifact.numbers["tokens"] == 7 * WINDOW + 20


def test_a_tail_of_fewer_than_16_and_c_tokens_is_left_out(
    runtime: Runtime, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "own.jsonl", [[i] * WINDOW for i in range(12)])
    artifact = packed(runtime, tmp_path, [f"{path}@{7 * WINDOW + 18}"])
    assert artifact.numbers["tokens"] == 7 * WINDOW


def test_numbers_tell_each_set(runtime: Runtime, tmp_path: Path) -> None:
    one = write_records(tmp_path / "one.jsonl", [[i] * WINDOW for i in range(10)])
    two = write_records(tmp_path / "two.jsonl", [[50 + i] * WINDOW for i in range(20)])
    artifact = packed(runtime, tmp_path, [str(one), str(two)], "records")
    assert artifact.numbers["sets"] == [
        {"name": "one.jsonl", "windows": 10, "held_out": 1, "tokens": 320},
        {"name": "two.jsonl", "windows": 20, "held_out": 2, "tokens": 640},
    ]
    held_out = [row["ids"][0] for row in rows(artifact) if row["held_out"]]
    second = reference_order(20)
    assert held_out == [reference_order(10)[9], 50 + second[9], 50 + second[19]]


def test_split_windows_is_the_references_to_the_token(
    runtime: Runtime, tmp_path: Path
) -> None:
    """Two sets of ragged records; caps inside a record, one tail kept and one dropped."""
    draw = random.Random(5)
    sets = [
        [draw.choices(range(200), k=draw.randint(1, 70)) for _ in range(count)]
        for count in (23, 17)
    ]
    one, two = (
        write_records(tmp_path / f"{i}.jsonl", records) for i, records in enumerate(sets)
    )
    caps = [9 * WINDOW + 19, 12 * WINDOW + 18]
    for records, cap in zip(sets, caps, strict=True):
        assert sum(map(len, records)) > cap
    artifact = packed(runtime, tmp_path, [f"{one}@{caps[0]}", f"{two}@{caps[1]}"])
    wanted = reference_windows(list(zip(sets, caps, strict=True)), WINDOW, 3)
    assert [(row["ids"], row["held_out"]) for row in rows(artifact)] == wanted
    assert len(wanted) == 9 + 1 + 12
    assert [i for i, (_, is_out) in enumerate(wanted) if is_out] == [9, 19]
    assert "copies" not in artifact.numbers


def test_c9_copies_across_the_split_are_counted_moved_and_said(
    runtime: Runtime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: the records are put where the shuffle takes them from."""
    first, second = reference_order(10), reference_order(12)
    one: list[list[int]] = [[i] * WINDOW for i in range(10)]
    two: list[list[int]] = [[50 + i] * WINDOW for i in range(12)]
    two[second[9]] = one[first[0]]  # would be held out, its first copy is trained on
    two[second[3]] = one[first[9]]  # would be trained on, its first copy is held out
    two[second[4]] = one[first[1]]  # on its first copy's side anyway
    loud = replace(runtime, progress=make_progress())
    paths = [
        str(write_records(tmp_path / f"{i}.jsonl", of)) for i, of in enumerate((one, two))
    ]
    artifact = packed(loud, tmp_path, paths, "records")
    assert artifact.numbers["copies"] == [
        {"name": "0.jsonl", "found": 0, "moved": 0},
        {"name": "1.jsonl", "found": 3, "moved": 2},
    ]
    said = " ".join(capsys.readouterr().err.split())
    assert "data set 1.jsonl: 3 of 12 records are copies of earlier ones; 2 moved" in said
    assert "0.jsonl" not in said
    held_out = {row["ids"][0] for row in rows(artifact) if row["held_out"]}
    trained = {row["ids"][0] for row in rows(artifact) if not row["held_out"]}
    assert held_out == {first[9]}
    assert not held_out & trained
    assert held_out_copies(artifact) == 1  # held out in either set


def test_a_set_without_training_records_says_so(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text('{"ids": [1, 2], "split": "valid"}\n' * 20)
    with pytest.raises(InputError, match="column `split` says `train` somewhere"):
        packed(runtime, tmp_path, [f"{tmp_path}/own.jsonl"])


def test_an_empty_text_is_not_told_of_columns(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError) as caught:
        packed(runtime, tmp_path, [str(tmp_path / "empty.txt")])
    assert str(caught.value) == (
        "data set empty.txt: has no records with anything in them; check its path"
    )


def test_too_short_for_one_window(runtime: Runtime, tmp_path: Path) -> None:
    path = write_records(tmp_path / "own.jsonl", [[1]] * 12)
    with pytest.raises(InputError, match="too short for a single window of 32 tokens"):
        packed(runtime, tmp_path, [str(path)])


def test_steps_are_epochs_of_batches_and_kinds_rounded_up(
    runtime: Runtime, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "twenty.jsonl", [[r + 1] * WINDOW for r in range(20)])
    artifact = packed(runtime, tmp_path, [str(path)])
    assert (artifact.numbers["windows"], artifact.numbers["held_out"]) == (20, 2)
    steps = {
        (epochs, batch, kinds): steps_of_epochs(artifact, epochs, batch, kinds)
        for epochs, batch, kinds in (
            (1, 4, 1),  # 18 windows are 4 batches of 4
            (0.5, 4, 3),
            (0.1, 2, 3),  # 2.7
            (0.01, 4, 1),  # at least 1
            (1.1, 1, 5),  # 99, though floats say 1.1 · 90 > 99
        )
    }
    assert list(steps.values()) == [4, 6, 3, 1, 99]


@pytest.mark.parametrize(("ends", "pad"), [((), 0), ((VOCAB, 7, 5), 7)])
def test_a_short_window_is_padded_with_the_first_end_that_the_trunk_knows(
    ends: tuple[int, ...], pad: int, runtime: Runtime, tmp_path: Path
) -> None:
    path = write_model(tmp_path / "model.cmf", small_model(), ends=ends)
    records = write_records(tmp_path / "ids.jsonl", [[3] * 40] * 11 + [[3] * 60])
    given: dict[str, object] = {
        "student": str(path),
        "data": [str(records)],
        "pack": {"window": WINDOW, "split": "windows"},
        "train": {"batch": 1},
    }
    config = RunConfig.model_validate(given)
    sets = open_sets(config, runtime)
    windows = read_windows(pack_sets(open_model(path, runtime), config, sets, runtime))
    short = int(windows.length.argmin())
    assert windows.length[short] == (11 * 40 + 60) % WINDOW == 20
    assert (windows.ids[short, windows.length[short] :] == pad).all()
    assert (windows.ids[short, : windows.length[short]] == 3).all()

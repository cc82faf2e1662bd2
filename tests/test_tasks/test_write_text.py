"""The stages of text a trunk wrote: against loops, cut and resumed, read like any set."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conf.schema import WriteConfig, WriteSpec
from nets.trunk import Trunk, build_trunk
from store.artifact import Artifact
from store.store import Store
from tasks.errors import InputError
from tasks.model_file import ModelFile, open_model
from tasks.pack import PackSettings, pack_windows
from tasks.packed import read_windows
from tasks.progress import SilentProgress
from tasks.prompts import open_text
from tasks.stage import Runtime
from tasks.windows import shuffled
from tasks.write_text import write_text
from tasks.written import read_written
from tests.builders import model_of, write_model
from tests.small_heal import VOCAB, WINDOW, Ground, small_ground, write_records

torch.set_num_threads(1)

LENGTH, FIRST = 12, 4
# Of several lengths, some shorter than the prompt taken of each.
RECORDS = [[(7 * i + 3 * j) % VOCAB for j in range(2 + i % 6)] for i in range(30)]


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """A model; nothing was run on it."""
    return small_ground(tmp_path_factory.mktemp("laid"))


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(store=Store(tmp_path / "store"))


@pytest.fixture
def model(laid: Ground, runtime: Runtime) -> ModelFile:
    return open_model(laid.student, runtime)


def spec(path: Path, **changes: object) -> WriteSpec:
    given = {"prompt_tokens": FIRST, "tokens": 200, "length": LENGTH, "batch": 3}
    return WriteSpec(
        write=WriteConfig.model_validate({"prompts": str(path), **given, **changes}),
        name="own",
    )


def written(given: WriteSpec, model: ModelFile, runtime: Runtime) -> Artifact:
    return write_text(open_text(given, runtime.store.digests), model, "f32", runtime)


def trunk_of(ground: Ground) -> Trunk:
    """The trunk as its file rounds it."""
    rounded = {n: t.half().float() for n, t in ground.model.tensors.items()}
    return build_trunk(
        *model_of(ground.model.arch, rounded), device="cpu", dtype=torch.float32
    )


def continued(trunk: Trunk, prompt: Sequence[int]) -> tuple[int, ...]:
    ids = list(prompt)
    for _ in range(LENGTH):
        logits_1V = trunk.logits(trunk.hidden(torch.tensor([ids]))[0, -1:])
        ids.append(int(logits_1V.argmax()))
    return tuple(ids)


class Heard(SilentProgress):
    """What a user would read."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def made(runtime: Runtime) -> list[str]:
    return [e.name for e in runtime.ledger.events if e.state != "cached"]


def test_records_are_prompts_in_shuffled_order_with_what_the_trunk_would_say(
    laid: Ground, model: ModelFile, runtime: Runtime, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "prompts.jsonl", RECORDS)
    text = written(spec(path), model, runtime)
    found = read_written(text, runtime)
    trunk = trunk_of(laid)
    order = [RECORDS[i][:FIRST] for i in shuffled(len(RECORDS))]
    assert found == [continued(trunk, prompt) for prompt in order[: len(found)]]
    total = sum(map(len, found))
    assert text.numbers == {"records": len(found), "tokens": total}
    # As many texts as reach 200 tokens, and none beyond them.
    assert total >= 200 > total - len(found[-1])


def test_each_shard_is_cached_and_a_cut_text_goes_on_at_the_shard(
    model: ModelFile, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.write_text.BATCHES_A_SHARD", 1)
    path = write_records(tmp_path / "prompts.jsonl", RECORDS)
    whole = written(spec(path, tokens=100), model, runtime)
    assert made(runtime).count("write_shard") == 3  # of three, three, and the one missing
    more = Runtime(store=runtime.store)
    longer = written(spec(path, tokens=200), model, more)
    assert made(more).count("write_shard") == len(longer.manifest.parts) - 2
    assert "take_prompts" not in made(more)
    first = read_written(longer, more)[: int(whole.numbers["records"])]
    assert first == read_written(whole, runtime)
    again = Runtime(store=runtime.store)
    assert written(spec(path, tokens=200), model, again).key == longer.key
    assert made(again) == []


def test_sampled_text_is_the_seed_s_whatever_the_shards(
    model: ModelFile, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_records(tmp_path / "prompts.jsonl", [[5, 6, 7]] * 30)
    one = read_written(written(spec(path, temperature=1.0), model, runtime), runtime)
    assert len(set(one)) == len(one), "equal prompts go on differently"
    monkeypatch.setattr("tasks.write_text.BATCHES_A_SHARD", 1)
    other = Runtime(store=Store(tmp_path / "other"))
    text = written(spec(path, temperature=1.0, batch=2), model, other)
    found = read_written(text, other)
    count = min(len(found), len(one))
    assert found[:count] == one[:count]
    assert (
        read_written(written(spec(path, temperature=1.0, seed=1), model, runtime), runtime)
        != one
    )


def test_greedy_text_has_no_seed(
    model: ModelFile, runtime: Runtime, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "prompts.jsonl", RECORDS)
    first = written(spec(path), model, runtime)
    assert written(spec(path, seed=7), model, runtime).key == first.key


def test_texts_end_at_the_model_s_end_token(
    laid: Ground, runtime: Runtime, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "prompts.jsonl", RECORDS)
    model = open_model(laid.student, runtime)
    found = read_written(written(spec(path), model, runtime), runtime)
    end = found[0][FIRST + 2]
    named = write_model(tmp_path / "ends.cmf", laid.model, ends=(end,))
    ended = read_written(written(spec(path), open_model(named, runtime), runtime), runtime)
    assert len(ended[0]) == found[0].index(end, FIRST) + 1 < len(found[0])
    assert ended[0] == found[0][: len(ended[0])]


def test_a_written_text_is_packed_like_any_set(
    model: ModelFile, runtime: Runtime, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "prompts.jsonl", RECORDS)
    text = written(spec(path, tokens=300), model, runtime)
    settings = PackSettings(
        window=WINDOW, depth=2, split="records", names=("own",), tokens=(300,)
    )
    packed = pack_windows(settings, runtime, sets=[text], tokenizer=None)
    as_file = write_records(tmp_path / "own.jsonl", read_written(text, runtime))
    from_file = open_text(spec(as_file), runtime.store.digests).prompts
    wanted = pack_windows(
        settings, runtime, sets=[replace(from_file, tokens=300)], tokenizer=None
    )
    assert packed.key != wanted.key
    assert np.array_equal(read_windows(packed).ids, read_windows(wanted).ids)
    assert packed.numbers["sets"] == wanted.numbers["sets"]


def test_prompts_of_another_vocabulary_are_refused(
    model: ModelFile, runtime: Runtime, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "prompts.jsonl", [[1, VOCAB]])
    with pytest.raises(InputError, match=r"hold the token id 300, .* has ids below 300"):
        written(spec(path), model, runtime)


def test_whole_records_may_be_prompts_and_too_few_are_said(
    laid: Ground, runtime: Runtime, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "prompts.jsonl", RECORDS[:5])
    runtime = replace(runtime, progress=Heard())
    model = open_model(laid.student, runtime)
    text = written(spec(path, prompt_tokens=None, tokens=10_000), model, runtime)
    found = read_written(text, runtime)
    assert sorted(map(len, found)) == sorted(len(r) + LENGTH for r in RECORDS[:5])
    assert isinstance(runtime.progress, Heard)
    assert runtime.progress.said[-1].startswith(
        "own: all 5 prompts gave 80 of 10,000 tokens"
    )

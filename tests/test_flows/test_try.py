"""`heal try`: the texts of both decodes, what it says of them, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from conf.base import Wiring
from flows.cli import app
from flows.try_cli import trial_lines
from nets.decode import Decoded, Gap
from tasks.told_progress import ToldProgress
from tasks.try_draft import Difference, Trial
from tests.builders import TinySpec, byte_tokenizer, tiny_qwen3, write_model
from tests.small_heal import as_healed, small_model


def tried(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["try", *words])
    return found.exit_code, found.stdout, found.stderr


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "m.cmf", small_model(), vocab=byte_tokenizer())


def options(tmp_path: Path) -> list[str]:
    return ["--store", str(tmp_path / "store"), "--dtype", "f32", "--tokens", "12"]


def test_both_texts_are_the_trunk_s_own(model: Path, tmp_path: Path) -> None:
    code, out, _ = tried(str(model), "abc", *options(tmp_path), "--depth", "2", "--json")
    told: dict[str, Any] = json.loads(out)
    assert code == 0
    assert told["same_text"] is True
    assert told["plain"]["ids"] == told["drafted"]["ids"]
    assert len(told["plain"]["ids"]) == 12
    assert told["plain"]["rounds"] == 11
    drafted = told["drafted"]
    assert drafted["rounds"] + drafted["kept"] == 11
    rates = [told[name]["tokens_a_second"] for name in ("drafted", "plain")]
    assert told["speedup"] == pytest.approx(rates[0] / rates[1])
    assert told["tries"] == 3  # seconds too few to time once
    assert told["wiring"] == {"hidden": "raw", "chain": "raw"}


def test_the_long_steps_before_the_first_token_are_told(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    progress = ToldProgress(lambda event: told.append(event.task or event.text))
    monkeypatch.setattr("tasks.progress.make_progress", lambda: progress)
    tried(str(model), "abc", *options(tmp_path))
    steps = [one for one in dict.fromkeys(told) if one.startswith(("load", "warm", "dec"))]
    assert steps[:4] == [
        "loading torch",
        "loading the trunk",
        "warming up",
        "decoding with the trunk alone",
    ]


def test_the_wiring_is_as_healed_or_as_asked(model: Path, tmp_path: Path) -> None:
    healed = as_healed(model, Wiring(hidden="normed", chain="raw"))
    _, out, _ = tried(str(healed), "abc", *options(tmp_path))
    assert "wired normed/raw (as it was healed)" in out
    assert "the text is the same" in out
    _, out, _ = tried(str(healed), "abc", *options(tmp_path), "--wiring", "raw/normed")
    assert "wired raw/normed (as asked)" in out


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--wiring", "raw"], "HIDDEN/CHAIN"),
        (["--wiring", "raw/none"], "wiring.chain"),
        (["--dtype", "f16"], "dtype"),
    ],
)
def test_bad_options_are_one_sentence(
    model: Path, tmp_path: Path, words: list[str], what: str
) -> None:
    code, _, err = tried(str(model), "abc", *options(tmp_path), *words)
    assert code == 2
    assert what in err


def test_without_draft_tokenizer_or_prompt(model: Path, tmp_path: Path) -> None:
    bare = write_model(tmp_path / "bare.cmf", tiny_qwen3(TinySpec(draft=None, vocab=300)))
    code, _, err = tried(str(bare), "abc", *options(tmp_path))
    assert (code, "carries no MTP draft" in err) == (2, True)
    assert "there is nothing to try; heal run can give it a draft" in err
    mute = write_model(tmp_path / "mute.cmf", small_model())
    code, _, err = tried(str(mute), "abc", *options(tmp_path))
    assert (code, "carries no tokenizer" in err) == (2, True)
    code, _, err = tried(str(model), "\udcff", *options(tmp_path))
    assert (code, "the prompt isn't UTF-8 text" in err) == (2, True)
    code, _, err = tried(str(model), "abc", *options(tmp_path), "--tokens", "100000000")
    assert (code, "its context is" in err) == (2, True)
    code, _, err = tried(str(model), "", *options(tmp_path))
    assert (code, "argument 2 of `heal try` is empty" in err) == (2, True)


def decoded(seconds: float, rounds: int, kept: int) -> Decoded:
    return Decoded(tuple(range(21)), rounds, 3 * rounds, kept, 0.5, seconds)


def test_a_slow_draft_is_called_slow() -> None:
    slow = Trial(3, "text", decoded(2.0, 20, 0), decoded(4.0, 16, 4), None)
    text = "\n".join(trial_lines(slow, 3, "here"))
    assert "slower on this machine: 0.50 times the speed" in text
    assert "10.0 tokens/s   1.00 tokens a round" in text
    assert "5.0 tokens/s   1.25 tokens a round" in text
    assert "kept 4 of 48 drafted tokens (8%)" in text
    fast = Trial(3, "text", decoded(2.0, 20, 0), decoded(1.0, 8, 12), None)
    assert "2.00 times as fast" in "\n".join(trial_lines(fast, 3, "here"))
    for seconds in (1.95, 2.05):
        even = Trial(3, "text", decoded(2.0, 20, 0), decoded(seconds, 8, 12), None)
        assert "about as fast on this machine" in "\n".join(trial_lines(even, 3, "here"))


@pytest.mark.parametrize(("gap", "is_tie"), [(1e-5, True), (0.5, False)])
def test_texts_that_part_say_where(gap: float, *, is_tie: bool) -> None:
    part = Difference(7, 4, 5, Gap(gap, 2.0), is_tie=is_tie)
    trial = Trial(3, "text", decoded(2.0, 20, 0), decoded(1.0, 8, 12), part)
    text = "\n".join(trial_lines(trial, 3, "here"))
    assert "the texts part at token 7: 4 alone, 5 with the draft" in text
    assert ("a tie" in text) is is_tie
    assert ("the decode is wrong" in text) is not is_tie

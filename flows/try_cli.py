"""`heal try`: one prompt decoded with and without the draft; is it faster here?"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from conf.base import Settings, Wiring
from conf.errors import ConfigError
from flows.command import FAILED, AsJson, StoreOption, guarded, say, tell, tell_json
from flows.typed import command_line

if TYPE_CHECKING:
    from nets.decode import Decoded
    from tasks.model_file import ModelFile
    from tasks.try_draft import Difference, Trial


EVEN = 0.05  # a share of the speed that the few tries of a decode don't tell


class Given(Settings):
    """The command's options, checked."""

    tokens: int
    depth: int
    wiring: Wiring | None
    dtype: Literal["auto", "bf16", "f32"]


def try_model(  # noqa: PLR0913 — a command's options
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A .cmf, or a Hugging Face folder.")
    ],
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="The text to go on from.")
    ],
    *,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to write.")] = 128,
    depth: Annotated[int, typer.Option(min=1, max=16, help="Drafts a round.")] = 3,
    wiring: Annotated[
        str | None,
        typer.Option(help="HIDDEN/CHAIN, each raw or normed (else as the file says)."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="auto, bf16 or f32.")] = "auto",
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Decodes a prompt with and without the draft: the same text, and how much faster.

    Exit code 1 if the texts differ by more than rounding explains.
    """
    say(
        command_line(
            *("try", model, prompt),
            tokens=tokens,
            depth=depth,
            wiring=wiring,
            dtype=dtype,
            store=store,
            json=as_json,
        )
    )
    raw = {"tokens": tokens, "depth": depth, "wiring": wiring, "dtype": dtype}
    guarded(lambda: _try(model, prompt, raw, store, as_json=as_json))


def _parted(wiring: str | None) -> dict[str, str] | None:
    if wiring is None:
        return None
    hidden, slash, chain = wiring.partition("/")
    if not slash:
        raise ConfigError(
            f"--wiring {wiring}: write it as HIDDEN/CHAIN, each raw or normed: normed/raw"
        )
    return {"hidden": hidden, "chain": chain}


def _try(
    path: Path, prompt: str, raw: dict[str, Any], store: Path | None, *, as_json: bool
) -> int:
    from conf.load import check
    from conf.machine import resolve_dtype
    from conf.schema import RuntimeConfig

    given = check(Given, raw | {"wiring": _parted(raw["wiring"])}, "heal try")
    from flows.draft_checks import no_draft
    from flows.runtime import open_runtime
    from tasks.model_file import open_model
    from tasks.progress import make_progress
    from tasks.try_draft import Trying, try_draft

    progress = make_progress()
    progress.say(f"reading {path}")
    runtime = open_runtime(RuntimeConfig(), store, progress)
    model = open_model(path, runtime)
    if not model.has_draft:
        raise no_draft(
            path, "there is nothing to try; heal run can give it a draft, see `heal doctor`"
        )
    wiring, by = _wiring_of(model, given.wiring)
    dtype = resolve_dtype(given.dtype, runtime.device)
    trying = Trying(given.tokens, given.depth, wiring, dtype)
    trial = try_draft(model, prompt, trying, runtime)
    how = f"wired {wiring.text} ({by}), {dtype} on {runtime.device}, " + (
        f"threads {runtime.threads}"
    )
    if as_json:
        tell_json(trial_json(trial, trying.depth, wiring, dtype))
    else:
        tell("\n".join(trial_lines(trial, trying.depth, how)))
    return FAILED if trial.difference and not trial.difference.is_tie else 0


def _wiring_of(model: "ModelFile", given: Wiring | None) -> tuple[Wiring, str]:
    """As asked, else as the heal that wrote the file had it, else by its format."""
    from flows.wiring import convention, recorded_wiring

    if given is not None:
        return given, "as asked"
    recorded = recorded_wiring(model)
    if recorded is not None:
        return recorded, "as it was healed"
    return convention(model), "as its format has it; --wiring for another"


def trial_json(trial: "Trial", depth: int, wiring: Wiring, dtype: str) -> dict[str, Any]:
    """`{"plain": …, "drafted": …, "speedup", "same_text", "difference", …}`."""
    return {
        "prompt_tokens": trial.prompt_tokens,
        "text": trial.text,
        "depth": depth,
        "wiring": wiring.model_dump(),
        "dtype": dtype,
        "plain": _decoded_json(trial.plain),
        "drafted": _decoded_json(trial.drafted),
        "speedup": trial.speedup,
        "tries": trial.tries,
        "same_text": trial.difference is None,
        "difference": None if trial.difference is None else asdict(trial.difference),
    }


def _decoded_json(decoded: "Decoded") -> dict[str, Any]:
    return {
        **asdict(decoded),
        "tokens_a_round": decoded.tokens_a_round,
        "tokens_a_second": decoded.tokens_a_second,
    }


def trial_lines(trial: "Trial", depth: int, how: str) -> Iterator[str]:
    """The text, both decodes, and a plain sentence on which was faster."""
    yield trial.text
    yield ""
    quickest = f"; the quickest of {trial.tries} tries each" if trial.tries > 1 else ""
    yield f"{how}; prompt of {trial.prompt_tokens} tokens{quickest}"
    names = ("trunk alone", f"with {depth} drafts")
    for name, one in zip(names, (trial.plain, trial.drafted), strict=True):
        yield _line(name, one)
    if trial.drafted.drafted:
        kept, drafted = trial.drafted.kept, trial.drafted.drafted
        yield f"kept {kept:,} of {drafted:,} drafted tokens ({kept / drafted:.0%})"
    yield from _verdict(trial)


def _line(name: str, one: "Decoded") -> str:
    line = f"{name:14} {len(one.ids):6,} tokens {one.seconds:8.2f} s"
    if one.tokens_a_round is None or one.tokens_a_second is None:
        return line
    return (
        f"{line} {one.tokens_a_second:8.1f} tokens/s {one.tokens_a_round:6.2f} tokens a "
        f"round (prompt {one.prompt_seconds:.2f} s)"
    )


def _verdict(trial: "Trial") -> Iterator[str]:
    if trial.difference is None:
        yield "the text is the same"
    else:
        yield _difference(trial.difference)
    speedup = trial.speedup
    if speedup is None:
        yield "one token: nothing to time"
    elif abs(speedup - 1) < EVEN:
        yield f"with the draft it is about as fast on this machine: {speedup:.2f} times"
    elif speedup > 1:
        yield f"with the draft it is {speedup:.2f} times as fast on this machine"
    else:
        yield (
            f"with the draft it is slower on this machine: {speedup:.2f} times the speed; "
            "its forwards cost more than the tokens it holds save, try another --depth"
        )


def _difference(found: "Difference") -> str:
    where = (
        f"the texts part at token {found.place}: {found.plain} alone, {found.drafted} with "
        f"the draft, {found.gap.logits:.3g} apart where logits spread by "
        f"{found.gap.spread:.3g}"
    )
    if found.is_tie:
        return f"{where}; a tie that rounding decides (--dtype f32 tells for sure)"
    return f"error: {where}; rounding does not explain that, the decode is wrong"

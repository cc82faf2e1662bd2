"""What a probe found, in words: its table, and why a run stops at it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from conf.base import Wiring
from store.artifact import Artifact
from tasks.errors import InputError

Numbers = Mapping[str, Any]  # what the stage probe_draft says, JSON

MORE_WINDOWS = 4  # times as many halve the intervals
FORCE = "set the wiring yourself with probe.wiring, e.g. {hidden: raw, chain: raw}"
PREDICTABLE = 0.5
FIRST = {"emb_hid": "embedding", "hid_emb": "hidden"}


def wiring_found(probe: Artifact, model: Path) -> Wiring:
    """The wiring to use; InputError with the whole table where a probe can't tell."""
    problem = problem_of(probe.numbers)
    if problem is not None:
        table = "\n".join(f"  {line}" for line in table_of(probe.numbers))
        raise InputError(f"{model}: {problem}", table)
    return Wiring.model_validate(probe.numbers["wiring"])


def problem_of(numbers: Numbers) -> str | None:
    """Why a run stops: what is wrong and what to do; None if it goes on."""
    outcome = numbers["outcome"]
    if outcome == "unclear":
        more = MORE_WINDOWS * int(numbers["windows"])
        return (
            f"{numbers['rows'][0]:,} rows don't tell which wiring the draft was made for; "
            f"take more windows (probe.windows: {more}) or more data, or {FORCE}"
        )
    if outcome == "swapped":
        return (
            "the draft's projection reads the hidden row first and the embedding second, "
            "a draft here the other way round; swap the two halves of the columns of "
            "model.mtp.eh_proj.weight, or convert the model again"
        )
    if outcome == "leak":
        return (
            "the draft names tokens that it cannot know (a control does not fall to "
            "chance): windows repeat each other or themselves, and no figure of this data "
            f"would mean anything; give other data, or {FORCE}"
        )
    return _nothing_held(numbers) if outcome == "nothing" else None


def _nothing_held(numbers: Numbers) -> str:
    chance = float(numbers["chance"][0])
    named = max(float(line["agreement"][0]) for line in numbers["readings"])
    if chance > PREDICTABLE and named > chance / 2:
        return (
            f"naming one token throughout a window holds {chance:.0%} of this text, the "
            f"draft {named:.0%}; give text that is less predictable, or {FORCE}"
        )
    return (
        "the draft names the trunk's tokens no more often than a constant guess, under any "
        "wiring: it is no start to heal from; name a model that carries a sound draft with "
        f"`init`, set start_from_last_layer: true to start a fresh one, or {FORCE}"
    )


def table_of(numbers: Numbers) -> Iterator[str]:
    """A line a reading, best first, then the controls; shares of rows by chain step."""
    steps = range(1, len(numbers["chance"]) + 1)
    heads = "".join(f"{f'step {step}':>9}" for step in steps)
    yield f"{'hidden':8}{'chain':8}{'first':11}{heads}{'drafts':>9}   behind (99 %)"
    best = max(line["drafts"] for line in numbers["readings"])
    for line in sorted(numbers["readings"], key=lambda line: -line["drafts"]):
        low, high = line["behind"]
        behind = "best" if line["drafts"] == best else f"{low:.3f} to {high:.3f}"
        name = f"{line['hidden']:8}{line['chain']:8}{FIRST[line['order']]:11}"
        rates = _rates(line["agreement"])
        yield f"{name}{rates}{line['drafts']:>9.3f}   {behind}"
    for control in numbers["controls"]:
        yield f"{control['name'] + ' control':27}{_rates(control['agreement'])}"
    yield f"{'a constant guess':27}{_rates(numbers['chance'])}"


def _rates(rates: list[float]) -> str:
    return "".join(f"{rate:>9.3f}" for rate in rates)

"""time_decode: what verifying and drafting take on this machine, in plain decode steps.

A stage of its own: measures stay what they are, wherever and whenever they were made.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from conf.base import Settings, Wiring
from conf.machine import Device, this_machine
from conf.schema import Cost
from store.artifact import Artifact
from tasks.drafts import DraftSource, load_draft
from tasks.model_file import ModelPart
from tasks.packed import Packed, read_windows
from tasks.placed_trunk import load_trunk
from tasks.stage import Runtime, stage
from ui.contents import Timing

CONTEXT = 256  # tokens that a decode has before it
ROUNDS = 9


class TimingSettings(Settings):
    """Drafts a round, wiring, compute type, and the machine: another one times anew.

    Threads and load are in no key, since they change from run to run: the numbers say on
    how many threads it was timed, the manifest when.
    """

    depth: int
    wiring: Wiring
    dtype: Literal["bf16", "f32"]
    device: Device
    machine: str


def timing_settings(
    depth: int, wiring: Wiring, dtype: Literal["bf16", "f32"], device: Device
) -> TimingSettings:
    """For the machine this runs on."""
    return TimingSettings(
        depth=depth, wiring=wiring, dtype=dtype, device=device, machine=this_machine()
    )


@stage("time_decode", version=1, on_device=True)
def time_decode(
    out: Path,
    settings: TimingSettings,
    runtime: Runtime,
    *,
    windows: Artifact,
    trunk: ModelPart,
    draft: DraftSource,
) -> Mapping[str, object]:
    """Numbers: `verify` and `draft` in plain steps, their quartiles, seconds of all three.

    The text is the windows'. InputError for a trunk larger than the memory.
    """
    from nets.decode import Decoding, lower_products
    from nets.decode_times import text_length, time_rounds

    whole = load_trunk(trunk, settings.dtype, runtime)
    shipped = load_draft(trunk, draft, None, settings.wiring, settings.dtype, runtime)
    if settings.dtype == "bf16":
        lower_products(shipped)
    length = text_length(CONTEXT, settings.depth, ROUNDS)
    decoding = Decoding(length, settings.depth, frozenset(), runtime.head_budget_bytes)
    runtime.progress.say(f"timing {ROUNDS} rounds of {settings.depth} drafts")
    ids = text_of(read_windows(windows), length)
    found = time_rounds(whole, shipped, ids, ROUNDS, decoding)
    plain = [one.plain for one in found]
    parts = {"verify": [o.verify for o in found], "draft": [o.draft for o in found]}
    ratios = {n: np.array(of) / np.array(plain) for n, of in parts.items()}
    return {
        **{name: float(np.median(of)) for name, of in ratios.items()},
        "quartiles": {
            n: np.quantile(of, (0.25, 0.75)).tolist() for n, of in ratios.items()
        },
        "seconds": {n: float(np.median(of)) for n, of in {"plain": plain, **parts}.items()},
        "rounds": ROUNDS,
        "depth": settings.depth,
        "context": CONTEXT,
        "threads": runtime.threads,
    }


def text_of(packed: Packed, length: int) -> Sequence[int]:
    """Real tokens of the windows in order, from the first again where they are too few."""
    rows = zip(packed.ids, packed.length, strict=True)
    flat = np.concatenate([row[:real] for row, real in rows])
    return [int(token) for token in np.resize(flat, length)]


def cost_of(timing: Artifact | None) -> Cost:
    """What was timed, as a user would have given it."""
    assert timing is not None, "costs that nobody gave were timed"
    found = {name: round(timing.numbers[name], 3) for name in Cost.model_fields}
    return Cost(**found)


def timing_of(timing: Artifact) -> Timing:
    """What was timed, where and when, for a report."""
    told = {k: v for k, v in timing.numbers.items() if k in Timing.model_fields}
    settings = timing.manifest.settings
    named = {name: settings[name] for name in ("machine", "device", "dtype")}
    return Timing.model_validate({**told, **named, "when": timing.manifest.started})

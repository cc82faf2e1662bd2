"""Drafts held under sampling by whole chains, on text the trunk sampled itself, as JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nets.hold import summed_shares
from tasks.packed import Packed

if TYPE_CHECKING:
    from nets.sampled_chains import SampledChains


def sampled_windows(
    packed: Packed, written: Sequence[float | None]
) -> dict[float, list[int]]:
    """Held-out windows by the temperature above 0 that their set was sampled at."""
    found: dict[float, list[int]] = {}
    for window in packed.held_out:
        temperature = written[int(packed.set_index[window])]
        if temperature:
            found.setdefault(temperature, []).append(window)
    return found


def chains_json(found: "SampledChains", temperature: float, seed: int) -> dict[str, Any]:
    """Drafts held by each kind of draft: bounds, the interval of both, the starts."""
    rows_C = found.alive_WC.sum(0)
    held_4 = (found.kept_WC4.sum(0) / np.maximum(rows_C, 1)[:, None]).sum(0).tolist()
    told: dict[str, Any] = {"temperature": temperature, "rows": int(rows_C[0])}
    for name, first in (("sampled", 0), ("greedy", 2)):
        below, above = (
            summed_shares(found.kept_WC4[:, :, end], found.alive_WC, seed)
            for end in (first, first + 1)
        )
        low, high = held_4[first], held_4[first + 1]
        told |= {
            name: [low, max(low, high)],
            f"{name}_interval": [below.low, max(below.low, above.high)],
        }
    return told

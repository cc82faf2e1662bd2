"""Stored windows as `nets` reads them: its `Source` over the trunk pass's arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from nets.evaluate import Compute
from nets.source import Batch, Windows
from tasks.packed import Packed
from tasks.stage import Runtime
from tasks.trunk_rows import TrunkRows

ROWS_A_BATCH = 2048


@dataclass(frozen=True)
class RowSource:
    """Reads windows one chunk at a time; nothing is kept.

    Records are apart in the draft where they were in the trunk's pass.
    """

    packed: Packed
    rows: TrunkRows

    def batch(self, windows: Sequence[int]) -> Batch:
        """These windows with the trunk's rows, on the CPU."""
        chosen = list(windows)
        top_id = np.stack([self.rows.read("topk_id", w) for w in chosen]).astype(np.int64)
        top_p = np.stack([self.rows.read("topk_p", w) for w in chosen])
        return Batch(
            torch.from_numpy(self.packed.ids[chosen].astype(np.int64)),
            torch.from_numpy(self.packed.length[chosen]),
            torch.stack([self.rows.hidden(w) for w in chosen]),
            torch.from_numpy(top_id),
            torch.from_numpy(top_p),
            torch.from_numpy(self.packed.record[chosen]) if self.rows.is_isolated else None,
        )


def chosen_windows(packed: Packed, index: Sequence[int]) -> Windows:
    """Windows by index, with the set each is from."""
    return Windows(tuple(index), tuple(int(packed.set_index[i]) for i in index))


def measure_compute(
    packed: Packed, dtype: Literal["bf16", "f32"], runtime: Runtime
) -> Compute:
    """Whole batches of about 2,048 rows, and the head's budget of bytes."""
    batch = max(1, ROWS_A_BATCH // packed.ids.shape[1])
    return Compute(batch, dtype, runtime.head_budget_bytes)

"""What training and measuring read: windows with the trunk's rows, from wherever they lie.

Axes: B windows, T positions, H hidden, K kept tokens, R rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nets.chain import ChainStep, unroll_apart, unroll_exact
from nets.draft import Draft
from nets.errors import TrainingError
from nets.hold import on_path


@dataclass(frozen=True)
class Batch:
    """Windows, padded on the right to T, with the trunk's raw rows and top-k of each row.

    Ids are int64, `topk_p_BTK` f32 mass of the full softmax, best first. `record_BT` is
    given where the records in a window are kept apart (`nets.records`).
    """

    ids_BT: Tensor
    length_B: Tensor
    hidden_BTH: Tensor
    topk_id_BTK: Tensor
    topk_p_BTK: Tensor
    record_BT: Tensor | None = None

    def to(self, device: torch.device) -> "Batch":
        """The same windows on a device."""
        return Batch(
            self.ids_BT.to(device),
            self.length_B.to(device),
            self.hidden_BTH.to(device),
            self.topk_id_BTK.to(device),
            self.topk_p_BTK.to(device),
            None if self.record_BT is None else self.record_BT.to(device),
        )

    def chains(
        self, draft: Draft, depth: int, *, through_chain: bool = False
    ) -> Iterator[ChainStep]:
        """The draft's chains from every row of the windows."""
        given = (draft, self.ids_BT, self.length_B, self.hidden_BTH, depth)
        if self.record_BT is not None and draft.geometry.layer.is_sparse:
            return unroll_apart(*given, self.record_BT, through_chain=through_chain)
        return unroll_exact(*given, record_BT=self.record_BT, through_chain=through_chain)


class Source(Protocol):
    """Gives windows by their index, all of one width T."""

    def batch(self, windows: Sequence[int]) -> Batch:
        """These windows, in this order."""


@dataclass(frozen=True)
class Windows:
    """Window indices, and for each the index of the data set it is from."""

    index: tuple[int, ...]
    set_index: tuple[int, ...]

    def capped(self, per_set: int | None) -> "Windows":
        """At most `per_set` windows of each data set, evenly spaced; all if None."""
        if per_set is None:
            return self
        kept: list[int] = []
        for one in sorted(set(self.set_index)):
            places = [i for i, of in enumerate(self.set_index) if of == one]
            count = min(per_set, len(places))
            kept += [places[i * len(places) // count] for i in range(count)]
        kept.sort()
        return Windows(
            tuple(self.index[i] for i in kept), tuple(self.set_index[i] for i in kept)
        )


@dataclass(frozen=True)
class ChainRows:
    """Some rows of a chain step: their places in [B·T], the draft's output, the target."""

    at_R: Tensor
    output_RH: Tensor
    topk_id_RK: Tensor
    topk_p_RK: Tensor


def read_batch(source: Source, windows: Sequence[int], device: torch.device) -> Batch:
    """These windows on the device; TrainingError names one whose rows aren't finite."""
    batch = source.batch(windows).to(device)
    # A sum is finite only if every term is; inf and -inf meet as nan.
    sum_B = batch.hidden_BTH.sum((1, 2), dtype=torch.float32) + batch.topk_p_BTK.sum((1, 2))
    for window, is_finite in zip(windows, sum_B.isfinite().tolist(), strict=True):
        if not is_finite:
            raise TrainingError(
                f"window {window}: the trunk's stored rows hold a value that isn't finite; "
                "the trunk overflowed in its pass, run that in f32 (trunk.dtype: f32)"
            )
    return batch


def refuse_unlike_alone(draft: Draft, batch: Batch, layout: str) -> None:
    """TrainingError for records apart in a layout that can't run them one by one.

    An expert's product rounds by how many rows the text sends to it (healing.md §4).
    """
    if batch.record_BT is not None and draft.geometry.layer.is_sparse:
        raise TrainingError(
            "a draft with experts runs its records one by one where they are kept apart, "
            f"which train.layout: {layout} can't; set train.layout: exact or "
            "pack.isolate: false"
        )


def take_rows(batch: Batch, step: ChainStep, chosen_BT: Tensor) -> ChainRows:
    """The chosen rows of a step, with the trunk's top-k at row p + step, their target.

    Every chosen row must be alive.
    """
    at_R = chosen_BT.flatten().nonzero().squeeze(1)
    target_R = at_R + step.step
    return ChainRows(
        at_R,
        step.output_BTH.flatten(0, 1).index_select(0, at_R),
        batch.topk_id_BTK.flatten(0, 1).index_select(0, target_R),
        batch.topk_p_BTK.flatten(0, 1).index_select(0, target_R),
    )


def fed_own_tokens(batch: Batch, depth: int) -> Tensor:
    """Rows whose chain was fed the trunk's own tokens up to that step, bool [B, T, C]."""
    fed_BTC = on_path(
        batch.ids_BT.cpu().numpy(),
        batch.topk_id_BTK[:, :, 0].cpu().numpy(),
        batch.length_B.cpu().numpy(),
        depth,
        None if batch.record_BT is None else batch.record_BT.cpu().numpy(),
    )
    return torch.from_numpy(fed_BTC).to(batch.ids_BT.device)

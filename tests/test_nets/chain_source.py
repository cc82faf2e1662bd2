"""Windows on which a draft is its own trunk: what it holds is known without running it.

Row p+1 of the made-up trunk is the draft's step-1 output at p, and its distribution the one
read from that row. So step j from p is step 1 from p+j-1, and the draft that made the
windows hits wherever a row counts: its rates are 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nets.chain import unroll_exact
from nets.draft import Draft, build_draft
from nets.source import Batch
from nets.trunk import build_shared
from tests.builders import TinyModel, tiny_qwen3

KEPT = 6


@dataclass
class ListSource:
    """All windows in memory; remembers which were asked for."""

    whole: Batch
    asked: list[tuple[int, ...]] = field(default_factory=list)

    def batch(self, windows: Sequence[int]) -> Batch:
        self.asked.append(tuple(windows))
        at = torch.tensor(windows)
        whole = self.whole
        return Batch(
            whole.ids_BT[at],
            whole.length_B[at],
            whole.hidden_BTH[at],
            whole.topk_id_BTK[at],
            whole.topk_p_BTK[at],
        )


def draft_of(model: TinyModel) -> Draft:
    arch, shapes, read = model
    shared = build_shared(arch, shapes, read, device="cpu", dtype=torch.float32)
    return build_draft(arch, shapes, read, shared)


@torch.no_grad()
def jitter(draft: Draft, size: float, seed: int = 0) -> Draft:
    """Make the draft stale: noise of `size` times each weight's rms on all of its layer."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in draft.layers.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.add_(size * parameter.square().mean().sqrt() * noise)
    return draft


def stale(seed: int = 0) -> Draft:
    """A tiny Qwen3's draft, made stale."""
    return jitter(draft_of(tiny_qwen3()), 0.3, seed)


def qwen3_windows(width: int, windows: int, strange: float = 0.05) -> ListSource:
    """Windows a tiny Qwen3's draft writes; the last one ends 3 rows early."""
    lengths = [width] * (windows - 1) + [width - 3]
    return own_windows(draft_of(tiny_qwen3()), lengths, width, strange)


@torch.no_grad()
def own_windows(
    draft: Draft,
    lengths: Sequence[int],
    width: int,
    strange: float = 0.1,
    kept: int = KEPT,
) -> ListSource:
    """Windows the draft writes greedily, but for a share of `strange` random tokens."""
    generator = torch.Generator().manual_seed(11)
    windows, vocab = len(lengths), draft.shared.arch.vocab_size
    ids = torch.randint(vocab, (windows, width), generator=generator)
    hidden = torch.randn(windows, width, draft.shared.arch.hidden_size, generator=generator)
    is_strange = torch.rand(windows, width, generator=generator) < strange
    p = torch.zeros(windows, width, vocab)
    p[:, 0] = torch.nn.functional.one_hot(ids[:, 1], vocab) * 0.9
    for n in range(1, width):
        length_B = torch.full((windows,), n + 1)
        step = next(unroll_exact(draft, ids[:, : n + 1], length_B, hidden[:, : n + 1], 1))
        output = step.output_BTH[:, n - 1]
        hidden[:, n] = trunk_row(draft, output)
        p[:, n] = (draft.read_out(output) @ draft.shared.head_VH.T).softmax(-1)
        if n + 1 < width:
            ids[:, n + 1] = torch.where(
                is_strange[:, n + 1], ids[:, n + 1], p[:, n].argmax(-1)
            )
    return ListSource(_padded(ids, hidden, p, lengths, kept))


def trunk_row(draft: Draft, output: Tensor) -> Tensor:
    """A raw row of the trunk that step 1 reads as a later step reads the draft's output.

    Where step 1 reads normed rows this undoes the final norm's gain, and `hnorm` the scale.
    """
    carried = draft.chain_rows(output)
    if draft.wiring.hidden == "raw":
        return carried
    gain = draft.shared.final_norm.weight
    assert isinstance(gain, Tensor)
    return carried / gain


def _padded(
    ids: Tensor, hidden: Tensor, p: Tensor, lengths: Sequence[int], kept: int
) -> Batch:
    topk_p, topk_id = p.topk(kept)
    length = torch.tensor(lengths)
    ids = ids.masked_fill(torch.arange(ids.shape[1]) >= length[:, None], 0)
    return Batch(ids, length, hidden, topk_id, topk_p)

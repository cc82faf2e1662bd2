"""Training on `rows` and `stride`: a job is a batch and a kind of input (healing.md §8).

Inputs of the later kinds are those of the last refresh. Kept are the weights that made
them, not the inputs: a batch's are made again when it is read, which costs forwards of one
block, no head, and no memory or disk that grows with the data.
Axes: B windows, T positions, H hidden.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from conf.training import TrainSettings
from nets.chain import ChainStep
from nets.draft import Draft, draft_from
from nets.evaluate import Compute
from nets.head import measure_rows
from nets.layouts import Laid, Stride, spliced_rows, stride_at, unroll_rows
from nets.objective import LossSums, objective_of
from nets.ranks import ALONE, Ranks
from nets.source import Batch, Source, read_batch, refuse_unlike_alone, take_rows


class KindJobs:
    """The kinds of a layout, with inputs as of the last `refresh`; kinds count from 0.

    `rows` has one a chain step. `stride` has the trunk's rows and, if chains are deeper
    than 1, these with chains laid over them: all rows of either predict from the next row.
    """

    def __init__(self, draft: Draft, settings: TrainSettings, compute: Compute) -> None:
        self.draft, self.settings, self.compute = draft, settings, compute
        self.past = draft_from(draft.tensors(), draft.shared, draft.wiring)
        self.past.requires_grad_(requires_grad=False)
        self.round = 0

    def refresh_if_due(self, done: int) -> None:
        """Take the present weights for inputs, every `refresh` steps but after the last."""
        every = self.settings.refresh
        if every == 0 or done % every != 0 or done >= self.settings.steps:
            return
        if done // every == self.round:
            return
        self.round = done // every
        self._load_past(dict(self.draft.named_parameters()))

    def losses(self, batch: Batch, windows: Sequence[int], kind: int) -> LossSums:
        """The loss over the rows of a batch of these windows; one entry."""
        with self.compute.autocast(batch.ids_BT.device):
            step = self._step(batch, windows, kind)
            rows = take_rows(batch, step, step.alive_BT)
            objective = objective_of(self.settings)
            total = objective.total(self.draft, rows, self.compute.budget_bytes)
        return LossSums.of([total], [len(rows.at_R)])

    @torch.no_grad()
    def held_out_kl(
        self,
        source: Source,
        windows: Sequence[int],
        on_windows: Callable[[int], None] = lambda _: None,
        ranks: Ranks = ALONE,
    ) -> tuple[float, ...]:
        """Mean `tail_kl` of each kind over all rows of the windows: λ = 0, no weights.

        Its inputs are as old as those trained on (healing.md §8); hold rates never are.
        The windows are this rank's; the rows, those of all ranks.
        """
        sums, rows = [0.0] * self.settings.kinds, [0] * self.settings.kinds
        device = self.draft.shared.head_VH.device
        for at in range(0, len(windows), self.compute.batch):
            chosen = windows[at : at + self.compute.batch]
            batch = read_batch(source, chosen, device)
            for kind in range(self.settings.kinds):
                found_R = self._kl_rows(batch, chosen, kind)
                sums[kind] += float(found_R.sum(dtype=torch.float64))
                rows[kind] += len(found_R)
            on_windows(len(chosen))
        total_2K = ranks.sum_(torch.tensor([sums, rows], dtype=torch.float64))
        return tuple(t / max(n, 1.0) for t, n in zip(*total_2K.tolist(), strict=True))

    def tensors(self) -> dict[str, Tensor]:
        """Copies for a checkpoint: the weights that made the inputs, on the CPU."""
        return {
            f"inputs/{name}": parameter.detach().to("cpu", copy=True)
            for name, parameter in self.past.named_parameters()
        }

    def load(self, tensors: Mapping[str, Tensor], refresh_round: int) -> None:
        """Go on from what `tensors` gave in that round."""
        self.round = refresh_round
        names = [name for name, _ in self.past.named_parameters()]
        self._load_past({name: tensors[f"inputs/{name}"] for name in names})

    @torch.no_grad()
    def _load_past(self, weights: Mapping[str, Tensor]) -> None:
        for name, parameter in self.past.named_parameters():
            parameter.copy_(weights[name])

    def _kl_rows(self, batch: Batch, windows: Sequence[int], kind: int) -> Tensor:
        with self.compute.autocast(batch.ids_BT.device):
            step = self._step(batch, windows, kind)
            rows = take_rows(batch, step, step.alive_BT)
            found = measure_rows(
                self.draft.read_out(rows.output_RH),
                self.draft.shared.head_VH,
                rows.topk_id_RK,
                rows.topk_p_RK,
                self.compute.budget_bytes,
            )
        return found.kl_R

    def _step(self, batch: Batch, windows: Sequence[int], kind: int) -> ChainStep:
        """The draft's output of a kind; `step` is how far behind a row its target is."""
        refuse_unlike_alone(self.draft, batch, self.settings.layout)
        laid = Laid(batch.ids_BT, batch.length_B, batch.record_BT)
        step = kind + 1 if self.settings.layout == "rows" else 1
        with torch.no_grad():
            x_BTH = laid.inputs(self.past, self._carried(batch, laid, windows, kind), step)
        return ChainStep(step, laid.block(self.draft, x_BTH), laid.alive(step))

    def _carried(
        self, batch: Batch, laid: Laid, windows: Sequence[int], kind: int
    ) -> Tensor:
        """What the rows of a kind carry, by the weights of the last refresh."""
        past = self.past
        if kind == 0:
            return past.trunk_rows(batch.hidden_BTH)
        if self.settings.layout == "rows":
            *_, before = unroll_rows(past, laid, batch.hidden_BTH, kind)
            return past.chain_rows(before.output_BTH)
        assert self.settings.stride is not None, "checked by TrainChoices"
        at = stride_at(windows, self.round, self.settings.stride)
        stride = Stride(at.every, at.offset_B.to(batch.ids_BT.device))
        return spliced_rows(past, laid, batch.hidden_BTH, self.settings.depth, stride)

"""One decoder layer as a function: as `transformers` wrote it, or compiled.

Legend: B windows, T positions, H hidden, D rotary dimensions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from nets.layer_geometry import LayerGeometry
from nets.records import pieces_of, seen_in

RunLayer = Callable[[nn.Module, Tensor, Tensor, Tensor, Tensor | None], Tensor]

# One graph for each width of layer and size of batch; past the limit torch runs the rest
# uncompiled without a word, and its own limit of 8 is less than a folded trunk has.
MOST_GRAPHS = 128


@dataclass(frozen=True)
class Surroundings:
    """What the rows of a call are to each other: their rotations, and who sees whom.

    A mask is bool and broadcasts to [B, N, T, T]; None is plain causal attention, which
    has kernels of its own. `windowed` is that of layers with a sliding window. `pieces`,
    where records are kept apart, are these, each as its window and its rows: a layer whose
    state no mask can reset runs them one by one, and so does one whose experts get as many
    rows as the text decides, since a product's rounding may follow from their number.
    """

    cos_BTD: Tensor
    sin_BTD: Tensor
    causal: Tensor | None = None
    windowed: Tensor | None = None
    pieces: tuple[tuple[int, slice], ...] | None = None

    def run(
        self, run: RunLayer, layer: nn.Module, kind: LayerGeometry, x: Tensor
    ) -> Tensor:
        """The layer's rows [B, T, H], the layer being of that kind."""
        if self.pieces is not None and (kind.kind == "LinearAttention" or kind.is_sparse):
            return self._run_apart(run, layer, kind, x, self.pieces)
        cos_BTD, sin_BTD = self.cos_BTD, self.sin_BTD
        if not kind.is_rotated:
            cos_BTD, sin_BTD = torch.ones_like(cos_BTD), torch.zeros_like(sin_BTD)
        masks = {"FullAttention": self.causal, "SlidingAttention": self.windowed}
        return run(layer, x, cos_BTD, sin_BTD, masks.get(kind.kind))

    def _run_apart(
        self,
        run: RunLayer,
        layer: nn.Module,
        kind: LayerGeometry,
        x_BTH: Tensor,
        pieces: Sequence[tuple[int, slice]],
    ) -> Tensor:
        """The same, one call a record: none has anything before it."""
        out_BTH = torch.empty_like(x_BTH)
        for window, rows in pieces:
            at = (slice(window, window + 1), rows)
            windowed = self.windowed
            if windowed is not None:
                windowed = windowed[window : window + 1, :, rows, rows]
            alone = Surroundings(self.cos_BTD[at], self.sin_BTD[at], windowed=windowed)
            out_BTH[at] = alone.run(run, layer, kind, x_BTH[at])
        return out_BTH


def seen_in_window(width: int, window: int | None, device: torch.device) -> Tensor | None:
    """Row t sees rows s with t - window < s ≤ t, bool [1, 1, T, T]; None: all s ≤ t do."""
    if window is None or width < window:
        return None
    position_T = torch.arange(width, device=device)
    back_TT = position_T[:, None] - position_T
    return ((back_TT >= 0) & (back_TT < window))[None, None]


def apart(
    cos_BTD: Tensor, sin_BTD: Tensor, windowed: Tensor | None, record_BT: Tensor
) -> Surroundings:
    """Of rows whose records see nothing of each other; rotations start anew in each."""
    seen_B1TT = seen_in(record_BT)[:, None]
    return Surroundings(
        cos_BTD,
        sin_BTD,
        seen_B1TT,
        seen_B1TT if windowed is None else seen_B1TT & windowed,
        tuple(pieces_of(record_BT)),
    )


def run_layer(
    layer: nn.Module, x_BTH: Tensor, cos_BTD: Tensor, sin_BTD: Tensor, mask: Tensor | None
) -> Tensor:
    """The layer's rows, each seeing what its mask says; None: itself and what is before."""
    out_BTH: Tensor = layer(
        x_BTH, attention_mask=mask, position_embeddings=(cos_BTD, sin_BTD)
    )
    return out_BTH


@cache
def compiled_layer() -> RunLayer:
    """`run_layer` compiled once for all layers of a shape; some seconds at a shape's first.

    The layer must be an argument: a compiled function that gets its weights in any other
    way has those of the layer it was compiled with, for every layer.
    """
    torch._dynamo.config.recompile_limit = MOST_GRAPHS
    compiled: RunLayer = torch.compile(run_layer, dynamic=False, fullgraph=True)
    return compiled

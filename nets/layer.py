"""One decoder layer as a function: as `transformers` wrote it, or compiled.

Legend: B windows, T positions, H hidden, D head_dim.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

RunLayer = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]

# One graph for each width of layer and size of batch; past the limit torch runs the rest
# uncompiled without a word, and its own limit of 8 is less than a folded trunk has.
MOST_GRAPHS = 128


def run_layer(layer: nn.Module, x_BTH: Tensor, cos_BTD: Tensor, sin_BTD: Tensor) -> Tensor:
    """The layer's rows, each seeing itself and what is on its left."""
    out_BTH: Tensor = layer(
        x_BTH, attention_mask=None, position_embeddings=(cos_BTD, sin_BTD)
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

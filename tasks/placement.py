"""Where a pass keeps its trunk: whole in memory, or streamed layer by layer, and why.

No torch: a plan asks it too. Sizes are estimates from the tensors' shapes; what they leave
out (the libraries, their buffers) is allowed for.
"""

import math
import sys
from dataclasses import dataclass
from typing import Literal

from cmfio.header import Arch
from conf.memory import free_memory
from nets.geometry import trunk_geometry
from nets.layer_geometry import LayerGeometry
from store.space import size_text
from tasks.errors import InputError
from tasks.model_file import ModelPart, open_part
from tasks.stage import Runtime

Dtype = Literal["bf16", "f32"]

# What torch takes once imported, beside what has to be anyway; on a card, its context.
LIBRARY_BYTES = 256 << 20
# What transformers and numba import when they are first used, oneDNN's packed copies, a
# block on its way from the file.
SLACK_BYTES = 256 << 20
# Of layers: the one that computes, the one that is read, and what the allocator keeps.
LAYERS_AT_ONCE = 3
# On a processor a layer's reading is 2 % of its time over so many tokens; more at once
# would only make more of them begin anew after a cut.
MOST_TOKENS = 1 << 16


@dataclass(frozen=True)
class TrunkBytes:
    """What a trunk takes in the compute type, on its device.

    `room` is for the work itself: one call's activations, the head's buffers, libraries.
    """

    whole: int
    largest_layer: int
    head: int
    row: int  # one raw row, f32
    room: int

    @property
    def resident(self) -> int:
        """All of it in memory."""
        return self.whole + self.room

    @property
    def streamed(self) -> int:
        """The least a streamed pass takes: its layers, or after the last the head."""
        return max(LAYERS_AT_ONCE * self.largest_layer, self.head) + self.room


@dataclass(frozen=True)
class Placing:
    """A trunk's placement, with the bytes it was decided by; `free` None: nobody asked."""

    kind: Literal["resident", "stream"]
    dtype: Dtype
    bytes: TrunkBytes
    free: int | None

    def text(self) -> str:
        """`trunk: streamed layer by layer: all of it in bf16 needs …, … are free`."""
        word = "held in memory" if self.kind == "resident" else "streamed layer by layer"
        need = f"all of it in {self.dtype} needs {size_text(self.bytes.resident)}"
        if self.free is None:
            return f"trunk: {word}, as runtime.placement says; {need}"
        return f"trunk: {word}; {need}, {size_text(self.free)} are free"

    def calls_at_once(self, call_tokens: int, runtime: Runtime) -> int:
        """Of `call_tokens` each, those whose rows fit beside the layers; at least one."""
        free = free_memory(runtime.device) if self.free is None else self.free
        fit = (free - self.bytes.streamed) // (call_tokens * self.bytes.row)
        if runtime.device == "cpu":
            fit = min(fit, MOST_TOKENS // call_tokens)
        return max(1, fit)


def place_trunk(
    part: ModelPart, dtype: Dtype, call_tokens: int, runtime: Runtime
) -> Placing:
    """Where a pass keeps this trunk: as `runtime.placement` says, or by what is free.

    InputError if that is `auto` and not even a streamed pass would fit.
    """
    size = trunk_bytes(part, dtype, call_tokens, runtime)
    if runtime.placement != "auto":
        return Placing(runtime.placement, dtype, size, None)
    free = free_memory(runtime.device)
    if size.resident <= free:
        return Placing("resident", dtype, size, free)
    least = size.streamed + call_tokens * size.row
    if least > free:
        raise InputError(
            f"{part.path}: even streamed layer by layer its trunk needs about "
            f"{size_text(least)} in {dtype}, {size_text(free)} are free; end what else "
            "takes memory, use a smaller pack.window, or try all the same with "
            "runtime.placement: stream"
        )
    return Placing("stream", dtype, size, free)


def refuse_too_large(part: ModelPart, dtype: Dtype, what: str, runtime: Runtime) -> None:
    """InputError where a stage that cannot stream would run out of memory."""
    if runtime.placement == "resident":
        return
    need = trunk_bytes(part, dtype, 0, runtime).resident
    free = free_memory(runtime.device)
    if need > free:
        raise InputError(
            f"{part.path}: {what} needs the whole trunk in memory, {size_text(need)} in "
            f"{dtype}, and {size_text(free)} are free; use a machine with more, or try all "
            "the same with runtime.placement: resident"
        )


def trunk_bytes(
    part: ModelPart, dtype: Dtype, call_tokens: int, runtime: Runtime
) -> TrunkBytes:
    """What a model file's trunk takes, and a pass over it with calls of so many tokens."""
    with open_part(part) as container:
        arch = container.header.arch
        geometry = trunk_geometry(arch, container.shapes)
    item = 2 if dtype == "bf16" else 4
    table = arch.vocab_size * arch.hidden_size * item
    layers = [_layer_bytes(layer, item) for layer in geometry.layers]
    tables = table if geometry.is_tied else 2 * table
    widest = max(_row_bytes(layer, arch, item) for layer in geometry.layers)
    has_libraries = runtime.device == "cpu" and "torch" in sys.modules
    room = call_tokens * widest + runtime.head_budget_bytes + SLACK_BYTES
    return TrunkBytes(
        whole=sum(layers) + tables,
        largest_layer=max(layers),
        head=table,
        row=4 * arch.hidden_size,
        room=room + (0 if has_libraries else LIBRARY_BYTES),
    )


def _layer_bytes(layer: LayerGeometry, item: int) -> int:
    return sum(math.prod(part.shape) * (4 if part.is_f32 else item) for part in layer.parts)


def _row_bytes(layer: LayerGeometry, arch: Arch, item: int) -> int:
    """What a row takes inside a layer at its widest, generously: mixer or FFN."""
    size = layer.sizes(arch)
    mixer = 4 * (size["Q"] + size["K"]) + 4 * (size["C"] + size["V"])
    ffn = 3 * (size["F"] + size["S"])
    if arch.moe is not None and layer.is_sparse:
        ffn += arch.moe.top_k * (3 * size["I"] + 2 * size["H"])
    return 5 * size["H"] * 4 + max(mixer, ffn) * item

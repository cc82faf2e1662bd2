"""A model file's trunk, ready to run: whole in memory, or streamed where it won't fit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.model_file import ModelPart, open_part, torch_dtype
from tasks.placement import Dtype, place_trunk, refuse_too_large
from tasks.stage import Runtime

if TYPE_CHECKING:
    from nets.stream import StreamedTrunk
    from nets.trunk import Trunk


@dataclass(frozen=True)
class PlacedTrunk:
    """A trunk, and of how many calls the rows may wait where it is streamed."""

    trunk: "Trunk | StreamedTrunk"
    most_calls: int


def load_trunk(
    part: ModelPart, dtype: Dtype, runtime: Runtime, *, is_compiled: bool = False
) -> "Trunk":
    """The whole trunk of a model file in memory; InputError where it will not fit."""
    refuse_too_large(part, dtype, "this stage", runtime)
    return _whole_trunk(part, dtype, runtime, is_compiled=is_compiled)


@contextmanager
def placed_trunk(
    part: ModelPart,
    dtype: Dtype,
    call_tokens: int,
    runtime: Runtime,
    *,
    is_compiled: bool = False,
) -> Iterator[PlacedTrunk]:
    """The trunk, placed as `runtime.placement` says; the file is open as long as this.

    Calls are of `call_tokens` tokens each. InputError as from `place_trunk`.
    """
    with runtime.progress.task("loading torch"):
        import nets.stream  # noqa: F401 — what the libraries take is not free

    placing = place_trunk(part, dtype, call_tokens, runtime)
    if placing.kind == "resident":
        whole = _whole_trunk(part, dtype, runtime, is_compiled=is_compiled)
        yield PlacedTrunk(whole, 1)
        return
    runtime.progress.say(placing.text())
    most_calls = placing.calls_at_once(call_tokens, runtime)
    with _streamed_trunk(part, dtype, runtime, is_compiled=is_compiled) as streamed:
        yield PlacedTrunk(streamed, most_calls)


def _whole_trunk(
    part: ModelPart, dtype: Dtype, runtime: Runtime, *, is_compiled: bool
) -> "Trunk":
    with runtime.progress.task("loading the trunk"), open_part(part) as model:
        from nets.trunk import build_trunk
        from tasks.compute_weights import compute_weights

        weights = compute_weights(model, torch_dtype(dtype))
        return build_trunk(
            model.header.arch,
            weights.shapes,
            weights.read,
            device=runtime.device,
            dtype=torch_dtype(dtype),
            is_compiled=is_compiled,
        )


@contextmanager
def _streamed_trunk(
    part: ModelPart, dtype: Dtype, runtime: Runtime, *, is_compiled: bool
) -> "Iterator[StreamedTrunk]":
    from nets.stream import stream_trunk
    from tasks.compute_weights import compute_weights

    with open_part(part) as model:
        weights = compute_weights(model, torch_dtype(dtype))
        yield stream_trunk(
            model.header.arch,
            weights.shapes,
            weights.read,
            weights.read_rows,
            device=runtime.device,
            dtype=torch_dtype(dtype),
            is_compiled=is_compiled,
        )

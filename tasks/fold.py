"""fold_model: a smaller model, some layers dropped, FFN neurons cut."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from cmfio.reader import Container
from cmfio.rewrite import copy_tensor, encode_later
from cmfio.writer import Payload, write_container
from conf.base import Settings
from store.artifact import Artifact
from tasks.model_file import MODEL_NAME, ModelPart, open_part, weights_of
from tasks.packed import read_windows
from tasks.placed_trunk import load_trunk
from tasks.stage import Runtime, stage

if TYPE_CHECKING:
    import torch

    from nets.fold import FoldedTensor

BATCH = 8


class FoldRecipe(Settings):
    """Layers dropped, the share of FFN neurons that the others keep, windows looked at."""

    drop: tuple[int, ...]
    ffn: tuple[float, ...]
    windows: int
    dtype: Literal["bf16", "f32"]


def _disk_bytes(settings: FoldRecipe, *, model: ModelPart, **_: object) -> int:
    """A fold is no larger than its model."""
    with _opened(model) as source:
        return sum(file.path.stat().st_size for file in source.files)


@contextmanager
def _opened(model: ModelPart) -> Iterator[Container]:
    with open_part(model) as source:
        assert isinstance(source, Container), "whoever asks refuses folders"
        yield source


@stage("fold_model", version=1, needs=_disk_bytes, on_device=True)
def fold_model(
    out: Path,
    settings: FoldRecipe,
    runtime: Runtime,
    *,
    model: ModelPart,
    windows: Artifact | None,
) -> Mapping[str, object]:
    """`model.cmf` less the neurons that matter least on `windows`, or by weights alone."""
    from nets.fold import fold_arch, fold_plan, fold_tensors

    importance = _importance(settings, runtime, model, windows)
    plan = fold_plan(importance, settings.drop, settings.ffn)
    with _opened(model) as source:
        folded = fold_tensors(plan, source.entries)
        header = source.header.replace_arch(**fold_arch(plan, source.header.arch))
        header = header.with_provenance("fold", settings.model_dump(mode="json"))
        write_container(
            out / MODEL_NAME, header, list(_payloads(source, folded)), vocab=source.vocab
        )
    return {"layers": list(plan.layers), "widths": [len(kept) for kept in plan.neurons]}


def _importance(
    settings: FoldRecipe, runtime: Runtime, model: ModelPart, windows: Artifact | None
) -> "list[torch.Tensor]":
    from nets.fold import ffn_importance, ffn_importance_by_weights

    if windows is not None:
        trunk = load_trunk(model, settings.dtype, runtime)
        return ffn_importance(trunk, _batches(windows, settings.windows, runtime))
    with _opened(model) as source:
        weights = weights_of(source)
        return ffn_importance_by_weights(source.header.arch, weights.shapes, weights.read)


def _batches(windows: Artifact, count: int, runtime: Runtime) -> "Iterator[torch.Tensor]":
    import torch

    packed = read_windows(windows)
    whole = [w for w in packed.training if packed.length[w] == packed.ids.shape[1]]
    step = max(1, len(whole) // count)
    chosen = whole[::step][:count]  # spread over all sets
    with runtime.progress.task(
        "weighing neurons", total=len(chosen), unit="windows"
    ) as bar:
        for start in range(0, len(chosen), BATCH):
            part = chosen[start : start + BATCH]
            yield torch.from_numpy(packed.ids[part].astype("int64")).to(runtime.device)
            bar.advance(len(part))


def _payloads(source: Container, folded: "Sequence[FoldedTensor]") -> Iterator[Payload]:
    """Whole tensors as stored, cut ones encoded again in their own dtype."""
    for tensor in folded:
        entry = source.entries[tensor.source]
        if tensor.kept is None:
            yield copy_tensor(source, tensor.source, tensor.name)
        else:
            shape = list(entry.shape)
            shape[tensor.axis] = len(tensor.kept)
            yield encode_later(
                tensor.name, tuple(shape), entry.dtype, _cutter(source, tensor)
            )


def _cutter(
    source: Container, tensor: "FoldedTensor"
) -> "Callable[[], npt.NDArray[np.float32]]":
    """Reads and cuts a tensor when it is written, so that one at a time is in memory."""
    import torch

    def cut() -> npt.NDArray[np.float32]:
        values: npt.NDArray[np.float32] = tensor.cut(
            torch.from_numpy(source.tensor(tensor.source))
        ).numpy()
        return values

    return cut

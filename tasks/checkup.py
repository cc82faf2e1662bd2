"""What would block or bias a heal, as far as a model's file tells; no torch."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cmfio.errors import DamagedTensor
from cmfio.hf_checkpoint import Checkpoint
from cmfio.models import AnyModel, open_weights
from cmfio.reader import Container
from cmfio.verify import verify
from nets.errors import ModelError
from nets.families import Family, find_family
from nets.geometry import DRAFT_LAYER, draft_geometry, trunk_geometry
from tasks.drafts import BEFORE_BLOCK
from tasks.model_file import DRAFT_PREFIX

Level = Literal["blocks", "biases", "fact"]
Shapes = Mapping[str, tuple[int, ...]]
Progress = Callable[[int, int], None]

NORM_STYLES = {"qwen": "gain w", "gemma": "gain 1 + w"}
# What an `init` replaces; MTP layers beyond the first are nobody's business.
HEALED = (DRAFT_LAYER, f"{DRAFT_PREFIX}norm.")


@dataclass(frozen=True)
class Finding:
    """One thing found: what, where, and what to do; a fact asks for nothing."""

    level: Level
    where: str
    what: str
    todo: str = ""


def refusal(error: Exception, where: str) -> Finding:
    """What a run would refuse: our errors say where and what, and end with what to do."""
    text = str(error).removeprefix(f"{where}: ")
    what, _, todo = text.rpartition("; ")
    return Finding("blocks", where, what or text, todo if what else "")


def file_findings(path: Path, *, needs_draft: bool, progress: Progress) -> list[Finding]:
    """Trunk, draft, tokenizer and bytes of a model; CmfError if it can't be opened."""
    with open_weights(path) as model:
        name = path.name
        family = _family(model, name)
        found = [family] if isinstance(family, Finding) else [*_trunk(family, model, name)]
        if not isinstance(family, Finding):
            found += _draft(family, model, name, needs_draft=needs_draft)
        found += [*_tokenizer(model, name), *_bytes(model, name, progress)]
    return found


def init_findings(student: Path, init: Path) -> list[Finding]:
    """Whether another model's block and output norm fit behind the student's projection."""
    where = init.name
    with open_weights(student) as own, open_weights(init) as other:
        shapes, given = (_draft_shapes(model) for model in (own, other))
        if not given:
            what = "init carries no draft (no model.mtp.* tensors)"
            return [Finding("blocks", where, what, "name a model that has one")]
        misfit = _misfit(own, shapes, given)
    if misfit is None:
        return [Finding("fact", where, "init's draft has the student's shapes")]
    what = f"init's draft doesn't fit the student: {misfit}"
    return [Finding("blocks", where, what, "name the model the student was made of")]


def _misfit(student: AnyModel, shapes: Shapes, given: Shapes) -> str | None:
    """Why a draft of shapes `given` can't stand in a student whose own has `shapes`."""
    lacking = sorted(n for n in shapes if n.startswith(HEALED) and n not in given)
    if lacking:
        return f"it has no {lacking[0]!r}"
    taken = {n: s for n, s in given.items() if not (shapes and n.startswith(BEFORE_BLOCK))}
    arch = student.header.arch
    try:
        draft_geometry(find_family(arch, student.shapes), arch, {**shapes, **taken})
    except ModelError as error:
        return refusal(error, student.path.name).what
    return None


def _family(model: AnyModel, where: str) -> Family | Finding:
    try:
        return find_family(model.header.arch, model.shapes)
    except ModelError as error:
        return refusal(error, where)


def _trunk(family: Family, model: AnyModel, where: str) -> Iterator[Finding]:
    arch = model.header.arch
    try:
        geometry = trunk_geometry(arch, model.shapes)
    except ModelError as error:
        yield refusal(error, where)
        return
    layout = "a Hugging Face folder" if isinstance(model, Checkpoint) else "a .cmf"
    widths = {layer.ffn for layer in geometry.layers}
    folded = f", {len(widths)} different FFN widths" if len(widths) > 1 else ""
    head = "the embedding is the head" if geometry.is_tied else "a head of its own"
    size = f"{arch.num_layers} layers of {arch.hidden_size}{folded}"
    yield Finding("fact", where, f"{layout}, {family.title}: {size}; {head}")
    yield Finding("fact", where, f"norms: {NORM_STYLES[family.norm_style]}")


def _draft(
    family: Family, model: AnyModel, where: str, *, needs_draft: bool
) -> Iterator[Finding]:
    shapes, promised = _draft_shapes(model), model.header.arch.mtp
    if not shapes and not needs_draft:
        return
    try:
        draft_geometry(family, model.header.arch, model.shapes)
    except ModelError as error:
        found = refusal(error, where)
        is_lost = promised is not None and not shapes
        lost = "the header promises an MTP draft that was dropped on the way: "
        yield Finding("blocks", where, (lost if is_lost else "") + found.what, found.todo)
        return
    if promised is None:
        yield Finding(
            "biases",
            where,
            "the tensors hold an MTP draft that the header (arch.mtp) does not mention",
            "a runtime may pass it over: convert the model again",
        )
    yield Finding("fact", where, f"a draft of {len(shapes)} tensors{_whose_head(model)}")
    kept = {name.split(".")[3] for name in shapes if ".layers." in name} - {"0"}
    if kept:
        named = ", ".join(sorted(kept, key=int))
        what = f"MTP layer 0 is healed; layers {named} stay as they are, byte for byte"
        yield Finding("fact", where, what)
    yield from _not_finite(model, where)


def _whose_head(model: AnyModel) -> str:
    """Which head the draft reads; copies of its own were compared when it was opened."""
    copies = model.head.copies if isinstance(model, Checkpoint) and model.head else {}
    if not copies:
        return "; its head and embedding are the trunk's"
    return f"; its own {', '.join(copies)} equal the trunk's and are left alone"


def _not_finite(model: AnyModel, where: str) -> Iterator[Finding]:
    for name in _draft_shapes(model):
        try:
            is_sound = bool(np.isfinite(model.tensor(name)).all())
        except DamagedTensor:
            continue  # said with the other damage
        if not is_sound:
            what = f"draft tensor {name!r} holds a value that isn't finite"
            todo = "check the model it was made from, or take the draft of another (init)"
            yield Finding("blocks", where, what, todo)


def _tokenizer(model: AnyModel, where: str) -> Iterator[Finding]:
    if model.vocab is None:
        what = "carries no tokenizer: data must have a column `ids`"
        todo = "for text put the model's tokenizer.json into its file"
        yield Finding("biases", where, what, todo)


def _bytes(model: AnyModel, where: str, progress: Progress) -> Iterator[Finding]:
    """Every recorded hash against the bytes; a checkpoint records none."""
    if not isinstance(model, Container):
        return
    damage = verify(model, progress)
    for problem in damage:
        what = problem.removeprefix(f"{model.path}: ")
        yield Finding(
            "blocks", where, what, "the file is damaged; copy or convert it again"
        )
    if not damage:
        yield Finding("fact", where, "every tensor has the hash that was recorded")


def weights_met(path: Path) -> int:
    """The weights that a token is multiplied with on its way through the trunk."""
    with open_weights(path) as model:
        arch = model.header.arch
        geometry = trunk_geometry(arch, model.shapes)
    used = 1.0 if arch.moe is None else arch.moe.top_k
    layers = sum(
        math.prod(part.shape) * (used / layer.experts if ".experts." in part.name else 1)
        for layer in geometry.layers
        for part in layer.parts
    )
    return round(layers) + arch.vocab_size * arch.hidden_size


def _draft_shapes(model: AnyModel) -> Shapes:
    return {n: s for n, s in model.shapes.items() if n.startswith(DRAFT_PREFIX)}

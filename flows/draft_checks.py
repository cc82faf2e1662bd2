"""What is refused, or said, of the drafts that a run names, before any data is read."""

from pathlib import Path

from cmfio.hf_checkpoint import Checkpoint
from cmfio.models import AnyModel, open_weights
from conf.schema import RunConfig
from nets.families import find_family
from nets.geometry import draft_geometry
from tasks.checkup import init_findings
from tasks.errors import InputError
from tasks.model_file import ModelFile
from tasks.stage import Runtime

FRESH_LR = 1e-4  # under it a fresh draft hardly moves
WAYS = (
    "name a model that has one with `init`, or set start_from_last_layer: true to start a "
    "fresh draft"
)


def check_drafts(
    config: RunConfig, student: ModelFile, init: ModelFile | None, runtime: Runtime
) -> None:
    """Refuses a draft that is not there, lacks a part or doesn't fit; says what is odd.

    InputError or ModelError, with the ways on.
    """
    if init is not None and not init.has_draft:
        raise no_draft(init.path)
    if config.start == "own" and not student.has_draft:
        raise no_draft(student.path)
    if init is not None:
        refuse_foreign_init(student, init)
    elif student.has_draft and not config.start_from_last_layer:
        _check_own(student.path, runtime)
    if config.start_from_last_layer and student.has_draft:
        runtime.progress.say(
            f"{student.path}: its own draft is dropped for a fresh one, as "
            "start_from_last_layer: true asks; leave that out to heal its own"
        )
    if config.start_from_last_layer and config.train.trains and config.train.lr < FRESH_LR:
        runtime.progress.say(
            f"train.lr is {config.train.lr:g}, for drafts that are nearly right: a fresh "
            "one hardly moves by it; 3e-3 is a rate to begin with"
        )


def refuse_foreign_init(student: ModelFile, init: ModelFile) -> None:
    """An `init` whose draft can't stand in the student is refused."""
    for found in init_findings(student.path, init.path):
        if found.level == "blocks":
            raise InputError(f"{init.path}: {found.what}; {found.todo}")


def no_draft(path: Path, ways: str = WAYS) -> InputError:
    """The refusal of a model without `model.mtp.*`, with the ways on."""
    with open_weights(path) as model:
        is_promised = model.header.arch.mtp is not None
        by = _described_by(model)
    lost = f", though its {by} promises one: it was dropped on the way"
    return InputError(
        f"{path}: carries no MTP draft (no model.mtp.* tensors)"
        f"{lost if is_promised else ''}; {ways}"
    )


def _check_own(path: Path, runtime: Runtime) -> None:
    """ModelError for a draft with a part missing; a line for one nobody mentions."""
    with open_weights(path) as model:
        arch = model.header.arch
        draft_geometry(find_family(arch, model.shapes), arch, model.shapes)
        if arch.mtp is None:
            runtime.progress.say(
                f"{path}: its {_described_by(model)} does not mention the draft that its "
                "tensors hold; it is healed, and what is written says that it is there"
            )


def _described_by(model: AnyModel) -> str:
    return "config.json" if isinstance(model, Checkpoint) else "header"

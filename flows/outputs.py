"""What a heal writes: where its outputs go, each rewritten model, and its publishing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cmfio.policy import parse_request
from conf.base import RAW, Wiring
from conf.schema import RunConfig
from store.artifact import Artifact
from tasks.drafts import DraftSource
from tasks.model_file import Layout, ModelFile, model_in
from tasks.publish import (
    Target,
    publish,
    publish_checkpoint,
    refuse_bad_outputs,
    target_of,
)
from tasks.report import Healed
from tasks.rewrite import RewriteSettings, rewrite_model
from tasks.rewrite_checkpoint import healed_checkpoint, rewrite_checkpoint
from tasks.stage import Runtime


def refuse_bad_outputs_of(config: RunConfig, inputs: Mapping[str, Path]) -> None:
    """What is wrong with outputs and codecs, before any model or data is opened."""
    for output in config.outputs:
        parse_request(output.codec)
    refuse_bad_outputs(_asked(config), inputs)


def targets_of(config: RunConfig) -> list[Target]:
    """Where the outputs go: a Hugging Face student gives folders, unless for a .cmf.

    None without training if `keep` is all that is asked for: that is the student itself.
    """
    asked = _asked(config)
    if config.train.trains or any(target.codec != "keep" for target in asked):
        return asked
    return []


def _asked(config: RunConfig) -> list[Target]:
    student = Path(config.student)
    return [target_of(one.path, one.codec, student) for one in config.outputs]


def say_foreign_wiring(targets: Sequence[Target], wiring: Wiring, runtime: Runtime) -> None:
    """Warns of files whose usual runtimes feed a draft other rows (healing.md §3)."""
    for target in targets:
        if target.layout == "cmf" and wiring != RAW:
            runtime.progress.say(
                f"{target.path}: the draft is wired {wiring.text} (hidden/chain); "
                "runtimes that feed .cmf drafts raw rows will hold fewer of its tokens "
                "than are measured here: write a Hugging Face folder, or train it for raw "
                "rows with probe.wiring: {hidden: raw, chain: raw}"
            )


@dataclass(frozen=True)
class Rewritten:
    """A stage's artifact, and the model that is in it."""

    file: Artifact
    model: ModelFile


def rewritten(
    settings: RewriteSettings,
    layout: Layout,
    student: ModelFile,
    draft: DraftSource,
    runtime: Runtime,
    label: str,
) -> Rewritten:
    """The student with this draft in it: a file, or a patch for its folder."""
    if layout == "cmf":
        file = rewrite_model(
            settings, runtime, student=student.whole, draft=draft, label=label
        )
        return Rewritten(file, model_in(file, runtime))
    file = rewrite_checkpoint(
        settings, runtime, student=student.whole, draft=draft, label=label
    )
    return Rewritten(file, healed_checkpoint(student, file, runtime))


def publish_outputs(healed: Healed, targets: Sequence[Target], runtime: Runtime) -> None:
    """Copies each written model to the path asked for."""
    models = {(one.codec, one.model.layout): one.model for one in healed.outputs}
    for target in targets:
        model = models[target.codec, target.layout]
        earlier = ", in place of an earlier one" if target.path.exists() else ""
        if target.layout == "hf":
            publish_checkpoint(model, target.path, runtime)
        else:
            publish(model.path, target.path)
        runtime.progress.say(
            f"wrote {target.path} ({target.codec}){earlier}{_layers_text(model)}"
        )


def _layers_text(model: ModelFile) -> str:
    """Which of several MTP layers was healed; nothing where there is one."""
    head = model.head
    if head is None or not head.kept:
        return ""
    return f"; healed {head.healed}, kept as they were: {', '.join(head.kept)}"

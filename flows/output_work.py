"""One model to write and to measure: here, or on a worker of the run's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flows.ground import Ground
from flows.outputs import rewritten
from store.artifact import Artifact
from tasks.drafts import DraftSource
from tasks.model_file import Layout, ModelPart
from tasks.planning import Planner, is_pending
from tasks.progress import Bar
from tasks.report import Written
from tasks.rewrite import RewriteSettings
from tasks.runner import make_ahead
from tasks.stage import Runtime


@dataclass(frozen=True)
class OutputWork:
    """The student with a draft in it, in one codec and layout."""

    ground: Ground
    draft: DraftSource
    settings: RewriteSettings
    layout: Layout
    suffix: str = ""

    @property
    def shown(self) -> str:
        """Its codec, with the layout where that is not the student's."""
        is_own = self.layout == self.ground.model.layout
        return self.settings.codec if is_own else f"{self.settings.codec} .{self.layout}"

    @property
    def title(self) -> str:
        """As errors name it."""
        return f"output {self.shown}{self.suffix}"

    @property
    def size(self) -> int:
        """One output."""
        return 1

    @property
    def models(self) -> tuple[ModelPart, ...]:
        """The student, and the model that the draft is a part of, if it is one."""
        own = () if isinstance(self.draft, Artifact) else (self.draft,)
        return (self.ground.model.whole, *own)

    def __call__(self, runtime: Runtime, bar: Bar) -> None:
        """Write and measure it."""
        self.written(runtime)
        bar.advance()

    def written(self, runtime: Runtime) -> Written:
        """The model and its measure, found or made."""
        file = rewritten(
            self.settings,
            self.layout,
            self.ground.model,
            self.draft,
            runtime,
            f"{self.shown}{self.suffix}",
        )
        label = f"healed {self.shown}{self.suffix}"
        measure = self.ground.measured(file.model.draft, runtime, label)
        return Written(self.settings.codec, self.shown, file.file, measure, file.model)

    def is_missing(self, runtime: Runtime) -> bool:
        """Whether something of it is yet to be made; asked as a plan asks, runs nothing."""
        found = self.written(replace(runtime, planner=Planner(runtime.store)))
        return is_pending(found.file) or is_pending(found.measure)

    def elsewhere(self) -> "OutputWork":
        """The same with paths that mean something in another folder."""
        ground = replace(self.ground, model=self.ground.model.elsewhere())
        draft = self.draft
        if not isinstance(draft, Artifact):
            draft = draft.elsewhere()
        return replace(self, ground=ground, draft=draft)


def write_ahead(works: Sequence[OutputWork], runtime: Runtime) -> None:
    """Has the run's workers, if it has any, write and measure what is missing.

    One output is written here: there is nothing to share out, and this process has just
    trained on its own device.
    """
    if runtime.planner is not None or runtime.runner.is_here or len(works) < 2:
        return
    missing = [work for work in works if work.is_missing(runtime)]
    if len(missing) < 2:
        return
    with runtime.progress.task("outputs", total=len(works), unit="outputs") as bar:
        bar.skip(len(works) - len(missing))
        make_ahead([work.elsewhere() for work in missing], bar, runtime)

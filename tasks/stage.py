"""What makes a function a cached stage: key, lock, hit, damage, record.

Inside a Prefect flow run a stage is a Prefect task; outside one it writes the same record
with Prefect's ResultStore. Either finds what the other made. docs/stages.md shows how a
call goes.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from pydantic import BaseModel

from store.artifact import Artifact
from store.completion import (
    StageResult,
    drop_broken,
    drop_work,
    finish,
    mark_resumed,
    prepare,
    was_resumed,
)
from store.errors import ArtifactDamaged, ArtifactError, LeaseLost, storage_errors
from store.filling import fill_folder, place_filled
from store.inputs import Input, digests_in, with_artifacts
from store.keys import checked_stage, plain_json, split_name
from store.ledger import Ledger, StageEvent, State
from store.locks import Hold
from store.manifest import WORK, Recipe, key_of
from store.origin import Stopwatch
from store.record import Reference, read_reference, record_name
from store.runs import PROGRESS
from store.space import bytes_in, refuse_little_room
from store.store import Store
from store.using import take_hold
from tasks.errors import InputError
from tasks.interrupt import Stopped
from tasks.planning import Asked, Planner
from tasks.progress import FiledProgress
from tasks.record import close_record, drop_failure_record, in_flow_run
from tasks.runtime import Runtime
from tasks.slots import device_slot

__all__ = ["Ledger", "Runtime", "Stage", "StageResult", "mark_resumed", "stage"]

# A stage's own function, fill(out, settings, runtime, **inputs), each with its own inputs.
Fill = Callable[..., Mapping[str, object] | StageResult | None]
Needs = Callable[..., int]  # of (settings, **inputs): bytes on disk at most
# Of (settings, nearest manifest | None, **inputs): the numbers, before there are any.
Expects = Callable[..., Mapping[str, object]]


@dataclass(frozen=True)
class Stage:
    """A fill function with a name and a version; call it to have its artifact."""

    name: str
    version: int
    fill: Fill
    needs: Needs = lambda *_, **__: 0
    expects: Expects = lambda *_, **__: {}
    on_device: bool = False

    def __call__(
        self, settings: BaseModel, runtime: Runtime, *, label: str = "", **inputs: Input
    ) -> Artifact:
        """The finished artifact of these settings and inputs, found or made.

        `label` is only shown. Raises `ArtifactError` for what is wrong with the store, and
        whatever the fill raises; then nothing counts as made.
        """
        call = _Call(self, settings, runtime, inputs, label)
        return call.answer() if runtime.planner is None else call.planned(runtime.planner)

    def find(
        self, settings: BaseModel, runtime: Runtime, **inputs: Input
    ) -> Artifact | None:
        """The finished artifact of these settings and inputs; None rather than make it."""
        return _Call(self, settings, runtime, inputs, "").sound()


def stage(
    name: str,
    *,
    version: int,
    needs: Needs = lambda *_, **__: 0,
    expects: Expects = lambda *_, **__: {},
    on_device: bool = False,
) -> Callable[[Fill], Stage]:
    """Decorator: `fill(out, settings, runtime, **inputs)` becomes a `Stage`.

    The fill writes into `out` and returns its numbers, a `StageResult`, or nothing. Raise
    `version` whenever it writes something else for the same settings and inputs. With
    `needs` it is not begun on a disk that cannot hold its files; `expects` is for plans.
    One `on_device` fills while it holds a slot, in runs that share their device by slots.
    """
    checked_stage(name)
    return lambda fill: Stage(name, version, fill, needs, expects, on_device)


@dataclass(frozen=True)
class _Call:
    """One call of a stage, until it is answered."""

    stage: Stage
    settings: BaseModel
    runtime: Runtime
    inputs: Mapping[str, Input]
    label: str

    @cached_property
    def recipe(self) -> Recipe:
        settings = plain_json(self.settings.model_dump(mode="json"), "settings")
        inputs = {name: digests_in(value, name) for name, value in self.inputs.items()}
        assert isinstance(settings, dict), "a pydantic model dumps to a dict"
        return Recipe(
            stage=self.stage.name,
            version=self.stage.version,
            settings=settings,
            inputs=inputs,
        )

    @cached_property
    def key(self) -> str:
        return key_of(self.recipe)

    @property
    def shown(self) -> str:
        """The stage's name and what is beside it, as people see it."""
        return f"{self.stage.name} {self.label}".rstrip()

    @property
    def store(self) -> Store:
        return self.runtime.store

    def planned(self, planner: Planner) -> Artifact:
        """The artifact if there is one, else a stand-in."""
        needs = partial(self.stage.needs, self.settings, **self.inputs)
        expects = partial(self.stage.expects, self.settings, **self.inputs)
        return planner.answer(Asked(self.recipe, self.label, needs, expects))

    def answer(self) -> Artifact:
        """The artifact; the ledger says how it came."""
        start = time.monotonic()
        try:
            with storage_errors(self.store.root, f"stage {self.stage.name}"):
                artifact, state = self._found_or_made()
        except Stopped as stopped:
            raise Stopped(stopped.where, stopped.stage or self.shown) from None
        seconds = time.monotonic() - start
        self.runtime.ledger.add(
            StageEvent(self.stage.name, artifact.key, state, seconds, self.label)
        )
        return artifact

    def _found_or_made(self) -> tuple[Artifact, State]:
        # Without the lock first: finished artifacts may lie on a read-only disk.
        found = self.sound()
        if found is not None and self.store.is_shared(found):
            return self._hit(found)
        with self.store.hold(self.stage.name, self.key, self._say_waiting) as hold:
            found = self.sound()
            if found is not None:
                self.store.share(found, hold)
                return self._hit(found)
            self._clear_damage(self.stage.name, self.key)
            inputs, was_remade = self._sound_inputs()
            if not was_remade and take_hold(self.store, hold, inputs):
                return self._made(hold)
        # Other content gives another key, and an own part may be whole again: ask anew.
        return replace(self, inputs=inputs)._found_or_made()

    def sound(self) -> Artifact | None:
        """The finished artifact if there is one and its files are as written."""
        try:
            artifact = self.store.load(self.stage.name, self.key)
        except ArtifactDamaged:
            return None
        if artifact is None or self.store.damage(artifact):
            return None
        return replace(artifact, remake=self.answer)

    def _hit(self, found: Artifact) -> tuple[Artifact, State]:
        self.store.bring(found)
        if in_flow_run():
            reference = read_reference(self.store.record_path(found.stage, found.key))
            assert reference is not None, "a sound artifact has a record"
            self._run_as_task(lambda: reference)
        return found, "cached"

    def _made(self, hold: Hold) -> tuple[Artifact, State]:
        fill = partial(self._fill, hold)
        reference = self._run_as_task(fill) if in_flow_run() else fill()
        close_record(self.store, reference)
        drop_work(self.store.path(self.stage.name, self.key))
        made = self.sound()
        if made is None:
            raise ArtifactError(
                f"{self.store.path(self.stage.name, self.key)}: someone else changed it "
                f"while stage {self.stage.name} was writing; run again"
            )
        self.store.share(made, hold)
        self.store.note_written(made)
        return made, "resumed" if made.manifest.resumed else "ran"

    def _fill(self, hold: Hold) -> Reference:
        """Run the stage's own function in its folder; what the record must say."""
        out = fill_folder(self.store, self.stage.name, self.key, hold)
        with storage_errors(self.store.root, f"stage {self.stage.name}"):
            self.runtime.stop.check("before this one began, all before it is kept")
            if prepare(out):
                self._say("an earlier run broke off; starting from what it can resume")
            need = self.stage.needs(self.settings, **self.inputs) - bytes_in(out)
            refuse_little_room(self.store.root, need, f"stage {self.stage.name}")
            self.runtime.ledger.begin(self.stage.name, self.key, self.label)
            try:
                reference = self._filled(out)
                place_filled(self.store, self.stage.name, self.key, out, hold)
            except Exception as error:
                drop_broken(out, is_refused=isinstance(error, InputError))
                if hold.is_lost and not isinstance(error, LeaseLost):
                    raise LeaseLost(self.recipe.stage, str(self.store.root)) from error
                raise
            return reference

    def _filled(self, out: Path) -> Reference:
        watch = Stopwatch()
        progress = FiledProgress(self.runtime.progress, out / WORK / PROGRESS)
        runtime = replace(self.runtime, progress=progress)
        with device_slot(runtime.slots if self.stage.on_device else None):
            filled = self.stage.fill(out, self.settings, runtime, **self.inputs)
        if not isinstance(filled, StageResult):
            filled = StageResult(filled or {})
        filled = replace(filled, notes=progress.paces() | {**filled.notes})
        machine = f"{self.runtime.device}, threads {self.runtime.threads}"
        origin = watch.origin(machine, resumed=was_resumed(out))
        return finish(out, self.recipe, filled, origin)

    def _run_as_task(self, body: Callable[[], Reference]) -> Reference:
        """Run `body` as a Prefect task: it writes the record, or finds it and runs none."""
        from prefect import Task

        from tasks.stage_artifacts import showing

        key = record_name(self.stage.name, self.key)

        def reference() -> dict[str, str]:
            return body().model_dump()

        task = Task(
            reference,
            name=self.shown,
            persist_result=True,
            result_storage=self.store.root,
            result_serializer="json",
            cache_key_fn=lambda *_: key,
            cache_result_in_memory=False,
            refresh_cache=False,
            on_completion=[showing(self.store, self.stage.name, self.key)],
            on_failure=[drop_failure_record],
        )
        return Reference.model_validate(task())

    def _sound_inputs(self) -> tuple[dict[str, Input], bool]:
        """The inputs with every damaged artifact made again, and whether any was."""
        remade: list[str] = []

        def sound(artifact: Artifact) -> Artifact:
            damage = self.store.damage_before_use(artifact)
            if not damage:
                return artifact
            for name in damage:
                stage_name, key = split_name(name)
                with self.store.hold(stage_name, key, self._say_waiting):
                    self._clear_damage(stage_name, key)
            if artifact.remake is None:
                raise ArtifactDamaged(artifact.path, next(iter(damage.values()))[0])
            remade.append(artifact.name)
            return artifact.remake()

        inputs = {name: with_artifacts(value, sound) for name, value in self.inputs.items()}
        return inputs, bool(remade)

    def _clear_damage(self, stage_name: str, key: str) -> None:
        problems = self.store.clear_damage(stage_name, key)
        if problems:
            others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            self.runtime.progress.say(
                f"{stage_name}: damaged, set aside and made again: {problems[0]}{others}"
            )

    def _say_waiting(self) -> None:
        if self.runtime.ledger.waits_anew(self.shown):
            self._say("another run is making it; waiting for that")

    def _say(self, text: str) -> None:
        self.runtime.progress.say(f"{self.shown}: {text}")

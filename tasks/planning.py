"""What a run would do, found by asking the flows: no stage runs, nothing is written.

With a `Planner` in its runtime a stage call that hits gives its artifact, and one that
misses a `Pending` one, whose content nobody knows yet. So a plan is made by the same flow
as the run and cannot disagree with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from pydantic import JsonValue

from store.artifact import Artifact
from store.errors import ArtifactDamaged
from store.inputs import Digestible
from store.keys import plain_json
from store.manifest import WORK, Manifest, Recipe, key_of
from store.nearest import Cost, Difference, cost, nearest
from store.runs import PROGRESS, read_progress
from store.store import Store

FREE = Cost(0, 0.0)
PENDING = "pending:"  # begins the stand-in for a digest that nobody can know yet
# The rest of a manifest that nobody can tell before the stage has run.
NOTHING_YET: Mapping[str, object] = {
    **{name: {} for name in ("files", "arrays", "notes", "versions")},
    **dict.fromkeys(("parts", "part_digests"), ()),
    "machine": "",
    "started": "",
    "seconds": 0.0,
    "resumed": False,
}


@dataclass(frozen=True)
class Pending(Artifact):
    """An artifact that a run would make: its recipe and the numbers expected of it."""

    marker: str = ""

    @property
    def content_digest(self) -> str:
        """A stand-in, so that calls which read it are known by it."""
        return self.marker


def is_pending(value: Digestible | None) -> bool:
    """Whether something is, or comes out of, an artifact that has yet to be made."""
    return value is not None and value.content_digest.startswith(PENDING)


@dataclass(frozen=True)
class Asked:
    """One stage call: its recipe, and what its stage can say before it runs."""

    recipe: Recipe
    label: str
    needs: Callable[[], int]
    expects: Callable[[Manifest | None], Mapping[str, object]]


@dataclass(frozen=True)
class PlannedStage:
    """One stage call of a run to come; `key` is None where it cannot be known."""

    name: str
    label: str
    key: str | None
    state: Literal["cached", "runs"]
    why: str = ""
    differences: tuple[Difference, ...] = ()
    cost: Cost = FREE


@dataclass
class Planner:
    """Answers stage calls from the store, and keeps what would run and why."""

    store: Store
    stages: list[PlannedStage] = field(default_factory=list)
    _notes: dict[str, str] = field(default_factory=dict)
    _answers: dict[str, Artifact] = field(default_factory=dict)
    _past: dict[str, list[Manifest]] | None = None

    @property
    def notes(self) -> list[str]:
        """What was noted, in order."""
        return list(self._notes.values())

    def note(self, text: str, about: str | None = None) -> None:
        """Keeps a line on how something would run; `about` one thing, the last of them."""
        self._notes[about or text] = text

    def answer(self, asked: Asked) -> Artifact:
        """The artifact found, or a pending one with the numbers its stage expects."""
        key = key_of(asked.recipe)
        if key not in self._answers:
            self._answers[key] = self._found_or_pending(asked, key)
        return self._answers[key]

    def _found_or_pending(self, asked: Asked, key: str) -> Artifact:
        recipe = asked.recipe
        waits_for = dict.fromkeys(_pending_in(recipe.inputs))
        if waits_for:
            return self._pending(asked, key, _they_run(list(waits_for)))
        found, problem = self._found(recipe.stage, key)
        if found is None:
            return self._pending(asked, key, problem)
        self.stages.append(PlannedStage(recipe.stage, asked.label, key, "cached"))
        return found

    def _pending(self, asked: Asked, key: str, why: str | None) -> Pending:
        """A stand-in; `why` it misses, unless the nearest artifact tells."""
        recipe = asked.recipe
        past = nearest(recipe, self._manifests(recipe.stage))
        expected = asked.expects(past.manifest if past else None)
        is_known = not any(_pending_in(recipe.inputs))
        if why is None:
            why = past.text() if past else f"there is no {recipe.stage} in this store yet"
        if past is not None:
            mates = (recipe.stage, asked.label, "runs")
            begins = all((s.name, s.label, s.state) != mates for s in self.stages)
            expense = cost(recipe, expected, past.telling, begins=begins)
        else:
            expense = Cost((asked.needs() or None) if is_known else None, None)
        self.stages.append(
            PlannedStage(
                recipe.stage,
                asked.label,
                key if is_known else None,
                "runs",
                why,
                past.differences if past and is_known else (),
                expense,
            )
        )
        return self._stand_in(recipe, key, expected)

    def _found(self, stage: str, key: str) -> tuple[Artifact | None, str | None]:
        """The artifact if it is sound, or what is wrong with it, if it is there at all."""
        try:
            artifact = self.store.load(stage, key)
        except ArtifactDamaged as error:
            return None, f"damaged: {error.problem}"
        if artifact is None:
            return None, self._broken_off(stage, key)
        problems = self.store.check(artifact)
        return (None, f"damaged: {problems[0]}") if problems else (artifact, None)

    def _broken_off(self, stage: str, key: str) -> str | None:
        out = self.store.path(stage, key)
        if not out.exists():
            return None
        said = read_progress(out / WORK / PROGRESS)
        where = f" ({said['line']})" if said is not None and "line" in said else ""
        return f"an earlier run broke off here{where}"

    def _manifests(self, stage: str) -> list[Manifest]:
        if self._past is None:
            every = (artifact.manifest for artifact in self.store.artifacts())
            self._past = {
                name: list(group) for name, group in groupby(every, key=lambda m: m.stage)
            }
        return self._past.get(stage, [])

    def _stand_in(
        self, recipe: Recipe, key: str, expected: Mapping[str, object]
    ) -> Pending:
        marker = f"{PENDING}{recipe.stage}:{len(self.stages)}"
        numbers = plain_json(expected, "expected")
        manifest = Manifest.model_validate(
            {
                **recipe.model_dump(),
                "key": key,
                "content": marker,
                "numbers": numbers,
                **NOTHING_YET,
            }
        )
        path = self.store.path(recipe.stage, key)
        return Pending(recipe.stage, key, path, manifest, marker=marker)


def _they_run(stages: Sequence[str]) -> str:
    """`a runs`, `a and b run`, `a, b and c run`."""
    if len(stages) == 1:
        return f"{stages[0]} runs"
    return f"{', '.join(stages[:-1])} and {stages[-1]} run"


def _pending_in(inputs: JsonValue) -> Iterator[str]:
    """The stages whose artifacts an input waits for."""
    if isinstance(inputs, str) and inputs.startswith(PENDING):
        yield inputs.split(":")[1]
    elif isinstance(inputs, dict):
        for inner in inputs.values():
            yield from _pending_in(inner)
    elif isinstance(inputs, list):
        for inner in inputs:
            yield from _pending_in(inner)

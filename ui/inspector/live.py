"""A run under way, as its live box tells it: how far, how long, what it reads."""

from dataclasses import dataclass

from store.manifest import Json
from store.runs import Run
from ui.figures import duration, fixed, scientific
from ui.inspector.heal_list import Heal, doing


@dataclass(frozen=True)
class Live:
    """What is known now; `total` None where nobody knows how much there is."""

    heal: Heal
    doing: str
    done: int
    total: int | None
    left: str
    passed: tuple[tuple[str, int], ...]
    filling: tuple[str, ...]
    training: str
    values: tuple[tuple[str, str], ...]


def live_of(heal: Heal) -> Live | None:
    """The box of a running heal; None for every other."""
    run = heal.run
    if run is None or heal.state != "running":
        return None
    said = run.progress or {}
    done, total, left = said.get("done"), said.get("total"), said.get("left_s")
    return Live(
        heal=heal,
        doing=doing(run),
        done=done if isinstance(done, int) else 0,
        total=total if isinstance(total, int) and total > 0 else None,
        left=f"{duration(left)} left" if isinstance(left, int | float) else "",
        passed=_passed(run),
        filling=tuple(f"{one.name} {one.label}".strip() for one in run.record.filling),
        training=next((f.key for f in run.record.filling if f.name == "train_draft"), ""),
        values=values_of(said),
    )


def values_of(said: Json) -> tuple[tuple[str, str], ...]:
    """What a progress says beside its count, spelled: loss, learning rate."""
    values = said.get("values")
    pairs = values.items() if isinstance(values, dict) else ()
    return tuple((str(name), _value(value)) for name, value in pairs)


def _value(value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return scientific(value) if 0 < abs(value) < 1e-3 else fixed(value, 3)


def _passed(run: Run) -> tuple[tuple[str, int], ...]:
    """Each stage that was answered, in order, with how often."""
    counts: dict[str, int] = {}
    for event in run.record.events:
        counts[event.name] = counts.get(event.name, 0) + 1
    return tuple(counts.items())

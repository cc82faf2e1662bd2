"""What a user names: the artifacts of a stage, by a run's id, their key, or `last`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from store.manifest import RECORD
from store.pins import LAST
from store.runs import Run, runs
from tasks.errors import InputError

SHOWN_KEY = 12


@dataclass(frozen=True)
class Wanted:
    """Artifacts of one stage, as `heal COMMAND` finds them.

    `of_run` gives the keys of those a run came to. `advice` ends what is said where none
    fits.
    """

    command: str
    stage: str
    word: str
    of_run: Callable[[Run], Sequence[str]]
    advice: str


def find_named(root: Path, wanted: Wanted, name: str) -> Path:
    """The folder of the only finished artifact that `name` means.

    That is the id of a run, a key, `STAGE/KEY`, the beginning of one of these, or `last`:
    what the newest run came to that came to any. InputError if there is none or several.
    """
    book = {run.record.id: run for run in runs(root)}
    finished = [path.parent.name for path in root.glob(f"{wanted.stage}/*/{RECORD}")]
    came_to = {
        id_: [key for key in dict.fromkeys(wanted.of_run(run)) if key in finished]
        for id_, run in book.items()
    }
    if name == LAST:
        found = next((keys for keys in came_to.values() if keys), [])
    elif name in book and not came_to[name]:
        problem = f"run {name} is {book[name].state} and has no {wanted.word}"
        raise _missing(root, wanted, problem, finished)
    else:
        found = _beginning(name, wanted, came_to, finished)
    if not found:
        raise _missing(root, wanted, _none(wanted, name), finished)
    if len(found) > 1:
        raise InputError(
            f"heal {wanted.command} {name}: names {len(found)} {wanted.word}s "
            f"({_keys(found)}); give more of a key or a run's id, see heal status"
        )
    return root / wanted.stage / found[0]


def _beginning(
    name: str, wanted: Wanted, came_to: Mapping[str, list[str]], finished: Sequence[str]
) -> list[str]:
    key = name.removeprefix(f"{wanted.stage}/")
    found = [k for id_, keys in came_to.items() if id_.startswith(name) for k in keys]
    return list(dict.fromkeys(found + [k for k in finished if k.startswith(key)]))


def _none(wanted: Wanted, name: str) -> str:
    if name == LAST:
        return f"no run came to a {wanted.word}"
    return f"no run and no {wanted.word} begins with {name!r}"


def _missing(
    root: Path, wanted: Wanted, problem: str, finished: Sequence[str]
) -> InputError:
    there = f" (there are {_keys(finished)})" if finished else ""
    return InputError(f"{root}: {problem}{there}; {wanted.advice}")


def _keys(keys: Sequence[str]) -> str:
    return ", ".join(sorted(key[:SHOWN_KEY] for key in keys))

"""Which watched models are due for a heal, and why."""

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cmfio.errors import CmfError
from cmfio.header import HEAL
from cmfio.models import open_weights
from conf.errors import ConfigError
from conf.nightly import NightlyConfig, Watch
from tasks.errors import InputError
from tasks.model_file import open_model
from tasks.stage import Runtime


@dataclass(frozen=True)
class Student:
    """A watched model: what watches it, and where its healed version belongs."""

    model: Path
    watch: Watch

    @property
    def out(self) -> Path:
        """Where its healed file goes."""
        return self.watch.output_of(self.model)


def students(config: NightlyConfig) -> list[Student]:
    """Every model of the watch list in order; what an `out` pattern names is none.

    ConfigError if two of them would be healed into one file.
    """
    found = list(_watched(config))
    outs: dict[Path, Path] = {}
    for one in found:
        other = outs.setdefault(one.out.absolute(), one.model)
        if other is not one.model:
            raise ConfigError(
                f"watch: {other} and {one.model} would both be healed into {one.out}; "
                "give them patterns that tell them apart"
            )
    return found


def _watched(config: NightlyConfig) -> Iterator[Student]:
    for watch in config.watch:
        for name in sorted(glob.glob(watch.models, recursive=True)):  # noqa: PTH207 — absolute ones too
            path = Path(name)
            if not any(one.is_output(path) for one in config.watch):
                yield Student(path, watch)


def unmatched(config: NightlyConfig, found: Sequence[Student]) -> list[str]:
    """The patterns of the watch list that none of the students is of."""
    return [w.models for w in config.watch if not any(one.watch is w for one in found)]


def is_watched(config: NightlyConfig, model: str) -> bool:
    """Whether a model that someone announced is one of the students."""
    return Path(model).absolute() in {one.model.absolute() for one in students(config)}


def why_due(student: Student, runtime: Runtime) -> str | None:
    """Why a model must be healed, in a few words; None while its healed file fits it.

    InputError for a file in that place which no heal wrote, CmfError for a broken model.
    """
    trunk = open_model(student.model, runtime).trunk.content_digest
    if not student.out.exists():
        return "no healed file yet"
    try:
        with open_weights(student.out) as healed:
            healed_on = healed.header.provenance_by_key.get(HEAL)
    except CmfError as error:
        return f"its healed file is broken: {re.sub(r'; .*', '', str(error))}"
    if not isinstance(healed_on, dict) or "trunk" not in healed_on:
        raise InputError(
            f"{student.out}: was not written by a heal, so it is not overwritten; move it, "
            "or change the watch entry's out"
        )
    return None if healed_on["trunk"] == trunk else "its trunk changed"

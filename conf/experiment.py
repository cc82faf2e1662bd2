"""Settings of an experiment: heals that differ in one choice, on a demonstration's fold."""

from typing import Annotated, Literal

from pydantic import Field

from conf.base import AtLeastOne, Seed, Settings

Overrides = tuple[str, ...]  # `key=value` of the `RunConfig` under `heal:`


class Cell(Settings):
    """One choice, by what it sets, trained `times` as many steps as the place says.

    Evaluations come as many times rarer, so that there are as many of them.
    """

    name: str
    set: Overrides = ()
    times: AtLeastOne = 1


class Place(Settings):
    """A demonstration whose fold is healed, and what all cells set there."""

    demo: Literal["demo", "smollm2"]
    set: Overrides = ()
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0, 1, 2)


class Experiment(Settings):
    """A question, and the cells that answer it; the first is what others are compared to.

    Each is measured on the windows and rows of `measured` (overrides by name), which are
    those of the place itself unless said.
    """

    question: str
    cells: Annotated[tuple[Cell, ...], Field(min_length=2)]
    places: Annotated[tuple[Place, ...], Field(min_length=1)]
    measured: dict[str, Overrides] = Field(default={"": ()})

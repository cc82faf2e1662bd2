"""What settings are made of: their frozen base, numbers, what several stages are told."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticKnownError


def _no_true_for_a_whole(given: object) -> object:
    """Python's `true` is the number 1: `seed: true` would be read as one."""
    if isinstance(given, bool):
        raise PydanticKnownError("int_type")
    return given


def _no_true_for_a_number(given: object) -> object:
    if isinstance(given, bool):
        raise PydanticKnownError("float_type")
    return given


Whole = Annotated[int, BeforeValidator(_no_true_for_a_whole)]
Seed = Annotated[Whole, Field(ge=0, lt=1 << 63)]
AtLeastOne = Annotated[Whole, Field(ge=1)]
Depth = Annotated[Whole, Field(ge=1, le=16)]
Number = Annotated[
    float, Field(allow_inf_nan=False), BeforeValidator(_no_true_for_a_number)
]


def _refuse_no_path(text: str) -> str:
    try:
        is_encodable = bool(text.encode()) or not text
    except UnicodeEncodeError:
        is_encodable = False
    if "\0" in text or not is_encodable:
        raise ValueError("can't be a path: it holds a NUL or half a character; rename it")
    return text


PathText = Annotated[str, AfterValidator(_refuse_no_path)]  # may still name nothing


class ContradictionError(ValueError):
    """Settings that are each in order but not together: a sentence for each clash."""

    def __init__(self, *said: str) -> None:
        super().__init__("; ".join(said))
        self.said = said


class Settings(BaseModel):
    """Base of all settings: frozen, unknown keys and contradictions refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def contradictions(self) -> Iterator[str]:
        """What does not go together here, and what to do: a sentence each."""
        yield from ()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        said = tuple(self.contradictions())
        if said:
            raise ContradictionError(*said)
        return self


class Wiring(Settings):
    """Which rows a draft was made to read: before their norm (`raw`) or after it.

    `hidden`: the trunk's rows, at step 1; `chain`: the draft's own, from step 2 on.
    """

    hidden: Literal["raw", "normed"]
    chain: Literal["raw", "normed"]

    @property
    def text(self) -> str:
        """`raw/normed`: hidden, then chain."""
        return f"{self.hidden}/{self.chain}"


RAW = Wiring(hidden="raw", chain="raw")
NORMED = Wiring(hidden="normed", chain="normed")

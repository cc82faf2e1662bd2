"""What settings are made of: their frozen base, and what several stages are told."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Depth = Annotated[int, Field(ge=1, le=16)]


def _refuse_no_path(text: str) -> str:
    try:
        is_encodable = bool(text.encode()) or not text
    except UnicodeEncodeError:
        is_encodable = False
    if "\0" in text or not is_encodable:
        raise ValueError("can't be a path: it holds a NUL or half a character; rename it")
    return text


PathText = Annotated[str, AfterValidator(_refuse_no_path)]  # may still name nothing


class Settings(BaseModel):
    """Base of all settings: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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

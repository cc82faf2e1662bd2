"""Settings of the nightly re-heal: which models are watched, who is told of a failure."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from conf.base import Number, Settings

PLACES = ("dir", "stem")


class Watch(Settings):
    """Models to keep healed: a glob, the configuration that heals each, where results go.

    `{dir}` and `{stem}` in `out` are the model's folder and its name without the last
    suffix. Each heal takes `conf` with this model as its student and this one output; the
    healed draft is published if it holds at least `least_gain` drafts a round more than the
    one it replaces.
    """

    models: str
    conf: str
    out: str
    codec: str = "keep"
    overrides: tuple[str, ...] = ()
    least_gain: Annotated[Number, Field(ge=0)] = 0.0

    @field_validator("out")
    @classmethod
    def _tells_models_apart(cls, out: str) -> str:
        unknown = set(re.findall(r"\{([^}]*)\}", out)) - set(PLACES)
        if unknown:
            raise ValueError(
                f"{{{min(unknown)}}} is no place in it; known are {{dir}} and {{stem}}"
            )
        if "{stem}" not in out:
            raise ValueError("needs {stem}, or every model would be healed into one file")
        return out

    def output_of(self, model: Path) -> Path:
        """Where the healed version of a model goes."""
        return Path(
            self.out.replace("{dir}", str(model.parent)).replace("{stem}", model.stem)
        )

    def is_output(self, path: Path) -> bool:
        """Whether the pattern could have named this file, whatever the model."""
        anything = {"{dir}/": "(.*/)?", "{dir}": ".*", "{stem}": "[^/]+"}
        parts = re.split(r"(\{dir\}/?|\{stem\})", self.out)
        pattern = "".join(anything.get(part) or re.escape(part) for part in parts)
        start = "" if self.out.startswith(("{dir}", "/")) else "(.*/)?"
        return re.fullmatch(start + pattern, str(path)) is not None


def _refuse_no_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    return text


class OnFailure(Settings):
    """Who hears of models that could not be healed: a URL that takes JSON, a command.

    The command gets the same JSON on its standard input.
    """

    webhook: Annotated[str, AfterValidator(_refuse_no_url)] | None = None
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    def contradictions(self) -> Iterator[str]:
        """Nobody to tell."""
        if self.webhook is None and self.command is None:
            yield "names nobody to tell; give webhook or command, or leave it out"


class NightlyConfig(Settings):
    """What `reheal` does: everything to watch, and what follows a failure."""

    watch: Annotated[tuple[Watch, ...], Field(min_length=1)]
    on_failure: OnFailure | None = None

"""A config.json, asked for by type: errors name its path and the key."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cmfio.errors import ParseError
from cmfio.json_text import Json


@dataclass(frozen=True)
class Config:
    """An object of a config.json, and where it came from."""

    path: Path
    values: Mapping[str, Json]

    def get(self, key: str) -> Json:
        """The value as it is; None for an absent one."""
        return self.values.get(key)

    def whole(self, key: str, default: int | None = None) -> int:
        """A count from 1."""
        value = self.values.get(key)
        value = default if value is None else value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        raise ParseError(f"{self.path}: {key} should be a count, it is {value!r}")

    def real(self, key: str, default: float | None = None) -> float:
        """A number."""
        value = self.values.get(key)
        value = default if value is None else value
        if isinstance(value, float | int) and not isinstance(value, bool):
            return float(value)
        raise ParseError(f"{self.path}: {key} should be a number, it is {value!r}")

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(key)
        value = default if value is None else value
        if isinstance(value, bool):
            return value
        raise ParseError(f"{self.path}: {key} should be true or false, it is {value!r}")

    def wholes(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers from 0; empty when it is absent."""
        value = self.values.get(key)
        items = [] if value is None else value
        found = (
            tuple(
                n
                for n in items
                if isinstance(n, int) and not isinstance(n, bool) and n >= 0
            )
            if isinstance(items, list)
            else ()
        )
        if isinstance(items, list) and len(found) == len(items):
            return found
        raise ParseError(f"{self.path}: {key} should be a list of numbers, it is {value!r}")

    def part(self, key: str) -> "Config":
        """An object inside; empty when it is absent."""
        value = self.values.get(key) or {}
        if isinstance(value, dict):
            return Config(self.path, value)
        raise ParseError(f"{self.path}: {key} should be an object, it is {value!r}")

    def over(self, defaults: Mapping[str, Json]) -> "Config":
        """The same, `defaults` standing in for what is absent; a null stays one."""
        return Config(self.path, {**defaults, **self.values})

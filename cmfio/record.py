"""Base of the header's records: typed fields, unknown keys kept, the order read kept."""

from typing import Annotated, ClassVar, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    PrivateAttr,
    Strict,
    model_validator,
)

from cmfio.json_text import Json


def _as_real(value: object) -> float:
    # Given back as it came: a JsonFloat keeps the spelling of its file.
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise ValueError("a number is needed")


U32 = Annotated[int, Strict(), Field(ge=0, lt=1 << 32)]
Int = Annotated[int, Strict(), Field(ge=0, lt=1 << 64)]
Real = Annotated[float, PlainValidator(_as_real)]
Bool = Annotated[bool, Strict()]
Text = Annotated[str, Strict()]


class Record(BaseModel):
    """A JSON object of the header. Frozen; fields stand in the order the peer writes them.

    A parsed record is written back with the keys it had, in their order; one made here
    follows the peer's presence rules. None means absent.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    # Fields written as null when absent, and fields left out when they equal their default.
    NULL_WRITTEN: ClassVar[frozenset[str]] = frozenset()
    DEFAULT_OMITTED: ClassVar[frozenset[str]] = frozenset()

    _order: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_order(
        cls, data: object, validate: ModelWrapValidatorHandler[Self]
    ) -> Self:
        record = validate(data)
        if isinstance(data, FromFile):
            record._order = tuple(data)
        return record

    def to_json(self) -> dict[str, Json]:
        """The record as the JSON object to write."""
        return {
            key: _plain(getattr(self, key)) for key in self._keys() if self._is_written(key)
        }

    def _keys(self) -> list[str]:
        keys = list(self._order)
        declared = list(type(self).model_fields)
        for place, key in enumerate(declared):
            if key not in keys:
                before = [keys.index(other) for other in declared[:place] if other in keys]
                keys.insert(max(before, default=-1) + 1, key)
        return keys + [key for key in self.model_extra or {} if key not in keys]

    def _is_written(self, key: str) -> bool:
        field = type(self).model_fields.get(key)
        if field is None:
            return key in (self.model_extra or {})
        value, given = getattr(self, key), key in self.model_fields_set
        if value is None:
            return key in self.NULL_WRITTEN and (given or not self._order)
        if key in self.DEFAULT_OMITTED and value == field.default:
            return False
        return given or not self._order


class FromFile(dict[str, Json]):
    """A JSON object just read: records made from it keep its order of keys."""


def from_file(tree: Json) -> Json:
    """`tree` with every object marked as read from a file."""
    if isinstance(tree, dict):
        return FromFile({key: from_file(value) for key, value in tree.items()})
    if isinstance(tree, list):
        return [from_file(item) for item in tree]
    return tree


def _plain(value: object) -> Json:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return cast("Json", value)

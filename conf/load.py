"""Reads a configuration: YAML, then `key=value` overrides, then the checked model."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from conf.errors import ConfigError
from conf.yaml_keys import repeated_key

Model = TypeVar("Model", bound=BaseModel)
Raw = dict[str, Any]  # parsed YAML: checked by pydantic right after

SHIPPED = Path(__file__).parent
# Said to whoever gives a model where its configuration is asked for.
MODEL_GOES_INTO = "a configuration is YAML, in which `student:` names the model"


def find_config(name: str | Path) -> Path:
    """A configuration's file: a path, `mine` for a `mine.yaml`, or a shipped name.

    What lies here comes before what is shipped under the same name, as `demo` or
    `conf/demo.yaml`.
    """
    path = Path(name)
    shipped = shipped_config(path.stem)
    for own in (path, Path(f"{name}.yaml")):
        if _is(Path.is_file, own):
            return own
    if path.parent in (Path(), Path("conf")) and _is(Path.is_file, shipped):
        return shipped
    if _is(Path.is_dir, path):
        raise ConfigError(f"{name}: is a folder; {MODEL_GOES_INTO}")
    known = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.yaml")))
    raise ConfigError(f"{name}: there is no such configuration; shipped ones are {known}")


def shipped_config(name: str) -> Path:
    """Where the configuration of that name lies that comes with the program."""
    return SHIPPED / f"{name}.yaml"


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    try:
        return kind(path)
    except OSError:  # a name that no file system takes
        return False


def read_yaml(path: Path) -> Raw:
    """The mapping in a YAML file, `{}` if the file is empty."""
    try:
        text = path.read_text(encoding="utf-8")
        repeated = repeated_key(text)
        raw = yaml.safe_load(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not text; {MODEL_GOES_INTO}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from error
    if repeated is not None:
        raise ConfigError(f"{path}: {repeated}; keep one of them")
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(
            f"{path}: holds a {type(raw).__name__}, settings are `key: value` lines"
        )
    return raw


def apply_override(raw: Raw, override: str) -> None:
    """Puts `a.b.c=value` into nested `raw`, in place; the value is read as YAML."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            f"--set {override}: write it as key.key=value, e.g. train.lr=1e-5"
        )
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: the value is not YAML: {error}") from error
    place = raw
    for key in keys[:-1]:
        inner = place.get(key)
        if inner is None:
            inner = place[key] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {override}: {key} is a value, it holds no settings")
        place = inner
    place[keys[-1]] = value


def load_config(
    model: type[Model], name: str | Path, overrides: Sequence[str] = ()
) -> Model:
    """The configuration `name` with `overrides`; ConfigError says what is wrong in it."""
    path = find_config(name)
    raw = read_yaml(path)
    for override in overrides:
        apply_override(raw, override)
    return check(model, raw, str(path))


def check(model: type[Model], raw: Mapping[str, Any], where: str) -> Model:
    """`raw` as a `model`, or one ConfigError that lists every fault with its place."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        faults = "; ".join(_explain(model, fault) for fault in _causes(error.errors()))
        raise ConfigError(f"{where}: {faults}") from error


def _causes(faults: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Without what only follows: a list is too short because its items were refused."""
    places = [fault["loc"] for fault in faults]
    return [
        fault
        for fault in faults
        if fault["type"] != "too_short"
        or not any(
            len(p) > len(fault["loc"]) and p[: len(fault["loc"])] == fault["loc"]
            for p in places
        )
    ]


def _explain(model: type[BaseModel], fault: ErrorDetails) -> str:
    place = [str(part) for part in fault["loc"]]
    dotted = ".".join(place) or "the whole"
    if fault["type"] == "extra_forbidden":
        known = sorted(_fields_at(model, place[:-1]))
        near = difflib.get_close_matches(place[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        return f"{dotted} is no setting; {hint}"
    if fault["type"] == "missing":
        return f"{dotted} is missing"
    message = fault["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(fault["input"], dict) else f" (is {fault['input']!r})"
    return f"{dotted}: {message}{shown}"


def _fields_at(model: type[BaseModel], place: Sequence[str]) -> set[str]:
    """The settings known at a place; of every model a union there could mean."""
    models: list[type[BaseModel]] = [model]
    for part in place:
        fields = [m.model_fields[part].annotation for m in models if part in m.model_fields]
        if fields:
            models = [inner for field in fields for inner in _models_in(field)]
    return {name for m in models for name in m.model_fields}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:  # a type or typing construct
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)

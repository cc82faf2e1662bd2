"""Reads a configuration: YAML, then `key=value` overrides, then the checked model."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from conf.errors import ConfigError
from conf.faults import explain
from conf.yaml_text import RepeatedKeyError, load_yaml

Model = TypeVar("Model", bound=BaseModel)
Raw = dict[str, Any]  # parsed YAML: checked by pydantic right after

SHIPPED = Path(__file__).parent
# A key that only the configuration of another command has.
COMMANDS = {"watch": "heal reheal", "demo": "heal demo --model"}
KINDS = {list: "a list", str: "text", int: "a number", float: "a number"}
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
    known = ", ".join(_with_command(path) for path in sorted(SHIPPED.glob("*.yaml")))
    raise ConfigError(f"{name}: there is no such configuration; shipped ones are {known}")


def _with_command(path: Path) -> str:
    """A shipped configuration's name; behind one of another command which that is."""
    commands = [f" ({COMMANDS[key]})" for key in read_yaml(path) if key in COMMANDS]
    return path.stem + "".join(commands)


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
        raw = load_yaml(path.read_text(encoding="utf-8"))
    except RepeatedKeyError as error:
        raise ConfigError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not text; {MODEL_GOES_INTO}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {_one_line(error)}") from error
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        held = KINDS.get(type(raw), "a value")
        raise ConfigError(f"{path}: holds {held}, settings are `key: value` lines")
    return raw


def _one_line(error: yaml.YAMLError) -> str:
    """The parser's words without what it draws under them."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem is None or mark is None:
        return " ".join(str(error).split())
    return f"{problem}, in line {mark.line + 1}, column {mark.column + 1}"


def apply_override(raw: Raw, override: str) -> None:
    """Puts `a.b.c=value` into nested `raw`, in place; the value is read as YAML."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            f"--set {override}: write it as key.key=value, e.g. train.lr=1e-5"
        )
    try:
        value = load_yaml(text)
    except RepeatedKeyError as error:
        raise ConfigError(f"--set {override}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(
            f"--set {override}: the value is not YAML: {_one_line(error)}"
        ) from error
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
    for key in COMMANDS.keys() & raw.keys() - model.model_fields.keys():
        raise ConfigError(
            f"{path}: has `{key}`: it is for `{COMMANDS[key]}`, see its --help"
        )
    changed = "".join(f" --set {text}" for text in overrides)
    return check(model, raw, f"{path}{changed and f' with{changed}'}")


def check(model: type[Model], raw: Mapping[str, Any], where: str) -> Model:
    """`raw` as a `model`, or one ConfigError that lists every fault with its place."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(model, raw, error.errors())}") from error

"""A heal's configuration whose inputs are there: else each is told with its setting."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from conf.load import find_config, load_config
from conf.schema import RunConfig, WriteSpec
from tasks.errors import InputError
from tasks.sources import absence


def load_heal(name: str, overrides: Sequence[str]) -> RunConfig:
    """The configuration `name` with `overrides`; ConfigError says what is wrong in it.

    InputError for models and data that aren't there: all of them, each with its setting,
    and whether the file or `--set` named it.
    """
    config = load_config(RunConfig, name, overrides)
    refuse_missing(config, str(find_config(name)), overrides)
    return config


def refuse_missing(config: RunConfig, where: str, overrides: Sequence[str] = ()) -> None:
    """InputError, where a model or data set of a configuration isn't there, with each.

    `where` is the file that named them, unless one of `overrides` did.
    """
    changed = {text.partition("=")[0].strip().partition(".")[0] for text in overrides}
    missing: dict[str, list[str]] = {}
    for setting, said in _missing(config):
        is_changed = setting.partition("[")[0] in changed
        missing.setdefault("--set" if is_changed else where, []).append(
            f"{setting}: {said}"
        )
    if missing:
        told = "; ".join(f"{origin}: {'; '.join(told)}" for origin, told in missing.items())
        raise InputError(f"{told} (relative paths begin in {Path.cwd()}, where this runs)")


def _missing(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Settings that name what isn't there, and what to say of each."""
    for setting, path in {"student": config.student, "init": config.init}.items():
        if path is not None and not _is_there(path):
            yield (
                setting,
                f"{path or 'names no model'}: there is no such file or folder; give a .cmf "
                "or a Hugging Face folder",
            )
    for i, given in enumerate(config.data):
        setting, spec = f"data[{i}]", given
        if isinstance(spec, WriteSpec):
            setting, spec = f"{setting}.write.prompts", spec.write.prompts
        said = absence(spec)
        if said is not None:
            yield setting, said


def _is_there(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except OSError:
        return True  # whoever opens it says what the system has against it

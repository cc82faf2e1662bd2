"""The watch list: which file is a model's output, and what is refused."""

from pathlib import Path

import pytest

from conf.errors import ConfigError
from conf.load import check, load_config
from conf.nightly import NightlyConfig, Watch


def watch(out: str) -> Watch:
    return check(Watch, {"models": "m/*.cmf", "conf": "small", "out": out}, "nightly")


@pytest.mark.parametrize(
    ("out", "model", "wanted"),
    [
        ("{dir}/{stem}.healed.cmf", "m/a.cmf", "m/a.healed.cmf"),
        ("out/{stem}.cmf", "/else/a.b.cmf", "out/a.b.cmf"),
        ("{dir}/healed/{stem}", "folder", "healed/folder"),
    ],
)
def test_places_are_filled_in(out: str, model: str, wanted: str) -> None:
    assert watch(out).output_of(Path(model)) == Path(wanted)


@pytest.mark.parametrize(
    ("out", "path", "is_one"),
    [
        ("{dir}/{stem}.healed.cmf", "m/a.healed.cmf", True),
        ("{dir}/{stem}.healed.cmf", "a.healed.cmf", True),
        ("{dir}/{stem}.healed.cmf", "m/a.cmf", False),
        ("{dir}/{stem}.healed.cmf", "m/a-healed.cmf", False),  # a dot is a dot
        ("out/{stem}.cmf", "m/a.cmf", False),
        ("out/{stem}.cmf", "/home/out/a.cmf", True),
        ("/out/{stem}.cmf", "/home/out/a.cmf", False),
        ("out/{stem}.cmf", "out/deeper/a.cmf", False),
    ],
)
def test_an_output_is_known_by_its_pattern(out: str, path: str, is_one: object) -> None:
    assert watch(out).is_output(Path(path)) is is_one


@pytest.mark.parametrize(
    ("out", "said"),
    [("out/healed.cmf", r"needs \{stem\}"), ("{stem}.{codec}", r"\{codec\} is no place")],
)
def test_patterns_that_cannot_work_are_refused(out: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        watch(out)


def test_a_hook_must_tell_someone() -> None:
    raw = {"watch": [watch("{stem}.cmf").model_dump()], "on_failure": {}}
    with pytest.raises(ConfigError, match="names nobody to tell"):
        check(NightlyConfig, raw, "nightly")


def test_the_shipped_one_is_valid() -> None:
    assert load_config(NightlyConfig, "nightly").watch[0].conf == "qwen14b"

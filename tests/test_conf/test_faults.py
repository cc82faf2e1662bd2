"""Every fault of a configuration in our words, with the setting as it was written."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import conf
from conf.base import Settings
from conf.demo import DemoConfig
from conf.errors import ConfigError
from conf.experiment import Experiment
from conf.load import check
from conf.nightly import NightlyConfig
from conf.schema import RunConfig

NEEDED: dict[str, object] = {"student": "m.cmf", "data": ["t.txt"]}
# What pydantic says of its own, and how it names types and a union's choices.
FOREIGN = re.compile(
    r"Input|should|\bvalid\b|Value error|tuple|dictionary|instance|constrained|literal\["
    r"|function-|Spec\b|[a-z]Config\b|something else|unable"
)
JUNK: list[object] = [
    *(None, True, -1, 3, 2.5, float("nan"), "", "junk", "a\0b", b"\xff", 10**30),
    *([], [None], ["x", -1], {}, {"junk": 1}, {"path": 3}, {"write": 3}, {3: 4}),
]


def said(raw: dict[str, Any], model: type[BaseModel] = RunConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        check(model, raw, "my.yaml")
    return str(caught.value)


def places(
    model: type[BaseModel], prefix: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        yield (*prefix, name)
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from places(inner, (*prefix, name))


def refusals(model: type[BaseModel], place: tuple[str, ...]) -> Iterator[str]:
    """What is said of each piece of junk at one place."""
    for junk in JUNK:
        raw: Any = junk
        for key in reversed(place):
            raw = {key: raw}
        try:
            check(model, NEEDED | raw if model is RunConfig else raw, "my.yaml")
        except ConfigError as error:
            yield str(error)


@pytest.mark.parametrize("model", [RunConfig, DemoConfig, NightlyConfig, Experiment])
def test_no_phrase_or_class_of_the_checker_is_passed_on(model: type[BaseModel]) -> None:
    messages = [m for place in places(model) for m in refusals(model, place)]
    assert [m for m in messages if FOREIGN.search(m)] == []
    assert len(messages) > len(JUNK)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"train": {"lr": "fast"}}, "train.lr must be a number (is 'fast')"),
        ({"train": {"lr": -1}}, "train.lr must be more than 0 (is -1)"),
        ({"train": {"depth": 2.5}}, "train.depth must be a whole number (is 2.5)"),
        ({"train": None}, "train must be settings, as {depth: …}, or left out (is empty)"),
        ({"dump": "perhaps"}, "dump must be true or false (is 'perhaps')"),
        ({"data": "t"}, "data must be a list, as ['t'] (is 't')"),
        ({"data": []}, "data must be a list of at least 1 (is [])"),
        (
            {"data": [{"path": "t", "tokens": 0}]},
            "data[0].tokens must be more than 0 (is 0)",
        ),
        ({"student": 2024}, "student must be text, as '2024' (is 2024)"),
        ({"outputs": ["o.cmf"]}, "outputs[0] must be settings, as {codec: …, path: …}"),
        ({"train": {"lr": 1e9}}, "train.lr must be at most 1 (is 1e+09)"),
        ({"train": {"steps": 10**20}}, "train.steps must be at most 1000000000 (is 100"),
        ({"train": {"epochs": 1e9}}, "train.epochs must be at most 1000000 (is 1e+09)"),
        (
            {"runtime": {"runner": "dask", "workers": 100_000}},
            "runtime.workers must be at most 1024 (is 100000)",
        ),
        ({"runtime": {"threads": "all"}}, "threads must be a whole number or 'auto'"),
        (
            {"runtime": {"gpu_limit": ""}},
            "runtime.gpu_limit must be at least 1 long (is '')",
        ),
        (
            {"measure": {"cost": 3}},
            "measure.cost must be settings, as {verify: …} or 'timed'",
        ),
        ({"probe": {"wiring": {"hidden": "raw"}}}, "probe.wiring.chain is missing; write"),
    ],
)
def test_a_fault_says_what_a_setting_must_be_and_what_it_is(
    given: dict[str, object], words: str
) -> None:
    message = said(NEEDED | given)
    assert message.startswith("my.yaml: ")
    assert words in message
    assert "faults" not in message  # a union is refused once, not once for each choice


def test_all_faults_are_told_at_once_each_with_its_setting() -> None:
    raw = {
        "data": [{"path": "t", "tokens": 0}, {"tokens": 3}],
        "train": {"layout": "stride"},
        "runtime": {"workers": 2, "device": "tpu"},
        "dumb": True,
    }
    message = said(raw)
    assert message.startswith("my.yaml: 6 faults: (1) ")
    for words in (
        "student is missing; write `student: …`",
        "data[0].tokens must be more than 0 (is 0)",
        "data[1].path is missing",
        "train.stride is the distance of the starts",
        "runtime.device must be 'auto', 'cpu' or 'cuda' (is 'tpu')",
        "dumb is no setting; did you mean dump?",
    ):
        assert words in message


def test_settings_that_contradict_each_other_are_all_told() -> None:
    raw = NEEDED | {
        "init": "x.cmf",
        "start_from_last_layer": True,
        "pack": {"hold_all": True},
        "train": {"layout": "rows"},
    }
    message = said(raw)
    assert message.startswith("my.yaml: 3 faults: (1) init and start_from_last_layer both")
    assert "set train.layout: exact" in message
    assert "set train.epochs to 0" in message


def test_contradictions_of_one_section_are_all_told() -> None:
    train = {"layout": "stride", "anchors": 0.5, "step_weights": [1.0], "trainable": "all"}
    message = said(NEEDED | {"train": train})
    assert message.startswith("my.yaml: 4 faults: (1) ")
    for words in (
        "give both or neither",
        "train.anchors, train.step_weights: only train.layout: exact",
        "train.step_weights lists 1 weights of sum 1",
        "set train.trainable: block or train.layout: exact",
    ):
        assert words in message


@pytest.mark.parametrize("setting", ["lr", "seed", "hard", "steps", "batch"])
def test_true_is_no_number(setting: str) -> None:
    message = said(NEEDED | {"train": {setting: True}})
    assert message.startswith(f"my.yaml: train.{setting} must be a")
    assert "(is True)" in message or "(is true)" in message


def test_of_all_numbers_none_takes_true() -> None:
    numbers = 0
    for settings in of_a_person():
        for name, field in settings.model_fields.items():
            kind: Any = Annotated[field.annotation, field]
            of_this: TypeAdapter[Any] = TypeAdapter(kind)
            if is_taken(of_this, value=0.5) or is_taken(of_this, value=40):
                numbers += 1
                assert not is_taken(of_this, value=True), f"{settings.__name__}.{name}"
    assert numbers > 50


def of_a_person() -> Iterator[type[Settings]]:
    """All settings that the modules of `conf` know."""
    for module in pkgutil.iter_modules(conf.__path__, "conf."):
        importlib.import_module(module.name)
    left = Settings.__subclasses__()
    while left:
        one = left.pop()
        left += one.__subclasses__()
        if one.__module__.startswith("conf."):
            yield one


def is_taken(adapter: TypeAdapter[Any], *, value: object) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    message = said(NEEDED | {"trunk": {"topk": "a" * 5000}})
    assert message.endswith("aaa…)")
    assert len(message) < 150


def test_a_webhook_that_is_no_url() -> None:
    message = said({"watch": [], "on_failure": {"webhook": "me@home"}}, NightlyConfig)
    assert (
        "on_failure.webhook: must begin with http:// or https:// (is 'me@home')" in message
    )

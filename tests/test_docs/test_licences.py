"""docs/licences.md: a row for every pin, each licence as the installed package says it."""

import re
from importlib import metadata

import pytest
from packaging.utils import canonicalize_name

from bench import licences

ROW = re.compile(r"^\| ([\w.-]+) \| (\S+) \| ([^|]+) \| ([\w, ]+) \|$", re.MULTILINE)
_, *ROWS = ROW.findall(licences.PAGE.read_text(encoding="utf-8"))  # the first is the head


def test_the_page_lists_what_is_pinned() -> None:
    lines = (licences.ROOT / "constraints.txt").read_text().split()
    assert [f"{name}=={version}" for name, version, _, _ in ROWS] == lines


def test_licences_are_those_of_the_installed_packages() -> None:
    installed = {canonicalize_name(d.name) for d in metadata.distributions()}
    told = {n: words for n, _, words, _ in ROWS if canonicalize_name(n) in installed}
    assert len(told) > 100
    assert {name: licences.licence(name) for name in told} == told, (
        "python -m bench.licences"
    )


def test_pins_are_what_is_asked_for() -> None:
    """Of what is installed here: an extra that isn't leads nowhere."""
    installed = {canonicalize_name(d.name) for d in metadata.distributions()}
    pinned = installed & {canonicalize_name(name) for name in licences.pins()}
    assert len(pinned) > 100
    assert pinned == installed & licences.asked_by().keys()


def test_a_pin_that_nothing_asks_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences, "pins", lambda: {"pip": "1", "torch": "2"})
    with pytest.raises(SystemExit, match=r"^pinned, but nothing asks for it: pip$"):
        licences.page()


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("torch", "heal"),
        ("pytest", "dev"),
        ("gguf", "gguf"),
        ("obstore", "s3"),
        ("dask", "dask"),
    ],
)
def test_who_asks_for_a_package(name: str, who: str) -> None:
    assert {asked for listed, _, _, asked in ROWS if listed == name} == {who}


def test_an_extra_of_a_requirement_is_followed() -> None:
    found = licences.wanted(
        "ray[client, data]>=2.50 ; sys_platform == 'linux' and extra == 'x'"
    )
    assert found == licences.Wanted("ray", frozenset({"client", "data"}), frozenset({"x"}))

"""What is said of an output before it is written."""

from pathlib import Path

import pytest

from conf.base import NORMED, RAW, Wiring
from flows.outputs import say_foreign_wiring
from store.store import Store
from tasks.model_file import Layout
from tasks.progress import SilentProgress
from tasks.publish import Target
from tasks.stage import Runtime


class Heard(SilentProgress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(
    ("path", "wiring", "is_warned"),
    [("a.cmf", RAW, False), ("a.cmf", NORMED, True), ("a", NORMED, False)],
)
def test_a_container_of_a_draft_for_normed_rows(
    tmp_path: Path, path: str, wiring: Wiring, *, is_warned: bool
) -> None:
    heard = Heard()
    runtime = Runtime(store=Store(tmp_path), progress=heard)
    layout: Layout = "cmf" if path.endswith(".cmf") else "hf"
    say_foreign_wiring([Target(Path(path), "keep", layout)], wiring, runtime)
    assert bool(heard.said) == is_warned
    assert all("a.cmf: the draft is wired normed/normed" in text for text in heard.said)

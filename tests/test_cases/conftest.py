"""A tiny checkpoint of a hybrid with a draft, and what its trunk writes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.small_heal import short_heal, write_records
from tests.test_tasks.test_checkpoint_heal import own_records
from tests.tiny_checkpoints import Wishes, make_checkpoint


@dataclass(frozen=True)
class Folder:
    """A checkpoint's folder, text of its trunk, and settings of a short heal of it."""

    root: Path
    student: Path

    def config(self, **changes: Any) -> dict[str, Any]:
        return short_heal(self.root, self.student, **changes)


Make = Callable[..., Folder]


@pytest.fixture
def make_folder(tmp_path: Path) -> Make:
    """Makes the one folder of a test; `with_text` false for what is refused before data."""

    def make(family: str, wishes: Wishes, *, with_text: bool = True) -> Folder:
        folder = Folder(tmp_path, make_checkpoint(tmp_path / "student", family, wishes))
        if with_text:
            write_records(tmp_path / "own.jsonl", own_records(folder.student))
        return folder

    return make

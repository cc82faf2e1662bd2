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
    """Makes the one folder of a test; without `with_text` its data holds no record."""

    def make(family: str, wishes: Wishes, *, with_text: bool = True) -> Folder:
        folder = Folder(tmp_path, make_checkpoint(tmp_path / "student", family, wishes))
        records = own_records(folder.student) if with_text else []
        write_records(tmp_path / "own.jsonl", records)
        return folder

    return make

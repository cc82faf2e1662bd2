import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.small_heal import Ground, small_ground
from tests.test_faults.lab import Lab, make_lab, small_disk

# The processes start from one that imports the tests' own modules.
os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """A tiny model and its data."""
    return small_ground(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="session")
def uncut(files: Ground, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A heal that nothing happened to; for comparing and copying only."""
    lab = make_lab(files, tmp_path_factory.mktemp("uncut"))
    lab.finish()
    return lab


@pytest.fixture
def lab(uncut: Lab, tmp_path: Path) -> Lab:
    """A copy of the finished heal, for a test to change."""
    store = shutil.copytree(uncut.store, tmp_path / "store")
    return replace(uncut, root=tmp_path, store=store)


@pytest.fixture
def small_lab(uncut: Lab, tmp_path: Path) -> Iterator[Lab]:
    """The same with the store on a small disk of its own."""
    with small_disk(tmp_path / "disk") as disk:
        store = shutil.copytree(uncut.store, disk / "store")
        yield replace(uncut, root=tmp_path, store=store)


@pytest.fixture
def files_student(files: Ground) -> Path:
    """The model file of the heal."""
    return files.student


@pytest.fixture
def files_lab(uncut: Lab, tmp_path: Path) -> Lab:
    """The same heal, nothing of it made yet."""
    return replace(uncut, root=tmp_path, store=tmp_path / "store")

import hashlib
import os
from pathlib import Path

import pytest

import store.digests
from store.digests import FileDigests


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file that was really hashed, in order."""
    seen: list[Path] = []
    honest = store.digests.sha256_of

    def counted(path: Path, progress: store.digests.Progress | None = None) -> str:
        seen.append(path)
        return honest(path, progress)

    monkeypatch.setattr(store.digests, "sha256_of", counted)
    return seen


def test_digest_is_that_of_the_bytes_and_read_once(
    tmp_path: Path, reads: list[Path]
) -> None:
    file = tmp_path / "model.cmf"
    file.write_bytes(b"abc" * 3_000_000)
    expected = hashlib.sha256(b"abc" * 3_000_000).hexdigest()
    steps: list[tuple[int, int]] = []
    digests = FileDigests(tmp_path / "digests")
    assert digests.sha256(file, lambda done, total: steps.append((done, total))) == expected
    assert steps[-1] == (9_000_000, 9_000_000)
    # Another process starts with another object.
    assert FileDigests(tmp_path / "digests").sha256(file) == expected
    assert reads == [file]


def test_a_same_size_rewrite_right_after_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "x"
    digests = FileDigests(tmp_path / "digests")
    for round_ in range(5):
        data = bytes([round_]) * 10
        file.write_bytes(data)
        assert digests.sha256(file) == hashlib.sha256(data).hexdigest()


def test_an_older_time_or_another_inode_is_read_again(
    tmp_path: Path, reads: list[Path]
) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"one")
    digests = FileDigests(tmp_path / "digests")
    digests.sha256(file)
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    os.utime(file, ns=(0, 0))
    digests.sha256(file)
    swapped = tmp_path / "y"
    swapped.write_bytes(b"two")
    swapped.replace(file)
    os.utime(file, ns=times)
    assert digests.sha256(file) == hashlib.sha256(b"two").hexdigest()
    assert len(reads) == 3


def test_a_link_and_its_target_share_an_entry(tmp_path: Path, reads: list[Path]) -> None:
    file, link = tmp_path / "x", tmp_path / "link"
    file.write_bytes(b"one")
    link.symlink_to(file)
    digests = FileDigests(tmp_path / "digests")
    assert digests.sha256(file) == digests.sha256(link)
    assert len(reads) == 1


def test_facts_live_as_long_as_the_file_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"one")
    digests = FileDigests(tmp_path / "digests")
    assert digests.recall(file, "model") is None
    digests.remember(file, "model", {"tensors": ["a"]})
    digests.remember(file, "other", 7)
    assert digests.recall(file, "model") == {"tensors": ["a"]}
    assert digests.recall(file, "other") == 7
    file.write_bytes(b"two")
    assert digests.recall(file, "model") is None


def test_a_torn_memory_is_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"one")
    digests = FileDigests(tmp_path / "digests")
    digests.remember(file, "fact", 1)
    (entry,) = (tmp_path / "digests").iterdir()
    entry.write_bytes(entry.read_bytes()[:20])
    assert digests.recall(file, "fact") is None


def test_an_unwritable_memory_costs_time_only(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"one")
    (tmp_path / "not-a-folder").write_bytes(b"")
    digests = FileDigests(tmp_path / "not-a-folder" / "digests")
    assert digests.sha256(file) == hashlib.sha256(b"one").hexdigest()

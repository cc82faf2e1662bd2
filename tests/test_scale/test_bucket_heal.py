"""A whole heal on a store in a bucket, and the same asked on another machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.bucket import Bucket
from store.opened import bucket_folder, open_store
from tasks.stage import Runtime
from tests.bucket_server import bucket_server, new_bucket
from tests.small_heal import heal, small_ground

pytestmark = pytest.mark.scale


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


def test_what_one_machine_healed_another_finds(server: str, tmp_path: Path) -> None:
    url, ground = new_bucket(server), small_ground(tmp_path)
    out = {"outputs": [{"codec": "keep", "path": str(tmp_path / "out.cmf")}]}

    def on(name: str) -> Runtime:
        return Runtime(store=open_store(bucket_folder(url, tmp_path / name)))

    first = heal(ground.config(**out), ground.store, on("a"))
    healed = (tmp_path / "out.cmf").read_bytes()
    (tmp_path / "out.cmf").unlink()
    second = heal(ground.config(**out), ground.store, on("b"))
    assert first.made != []
    assert second.made == []
    assert (tmp_path / "out.cmf").read_bytes() == healed
    assert second.files.report == first.files.report
    # No row of the trunk came along, and training reads them where they are.
    assert list(second.runtime.store.root.glob("trunk_shard/*/hidden")) == []
    third = heal(ground.config(train={"steps": 8}), ground.store, on("b"))
    assert "train_draft" in " ".join(third.made)
    assert not any(call.startswith("trunk") for call in third.made)
    assert list(third.runtime.store.root.glob("trunk_shard/*/hidden")) == []
    said = json.dumps([name.decode(errors="replace") for name in everything(url)])
    assert "do-not-tell" not in said
    assert "AKIDONTTELL" not in said


def everything(url: str) -> Iterator[bytes]:
    bucket = Bucket.of(url)
    for name in bucket.listing(""):
        yield bucket.get(name) or b""

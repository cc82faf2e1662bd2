"""Result records that would run code: Prefect would run them, a stage's call never does."""

import asyncio
import base64
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.serializers import PickleSerializer

from store.record import Reference
from store.store import Store
from tasks.stage import Runtime
from tests.test_tasks.sample_stages import RAN, Text, harm, said, states, write_text

Record = dict[str, Any]


class Touch:
    """Pickled, it is the call `Path.touch(mark)`."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.mark,)


def payload(mark: Path) -> str:
    """The text that makes Prefect's own pickle serializer create `mark`; tried."""
    text = base64.encodebytes(pickle.dumps(Touch(mark))).decode()
    PickleSerializer().loads(text.encode())
    mark.unlink()
    return text


def pickled(record: Record, mark: Path) -> None:
    record["metadata"]["serializer"] = {"type": "pickle", "picklelib": "cloudpickle"}
    record["result"] = payload(mark)


def compressed(record: Record, mark: Path) -> None:
    pickled(record, mark)
    record["metadata"]["serializer"] = {
        "type": "compressed",
        "serializer": record["metadata"]["serializer"],
        "compressionlib": "zlib",
    }


def only_named(record: Record, mark: Path) -> None:
    """The true reference, said to be a pickle."""
    record["metadata"]["serializer"] = {"type": "pickle", "picklelib": "cloudpickle"}


def decoding(record: Record, mark: Path) -> None:
    """The true reference, decoded by a function that the record names."""
    record["metadata"]["serializer"]["object_decoder"] = f"{mark.stem}.decode"


def another_json(record: Record, mark: Path) -> None:
    record["metadata"]["serializer"]["jsonlib"] = mark.stem


WAYS = (pickled, compressed, only_named, decoding, another_json)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a payload makes; there is also a module of that name, which makes it."""
    mark = tmp_path / "hostile_record_ran"
    code = f"open({str(mark)!r}, 'w').close()\nfrom json import *\ndecode = dict\n"
    (tmp_path / f"{mark.stem}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    RAN.clear()
    return mark


def harmed(root: Path, way: Callable[[Record, Path], None], mark: Path) -> None:
    """A finished artifact whose record is another."""
    (path,) = root.glob("write_text/*/record.json")
    record = json.loads(path.read_bytes())
    way(record, mark)
    harm(path, json.dumps(record).encode())


@pytest.mark.parametrize("way", WAYS)
def test_a_plain_call_makes_it_again(
    tmp_path: Path, mark: Path, way: Callable[[Record, Path], None]
) -> None:
    root = tmp_path / "store"
    write_text(Text(), Runtime(store=Store(root)))
    harmed(root, way, mark)
    later = Runtime(store=Store(root))
    mended = write_text(Text(), later)
    assert (states(later), RAN) == (["ran"], ["a", "a"])
    assert "set aside and made again: " in said(later)
    assert not mark.exists()
    record = json.loads((mended.path / "record.json").read_bytes())
    assert record["metadata"]["serializer"]["type"] == "json"
    assert Reference.model_validate_json(record["result"]).key == mended.key


@pytest.mark.usefixtures("prefect_server", "prefect_sockets")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_flow_run_makes_it_again(tmp_path: Path, mark: Path) -> None:
    @flow
    async def call(root: Path) -> list[str]:
        runtime = Runtime(store=Store(root))
        write_text(Text(), runtime)
        return states(runtime)

    for way in WAYS:
        root = tmp_path / way.__name__
        write_text(Text(), Runtime(store=Store(root)))
        harmed(root, way, mark)
        assert asyncio.run(call(root)) == ["ran"], way.__name__
        assert asyncio.run(call(root)) == ["cached"]
        assert not mark.exists(), way.__name__

"""Small stages for the tests of `tasks.stage`, and ways to harm what they made."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from store.artifact import Artifact
from store.store import Store
from tasks.progress import SilentProgress
from tasks.stage import Runtime, StageResult, stage


class Text(BaseModel):
    text: str = "a"


@dataclass(frozen=True)
class DataFile:
    content_digest: str


RAN: list[str] = []  # what the fills below really did, in order


@stage("write_text", version=1)
def write_text(
    out: Path, settings: Text, runtime: Runtime, *, data: DataFile | None = None
) -> Mapping[str, object]:
    RAN.append(settings.text)
    (out / "text").write_text(settings.text)
    return {"letters": len(settings.text)}


@stage("join_text", version=1)
def join_text(
    out: Path, settings: Text, runtime: Runtime, *, shards: Sequence[Artifact]
) -> StageResult:
    RAN.append("join")
    return StageResult(numbers={"shards": len(shards)}, parts=shards)


@stage("read_text", version=1)
def read_text(out: Path, settings: Text, runtime: Runtime, *, whole: Artifact) -> None:
    parts = runtime.store.parts(whole) or (whole,)
    RAN.append("read " + "".join((p.path / "text").read_text() for p in parts))


def anew(runtime: Runtime) -> Runtime:
    """The same store as another process would open it."""
    return Runtime(store=Store(runtime.store.root))


def said(runtime: Runtime) -> str:
    assert isinstance(runtime.progress, SilentProgress)
    return "\n".join(runtime.progress.said)


def states(runtime: Runtime) -> list[str]:
    return [event.state for event in runtime.ledger.events]


def harm(path: Path, data: bytes | None = None, *, keep_time: bool = False) -> None:
    """Replace a finished file's bytes, by as many zeros if none are given."""
    status = path.stat()
    path.chmod(0o644)
    path.write_bytes(bytes(status.st_size) if data is None else data)
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

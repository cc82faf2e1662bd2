"""A store with arrays whose every value is known, and a strict reader of PNGs."""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.testclient import TestClient

from store.arrays import Dtype, create_array
from store.artifact import Artifact
from store.completion import StageResult, finish, prepare
from store.manifest import Origin, Recipe, key_of
from store.store import Store
from ui.inspector.app import create_app

ORIGIN = Origin(
    machine="cpu", versions={}, started="2026-12-01T10:00:00", seconds=1, resumed=False
)
PLAIN = {"serializer": {"type": "json"}}  # of a record's metadata
WINDOWS, EACH, ROWS, CHANNELS, KEPT = 6, 4, 24, 40, 10
OUTLIER, GAPS = 17, 5  # a channel; the window that holds NaN and infinity
Arrays = Mapping[str, npt.NDArray[Any]]
NAMES: dict[str, Dtype] = {"uint16": "u2", "uint32": "u4", "float32": "f4", "bool": "bool"}


@dataclass(frozen=True)
class Planted:
    """A store with a pass of two shards, a lone artifact, and what was written."""

    root: Path
    client: TestClient
    hidden_WRC: npt.NDArray[np.float32]
    topk_id_WRK: npt.NDArray[np.uint32]
    topk_p_WRK: npt.NDArray[np.float32]
    shards: tuple[Artifact, ...]
    here: str
    lone: str

    def page(self, query: str = "") -> str:
        answer = self.client.get(f"/arrays/{self.here}{query}")
        assert answer.status_code == 200, answer.text
        return answer.text

    def rows(self, table: str, query: str) -> list[dict[str, Any]]:
        answer = self.client.get(f"/api/arrays/{self.here}/{table}.json?{query}")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["rows"]
        return found


def put(
    root: Path,
    stage: str,
    settings: dict[str, Any],
    arrays: Arrays,
    parts: Sequence[Artifact] = (),
) -> Artifact:
    recipe = Recipe(stage=stage, version=1, settings=settings, inputs={"trunk": "ab"})
    store, key = Store(root), key_of(recipe)
    out = store.path(stage, key)
    prepare(out)
    for name, values in arrays.items():
        create_array(out, name, values.shape, NAMES[str(values.dtype)], "packed")[:] = (
            values
        )
    reference = finish(out, recipe, StageResult(parts=parts), ORIGIN)
    record = {"metadata": PLAIN, "result": reference.model_dump_json()}
    (out / "record.json").write_text(json.dumps(record))
    found = store.load(stage, key)
    assert found is not None
    return found


def png_pixels(data: bytes) -> npt.NDArray[np.uint8]:
    """RGB of an unfiltered palette PNG, [height, width, 3]; its checksums must hold."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    parts: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
            kind + body
        )
        parts[kind] = body
        at += 12 + size
    assert list(parts) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert rest == [8, 3, 0, 0, 0]  # eight bits, a palette, no interlacing
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8)
    lines = lines.reshape(height, width + 1)
    assert not lines[:, 0].any()
    palette = np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)
    return palette[lines[:, 1:]]


def bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def planted_in(root: Path) -> Planted:
    """Fills the store at `root`."""
    rng = np.random.default_rng(3)
    hidden = rng.normal(size=(WINDOWS, ROWS, CHANNELS)).astype(np.float32)
    hidden[:, :, OUTLIER] *= 60
    hidden[0, 0] *= 300  # a row that towers, so the axis of norms is logarithmic
    hidden[0, 20:] = 0  # padding
    hidden[GAPS, 3, 4], hidden[GAPS, 9, 4], hidden[GAPS, 9, 5] = np.nan, np.inf, -np.inf
    hidden = (hidden.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    all_p = np.sort(rng.dirichlet(np.ones(30), (WINDOWS, ROWS)), -1)[..., ::-1]
    p = all_p[..., :KEPT].astype(np.float32)
    ids = rng.integers(0, 1000, p.shape, np.uint32)
    settings = {"dtype": "bf16"}
    shards = []
    for begin in range(0, WINDOWS, EACH):
        part = slice(begin, begin + EACH)
        held = {"hidden": bf16(hidden[part]), "topk_id": ids[part], "topk_p": p[part]}
        shards.append(put(root, "trunk_shard", settings | {"at": begin}, held))
    whole = put(
        root,
        "trunk_pass",
        settings | {"shard_windows": EACH, "windows": WINDOWS},
        {},
        shards,
    )
    flags = rng.random((3, ROWS, 2)) < 0.5
    lone = put(
        root,
        "measure_draft",
        {},
        {
            "hit": flags,
            "length": np.array([24, 20, 7], np.uint32),
            "logsumexp": rng.normal(size=(3, ROWS)).astype(np.float32),
            "draft_top4_id": ids[:3, :, :8].reshape(3, ROWS, 2, 4),
            "draft_top4_p": p[:3, :, :8].reshape(3, ROWS, 2, 4),
        },
    )
    client = TestClient(create_app(root), raise_server_exceptions=True)
    return Planted(root, client, hidden, ids, p, tuple(shards), whole.name, lone.name)

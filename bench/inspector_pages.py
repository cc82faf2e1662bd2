"""The inspector's pages on a store of 1,000 artifacts and a wide array: medians in ms.

    python -m bench.inspector_pages [--artifacts 1000]

The store is made in a temporary folder; nothing is trained. A page's first answer, which
reads what later ones remember, is told beside the median.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from store.arrays import create_array
from store.artifact import Artifact
from store.completion import StageResult, finish, prepare
from store.manifest import Origin, Recipe, key_of
from store.store import Store
from ui.inspector.app import create_app

ORIGIN = Origin(
    machine="bench", versions={}, started="2026-12-01T10:00:00", seconds=1, resumed=False
)
ROWS, CHANNELS = 2048, 4096
TURNS = 7


def main() -> None:
    """Print a line a page."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("--artifacts", type=int, default=1000)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        wide = _put(root, "trunk_pass", 0, with_rows=True)
        for number in range(1, given.artifacts):
            last = _put(root, "measure_draft" if number % 2 else "train_draft", number)
        client = TestClient(create_app(root))
        paths = ["/", "/store", "/store?stage=measure_draft", "/compare",
                 f"/stage/{last.name}", f"/arrays/{wide.name}?name=hidden",
                 f"/api/arrays/{wide.name}/heat.png?name=hidden"]  # fmt: skip
        for path in paths:
            sys.stdout.write(f"{_line(client, path)}\n")


def _put(root: Path, stage: str, number: int, *, with_rows: bool = False) -> Artifact:
    """A finished artifact; with rows, one bf16 window of a wide trunk."""
    settings = {"number": number, "dtype": "bf16"}
    recipe = Recipe(stage=stage, version=1, settings=settings, inputs={"trunk": "ab"})
    store, key = Store(root), key_of(recipe)
    out = store.path(stage, key)
    prepare(out)
    if with_rows:
        values = np.random.default_rng(0).normal(size=(2, ROWS, CHANNELS))
        bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        create_array(out, "hidden", bits.shape, "u2", "raw")[:] = bits
    reference = finish(out, recipe, StageResult(parts=()), ORIGIN)
    said = {"metadata": {"serializer": {"type": "json"}}}
    record = said | {"result": reference.model_dump_json()}
    (out / "record.json").write_text(json.dumps(record))
    found = store.load(stage, key)
    assert found is not None
    return found


def _line(client: TestClient, path: str) -> str:
    first, *rest = (_answered_ms(client, path) for _ in range(1 + TURNS))
    return f"{statistics.median(rest):7.1f} ms, first {first:7.1f} ms  {path[:70]}"


def _answered_ms(client: TestClient, path: str) -> float:
    begun = time.perf_counter()
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return 1e3 * (time.perf_counter() - begun)


if __name__ == "__main__":
    main()

"""What an array's page reads, and what it says of what is gone, damaged or unknown."""

import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.inspected import HOSTILE
from tests.test_ui.planted import (
    Planted,
    planted_in,
    put,
)
from ui.inspector.app import create_app


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return planted_in(tmp_path_factory.mktemp("planted") / "store")


def test_a_page_of_a_window_reads_its_chunk_alone(planted: Planted, tmp_path: Path) -> None:
    root = shutil.copytree(planted.root, tmp_path / "store")
    window, place = 5, 1  # of the second shard
    for shard in planted.shards:
        for chunk in (root / shard.stage / shard.key).glob("*/c/*/*/*"):
            if shard is planted.shards[1] and chunk.parts[-3] == str(place):
                continue
            chunk.chmod(0o644)
            chunk.write_bytes(b"never to be read")
    client = TestClient(create_app(root))
    for name in ("hidden", "topk_id", "topk_p"):
        here = f"{planted.here}?name={name}&w={window}"
        assert client.get(f"/arrays/{here}").status_code == 200
        assert client.get(f"/arrays/{planted.here}?name={name}&w=4").status_code == 410
    assert client.get(
        f"/api/arrays/{planted.here}/heat.png?name=hidden&w={window}"
    ).status_code == 200  # fmt: skip


def test_a_chunk_that_is_gone_is_a_page(planted: Planted, tmp_path: Path) -> None:
    root = shutil.copytree(planted.root, tmp_path / "store")
    first = root / planted.shards[0].stage / planted.shards[0].key
    (first / "hidden" / "c" / "2" / "0" / "0").unlink()
    client = TestClient(create_app(root))
    answer = client.get(f"/arrays/{planted.here}?name=hidden&w=2")
    assert answer.status_code == 410
    assert "0 of 1 chunks" in answer.text
    assert client.get(f"/api/arrays/{planted.here}/heat.png?w=2").status_code == 410
    assert client.get(f"/arrays/{planted.here}?name=hidden&w=1").status_code == 200
    shutil.rmtree(first)
    assert client.get(f"/arrays/{planted.here}?w=1").status_code == 404


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/arrays/{here}?w=6", 404, "windows 0 to 5"),
        ("/arrays/{here}?w=" + "9" * 60, 404, "windows 0 to 5"),
        ("/arrays/{here}?w=-1", 400, "w:"),
        ("/arrays/{here}?name=topk_p&row=24", 404, "rows 0 to 23"),
        ("/arrays/{here}?name=" + HOSTILE, 404, "there are: hidden, topk_id, topk_p"),
        ("/arrays/{here}?name=../../etc", 404, "there are: hidden"),
        ("/arrays/trunk_pass/" + "0" * 32, 404, "holds no trunk_pass"),
        ("/arrays/..%2f..%2fetc/passwd", 404, ""),
        ("/api/arrays/{here}/nothing.csv", 404, "histogram"),
        ("/api/arrays/{here}/topk.csv?name=hidden", 404, "no table"),
        ("/api/arrays/{here}/heat.png?name=topk_id", 404, "topk_id"),
        ("/api/arrays/{here}/plots/rows.svg?name=topk_id", 404, "topk_id"),
    ],
)
def test_what_cannot_be_shown_is_said_so(
    planted: Planted, path: str, status: int, said: str
) -> None:
    answer = planted.client.get(path.format(here=planted.here))
    assert answer.status_code == status
    assert said in answer.text
    if not path.startswith("/api"):  # there it is JSON, which no browser runs
        assert "<script>" not in answer.text


def test_an_artifact_without_arrays_says_so(planted: Planted) -> None:
    bare = put(planted.root, "rewrite_model", {}, {})
    answer = planted.client.get(f"/arrays/{bare.name}")
    assert answer.status_code == 404
    assert "holds no arrays" in answer.text

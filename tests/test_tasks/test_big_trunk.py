"""A trunk pass in less memory than its trunk takes: a limit that the kernel enforces."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.small_heal import write_records
from tests.test_tasks.big_model import VOCAB, write_big

CHILD = Path(__file__).with_name("big_child.py")
ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def passed(folder: Path, limit_mib: int, placement: str) -> dict[str, Any]:
    """What a pass in a process of its own, so limited, told of itself."""
    places = [str(folder / name) for name in ("m.cmf", "d.jsonl", f"store-{placement}")]
    command = [sys.executable, str(CHILD), *places, str(limit_mib), placement]
    said = subprocess.check_output(
        command, text=True, timeout=600, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    )
    told: dict[str, Any] = json.loads(said)
    return told


def ground(folder: Path, f32_bytes: int, windows: int) -> int:
    write_records(
        folder / "d.jsonl",
        [[(7 * i + j) % VOCAB for j in range(64)] for i in range(windows)],
    )
    return write_big(folder / "m.cmf", f32_bytes)


def test_a_trunk_larger_than_the_limit_is_streamed(tmp_path: Path) -> None:
    size = ground(tmp_path, 600_000_000, windows=1)
    told = passed(tmp_path, 1000, "auto")
    (said,) = told["said"]
    assert "trunk: streamed layer by layer; all of it in f32 needs" in said
    assert told["shards"] == ["ran"]
    # Python's own libraries take 400 MiB of it, so that the trunk's 570 would not fit.
    assert size > 570 * MIB
    assert told["peak MiB"] < 950  # held whole it comes to 1,200


@pytest.mark.big
def test_3_gb_in_1_gib(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ground(tmp_path, 3_000_000_000, windows=4)
    told = passed(tmp_path, 1024, "auto")
    refused = passed(tmp_path, 1024, "resident")
    free = passed(tmp_path, 8192, "resident")
    with capsys.disabled():
        lines = [
            f"\n{told['said'][0]}",
            *(
                f"{name}: peak {one['peak MiB']} MiB, {one['processor seconds']:.1f} s of "
                f"processor time for 256 tokens of a trunk of {size / 1e9:.2f} GB in f32"
                for name, one in (("streamed", told), ("resident", free))
            ),
        ]
        sys.stdout.write("\n".join(lines) + "\n")
    assert "streamed layer by layer" in told["said"][0]
    assert told["peak MiB"] < 1024
    assert told["shards"] == ["ran"] * 4
    assert "memory" in refused["error"]
    assert free["peak MiB"] > size / MIB
    assert told["content"] == free["content"]

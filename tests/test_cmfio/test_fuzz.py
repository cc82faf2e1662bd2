"""Damaged files, made at random for a bounded time: nothing but our own errors."""

import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
CHILD = Path(__file__).with_name("fuzz_child.py")
FILES = ("invalid/valid_base", "full", "nd", "dtypes_7x64", "moe_masks", "skill_file")
SECONDS = 10


def test_damaged_files_bring_our_errors_and_no_memory_beyond_them(tmp_path: Path) -> None:
    paths = [str(PEERS / f"{name}.cmf") for name in FILES]
    words = [str(CHILD), str(SECONDS), "7", str(tmp_path), *paths]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cases, refused = map(int, done.stdout.split())
    assert cases > 50
    assert 0.2 * cases < refused < 0.95 * cases  # some damage is legal, most isn't

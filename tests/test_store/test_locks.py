import subprocess
import sys
from pathlib import Path

from store.locks import key_lock
from tests.programs import most_inside

HOLDER = """
import sys, time
from pathlib import Path
from store.locks import key_lock
with key_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_threads_take_turns(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "k.lock"
    assert most_inside(lambda: key_lock(lock, lambda: None), 20) == 1


def test_a_waiter_is_told_and_follows_a_killed_holder(tmp_path: Path) -> None:
    lock = tmp_path / "k.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        # The callback runs while the lock is still held: only then is the holder killed.
        with key_lock(lock, holder.kill):
            pass
    assert holder.returncode == -9

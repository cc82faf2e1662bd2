import subprocess
import sys
import threading
from pathlib import Path

from store.locks import key_lock

HOLDER = """
import sys, time
from pathlib import Path
from store.locks import key_lock
with key_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_threads_take_turns(tmp_path: Path) -> None:
    inside, most, waits = [0], [0], []

    def work() -> None:
        for _ in range(20):
            with key_lock(tmp_path / "locks" / "k.lock", lambda: waits.append(1)):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


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

"""Stages for tests that need processes: `stage_program.py STORE` calls `slow_text`.

`slow_text` checkpoints, then waits for the file `go` beside the store; each start of it
adds a line to `ran`.
"""

import sys
import time
from pathlib import Path

from store.store import Store
from tasks.progress import LineProgress
from tasks.stage import Runtime, mark_resumed, stage
from tests.test_tasks.sample_stages import Text


@stage("slow_text", version=1)
def slow_text(out: Path, settings: Text, runtime: Runtime) -> None:
    beside = runtime.store.root.parent
    checkpoint = out / "work" / "ckpt-1"
    if checkpoint.exists():
        mark_resumed(out)
    checkpoint.parent.mkdir(exist_ok=True)
    checkpoint.write_text("state")
    with (beside / "ran").open("a") as ran:
        ran.write("ran\n")
    runtime.progress.say("filling")
    while not (beside / "go").exists():
        time.sleep(0.01)
    (out / "text").write_text(settings.text)


if __name__ == "__main__":
    run = Runtime(store=Store(Path(sys.argv[1])), progress=LineProgress())
    slow_text(Text(), run)
    run.progress.say(run.ledger.events[0].state)

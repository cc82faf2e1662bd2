"""`slow_text` as a machine of its own, its times short: `lease_program.py STORE [HOST]`."""

import platform
import sys
from pathlib import Path

from store.leases import LeaseTimes
from store.store import Store
from tasks.progress import LineProgress
from tasks.stage import Runtime
from tests.test_tasks.sample_stages import Text
from tests.test_tasks.stage_program import slow_text

if __name__ == "__main__":
    if len(sys.argv) > 2:
        platform.node = lambda: sys.argv[2]
    times = LeaseTimes(beat_s=0.1, still_s=1.0, look_s=0.02)
    run = Runtime(store=Store(Path(sys.argv[1]), leases=times), progress=LineProgress())
    slow_text(Text(), run)
    run.progress.say(run.ledger.events[0].state)

"""A trunk pass in so many MiB: `big_child.py MODEL DATA STORE LIMIT_MIB PLACEMENT`.

Prints, as JSON, what was said, the seconds, and the peak memory (VmHWM) in MiB. A process
of its own, since a limit and a peak never go back.
"""

import json
import re
import resource
import sys
import time
from pathlib import Path

from conf.machine import keep_freed_memory, limit_threads
from store.store import Store
from tasks.model_file import open_model
from tasks.pack import PackSettings, pack_windows
from tasks.progress import SilentProgress
from tasks.shard_rows import ShardSettings
from tasks.sources import open_set
from tasks.stage import Runtime
from tasks.trunk_pass import run_trunk

WINDOW = 64


def status_mib(name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    assert found is not None
    return int(found[1]) // 1024


def run(model: Path, data: Path, store: Path, placement: str) -> dict[str, object]:
    said = SilentProgress()
    runtime = Runtime(
        store=Store(store),
        head_budget_bytes=8 << 20,
        placement=placement,  # type: ignore[arg-type]  # the test gives one of three
        progress=said,
    )
    pack = PackSettings(
        window=WINDOW, depth=2, split="windows", names=("own",), tokens=(1000,)
    )
    sets = [open_set(str(data), runtime.store.digests)]
    windows = pack_windows(pack, runtime, sets=sets, tokenizer=None)
    trunk = open_model(model, runtime).trunk
    settings = ShardSettings(topk=8, dtype="f32", window=WINDOW, compile=False)
    start, spent = time.monotonic(), time.process_time()
    rows = run_trunk(trunk, windows, settings, 1, runtime)
    return {
        "content": rows.content_digest,
        "shards": [e.state for e in runtime.ledger.events if e.name == "trunk_shard"],
        "said": said.said,
        "seconds": time.monotonic() - start,
        "processor seconds": time.process_time() - spent,
    }


if __name__ == "__main__":
    limit_threads(1)
    keep_freed_memory()  # as `heal` does
    model, data, store, limit, placement = sys.argv[1:]
    most = int(limit) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        told = run(Path(model), Path(data), Path(store), placement)
    except (MemoryError, RuntimeError) as error:  # numpy's, torch's
        told = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    told["peak MiB"] = status_mib("VmHWM")
    sys.stdout.write(json.dumps(told) + "\n")

"""What a rewrite or a conversion takes of memory: `stream_child.py WAY IN OUT`.

Prints the growth of VmHWM in KiB. A process of its own: VmHWM never falls.
"""

import re
import sys
from pathlib import Path

import numpy as np

from cmfio import reencode
from cmfio.convert import convert
from cmfio.identity import model_digests
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from cmfio.verify import verify
from cmfio.writer import Output

SMALL = Path(__file__).parents[1] / "peers" / "cmf" / "full.cmf"


def high_water_kib() -> int:
    text = Path("/proc/self/status").read_text("ascii")
    found = re.search(r"VmHWM:\s*(\d+) kB", text)
    assert found is not None
    return int(found[1])


def run(way: str, source: Path, out: Path) -> None:
    with open_container(source) as model:
        if way == "verify":
            assert verify(model) == []
            model_digests(model)
        elif way == "rewrite":
            rewrite(model, out, {"norm": np.ones(64, np.float32)})
        elif way == "shards":
            cut = Output(shard_max_bytes=source.stat().st_size // 3)
            rewrite(model, out, {"norm": np.ones(64, np.float32)}, output=cut)
        elif way == "blocks":
            reencode.BLOCK_BYTES = 1 << 21
            convert(model, out, "q8_row")
        else:
            convert(model, out, way, output=Output(threads=2))


if __name__ == "__main__":
    way, source, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    run(way, SMALL, out)  # imports, kernels and threads aren't the model's memory
    before = high_water_kib()
    run(way, source, out)
    sys.stdout.write(f"{high_water_kib() - before}\n")

"""Writes a model over and over, until it is killed: `kill_child.py IN OUT [SHARD_MAX]`."""

import sys
from pathlib import Path

from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from cmfio.writer import Output

if __name__ == "__main__":
    most = int(sys.argv[3]) if len(sys.argv) > 3 else None
    with open_container(sys.argv[1]) as source:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        number = 0
        while True:
            rewrite(
                source,
                Path(sys.argv[2]),
                {},
                provenance=("round", number),
                output=Output(shard_max_bytes=most),
            )
            number += 1

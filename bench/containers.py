"""Verify, copy, cut and convert a model of 512 MB, beside `cp` of the same file.

`.venv/bin/python bench/containers.py [--json] [FOLDER]`. Wall clock, medians of rounds in
which all take turns; GB a second of the source's bytes. The file is in the page cache, the
outputs are synced: what is measured is this room and the disk of FOLDER.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cmfio.convert import convert
from cmfio.header import Arch, Header
from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor, rewrite
from cmfio.verify import verify
from cmfio.writer import Output, write_container

SHAPE, TENSORS, ROUNDS, SEED = (4096, 4096), 16, 3, 0


def measure(folder: Path) -> dict[str, Any]:  # JSON
    """GB a second of each way, and its share of cp's speed."""
    source = _model(folder / "model.cmf")
    size = source.stat().st_size / 1e9
    out = folder / "out.cmf"
    jobs = _jobs(source, out)
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
    speeds = {name: size / statistics.median(column) for name, column in seconds.items()}
    return {
        "bytes": source.stat().st_size,
        "gb_s": speeds,
        "share_of_cp": {name: speed / speeds["cp"] for name, speed in speeds.items()},
    }


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"{'':16}{'GB/s':>8}{'of cp':>8}"]
    for name, speed in report["gb_s"].items():
        lines.append(f"{name:16}{speed:8.2f}{report['share_of_cp'][name]:8.2f}")
    return "\n".join(lines) + "\n"


def _jobs(source: Path, out: Path) -> dict[str, Callable[[], object]]:
    def copied() -> None:
        with source.open("rb") as theirs, out.open("wb") as ours:
            shutil.copyfileobj(theirs, ours, 1 << 22)
            os.fsync(ours.fileno())

    def on_model(work: Callable[[Any], object]) -> Callable[[], object]:
        def job() -> object:
            with open_container(source) as model:
                return work(model)

        return job

    cut = Output(shard_max_bytes=source.stat().st_size // 3)
    return {
        "cp": copied,
        "verify": on_model(verify),
        "rewrite": on_model(lambda model: rewrite(model, out, {})),
        "rewrite, shards": on_model(lambda model: rewrite(model, out, {}, output=cut)),
        "convert q8_row": on_model(lambda model: convert(model, out, "q8_row")),
        "convert q4tp": on_model(lambda model: convert(model, out, "q4tp")),
    }


def _model(path: Path) -> Path:
    noise = np.random.default_rng(SEED).standard_normal(SHAPE).astype(np.float32)
    arch = Arch(
        arch_name="noise",
        hidden_size=SHAPE[1],
        intermediate_size=SHAPE[0],
        num_layers=1,
        num_attention_heads=1,
        num_kv_heads=1,
        head_dim=64,
        vocab_size=SHAPE[0],
        layer_types=("FullAttention",),
        rms_norm_eps=1e-6,
        max_position_embeddings=64,
    )
    payloads = [encode_tensor(f"w{i}.weight", noise, "f16") for i in range(TENSORS)]
    write_container(path, Header(arch=arch, quant_type="F16"), payloads)
    return path


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--json"]
    with tempfile.TemporaryDirectory(dir=words[0] if words else None) as name:
        result = measure(Path(name))
    as_json = "--json" in sys.argv[1:]
    sys.stdout.write(json.dumps(result, indent=1) + "\n" if as_json else table(result))

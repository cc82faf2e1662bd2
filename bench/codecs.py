"""Encode and decode 4096 × 4096 weights in every codec, beside an f32 memcpy.

`python -m bench.codecs [--json]`. One thread, processor time, rounds in which all
take turns, medians; a share is against the memcpy of its own round. Decoding writes into an
array that is there already, as the memcpy does: fresh memory costs more than most codecs.
Encoding f32 copies nothing.
"""

import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench import turns
from cmfio.codecs.base import F32
from cmfio.codecs.registry import CODECS

SIDE, ROUNDS, SEED = 4096, 5, 0
MILLIONS = SIDE * SIDE / 1e6
# Rows 10 and 11 of docs/benchmarks.md: shares of a memcpy.
DECODE_TARGETS = {"q8_row": 1.2, "q4_tiled": 0.7, "q4tp": 0.7, "vbit": 0.4}
ENCODE_TARGETS = {"q8_row": 0.35, "q4_tiled": 0.35, "q4tp": 0.1, "vbit": 0.25}


def measure() -> dict[str, Any]:  # JSON
    """Per codec and direction: million weights a second, share of a memcpy, target."""
    noise = np.random.default_rng(SEED).standard_normal((SIDE, SIDE))
    values = (noise * 0.02).astype(np.float32)
    out = np.empty_like(values)
    jobs = _jobs(values, out)
    for job in jobs.values():
        job()  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    copies: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            copies[name].append(turns.seconds(lambda: np.copyto(out, values)))
            seconds[name].append(turns.seconds(job))
    every_copy = [second for column in copies.values() for second in column]
    report: dict[str, Any] = {
        "side": SIDE,
        "rounds": ROUNDS,
        "memcpy_mweights_s": MILLIONS / statistics.median(every_copy),
        "codecs": {},
    }
    for name, column in seconds.items():
        codec, direction = name.split()
        shares = [copy / own for copy, own in zip(copies[name], column, strict=True)]
        targets = ENCODE_TARGETS if direction == "encode" else DECODE_TARGETS
        report["codecs"].setdefault(codec, {})[direction] = {
            "mweights_s": MILLIONS / statistics.median(column),
            "share": statistics.median(shares),
            "target": targets.get(codec),
        }
    return report


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [
        f"memcpy of f32: {report['memcpy_mweights_s']:,.0f} million weights a second",
        "",
    ]
    lines.append(f"{'codec':12}{'encode Mw/s':>13}{'share':>7}{'target':>8}"
                 f"{'decode Mw/s':>13}{'share':>7}{'target':>8}")  # fmt: skip
    for name, both in report["codecs"].items():
        line = f"{name:12}"
        for one in (both["encode"], both["decode"]):
            target = "" if one["target"] is None else f"{one['target']:.2f}"
            line += f"{one['mweights_s']:13,.0f}{one['share']:7.2f}{target:>8}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _jobs(values: F32, out: F32) -> dict[str, Callable[[], object]]:
    jobs: dict[str, Callable[[], object]] = {}
    for name, codec in CODECS.items():
        source = np.sign(values) * np.float32(0.02) if name == "q1t_exact" else values
        payload = codec.encode(source)
        jobs[f"{name} encode"] = partial(codec.encode, source)
        jobs[f"{name} decode"] = partial(codec.decode, payload, (SIDE, SIDE), out=out)
    return jobs


if __name__ == "__main__":
    result = measure()
    as_json = "--json" in sys.argv[1:]
    sys.stdout.write(json.dumps(result, indent=1) + "\n" if as_json else table(result))

"""All measurements, twice over: `make bench`, or `python -m bench.run [--quick] [NAME …]`.

Writes `docs/benchmarks.md` and `docs/benchmarks.json`. Each script runs in a process of its
own, and a target counts as met when both runs meet it. `--quick` is one run of few rounds
and writes into `.heal-bench/` instead; so does a run of some scripts by name.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.turns import FOLDER, HOME, Json, environment
from conf.machine import cpu_flags

SCRIPTS = (
    "trunk_pass",
    "families",
    "streamed",
    "head_loss",
    "loss_memory",
    "draft_step",
    "chain_cost",
    "measure_cost",
    "cached_run",
    "codecs",
)
RUNS = 2
WORK = {
    "1": "trunk pass, T 2048, against transformers f32, naive",
    "2": "the same against transformers bf16, naive",
    "3": "the same, share of a bf16 product's rate, %",
    "4": "the pass's agreement with f32",
    "5": "peak memory of the head loss",
    "6": "head loss, forward and backward, against naive f32 and bf16",
    "7": "whole draft step, Adam included, against naive f32 and bf16",
    "8": "unrolled chain of 3, in steps of one; its error against brute force",
    "9": "measuring every start exactly, against the stride-8 walk",
    "10": "decoding, share of a memcpy: q8 / q4_tiled, q4tp / vbit",
    "11": "encoding, share of a memcpy: q8 / q4_tiled / q4tp / vbit",
    "12": "cached rerun of a whole heal",
    "13": "layer-streamed pass against a resident one",
    "14": "stage overhead",
    "15": "first line of `heal run`",
}
# A token of rows 1 to 3: products of layers and head, attention; a row of row 6: its two.
PRODUCT_FLOPS, ATTENTION_FLOPS = 269e6, 71e6
LOSS_FLOPS = 2 * 2.0 * 576 * 49_152
WITHOUT_AMX = (
    "The targets were set on a processor with AMX, where a bf16 product is 7 to 8 times as "
    "fast as an f32 one; this one has none. "
)
FLAGS = ("amx_bf16", "avx512_bf16", "avx512f", "avx512_vnni", "avx2", "fma")
LIBRARIES = ("torch", "transformers", "numba", "numpy", "prefect", "zarr")


def run(names: Sequence[str], *, quick: bool) -> Json:
    """Every script's rows over all runs, with the machine."""
    runs = 1 if quick else RUNS
    targets, details = {}, {}
    begun = time.monotonic()
    for done, name in enumerate(names):
        minutes = (time.monotonic() - begun) / 60
        said = f"{name}, {done + 1} of {len(names)} scripts, {minutes:.0f} min so far"
        print(said, file=sys.stderr, flush=True)  # noqa: T201
        reports = [_report(name, quick=quick) for _ in range(runs)]
        details[name] = [report["details"] for report in reports]
        for row in reports[0]["rows"]:
            same = [report["rows"][row] for report in reports]
            targets[row] = _joined(same) | {"command": _command(name)}
    in_order = dict(sorted(targets.items(), key=lambda item: int(item[0])))
    return {"machine": machine(), "targets": in_order, "details": details}


def machine() -> Json:
    """Processor, features, versions, date."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(line.partition(":")[2] for line in lines if line.startswith("model name"))
    return {
        "processor": model.strip(),
        "flags": [flag for flag in FLAGS if flag in cpu_flags()],
        "cores": os.cpu_count(),
        "threads": 1,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        **{name: version(name) for name in LIBRARIES},
        "date": datetime.now(UTC).date().isoformat(),
    }


def page(found: Json) -> str:
    """The page for people."""
    about = found["machine"]
    lines = [
        "# Benchmarks",
        "",
        "What `make bench` measured; `benchmarks.json` has the numbers. Processes of their",
        "own, one thread, processor time, rounds in which all take turns, medians of the",
        "rounds' own ratios, two separate runs. Rows 12, 14 and 15 are wall clock: what a",
        "user waits for.",
        "",
        f"Machine: {about['processor']}, {about['cores']} cores, load {about['load']:.1f}; "
        f"{', '.join(about['flags'])}; {about['system']}, Python {about['python']}, "
        f"{', '.join(f'{name} {about[name]}' for name in LIBRARIES)}; {about['date']}.",
        "",
        "| row | work | measured | target | met | command |",
        "|---|---|---|---|---|---|",
    ]
    for row, one in found["targets"].items():
        met = "yes" if one["met"] else "**no**"
        cells = (row, WORK[row], _shown(one["value"]), one["target"], met)
        lines.append(f"| {' | '.join(cells)} | `{one['command']}` |")
    lines += ["", *_notes(found), ""]
    lines += [*_families_table(found["details"]), *_codecs_table(found["details"])]
    for name, runs in found["details"].items():
        lines += [f"## {name}", "", "```json", json.dumps(runs, indent=1), "```", ""]
    return "\n".join(lines)


def _families_table(details: Json) -> list[str]:
    """Each family's trunk pass, medians over the runs."""
    if "families" not in details:
        return []
    runs = [run["families"] for run in details["families"]]
    lines = [
        "## Every family's trunk pass against `transformers` in bf16",
        "",
        f"Random models, 4 layers of 256; {len(runs)} × {details['families'][0]['rounds']} "
        "rounds.",
        "",
        "| family | times as quick | tokens a second |",
        "|---|---|---|",
    ]
    for family in runs[0]:
        times = statistics.median(run[family]["times"] for run in runs)
        rate = statistics.median(run[family]["tokens a second"] for run in runs)
        lines.append(f"| {family} | {times:.2f} | {rate:,.0f} |")
    return [*lines, ""]


def _codecs_table(details: Json) -> list[str]:
    """Each codec's speed, medians over the runs."""
    if "codecs" not in details:
        return []
    runs = [run["codecs"] for run in details["codecs"]]
    lines = [
        "## Codecs: 4096 × 4096 weights on one thread",
        "",
        "| codec | decode, M weights/s | share of a memcpy | encode, M weights/s | share |",
        "|---|---|---|---|---|",
    ]
    for codec in runs[0]:
        cells = [
            f"{statistics.median(run[codec][way][what] for run in runs):{form}}"
            for way in ("decode", "encode")
            for what, form in (("mweights_s", ",.0f"), ("share", ".2f"))
        ]
        lines.append(f"| {' | '.join((codec, *cells))} |")
    return [*lines, ""]


def _notes(found: Json) -> list[str]:
    """What falls short, beside what the machine allows by the rates of the same run."""
    details = found["details"]
    if not {"trunk_pass", "head_loss"} <= details.keys():
        return []
    runs, losses = details["trunk_pass"], details["head_loss"]
    f32, bf16, attention = (
        _of_runs(runs, "GEMM GF/s", name) for name in ("f32", "bf16", "attention_bf16")
    )
    ours, by_f32, by_bf16 = (
        _of_runs(runs, "tokens a second", name)
        for name in ("ours", "naive_f32", "naive_bf16")
    )
    most = 1e9 / (PRODUCT_FLOPS / bf16 + ATTENTION_FLOPS / attention)
    loss_s = losses[0]["rows"] * LOSS_FLOPS / (bf16 * 1e9)
    loss_most = _of_runs(losses, "seconds", "naive_f32") / loss_s
    has_amx = "amx_bf16" in found["machine"]["flags"]
    return [
        "## What falls short, and why",
        "",
        f"{'' if has_amx else WITHOUT_AMX}At the shape that is timed beside the trunk "
        f"pass a bf16 product runs at {bf16:,.0f} GF/s here, an f32 one at {f32:,.0f} "
        f"({bf16 / f32:.1f} times as fast), attention at {attention:,.0f} in either type.",
        "",
        f"* Rows 1 and 2: products and attention alone allow {most:,.0f} tokens a second "
        f"at these rates; the pass makes {ours:,.0f} ({ours / most:.0%}). So at most "
        f"{most / by_f32:.1f} times the f32 baseline and {most / by_bf16:.2f} times the "
        "bf16 one are to be had here.",
        "* Row 3 is a share of a rate that is low here, and says less than with AMX.",
        f"* Row 6: the loss's two products alone would be {loss_most:.1f} times as quick "
        "as the f32 baseline; softmax, top-k and slopes, which are ours, come on top.",
        "* Row 8: the error is in units of a row's root mean square.",
        "* Row 9: the draft measured holds little, so few rows are alive past its first "
        "step; one that holds more gains less.",
        "* Row 12, with a server: importing Prefect's engine alone takes some 1.4 s of it "
        '(`python -X importtime -c "import prefect.flow_engine"`).',
    ]


def _of_runs(runs: Sequence[Json], part: str, name: str) -> float:
    return statistics.median(float(one[part][name]) for one in runs)


def _report(name: str, *, quick: bool) -> Json:
    if name == "codecs":
        return _codecs()
    command = [sys.executable, "-m", f"bench.{name}", *(["--quick"] if quick else [])]
    said = subprocess.check_output(command, cwd=HOME, env=environment(), text=True)
    report: Json = json.loads(said)
    return report


def _codecs() -> Json:
    """Rows 10 and 11 out of the report of `bench/codecs.py`."""
    command = [sys.executable, "-m", "bench.codecs", "--json"]
    said = subprocess.check_output(command, cwd=HOME, env=environment(), text=True)
    report = json.loads(said)
    rows = {}
    for row, direction in (("10", "decode"), ("11", "encode")):
        due = {
            name: both[direction]
            for name, both in report["codecs"].items()
            if both[direction]["target"] is not None
        }
        rows[row] = {
            "value": {name: one["share"] for name, one in due.items()},
            "target": ", ".join(f"{name} ≥ {one['target']}" for name, one in due.items()),
            "met": all(one["share"] >= one["target"] for one in due.values()),
        }
    return {"rows": rows, "details": report}


def _joined(same: Sequence[Json]) -> Json:
    """Medians over the runs, the runs beside them; met only if every run met it."""
    values = [one["value"] for one in same]
    first = values[0]
    value = (
        {part: statistics.median(one[part] for one in values) for part in first}
        if isinstance(first, dict)
        else statistics.median(values)
    )
    met = all(one["met"] for one in same)
    return {"value": value, "target": same[0]["target"], "met": met, "runs": values}


def _shown(value: Json | float) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name} {_shown(one)}" for name, one in value.items())
    if value < 0.0001:
        return f"{value:.1e}"
    return f"{value:.4f}" if value < 0.01 else f"{value:.3g}"


def _command(name: str) -> str:
    return f".venv/bin/python -m bench.{name}"


def main() -> None:
    """The command line."""
    quick = "--quick" in sys.argv[1:]
    names = [name for name in sys.argv[1:] if name != "--quick"]
    found = run(names or SCRIPTS, quick=quick)
    folder = FOLDER if quick or names else HOME / "docs"
    (folder / "benchmarks.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "benchmarks.md").write_text(page(found))
    print(folder / "benchmarks.md")  # noqa: T201


if __name__ == "__main__":
    main()

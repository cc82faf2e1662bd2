"""A card against the processor and against its own limits, in less than eight minutes.

`python -m bench.gpu [--out FOLDER] [--budget-s 460]`; `--device cpu --tiny` tries the
script itself in seconds. Parity of every family first, then the trunk pass, the top-k and
the draft step at the shapes of a 14B trunk with random weights. Writes `gpu.json` and
`gpu.md`. Exit code 1 if a family is too far from the processor, 2 without a card. What the
budget has no room for is left out with a note.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.turns import FOLDER, Json
from conf.errors import ConfigError
from conf.machine import resolve_device

BUDGET_S = 460.0
NO_CARD, TOO_FAR = 2, 1
TINY_FAMILIES = ("llama", "qwen3_5_moe")
# What a section takes on an H200 at most, by the plan, loading of libraries included.
NEEDS_S = {"roofline": 15.0, "trunk pass": 40.0, "top-k": 10.0, "draft step": 40.0}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes, two families")
    parser.add_argument("--out", type=Path, default=FOLDER / "gpu")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S)
    given = parser.parse_args(arguments)
    try:
        device = resolve_device(given.device)
    except ConfigError as error:
        _say(f"no card to measure: {str(error).removeprefix('runtime.device is cuda: ')}; "
             "run this on a machine with one and a CUDA build of torch, or try the script "
             "itself with --device cpu --tiny")  # fmt: skip
        return NO_CARD
    found = measure(device, is_tiny=given.tiny, budget_s=given.budget_s)
    _write(given.out, found)
    failed = found.get("parity", {}).get("failed", [])
    if failed:
        _say(f"too far from the processor, or failed: {', '.join(failed)}; see the page")
    return TOO_FAR if failed else 0


def measure(device: str, *, is_tiny: bool, budget_s: float) -> Json:
    """Every section the budget has room for."""
    import torch

    from bench.gpu_clock import Clock
    from bench.gpu_model import TINY, WHOLE
    from bench.gpu_parity import FAMILIES, parity
    from bench.gpu_work import draft_step, roofline, top_k, trunk_pass

    sizes, clock = (TINY if is_tiny else WHOLE), Clock(budget_s)
    families = list(TINY_FAMILIES) if is_tiny else FAMILIES
    limits = roofline(sizes, device)
    found: Json = {"roofline": limits}
    sections: dict[str, Callable[[], Json]] = {
        "parity": lambda: parity(families, device, clock),
        "trunk pass": lambda: trunk_pass(sizes, device, limits, clock),
        "top-k": lambda: top_k(sizes, device, limits),
        "draft step": lambda: draft_step(sizes, device, limits),
    }
    for name, section in sections.items():
        if not clock.allows(name, 0.0 if is_tiny else NEEDS_S.get(name, 0.0)):
            continue
        _say(f"{name}: {clock.left_s:.0f} s left")
        try:
            found[name] = section()
        except torch.OutOfMemoryError as error:
            clock.notes.append(f"{name}: {str(error).splitlines()[0]}")
    about = {**_about(device), "tiny": is_tiny, "seconds": time.monotonic() - clock.started}
    return {"about": about, **found, "notes": clock.notes}


def _about(device: str) -> Json:
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor()
    return {
        "device": name or platform.machine(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _write(folder: Path, found: Json) -> None:
    from bench.gpu_page import page

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "gpu.md").write_text(page(found))
    _say(str(folder / "gpu.md"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())

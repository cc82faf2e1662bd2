"""Row 13: a pass that reads its layers from the file each time, against a resident trunk.

`python -m bench.streamed [--quick]`. Both compute what a long pass does: bf16, layers
compiled, raw rows, top-64, log-sum-exp, of windows of 2,048 tokens of real text. Streamed,
the layers are read once and the head once for all windows of a round, so few windows make
it dearer than it is: a shard has 16, a stream as many as fit, up to 65,536 tokens. The rows
must be equal bit for bit, and with them the rest.
"""

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

from bench.real_model import BUDGET_BYTES, KEPT, model_path, trunk, windows
from bench.turns import (
    FOLDER,
    OURS,
    Json,
    Round,
    main,
    median,
    race,
    ratio,
    rounds_of,
    seconds,
    target,
)
from cmfio.reader import open_container
from conf.machine import keep_freed_memory
from nets.head import topk_rows
from nets.stream import Call, HeadPart, stream_trunk
from tasks.compute_weights import compute_weights

MODULE, WIDTH, WINDOWS, MOST_ROUNDS = "bench.streamed", 2048, 4, 5
RESIDENT = "resident"


def measure(*, quick: bool = False) -> Json:
    """How many times as quick as a resident trunk a streamed one is."""
    model_path()
    rounds = min(rounds_of(quick=quick), MOST_ROUNDS)
    said = race(MODULE, [RESIDENT, OURS], rounds)
    times = ratio(said[RESIDENT], said[OURS])
    pairs = zip(said[RESIDENT], said[OURS], strict=True)
    is_equal = all(one["rows"] == other["rows"] for one, other in pairs)
    met = is_equal and times >= 0.93
    return {
        "rows": {"13": target(times, "≥ 0.93 and bit-equal", met=met)},
        "details": {
            "allocator": "mallopt as heal sets it, in both",
            "tokens a round": WIDTH * WINDOWS,
            "rounds": rounds,
            "bit-equal": is_equal,
            "seconds a round": {name: median(said[name]) for name in said},
        },
    }


def resident() -> Round:
    """The trunk in memory."""
    keep_freed_memory()  # no baseline: both are ours
    model = trunk(torch.bfloat16, is_compiled=True)
    head = HeadPart(model.shared.final_norm, model.shared.head_VH)
    return _racer(lambda calls: ([model.hidden(ids_BT) for ids_BT in calls], head))


def streamed() -> Round:
    """The trunk in its file."""
    container = open_container(model_path())  # open until the process ends
    weights = compute_weights(container, torch.bfloat16)
    model = stream_trunk(
        container.header.arch,
        weights.shapes,
        weights.read,
        weights.read_rows,
        device="cpu",
        dtype=torch.bfloat16,
        is_compiled=True,
    )

    def pass_of(calls: list[Tensor]) -> tuple[list[Tensor], HeadPart]:
        return model.hidden([Call(ids_BT) for ids_BT in calls]), model.read_head()

    return _racer(pass_of)


def _racer(pass_of: Callable[[list[Tensor]], tuple[list[Tensor], HeadPart]]) -> Round:
    every_WT = windows(8 * WINDOWS, WIDTH)

    def play(index: int) -> Json:
        first = index % 8 * WINDOWS
        calls = [every_WT[w : w + 1] for w in range(first, first + WINDOWS)]
        digest = hashlib.sha256()

        def work() -> None:
            rows, head = pass_of(calls)
            for rows_BTH in rows:
                normed_RH = head.final_norm(rows_BTH).flatten(0, 1)
                topk_rows(normed_RH, head.head_VH, KEPT, BUDGET_BYTES)
                digest.update(rows_BTH.numpy().tobytes())

        return {"seconds": seconds(work), "rows": digest.hexdigest()}

    return play


RACERS: dict[str, Callable[[], Round]] = {RESIDENT: resident, OURS: streamed}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    main(measure, RACERS)

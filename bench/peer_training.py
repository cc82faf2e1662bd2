"""Side by side with the nearest peer, `speculators` 0.9.0: one model, the same windows.

    HEAL_PEER_PYTHON=/its/venv/bin/python python -m bench.peer_training

Both start from one stale draft on a fold of the demonstration and see 120 batches of 8
windows, on one thread, each at several learning rates; what comes out is measured by our
exact walk. The peer learns from the text's own tokens, so it is also given text that the
trunk wrote, which is what its documentation asks for.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from bench.experiment_cells import Bench, heal_config
from bench.loss_memory import status_kib
from bench.turns import FOLDER, HOME, Json, environment
from cmfio.hf_export import export_hf
from cmfio.reader import open_container
from conf.base import NORMED
from conf.experiment import Overrides
from conf.machine import keep_freed_memory, limit_threads
from flows.ground import Ground, lay_ground, open_sets
from flows.heal import settings_of
from flows.wiring import Start
from nets.draft import Draft, draft_from
from nets.evaluate import evaluate
from nets.fit_state import StepRecord
from nets.hold import measure_holds
from nets.training import FitRuntime, FitWindows, fit
from tasks.drafts import load_draft
from tasks.packed import read_windows
from tasks.row_source import RowSource, chosen_windows, measure_compute
from tasks.stage import Runtime
from tasks.trunk_rows import read_rows

STEPS, BATCH, DEPTH = 120, 8, 3
RATES = ("3e-4", "1e-3", "3e-3")
PROBE = "probe.wiring={hidden: normed, chain: normed}"  # what the peer feeds its block
STUDENT: Overrides = ("demo.fold.ffn=[1.0]", f"heal.{PROBE}")
TEXTS: dict[str, Overrides] = {
    "given": (),
    "own": (
        "data=[{name: own, write: {prompts: 'python:stdlib', prompt_tokens: 16, "
        "tokens: 131072, length: 112, batch: 256}}]",
    ),
}
PEER_NAMES = {
    "input_proj.": "eh_proj.",
    "hidden_layernorm.": "hnorm.",
    "token_layernorm.": "enorm.",
    "final_layernorm.": "norm.",
}


def main() -> None:
    """Prints a JSON report; `--ours TEXT LR` is one training of ours, in a process."""
    if sys.argv[1:2] == ["--ours"]:
        limit_threads(1)
        keep_freed_memory()
        print(json.dumps(train_ours(*sys.argv[2:])))  # noqa: T201
        return
    report = {text: race(text) for text in TEXTS}
    print(json.dumps(report, indent=1))  # noqa: T201


def race(text: str) -> Json:
    """Both trained at every rate on one text, then measured on it and on the given one."""
    ground, runtime = laid(text)
    other, _ = laid("given")
    folder = peers_folder(text, ground, runtime)
    start = loaded(ground, runtime).tensors()
    found: Json = {"stale": held(start, ground, runtime)}
    for lr in RATES:
        for name, said in {"ours": ours(text, lr), "peer": peer(folder, lr)}.items():
            draft = load_file(said.pop("draft"))
            tensors = start | {peer_to_ours(n): t.float() for n, t in draft.items()}
            rows = STEPS * BATCH * ground.windows.manifest.settings["window"]
            found[f"{name} {lr}"] = {
                **said,
                "rows_per_second": rows / said["seconds"],
                "held": held(tensors, ground, runtime),
                "held_on_given": held(tensors, other, runtime),
            }
    return found


def laid(text: str) -> tuple[Ground, Runtime]:
    """The fold, and its windows and rows of a text."""
    bench = Bench(FOLDER / "experiments")
    student, runtime = bench.student("demo", STUDENT)
    config = heal_config("demo", TEXTS[text], (PROBE,))
    sets = open_sets(config, runtime)
    return lay_ground(student, config, sets, runtime, text), runtime


def loaded(ground: Ground, runtime: Runtime) -> Draft:
    """The stale draft, ready to train."""
    model, dtype = ground.model, ground.measure.dtype
    return load_draft(model.trunk, model.draft, None, NORMED, dtype, runtime)


def held(tensors: dict[str, torch.Tensor], ground: Ground, runtime: Runtime) -> Json:
    """Drafts held a round by the exact walk, with its interval."""
    packed = read_windows(ground.windows)
    draft = draft_from(tensors, loaded(ground, runtime).shared, NORMED)
    found = evaluate(
        draft,
        RowSource(packed, read_rows(ground.rows, runtime)),
        chosen_windows(packed, packed.held_out),
        DEPTH,
        measure_compute(packed, ground.measure.dtype, runtime),
    )
    walk = measure_holds(found.arrays).walk
    return {"walk": walk.drafts_held, "interval": [walk.interval.low, walk.interval.high]}


def ours(text: str, lr: str) -> Json:
    """A training of ours; processor seconds of its steps, peak memory, the draft's file."""
    command = [sys.executable, "-m", "bench.peer_training", "--ours", text, lr]
    return heard(command, HOME)


def train_ours(text: str, lr: str) -> Json:
    """Trains without evaluations but the first and the last, as the peer does."""
    ground, runtime = laid(text)
    packed, draft = read_windows(ground.windows), loaded(ground, runtime)
    wanted = (f"train.lr={lr}", f"train.steps={STEPS}", f"train.eval_every={STEPS}")
    config = heal_config("demo", TEXTS[text], (PROBE, "train.trainable=all", *wanted))
    at: list[float] = []

    def on_step(step: StepRecord) -> None:
        at.append(time.process_time())

    held_out = chosen_windows(packed, packed.held_out)
    fit(
        draft,
        RowSource(packed, read_rows(ground.rows, runtime)),
        FitWindows(tuple(packed.training), held_out),
        settings_of(config, ground, Start(ground.model.draft)),
        FitRuntime(runtime.head_budget_bytes, on_step=on_step),
    )
    path = FOLDER / "peer" / f"ours-{text}-{lr}.safetensors"
    save_file(draft.tensors(), path)
    # The first step has the time of the evaluation before it.
    seconds = (at[-1] - at[0]) * STEPS / (STEPS - 1)
    peak = status_kib("VmHWM") / 1024  # getrusage tells the parent's where larger
    return {"seconds": seconds, "peak_mib": peak, "draft": str(path)}


def peer(folder: Path, lr: str) -> Json:
    """A training of the peer's, in its own interpreter."""
    python = os.environ.get("HEAL_PEER_PYTHON")
    if python is None:
        raise SystemExit("set HEAL_PEER_PYTHON to a Python with speculators==0.9.0")
    script = HOME / "bench" / "peer_child.py"
    said = heard([python, str(script), str(folder), lr, str(STEPS)], folder)
    found = sorted((folder / "trained" / lr).rglob("model.safetensors"))
    return {**said, "draft": str(found[-1])}


def heard(command: list[str], where: Path) -> Json:
    """The JSON that a command prints last."""
    done = subprocess.run(
        command, cwd=where, env=environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    said: Json = json.loads(done.stdout.strip().splitlines()[-1])
    return said


def peers_folder(text: str, ground: Ground, runtime: Runtime) -> Path:
    """The model as a checkpoint, and windows with normed rows as the peer reads them."""
    folder = FOLDER / "peer" / text
    if (folder / "data" / "windows.npz").exists():
        return folder
    (folder / "data" / "hidden_states").mkdir(parents=True)
    with open_container(ground.model.path) as container:
        export_hf(container, folder / "verifier")
    packed, rows = read_windows(ground.windows), read_rows(ground.rows, runtime)
    norm = loaded(ground, runtime).shared.final_norm
    whole = [w for w in packed.training if packed.length[w] == packed.ids.shape[1]]
    held_out = [w for w in packed.held_out if packed.length[w] == packed.ids.shape[1]]
    for place, window in enumerate([*whole, *held_out]):
        normed_TH = norm(rows.hidden(window).float()).to(torch.bfloat16)
        ids_T = torch.from_numpy(packed.ids[window].astype(np.int64))
        both = torch.stack([normed_TH, normed_TH], dim=1)  # an inner layer, then the last
        path = folder / "data" / "hidden_states" / f"hs_{place}.safetensors"
        save_file({"hidden_states": both, "token_ids": ids_T}, path)
    ids = packed.ids[[*whole, *held_out]].astype(np.int64)
    np.savez(folder / "data" / "windows.npz", ids=ids, training=len(whole))
    return folder


def peer_to_ours(name: str) -> str:
    """The peer's name of a tensor as a container has it; ours stay."""
    inner = name.removeprefix("mtp_layers.0.")
    if inner == name:
        return name
    for theirs, mine in PEER_NAMES.items():
        if inner.startswith(theirs):
            return "model.mtp." + mine + inner.removeprefix(theirs)
    return "model.mtp.layers.0." + inner


if __name__ == "__main__":
    main()

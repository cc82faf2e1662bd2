"""One training run of the peer, in its own interpreter: nothing of ours is imported here.

    python peer_child.py FOLDER LR STEPS

FOLDER holds `verifier/` (a Hugging Face checkpoint with `mtp.*`), `data/` (windows.npz and
`hidden_states/`) and gets `trained/LR/`. Prints one JSON line: seconds, peak memory.

The peer asks for a card in three places; on a machine without one the processor stands in.
"""

import json
import sys
import time
from pathlib import Path

import datasets
import numpy as np
import torch
from speculators.train import cli, trainer
from speculators.train.config import TrainConfig


def main() -> None:
    """Prepares the peer's data set, stands in for the card, trains, reports."""
    folder, lr, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    share = save_data_set(folder / "data")
    torch.accelerator.synchronize = lambda *_: None
    torch.accelerator.is_available = lambda: False
    trainer.get_local_rank = lambda: torch.device("cpu")
    spent = {}
    run = trainer.Trainer.run_training

    def timed(self: trainer.Trainer) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        run(self)
        spent["wall"] = time.perf_counter() - start
        spent["seconds"] = time.process_time() - cpu

    trainer.Trainer.run_training = timed
    cli.main(TrainConfig.resolve(arguments(folder, lr, steps, share)))
    peak = peak_mib()
    print(json.dumps({**spent, "peak_mib": peak}))  # noqa: T201


def peak_mib() -> float:
    """The most this process had in memory; `getrusage` tells its parent's where larger."""
    status = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def save_data_set(data: Path) -> float:
    """The windows as the peer's Arrow data set; the share of them that is trained on."""
    path = data / "set"
    windows = np.load(data / "windows.npz")
    ids, training = windows["ids"], int(windows["training"])
    if not path.exists():
        columns = {
            "input_ids": [row.tolist() for row in ids],
            "loss_mask": [[1] * ids.shape[1]] * len(ids),
            "seq_len": [ids.shape[1]] * len(ids),
        }
        made = datasets.Dataset.from_dict(columns).with_format("torch")
        made.save_to_disk(str(path))
        (path / "hidden_states").symlink_to(data / "hidden_states")
    return training / len(ids)


def arguments(folder: Path, lr: str, steps: int, share: float) -> list[str]:
    """The peer's command line; what is not named is its default."""
    options = {
        "verifier-name-or-path": folder / "verifier",
        "data-path": folder / "data" / "set",
        "speculator-type": "mtp",
        "save-path": folder / "trained" / lr,
        "lr": lr,
        "max-steps": steps,
        "epochs": 50,
        "total-seq-len": 1024,
        "train-data-ratio": share,
        "on-missing": "raise",
        "optimizer": "adamw",
        "num-workers": 0,
        "log-freq": 1000,
        "num-speculative-steps": 3,
    }
    return [text for name, value in options.items() for text in (f"--{name}", str(value))]


if __name__ == "__main__":
    main()

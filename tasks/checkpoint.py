"""A training's resume material in a stage's `work/`: safetensors, then JSON."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from nets.fit_state import FitFacts, FitState
from store.atomic import write_whole
from store.digests import sha256_of
from store.manifest import WORK
from tasks.tensor_file import write_tensors

FACTS = "ckpt-facts.json"


@dataclass(frozen=True)
class Checkpoint:
    """The last checkpoint of the training that fills `out`; `say` hears of a bad one."""

    out: Path
    say: Callable[[str], None]

    @property
    def work(self) -> Path:
        """Where it lies."""
        return self.out / WORK

    def save(self, state: FitState) -> None:
        """Keeps a checkpoint; a kill at any moment leaves this one or the one before.

        OSError, with the one before kept, if it cannot be written.
        """
        self.work.mkdir(exist_ok=True)
        facts = state.facts
        # Equal names hold equal bytes, so a file is never replaced by another's.
        name = f"ckpt-{len(facts.steps)}-{len(facts.evaluations)}.safetensors"
        write_tensors(self.work / name, state.tensors)
        kept = {
            "tensors": name,
            "sha256": sha256_of(self.work / name),
            "facts": facts.model_dump(mode="json"),
        }
        write_whole(self.work / FACTS, json.dumps(kept).encode())
        for old in self.work.glob("ckpt-*"):
            if old.name not in {name, FACTS}:
                old.unlink()

    def load(self) -> FitState | None:
        """What a cut run left; None if there is none, or a bad one, said aloud."""
        facts = self.work / FACTS
        if not facts.exists():
            return None
        try:
            state = self._read(json.loads(facts.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            why = "it holds no facts" if isinstance(error, ValidationError) else str(error)
            self.say(f"the checkpoint {facts} is damaged ({why}); training starts over")
            return None
        return state

    def _read(self, kept: dict[str, Any]) -> FitState:  # JSON, checked right here
        tensors = self.work / Path(kept["tensors"]).name
        if sha256_of(tensors) != kept["sha256"]:
            raise ValueError(f"{tensors.name} changed since it was written")
        return FitState(load_file(tensors), FitFacts.model_validate(kept["facts"]))

"""A training's resume material in a stage's `work/`: safetensors, then JSON."""

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nets.fit_state import FitFacts, FitState
from tasks.stage import mark_resumed

FACTS, TENSORS = "ckpt-facts.json", "ckpt-{step}.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """The last checkpoint of the training that fills `out`."""

    out: Path

    def save(self, state: FitState) -> None:
        """Keeps a checkpoint; a kill at any moment leaves this one or the one before."""
        work = self.out / "work"
        work.mkdir(exist_ok=True)
        tensors = work / TENSORS.format(step=len(state.facts.steps))
        save_file(dict(state.tensors), tensors)
        partial = work / f"{FACTS}.partial"
        facts = {"tensors": tensors.name, "facts": state.facts.model_dump(mode="json")}
        partial.write_text(json.dumps(facts), encoding="utf-8")
        partial.replace(work / FACTS)
        for old in work.glob("ckpt-*.safetensors"):
            if old != tensors:
                old.unlink()

    def load(self) -> FitState | None:
        """The checkpoint a cut run left, None if there is none or it cannot be read."""
        work = self.out / "work"
        try:
            kept = json.loads((work / FACTS).read_text(encoding="utf-8"))
            facts = FitFacts.model_validate(kept["facts"])
            tensors = load_file(work / Path(kept["tensors"]).name)
        except (OSError, ValueError, KeyError, ValidationError, SafetensorError):
            return None
        mark_resumed(self.out)
        return FitState(tensors, facts)

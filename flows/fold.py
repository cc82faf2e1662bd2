"""`heal fold`: one cached stage, and the result where the user wants it."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from cmfio.reader import open_container
from conf.demo import FoldSettings
from conf.machine import resolve_dtype
from tasks.errors import InputError
from tasks.fold import FoldRecipe, fold_model
from tasks.model_file import MODEL_NAME, open_model
from tasks.publish import Target, publish, refuse_bad_outputs
from tasks.stage import Runtime

UP = "model.layers.{}.mlp.up_proj.weight"


def fold_to(model: Path, out: Path, settings: FoldSettings, runtime: Runtime) -> None:
    """Folds `model` by its weights alone and writes it to `out`, its draft untouched."""
    refuse_bad_outputs([Target(out, "keep")], {"model": model})
    source = open_model(model, runtime)
    if source.layout == "hf":
        raise InputError(
            f"{model}: is a Hugging Face folder, and a config.json can't say widths by "
            "layer; make it a .cmf first with `cmf import-hf`"
        )
    recipe = FoldRecipe(
        drop=settings.drop,
        ffn=settings.ffn,
        windows=0,
        dtype=resolve_dtype("f32", runtime.device),
    )
    folded = fold_model(recipe, runtime, model=source.whole, windows=None)
    before, after = _widths(model), _widths(folded.path / MODEL_NAME)
    if before == after:
        raise InputError(
            f"{model}: nothing would be taken away: widths are rounded to multiples of 32, "
            f"which leaves FFN widths of {_listed(before)} as they are; give a lower --ffn"
        )
    publish(folded.path / MODEL_NAME, out)
    runtime.progress.say(
        f"wrote {out}: {len(after)} of {len(before)} layers, FFN widths {_listed(after)} "
        f"(were {_listed(before)}; a share is rounded to a multiple of 32)"
    )


def _widths(model: Path) -> list[int]:
    """FFN neurons of each layer of a `.cmf`."""
    with open_container(model) as source:
        count = source.header.arch.num_layers
        return [source.shapes[UP.format(i)][0] for i in range(count)]


def _listed(widths: Sequence[int]) -> str:
    """The widths, a row of equal ones once: `28 × 3,072`."""
    rows = [(width, len(list(same))) for width, same in groupby(widths)]
    return ", ".join(f"{width:,}" if n == 1 else f"{n} × {width:,}" for width, n in rows)

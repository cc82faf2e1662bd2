"""`heal fold`: one cached stage, and the result where the user wants it."""

from pathlib import Path

from conf.demo import FoldSettings
from conf.machine import resolve_dtype
from tasks.errors import InputError
from tasks.fold import FoldRecipe, fold_model
from tasks.model_file import MODEL_NAME, open_model
from tasks.publish import Target, publish, refuse_bad_outputs
from tasks.stage import Runtime


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
    publish(folded.path / MODEL_NAME, out)
    widths = ", ".join(str(width) for width in folded.numbers["widths"])
    runtime.progress.say(
        f"wrote {out}: layers {folded.numbers['layers']}, FFN widths {widths}"
    )

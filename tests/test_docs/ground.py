"""Where the docs' commands run: a small model made by the product, text like its own."""

import pydoc_data.topics
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from conf.demo import DemoConfig, FoldSettings
from conf.load import load_config, shipped_config
from conf.schema import RuntimeConfig
from flows.demo import run_demo
from flows.fold import fold_to
from flows.runtime import open_runtime
from tasks.progress import make_progress
from tests.gguf_files import write_gguf
from tests.test_docs import blocks

# A page's own settings are for real models; these make the same commands take seconds.
SMALL = {
    "pack": {"window": 64},
    "trunk": {"shard_windows": 128},
    "train": {"steps": 8, "batch": 4, "eval_every": 4, "eval_windows": 8},
}
DEMO = (
    "demo.trunk={layers: 3, hidden: 64, heads: 2, kv_heads: 2, ffn: 192, vocab: 512,"
    " window: 64, data: [{path: 'python:topics', tokens: 100000}], steps: 200, batch: 8,"
    " lr: 3.0e-3, seed: 0}",
    "demo.native={steps: 100, lr: 5.0e-3}",
    "demo.fresh=false",
    "heal.data=[{path: 'python:topics', tokens: 40000, name: prose}]",
    "heal.pack.window=64",
    "heal.train.steps=10",
    "heal.outputs=[{codec: keep, path: source.cmf}]",
)


def make_models(folder: Path) -> None:
    """`source.cmf`, a model with a sound draft, and `folded.cmf`, whose draft is stale."""
    changes = [*DEMO[:-1], DEMO[-1].replace("source.cmf", str(folder / "source.cmf"))]
    config = load_config(DemoConfig, shipped_config("demo"), changes)
    runtime = open_runtime(RuntimeConfig(), folder / "store", make_progress())
    run_demo(config, runtime, "docs-check")
    fold = FoldSettings(ffn=(0.8,))
    fold_to(folder / "source.cmf", folder / "folded.cmf", fold, runtime)


def lay_ground(folder: Path, models: Path) -> None:
    """A page's fresh folder: `.venv`, models, text, a table, README's `mine.yaml`."""
    (folder / ".venv").symlink_to(blocks.ROOT / ".venv")
    for place in ("source.cmf", "model.cmf", "models/source.cmf", "out/demo-healed.cmf"):
        put(models / "source.cmf", folder / place)
    put(models / "folded.cmf", folder / "models/folded.cmf")
    topics = list(pydoc_data.topics.topics.items())
    for number, (name, text) in enumerate(topics):
        kind = "code" if number % 2 else "notes"
        path = folder / "text" / kind / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    pq.write_table(
        pa.table({"text": [t for _, t in topics[:20]]}), folder / "prose.parquet"
    )
    (folder / "some-text.txt").write_text("\n\n".join(t for _, t in topics[:10]))
    write_gguf(folder / "model.gguf")
    save_config(folder, mine())


def put(source: Path, target: Path) -> None:
    """A copy, in folders that are made for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


def mine() -> blocks.Block:
    """README's configuration."""
    (found,) = [
        block
        for block in blocks.blocks_of(blocks.ROOT / "README.md")
        if block.file_name == "mine.yaml"
    ]
    return found


def save_config(folder: Path, block: blocks.Block) -> None:
    """Writes a configuration that a page shows, in small."""
    raw = yaml.safe_load(block.text)
    for section, settings in SMALL.items():
        raw[section] = settings | {
            key: value
            for key, value in raw.get(section, {}).items()
            if (section, key) != ("train", "epochs")
        }
    (folder / str(block.file_name)).write_text(yaml.safe_dump(raw))

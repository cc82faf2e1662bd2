"""A small model on this machine: a shard, a step, a load, a store; for `bench.scale`.

Processor time on one thread, but the clock where a disk is waited for. What is seen is
scaled to large trunks by flops and bytes.
"""

import hashlib
import shutil
import sysconfig
import time
from pathlib import Path

import numpy as np
import torch

from bench.gpu_model import KEPT, Sizes, arch_of, random_ids, random_trunk
from bench.gpu_work import train_step, trained
from bench.real_model import model_path, trunk
from bench.scale_model import Measured, TrunkSize
from bench.stage_overhead import overheads
from bench.turns import FOLDER, seconds
from cmfio.codecs.registry import CODECS
from cmfio.reader import open_container
from cmfio.tokenizer import load_tokenizer
from nets.evaluate import Compute
from nets.head import topk_rows
from store.atomic import flush
from tasks.shard_rows import ShardSettings, create_rows

BUDGET_BYTES, SHARD_WINDOWS, HASHED_BYTES, TEXT_BYTES = 64 << 20, 32, 256 << 20, 4_000_000
SMALL = Sizes(
    TrunkSize(512, 4, 1536, 8, 4, 64, 16_384), 1024, 2, 3, 1024, 1 << 20, (2,), (64,)
)


def measure_here() -> Measured:
    """What this machine does, one thread."""
    write_bytes, write_s = _written(FOLDER / "scale-shard")
    load_bytes, load_s = _loaded()
    overhead = overheads(FOLDER / "overhead")
    size = SMALL.trunk
    rows = SMALL.batch * SMALL.window
    return Measured(
        shard_s=_shard_s(),
        shard_flops=rows * size.token_flops(SMALL.window),
        step_s=_step_s(),
        step_flops=rows * SMALL.depth * size.step_flops(),
        load_s=load_s,
        load_bytes=load_bytes,
        write_s=write_s,
        write_bytes=write_bytes,
        hash_bytes=_hash_rate(),
        pack_tokens=_pack_rate(),
        encode_weights=_encode_rate(),
        record_s=overhead["ms, made"] / 1e3,
        dispatch_s=overhead["ms, found"] / 1e3,
    )


def _shard_s() -> float:
    """Rows and top-k of two windows."""
    model = random_trunk(SMALL.trunk, "cpu")
    ids_BT = random_ids(SMALL, SMALL.batch, "cpu")

    def call() -> None:
        normed_RH = model.final_norm(model.hidden(ids_BT)).flatten(0, 1)
        topk_rows(normed_RH, model.shared.head_VH, KEPT, BUDGET_BYTES)

    call()
    return seconds(call)


def _step_s() -> float:
    """One training step."""
    draft, adam, batch = trained(SMALL, "cpu")
    compute = Compute(SMALL.batch, "bf16", BUDGET_BYTES)

    def step() -> None:
        train_step(draft, adam, batch, SMALL.depth, compute)

    step()
    return seconds(step)


def _loaded() -> tuple[float, float]:
    """Bytes of SmolLM2's file and the seconds from its opening to a trunk."""
    trunk(torch.bfloat16)  # its libraries, and the file into the page cache
    return model_path().stat().st_size, seconds(lambda: trunk(torch.bfloat16))


def _written(folder: Path) -> tuple[float, float]:
    """Bytes of a shard's rows, before compression, and the seconds until the disk has them.

    Hidden rows are noise, the top-k too: nothing of it is compressed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = ShardSettings(topk=KEPT, dtype="bf16", window=SMALL.window, compile=False)
    arrays = create_rows(folder, settings, SHARD_WINDOWS, arch_of(SMALL.trunk))
    noise = np.random.default_rng(0)
    rows = {
        name: noise.integers(0, 2**16, array.shape).astype(array.dtype)
        for name, array in arrays.items()
    }

    def write() -> None:
        for name, values in rows.items():
            arrays[name][:] = values
        for path in folder.rglob("*"):
            if path.is_file():
                flush(path)

    start = time.perf_counter()
    write()
    took = time.perf_counter() - start
    return sum(values.nbytes for values in rows.values()), took


def _hash_rate() -> float:
    data = bytes(HASHED_BYTES)
    return HASHED_BYTES / seconds(lambda: hashlib.sha256(data).digest())


def _pack_rate() -> float:
    """Tokens a second of SmolLM2's tokenizer over the standard library's source."""
    with open_container(model_path()) as container:
        tokenizer = load_tokenizer(container.vocab, container.path)
    texts, size = [], 0
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        texts.append(file.read_text(errors="replace"))
        size += len(texts[-1])
        if size >= TEXT_BYTES:
            break
    found: list[int] = []
    took = seconds(lambda: found.extend(len(tokenizer.encode(text).ids) for text in texts))
    return sum(found) / took


def _encode_rate() -> float:
    """Weights a second in q4_tiled."""
    weights = np.random.default_rng(0).standard_normal((2048, 2048)).astype(np.float32)
    encode = CODECS["q4_tiled"].encode
    encode(weights)
    return weights.size / seconds(lambda: encode(weights))

"""A rewrite takes the memory of a tensor, not of the model; a kill leaves nothing half."""

import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cmfio.directory import directory_size, pack_directory
from cmfio.hash64 import Hash64
from cmfio.header import Arch, Header, TensorEntry, dump_header
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from cmfio.verify import verify
from cmfio.writer import Output

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
HERE = Path(__file__).parent
MIB = 1 << 20
TENSORS, ROWS, COLUMNS = 24, 1024, 4096  # of f16: 8 MiB each, 192 in all


def hash_of_zeros(length: int) -> int:
    running = Hash64()
    for _ in range(length // MIB):
        running.update(bytes(MIB))
    return running.value()


def sparse_model(path: Path) -> Path:
    """A model of zeros that takes no room on the disk: a hole behind its head."""
    size = ROWS * COLUMNS * 2
    checksum = hash_of_zeros(size)
    entries = [
        TensorEntry(f"layer.{i}.weight", "f16", (ROWS, COLUMNS), i * size, size, checksum)
        for i in range(TENSORS)
    ]
    arch = Arch(
        arch_name="zeros",
        hidden_size=COLUMNS,
        intermediate_size=ROWS,
        num_layers=1,
        num_attention_heads=1,
        num_kv_heads=1,
        head_dim=64,
        vocab_size=ROWS,
        layer_types=("FullAttention",),
        rms_norm_eps=1e-6,
        max_position_embeddings=64,
    )
    head = dump_header(Header(arch=arch, quant_type="F16"))
    directory = pack_directory(entries)
    assert len(directory) == directory_size([entry.name for entry in entries])
    places = [128, len(head), 128 + len(head), len(directory), 8192, TENSORS * size]
    envelope = struct.pack("<4sIII", b"CMF\1", 2, 0, 1)
    envelope += struct.pack("<14Q", *places, *[0] * 8)
    with path.open("wb") as file:
        file.write(envelope + head + directory)
        file.truncate(8192 + TENSORS * size)
    return path


# Chunks on their way, in MiB: 4 buffers of 4. Beside them a conversion holds a tensor's
# values (4 bytes each, 16 here), a block of temporaries for each thread, its payload, and
# the one before that.
CHUNKS, VALUES, TEMPORARIES, PAYLOADS = 16, 16, 8, 2 * 4.1
FREELY = 6  # allocators give back late, page tables and the like


@pytest.mark.parametrize(
    ("way", "most_mib"),
    [
        ("verify", 4 + FREELY),
        ("rewrite", CHUNKS + FREELY),
        ("shards", CHUNKS + FREELY),
        ("q8_row", CHUNKS + VALUES + TEMPORARIES + PAYLOADS + FREELY),
        ("blocks", CHUNKS + 3 * 2 + PAYLOADS + FREELY),
        ("vbit_ro", CHUNKS + VALUES + TEMPORARIES + PAYLOADS + FREELY),
    ],
)
def test_memory_grows_by_a_tensor_at_most(
    way: str, most_mib: float, tmp_path: Path
) -> None:
    source = sparse_model(tmp_path / "zeros.cmf")
    words = [str(HERE / "stream_child.py"), way, str(source), str(tmp_path / "out.cmf")]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, timeout=120
    )
    grown = int(done.stdout) / 1024
    assert grown < most_mib, f"{grown:.1f} MiB for a model of {TENSORS * 8}"


def killed_at(delay_s: float, words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, str(HERE / "kill_child.py"), *words], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(delay_s)
        child.kill()


@pytest.mark.parametrize("most", [None, 16_000])
def test_a_kill_leaves_no_model_or_a_whole_one(most: int | None, tmp_path: Path) -> None:
    source, out = PEERS / "full.cmf", tmp_path / "m.cmf"
    words = [str(source), str(out), *([] if most is None else [str(most)])]
    first = out if most is None else tmp_path / "m-00001-of-00005.cmf"
    moments = random.Random(4)
    for _ in range(7):
        killed_at(moments.uniform(0, 0.06), words)
        if first.exists():
            with open_container(first) as model, open_container(source) as original:
                assert verify(model) == []
                assert list(model.entries) == list(original.entries)
    with open_container(source) as model:
        paths = rewrite(model, out, {}, output=Output(shard_max_bytes=most))
    assert paths[0] == first
    assert sorted(tmp_path.iterdir()) == sorted(paths)

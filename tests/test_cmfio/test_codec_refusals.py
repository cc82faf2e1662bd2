"""What codecs refuse, and leave alone: bad payloads, bad values, heavy imports."""

import ast
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cmfio.codecs.registry import CODECS, codec_named, decode_payload
from cmfio.codecs.words import WORDS
from cmfio.dtypes import BY_NAME
from cmfio.errors import BoundsError, NotEncodable, UnknownCodec
from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor
from tests.oracles.codecs import is_ternary

REPO = Path(__file__).parents[2]
PEERS = REPO / "tests" / "peers" / "cmf"
F32 = NDArray[np.float32]
SHAPE = (4, 64)


def weights() -> F32:
    return np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize("encoder", sorted(CODECS))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_isnt_finite_is_refused_by_tensor_and_index(
    encoder: str, value: float
) -> None:
    values = np.sign(weights())  # so that exact ternary has nothing else against it
    values[2, 5] = value
    text = rf"'w' as {encoder}: value {value} at \[2, 5\] is not finite"
    with pytest.raises(NotEncodable, match=text):
        encode_tensor("w", values, encoder)


LIMITED = [c for c in CODECS if not is_ternary(c) and np.isfinite(CODECS[c].limit)]


@pytest.mark.parametrize("encoder", LIMITED)
def test_the_limit_is_refused_and_below_it_all_comes_back_finite(encoder: str) -> None:
    codec, values = CODECS[encoder], np.zeros(SHAPE, np.float32)
    values[1, 3] = codec.limit
    with pytest.raises(NotEncodable, match=r"at \[1, 3\] is too large"):
        encode_tensor("w", values, encoder)
    # Alone in its row, and a whole row of it.
    values[1, 3] = np.nextafter(np.float32(codec.limit), np.float32(0))
    values[2] = -values[1, 3]
    assert codec.value_problem(values) is None
    assert np.isfinite(codec.decode(codec.encode(values), SHAPE)).all()


def test_exact_ternary_refuses_what_it_would_round() -> None:
    values = np.sign(weights()) * np.float32(0.25)
    values[3, 40] = 0.2497  # 0.12 % off
    with pytest.raises(NotEncodable, match=r"0\.2496\d* at \[3, 40\] is not 0 or ±"):
        encode_tensor("w", values, "q1t_exact")
    values[3, 40] = 0.2498
    encode_tensor("w", values, "q1t_exact")


@pytest.mark.parametrize(
    ("encoder", "shape", "text"),
    [
        ("q8_row", (64,), "2 dimensions"),
        ("q8_2f", (2, 2, 32), "2 dimensions"),
        ("q4_tiled", (4, 40), "groups of 32"),
        ("q4tp", (64,), "groups of 32"),
        ("q2tp", (4, 40), "groups of 32"),
        ("vbit_ro", (4, 0), "needs columns"),
        ("q1t", (1, 65_568), "65,536 columns"),
    ],
)
def test_shapes_that_dont_fit_are_refused(
    encoder: str, shape: tuple[int, ...], text: str
) -> None:
    with pytest.raises(NotEncodable, match=text):
        encode_tensor("w", np.zeros(shape, np.float32), encoder)


def test_sizes_that_overflow_a_32_bit_table_are_refused() -> None:
    assert "4 GB" in str(CODECS["vbit_ro"].shape_problem((1 << 16, 1 << 16)))
    assert "32-bit" in str(CODECS["q1s"].shape_problem(((1 << 27) + 1, 32)))
    assert CODECS["vbit"].shape_problem((1 << 16, 1 << 16)) is None


def read(payload: bytes, dtype: str, shape: tuple[int, ...] = SHAPE) -> F32:
    return decode_payload(memoryview(payload), dtype, shape, "w")


@pytest.mark.parametrize("encoder", sorted(CODECS))
def test_payloads_of_another_length_are_refused(encoder: str) -> None:
    values = np.sign(weights())
    payload, dtype = bytes(CODECS[encoder].encode(values)), CODECS[encoder].dtype
    assert np.isfinite(read(payload, dtype)).all()
    for wrong in (payload[:-1], payload + b"\0", payload[:3], b""):
        with pytest.raises((BoundsError, UnknownCodec), match="w"):
            read(wrong, dtype)


def test_kept_weights_outside_the_tensor_are_refused() -> None:
    q1s = bytes(CODECS["q1"].encode(weights())) + struct.pack("<IIH", 1, 256, 0)
    with pytest.raises(
        BoundsError, match="w: q1s keeps a weight at 256 of a tensor of 256"
    ):
        read(q1s, "q1s")
    claimed = q1s[: -len(struct.pack("<IIH", 0, 0, 0))] + struct.pack("<I", 0xFFFF_FFFF)
    with pytest.raises(BoundsError, match="keeps 4,294,967,295 weights"):
        read(claimed, "q1s")
    tiles = bytes(CODECS["q1t"].encode(weights()))[: -4 * 5]
    entry = struct.pack("<HH", 64, 0)
    with pytest.raises(BoundsError, match="column 64 of 64"):
        read(tiles + struct.pack("<5I", 0, 1, 1, 1, 1) + entry, "q1t")
    for ends in ((1, 1, 1, 1, 1), (0, 1, 0, 1, 1), (0, 0, 0, 0, 2), (0, 0, 0, 0, 0)):
        with pytest.raises(BoundsError, match="row table"):
            read(tiles + struct.pack("<5I", *ends) + entry, "q1t")


def test_a_width_vbit_hasnt_got_is_refused_before_any_kernel_reads_it() -> None:
    payload = bytearray(CODECS["vbit"].encode(weights()))
    for width in (0, 7, 255):
        payload[1] = width
        with pytest.raises(BoundsError, match=f"row 1 has bit width {width}"):
            read(bytes(payload), "vbit")


def test_whole_numbers_are_read_as_such_and_never_as_weights() -> None:
    with open_container(PEERS / "nd.cmf") as container:
        for name, dtype in (("raw.u8", "u8"), ("raw.u32", "u32"), ("raw.u64", "u64")):
            words = container.words(name)
            assert words.dtype.itemsize * words.size == container.entries[name].nbytes
            assert WORDS[dtype].encode(words) == container.payload(name)
            with pytest.raises(
                UnknownCodec, match=f"{name}.*stored as {dtype}, words, which"
            ):
                container.tensor(name)
        with pytest.raises(UnknownCodec, match="stored as f32, not as whole numbers"):
            container.words("scalar.f32")


@pytest.mark.parametrize("dtype", ["mix8_4", "q4_col"])
def test_reserved_dtypes_are_never_decoded(dtype: str) -> None:
    with pytest.raises(UnknownCodec, match=f"w is stored as {dtype}, bytes without a mean"):
        read(b"1234", dtype)


def test_unknown_names_are_listed() -> None:
    with pytest.raises(UnknownCodec, match=r"'q9'; there are f32, .*q1t_exact"):
        codec_named("q9")
    assert all(dtype in BY_NAME for dtype in ("mix8_4", "q4_col"))


KERNELS = sorted((REPO / "cmfio" / "codecs").glob("*_kernels.py"))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_kernels_call_nothing_of_another_file(path: Path) -> None:
    """numba's copy on disk doesn't notice that another file has changed."""
    tree = ast.parse(path.read_text("utf-8"))
    imported = {
        (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    allowed = {("cmfio.codecs.base", "F32"), ("cmfio.codecs.base", "U8")}
    allowed |= {("cmfio.codecs.jit", "kernel"), ("numpy.typing", "NDArray")}
    assert imported <= allowed


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_floats_and_copies_need_no_compiler(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
with open_container({str(PEERS / "full.cmf")!r}) as model:
    norm = model.tensor("model.mtp.norm.weight")
    rewrite(model, Path({str(tmp_path / "out.cmf")!r}), {{"model.mtp.norm.weight": norm}})
print("numba" in sys.modules)
"""
    assert run(code) == "False"
    assert (tmp_path / "out.cmf").read_bytes() == (PEERS / "full.cmf").read_bytes()


ENCODE_WITHOUT_FOLDER = """
import numpy as np
from numba.core import caching

ensure = caching._CacheLocator.ensure_cache_path

def refuse(locator):
    if {refused!r} in locator.get_cache_path():
        raise PermissionError
    ensure(locator)

caching._CacheLocator.ensure_cache_path = refuse
from cmfio.codecs.registry import CODECS
print(bytes(CODECS["q4_block"].encode(np.ones((1, 32), np.float32))).hex())
import numba
try:
    print(numba.threading_layer())
except ValueError:
    print("no threads of numba's own")
"""


@pytest.mark.parametrize("refused", ["__pycache__", ""], ids=["in the package", "anywhere"])
def test_kernels_run_where_nothing_can_be_written(refused: str, tmp_path: Path) -> None:
    out = run(
        ENCODE_WITHOUT_FOLDER.format(refused=refused),
        XDG_CACHE_HOME=str(tmp_path),
        NUMBA_CACHE_DIR="",
    )
    # 1 / (1/7 as f16) rounds to 7, so to nibble 15.
    assert out.split("\n") == ["ff" * 16 + "9230", "no threads of numba's own"]

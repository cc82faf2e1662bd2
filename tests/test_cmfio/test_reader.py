"""The reader against the peer's: its verdict on every file, its directory, its numbers."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cmfio.errors import BadPath, BoundsError, CmfError, MissingTensor
from cmfio.reader import open_container
from cmfio.verify import verify

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
EXPECTED = json.loads((PEERS / "invalid" / "expected.json").read_text("utf-8"))
REFUSED_HERE = {"q4tp_cols_33.cmf"}  # the peer opens it and decodes garbage


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - REFUSED_HERE))
def test_the_peers_verdict_on_broken_files(name: str) -> None:
    expected = EXPECTED[name]
    path = PEERS / "invalid" / name / expected.get("open_path", "")
    if expected["open"] != "ok":
        with pytest.raises(CmfError) as refused:
            open_container(path)
        assert refused.value.kind == expected["open"]["kind"], str(refused.value)
        return
    with open_container(path) as container:
        problems = verify(container)
    assert [problem.removeprefix(f"{path}: ") for problem in problems] == expected["verify"]


def test_a_two_plane_tensor_of_odd_width_is_refused() -> None:
    with pytest.raises(BoundsError, match=r"w\.q4tp.*groups of 32"):
        open_container(PEERS / "invalid" / "q4tp_cols_33.cmf")


def model_of(part: Path) -> Path:
    """The container that `NAME.npy/` or `NAME.info.json` is about."""
    path = part.with_name(part.name.partition(".")[0] + ".cmf")
    return path if path.exists() else PEERS / "shards" / "tiny-00001-of-00003.cmf"


@pytest.mark.parametrize("told", sorted(PEERS.glob("*.info.json")), ids=lambda p: p.name)
def test_the_directory_is_the_one_the_peer_sees(told: Path) -> None:
    seen = json.loads(told.read_text("utf-8"))
    path = model_of(told)
    with open_container(path) as container:
        ours = [
            {
                "name": entry.name,
                "dtype": entry.dtype,
                "shape": list(entry.shape),
                "off": entry.offset,
                "nbytes": entry.nbytes,
                "hash": f"{entry.hash64:016x}",
                "shard": entry.shard,
            }
            for entry in container.entries.values()
        ]
        assert verify(container) == []
        assert len(container.vocab or b"") == (seen["vocab_len"] or 0)
        assert container.files[0].envelope.features == seen["required_features"]
    assert ours == [
        {key: tensor[key] for key in tensor if key != "dtype_id"}
        for tensor in seen["tensors"]
    ]


def decodable() -> list[Path]:
    """All the values the peer decoded, a file a tensor."""
    return [path for path in sorted(PEERS.glob("*.npy/*.npy")) if path.stem != "input"]


@pytest.mark.parametrize(
    "array", decodable(), ids=lambda path: f"{path.parent.stem} {path.stem}"[-36:]
)
def test_values_are_the_peers_bit_for_bit(array: Path) -> None:
    expected = np.load(array)
    with open_container(model_of(array.parent)) as container:
        actual = container.tensor(array.stem)
    assert actual.dtype == np.float32
    assert actual.shape == expected.shape
    # NaN payloads aren't the format's business; everything else is compared as bits.
    differs = (actual.view(np.uint32) != expected.view(np.uint32)) & ~(
        np.isnan(actual) & np.isnan(expected)
    )
    assert not differs.any(), np.argwhere(differs)[0]


def test_payloads_are_read_only_views() -> None:
    with open_container(PEERS / "align.cmf") as container:
        payload = container.payload("b.big")
        assert payload.readonly
        assert len(payload) == 16384


def test_what_cant_be_read_says_so() -> None:
    with (
        open_container(PEERS / "full.cmf") as container,
        pytest.raises(MissingTensor, match=r"no tensor 'model\.mtp\.nope'"),
    ):
        container.tensor("model.mtp.nope")
    with pytest.raises(BadPath, match="is a folder; give a"):
        open_container(PEERS)


def test_opening_a_file_imports_nothing_heavy() -> None:
    heavy = "{'numba', 'torch', 'tokenizers', 'gguf', 'prefect', 'transformers'}"
    code = f"import sys, cmfio.reader, cmfio.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

"""hash64 against the peer's vectors and a plain loop."""

import json
from pathlib import Path

import numpy as np
import pytest

from cmfio.hash64 import BLOCK_WORDS, Hash64, hash64

PEERS = Path(__file__).parents[1] / "peers" / "cmf"


def plain_hash64(data: bytes) -> int:
    mask = 2**64 - 1

    def mix(x: int) -> int:
        x ^= x >> 33
        x = x * 0xFF51AFD7ED558CCD & mask
        x ^= x >> 33
        x = x * 0xC4CEB9FE1A85EC53 & mask
        return x ^ x >> 33

    fold = 0
    for i in range(0, len(data), 8):
        word = int.from_bytes(data[i : i + 8], "little")
        fold ^= mix(word) ^ (i // 8 * 0x9E3779B97F4A7C15 & mask)
    return mix(fold ^ len(data))


def test_the_peers_vectors() -> None:
    for vector in json.loads((PEERS / "hash64.json").read_text("utf-8")):
        actual = hash64(bytes.fromhex(vector["hex"]))
        assert f"{actual:016x}" == vector["hash64"], vector["hex"]


def test_more_than_one_block_equals_the_plain_loop() -> None:
    data = np.random.default_rng(1).bytes(8 * BLOCK_WORDS + 8 * 3 + 5)
    assert hash64(data) == plain_hash64(data)


@pytest.mark.parametrize("pieces", [[1] * 40, [3, 8, 0, 5, 24], [7, 1, 9, 23], [39, 1]])
def test_pieces_of_any_size_add_up(pieces: list[int]) -> None:
    data = bytes(range(40))
    running, place = Hash64(), 0
    for piece in pieces:
        running.update(data[place : place + piece])
        place += piece
    assert running.value() == plain_hash64(data)

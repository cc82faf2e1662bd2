"""The loops of vbit and vbit_ro: codes of b bits, the highest bit first.

Eight codes of b bits are b bytes, so no byte belongs to two eights. Eight codes in a 64-bit
word, the earliest in its lowest byte, are moved together by halves: bytes to pairs, pairs
to fours, fours to one run of 8·b bits at the top of the word.
"""

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.base import F32, U8
from cmfio.codecs.jit import kernel

U64 = NDArray[np.uint64]
Word = np.uint64  # a short name for what follows

EVEN_BYTES, EVEN_PAIRS = Word(0x00FF_00FF_00FF_00FF), Word(0x0000_FFFF_0000_FFFF)
LOW_HALF, BYTE = Word(0xFFFF_FFFF), Word(0xFF)


@kernel
def quantise(values: F32, scale: F32, bits: U8, codes: U8) -> None:
    """values [rows, groups, 32] / scale, half to even, plus 2^(b-1) - 1."""
    for r in range(values.shape[0]):
        width = np.int64(bits[r])
        centre = np.float32((1 << (width - 1)) - 1)
        top = np.float32((1 << width) - 1)
        for g in range(values.shape[1]):
            s, group, record = scale[r, g], values[r, g], codes[r, g]
            for k in range(record.shape[0]):
                code = np.rint(group[k] / s) + centre
                record[k] = np.uint8(np.int32(min(max(code, np.float32(0)), top)))


@kernel
def dequantise(codes: U8, bits: U8, scale: F32, values: F32) -> None:
    """(code - 2^(b-1) + 1) times the group's scale."""
    for r in range(values.shape[0]):
        width = np.int64(bits[r])
        centre = np.float32((1 << (width - 1)) - 1)
        for g in range(values.shape[1]):
            s, group, record = scale[r, g], values[r, g], codes[r, g]
            for k in range(record.shape[0]):
                group[k] = (np.float32(record[k]) - centre) * s


@kernel
def join(codes: U64, bits: U8, starts: U64, packed: U8) -> None:
    """Packs codes [rows, eights], which it spoils; row r begins at byte starts[r]."""
    for r in range(codes.shape[0]):
        b = Word(bits[r])
        for i in range(codes.shape[1]):
            w = codes[r, i]
            w = ((w & EVEN_BYTES) << b) | ((w >> Word(8)) & EVEN_BYTES)
            w = ((w & EVEN_PAIRS) << (b + b)) | ((w >> Word(16)) & EVEN_PAIRS)
            w = ((w & LOW_HALF) << (Word(4) * b)) | (w >> Word(32))
            codes[r, i] = w << (Word(64) - Word(8) * b)
        place = starts[r]
        # Eight bytes are one store; the next one overwrites those that are not its own.
        whole = codes.shape[1] - (7 // np.int64(bits[r]))
        for i in range(whole):
            w, at = codes[r, i], packed[place:]
            at[0], at[1] = np.uint8(w >> Word(56)), np.uint8(w >> Word(48) & BYTE)
            at[2], at[3] = np.uint8(w >> Word(40) & BYTE), np.uint8(w >> Word(32) & BYTE)
            at[4], at[5] = np.uint8(w >> Word(24) & BYTE), np.uint8(w >> Word(16) & BYTE)
            at[6], at[7] = np.uint8(w >> Word(8) & BYTE), np.uint8(w & BYTE)
            place += b
        for i in range(whole, codes.shape[1]):
            for k in range(bits[r]):
                packed[place] = np.uint8(codes[r, i] >> Word(56 - 8 * k) & BYTE)
                place += Word(1)


@kernel
def split(packed: U8, bits: U8, starts: U64, codes: U64) -> None:
    """The reverse of `join`."""
    for r in range(codes.shape[0]):
        b, place = Word(bits[r]), starts[r]
        whole = codes.shape[1] - (7 // np.int64(bits[r]))
        for i in range(whole):
            at = packed[place:]
            w = (Word(at[0]) << Word(56)) | (Word(at[1]) << Word(48))
            w = w | (Word(at[2]) << Word(40)) | (Word(at[3]) << Word(32))
            w = w | (Word(at[4]) << Word(24)) | (Word(at[5]) << Word(16))
            codes[r, i] = w | (Word(at[6]) << Word(8)) | Word(at[7])
            place += b
        for i in range(whole, codes.shape[1]):
            w = Word(0)
            for k in range(bits[r]):
                w |= Word(packed[place]) << Word(56 - 8 * k)
                place += Word(1)
            codes[r, i] = w
        bytes_mask = ((Word(1) << b) - Word(1)) * Word(0x0001_0001_0001_0001)
        pairs_mask = ((Word(1) << (b + b)) - Word(1)) * Word(0x0000_0001_0000_0001)
        for i in range(codes.shape[1]):
            w = codes[r, i] >> (Word(64) - Word(8) * b)
            # What is past its four is masked below.
            w = (w << Word(32)) | (w >> (Word(4) * b))
            w = ((w & pairs_mask) << Word(16)) | ((w >> (b + b)) & pairs_mask)
            codes[r, i] = ((w & bytes_mask) << Word(8)) | ((w >> b) & bytes_mask)

"""Damages valid files for some seconds; prints how many cases ran, ends badly at a finding.

`python fuzz_child.py SECONDS SEED FOLDER FILE...`: a process of its own, so that a limit on
its memory holds for nothing else.
"""

import random
import resource
import signal
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from cmfio.codecs.registry import CODECS
from cmfio.errors import CmfError
from cmfio.listing import summarise
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from cmfio.sizes import sizes
from cmfio.verify import verify

U32, U64 = 2**32, 2**64
CASE_TIMEOUT_S = 5.0
# What a case may take beside the file itself, decoded: hash blocks, JSON, tracebacks.
SLACK_BYTES = 4 << 20
# The smallest weight takes 1.5 bits, and becomes an f32; a byte of JSON a Python object.
MOST_A_BYTE = 64

Damage = Callable[[random.Random, bytearray], None]


def number(source: random.Random, data: bytearray, now: int, limit: int) -> int:
    size = len(data)
    near = [now + step for step in (-4096, -64, -1, 1, 64, 4096)]
    special = [0, 1, 3, 2**31, 2**60, limit - 1, limit - 64, size, size - 1, size + 1]
    return source.choice(near + special) % limit


def put(source: random.Random, data: bytearray, at: int, layout: str, limit: int) -> None:
    if at + struct.calcsize(layout) <= len(data):
        now = struct.unpack_from(layout, data, at)[0]
        struct.pack_into(layout, data, at, number(source, data, now, limit))


def span(data: bytearray, at: int) -> tuple[int, int]:
    offset, length = struct.unpack_from("<QQ", data, at)
    return offset, length


def records(data: bytearray) -> list[int]:
    offset, _ = span(data, 0x20)
    if offset + 16 > len(data):
        return []
    count = struct.unpack_from("<Q", data, offset)[0]
    places = range(offset + 16, offset + 16 + 56 * min(count, 1000), 56)
    return [place for place in places if place + 56 <= len(data)]


def envelope_field(source: random.Random, data: bytearray) -> None:
    put(source, data, source.randrange(0x10, 0x80, 8), "<Q", U64)


def features_and_flags(source: random.Random, data: bytearray) -> None:
    put(source, data, source.choice([0, 4, 8, 12]), "<I", U32)


def directory_head(source: random.Random, data: bytearray) -> None:
    put(source, data, span(data, 0x20)[0] + source.choice([0, 8]), "<Q", U64)


def record_field(source: random.Random, data: bytearray) -> None:
    for place in source.sample(records(data), k=min(2, len(records(data)))):
        kind = source.randrange(4)
        if kind == 0:
            put(source, data, place + source.choice([32, 40, 48]), "<Q", U64)
        elif kind == 1:
            put(source, data, place + 8 + 4 * source.randrange(6), "<I", U32)
        elif kind == 2:
            data[place + 6] = source.randrange(20)  # another dtype
            data[place + 7] = source.randrange(8)
        else:
            struct.pack_into("<II", data, place + 8, U32 - 1, 0)  # no elements, many rows


def overlapping(source: random.Random, data: bytearray) -> None:
    if len(records(data)) > 1:
        one, other = source.sample(records(data), k=2)
        data[other + 6 : other + 56] = data[one + 6 : one + 56]
        put(source, data, other + 32, "<Q", U64)


def cut_at_a_border(source: random.Random, data: bytearray) -> None:
    offset, length = span(data, source.choice(range(0x10, 0x70, 16)))
    border = source.choice([offset, offset + length]) + source.choice([-8, -1, 0, 1])
    del data[max(border, 0) :]


def digits(source: random.Random, data: bytearray) -> None:
    """Numbers of the header or the masks as large as their places allow."""
    offset, length = span(data, source.choice([0x10, 0x10, 0x40]))
    places = [i for i in range(offset, offset + length) if chr(data[i]).isdigit()]
    if places:
        start = source.choice(places)
        while start < len(data) and chr(data[start]).isdigit():
            data[start] = ord(source.choice("0999"))
            start += 1


def section_words(source: random.Random, data: bytearray) -> None:
    offset, length = span(data, source.choice([0x40, 0x60]))
    if length > 4:
        put(source, data, offset + 4 * source.randrange(length // 4), "<I", U32)


def any_bytes(source: random.Random, data: bytearray) -> None:
    for _ in range(source.randrange(1, 6)):
        data[source.randrange(len(data))] = source.randrange(256)


DAMAGES: tuple[Damage, ...] = (
    envelope_field,
    features_and_flags,
    directory_head,
    record_field,
    overlapping,
    cut_at_a_border,
    digits,
    section_words,
    any_bytes,
)


def use(path: Path, out: Path) -> None:
    """All that reading does, then a rewrite."""
    with open_container(path) as container:
        verify(container)
        summarise(container).to_lines()
        sizes(container)
        for name, entry in container.entries.items():
            if entry.dtype in CODECS:
                try:
                    container.tensor(name)
                except CmfError:
                    continue
        total = sum(entry.nbytes for entry in container.entries.values())
        if total < 1 << 22:  # overlapping tensors may add up to more than the file
            rewrite(container, out, {})


def one_case(source: random.Random, files: list[bytes], folder: Path) -> bool:
    """Whether the file was refused; any error but ours ends the process."""
    data = bytearray(source.choice(files))
    for damage in source.choices(DAMAGES, k=source.choice([1, 1, 1, 2, 4])):
        if len(data) >= 128 and all(
            offset + length <= len(data)
            for offset, length in (span(data, at) for at in (0x10, 0x20, 0x40, 0x60))
        ):
            damage(source, data)
    path = folder / "case.cmf"
    path.write_bytes(data)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    signal.setitimer(signal.ITIMER_REAL, CASE_TIMEOUT_S)
    try:
        use(path, folder / "out.cmf")
        refused = False
    except CmfError:
        refused = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    taken = tracemalloc.get_traced_memory()[1] - before
    # Without a rewrite's four idle buffers, which are never touched here.
    allowed = SLACK_BYTES + MOST_A_BYTE * len(data) + 4 * (4 << 20)
    assert taken <= allowed, f"{taken:,} bytes for a file of {len(data):,}: {path}"
    return refused


def main(seconds: float, seed: int, folder: Path, paths: list[Path]) -> None:
    def too_long(_signal: int, _frame: object) -> None:
        raise TimeoutError("a case ran too long")

    signal.signal(signal.SIGALRM, too_long)
    files = [path.read_bytes() for path in paths]
    for path in paths:
        use(path, folder / "out.cmf")  # kernels are compiled before memory is limited
    limit = (1 << 30) + int(Path("/proc/self/statm").read_text("ascii").split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    tracemalloc.start()
    source = random.Random(seed)
    cases = refused = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        refused += one_case(source, files, folder)
        cases += 1
    sys.stdout.write(f"{cases} {refused}\n")


if __name__ == "__main__":
    main(
        float(sys.argv[1]),
        int(sys.argv[2]),
        Path(sys.argv[3]),
        list(map(Path, sys.argv[4:])),
    )

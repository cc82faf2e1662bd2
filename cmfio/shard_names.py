"""What the files of a sharded model are called."""

from collections.abc import Iterator
from pathlib import Path

from cmfio.errors import ParseError


def shard_path(out: Path, number: int, count: int) -> Path:
    """The file of shard `number`, from 1, of a model that would be `out` in one piece."""
    stem = out.name.removesuffix(".cmf")
    return out.with_name(f"{stem}-{number:05}-of-{count:05}.cmf")


def output_paths(out: Path, count: int) -> list[Path]:
    """The files of a model in `count` pieces; a single one is `out` itself."""
    if count == 1:
        return [out]
    return [shard_path(out, number, count) for number in range(1, count + 1)]


def sibling_paths(first: Path, number: int, count: int) -> Iterator[Path]:
    """The files after the first; ParseError unless `first` is named like the first."""
    if number != 1:
        raise ParseError(f"{first}: is shard {number} of {count}; open the first one")
    ending = f"-00001-of-{count:05}.cmf"
    if not first.name.endswith(ending):
        raise ParseError(f"{first}: a first shard's name must end with {ending}")
    whole = first.with_name(first.name.removesuffix(ending) + ".cmf")
    # One at a time: a hostile count of 10^9 fails at the first file that isn't there.
    for sibling in range(2, count + 1):
        yield shard_path(whole, sibling, count)

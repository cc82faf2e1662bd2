"""Write a model: payloads one by one, into one file or several, whole or not at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cmfio.atomic import check_output, partial_path
from cmfio.hash64 import Bytes, hash64
from cmfio.header import Header, SectionHashes
from cmfio.layout import TRAILING, Payload, Progress, check_payloads, write_file
from cmfio.reader import open_file
from cmfio.shard_names import output_paths
from cmfio.shards import clear_leftovers, cut, replacing_all, shard_header

__all__ = ["Output", "Payload", "write_container", "write_model"]


@dataclass(frozen=True)
class Output:
    """How a model is written; no tensor's bytes depend on it.

    With `shard_max_bytes` no file is larger. `threads` encode. `progress` hears (tensors
    done, tensors in all).
    """

    shard_max_bytes: int | None = None
    threads: int = 1
    progress: Progress | None = None


def write_container(
    out: Path,
    header: Header,
    payloads: Sequence[Payload],
    *,
    masks: Bytes | None = None,
    vocab: Bytes | None = None,
    index: Bytes | None = None,
) -> None:
    """`write_model` into one file, `out`."""
    given = {"masks": masks, "vocab": vocab, "index": index}
    present = {name: data for name, data in given.items() if data is not None}
    write_model(out, header, payloads, present)


def write_model(
    out: Path,
    header: Header,
    payloads: Sequence[Payload],
    sections: Mapping[str, Bytes],
    output: Output = Output(),
    sources: Sequence[Path] = (),
) -> list[Path]:
    """The files written: `out`, or its shards where it must be cut into several.

    They are opened and checked before they get their names. Section hashes in `header` are
    made afresh. SameFile if one of them is one of `sources`; CmfError if a name stands
    twice, a payload has the wrong size, or the system refuses.
    """
    present = {name: data for name, data in sections.items() if len(data)}
    header = _with_hashes(header, present)
    check_payloads(payloads, out)
    groups = [list(payloads)]
    if output.shard_max_bytes is not None:
        groups = cut(header, payloads, present, output.shard_max_bytes)
    paths = output_paths(out, len(groups))
    for path in paths:
        check_output(path, sources)
    clear_leftovers(out, sources)
    told = _told(payloads, output.progress)
    with replacing_all(paths) as files:
        for number, (file, group) in enumerate(zip(files, groups, strict=True), start=1):
            one = header if len(paths) == 1 else shard_header(header, number, len(paths))
            write_file(file, one, group, present if number == 1 else {}, told)
            open_file(partial_path(paths[number - 1])).close()
    return paths


def _with_hashes(header: Header, sections: Mapping[str, Bytes]) -> Header:
    """Only hashes of sections that are there: a peer passes on what others once said."""
    if not sections:
        return header.model_copy(update={"section_hashes": None})
    known = header.section_hashes or SectionHashes()
    hashes = dict.fromkeys(TRAILING) | {
        name: f"{hash64(data):016x}" for name, data in sections.items()
    }
    return header.model_copy(update={"section_hashes": known.model_copy(update=hashes)})


def _told(payloads: Sequence[Payload], progress: Progress | None) -> Callable[[], None]:
    done = 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(payloads))

    return tell

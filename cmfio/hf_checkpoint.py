"""A Hugging Face folder with the face of a container: header, entries, payloads, values.

Files are mapped, not loaded. The draft's tensors have their canonical names, whatever the
family calls them, and its projection reads the embedding first: where a family has it the
other way round, its column halves change places here and when it is written, bit for bit.
"""

import contextlib
import mmap
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from cmfio.copying import CHUNK_BYTES, FileRange, part, read_range
from cmfio.errors import MissingTensor, ParseError, UnsupportedFeature
from cmfio.hash64 import Bytes
from cmfio.header import Header, TensorEntry
from cmfio.hf_header import Described, describe_folder
from cmfio.hf_heads import EH_PROJ, EMBED, LM_HEAD, MTP, Head, find_head
from cmfio.hf_layout import check_stated, model_order
from cmfio.hf_names import canonical_name
from cmfio.open_model import OpenModel
from cmfio.safetensors_files import SafeTensor, open_checkpoint
from cmfio.swapped import swapped_halves

DTYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
# Buffers that old checkpoints carry, made anew from the config by every reader.
BUFFERS = (".rotary_emb.inv_freq",)


class Checkpoint(OpenModel):
    """An open checkpoint. Use it in a `with`.

    `tensors` are all of the files' by their own names, `sources` the canonical names of
    those that make up the text model and its draft. Entries have no hash64.
    """

    masks: None = None
    index: None = None

    def __init__(
        self,
        folder: Path,
        described: Described,
        tensors: Mapping[str, SafeTensor],
        stack: contextlib.ExitStack,
    ) -> None:
        self.path = folder
        self.described = described
        self.tensors = tensors
        self.head: Head | None = find_head(tensors, str(folder))
        self.sources: Mapping[str, str] = _sources(folder, described, tensors, self.head)
        self.entries: Mapping[str, TensorEntry] = {
            name: _entry(name, tensors[source], folder)
            for name, source in self.sources.items()
        }
        self.header = Header(
            arch=described.arch,
            quant_type=_label(self.entries),
            provenance={
                "tool": "cmf import-hf",
                "source_model": folder.resolve().name,
                **described.provenance,
            },
            tokenizer_config=described.tokenizer_config,
        )
        self._stack = stack
        self._maps: dict[Path, mmap.mmap] = {}

    @property
    def weight_files(self) -> list[Path]:
        """The files its tensors lie in."""
        return sorted({tensor.stored.path for tensor in self.tensors.values()})

    def names_in(self, path: Path) -> set[str]:
        """The tensors that lie in one of the files, by their own names."""
        return {n for n, tensor in self.tensors.items() if tensor.stored.path == path}

    def bytes_in(self, path: Path) -> int:
        """How many bytes of tensors lie in one of the files."""
        return sum(self.tensors[name].stored.nbytes for name in self.names_in(path))

    @property
    def paths(self) -> list[Path]:
        """Its weight files and config.json."""
        return [*self.weight_files, self.described.text.path]

    @property
    def vocab(self) -> memoryview | None:
        """The tokenizer.json, as bytes."""
        data = self.described.vocab
        return None if data is None else memoryview(data)

    @property
    def dtype(self) -> str:
        """What most of its bytes are stored as: f32, f16 or bf16."""
        return self.header.quant_type.lower()

    def entry(self, name: str) -> TensorEntry:
        """The line for `name`; MissingTensor if there is none."""
        try:
            return self.entries[name]
        except KeyError:
            raise MissingTensor(f"{self.path}: has no tensor {name!r}") from None

    @property
    def copies(self) -> Mapping[str, str]:
        """The draft's own copies, by their file's name, and what of the trunk they copy."""
        copies = {} if self.head is None else self.head.copies
        tied = {LM_HEAD: EMBED} if LM_HEAD not in self.entries else {}
        return {copy: tied.get(trunk, trunk) for copy, trunk in copies.items()}

    def is_same(self, copy: str, trunk: str) -> bool:
        """Whether a tensor of the files, by their name, holds what a trunk's does."""
        one, other = self.tensors[copy], self.tensors[self.sources[trunk]]
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        return all(
            read_range(part(one.stored, start)) == read_range(part(other.stored, start))
            for start in range(0, one.stored.nbytes, CHUNK_BYTES)
        )

    def is_swapped(self, name: str) -> bool:
        """Whether a tensor's column halves stand the other way round in the file."""
        is_reversed = self.head is not None and self.head.row.hidden_first
        return is_reversed and name == MTP + EH_PROJ

    def data(self, name: str) -> FileRange | Bytes:
        """A tensor's bytes for writing: where they lie, or themselves if they are made."""
        return self.payload(name) if self.is_swapped(name) else self.stored(name)

    def stored(self, name: str) -> FileRange:
        """Where a tensor's bytes lie as the file has them; good until this is closed."""
        self.entry(name)
        return self.tensors[self.sources[name]].stored

    def payload(self, name: str) -> memoryview:
        """The bytes of a tensor, read-only."""
        entry, stored = self.entry(name), self.stored(name)
        mapped = memoryview(self._map(stored))
        data = mapped[stored.offset : stored.offset + stored.nbytes]
        return swapped_halves(data, entry.shape) if self.is_swapped(name) else data

    def chunks(self, name: str) -> Iterator[memoryview]:
        """The bytes in pieces, each forgotten when the next is asked for."""
        payload = self.payload(name)
        for start in range(0, len(payload), CHUNK_BYTES):
            yield payload[start : start + CHUNK_BYTES]
            self._forget(self.stored(name), start, CHUNK_BYTES)

    def forget(self, name: str) -> None:
        """Hand back the memory of a tensor's bytes; they can be read again."""
        stored = self.stored(name)
        self._forget(stored, 0, stored.nbytes)

    def close(self) -> None:
        """Let all files go; views still held keep their map alive."""
        for mapped in self._maps.values():
            with contextlib.suppress(BufferError):
                mapped.close()
        self._stack.close()

    def _map(self, stored: FileRange) -> mmap.mmap:
        if stored.path not in self._maps:
            self._maps[stored.path] = mmap.mmap(stored.handle, 0, access=mmap.ACCESS_READ)
        return self._maps[stored.path]

    def _forget(self, stored: FileRange, start: int, length: int) -> None:
        first = stored.offset + start
        end = min(first + length, stored.offset + stored.nbytes)
        first -= first % mmap.PAGESIZE
        if end > first:
            self._map(stored).madvise(mmap.MADV_DONTNEED, first, end - first)


def open_hf(folder: Path, patch: Path | None = None) -> Checkpoint:
    """The checkpoint in a folder, all but its payloads checked; bad ones raise CmfError.

    Files in `patch` stand in for those of the same name.
    """
    described = describe_folder(folder, patch)
    with contextlib.ExitStack() as stack:
        tensors = stack.enter_context(open_checkpoint(folder, patch))
        return Checkpoint(folder, described, tensors, stack.pop_all())


def _sources(
    folder: Path,
    described: Described,
    tensors: Mapping[str, SafeTensor],
    head: Head | None,
) -> dict[str, str]:
    """The file's name of every tensor of the text model, in a container's order."""
    where = str(folder)
    own = {} if head is None else head.names
    copies = {} if head is None else head.copies
    named: dict[str, str] = {}
    for source in tensors:
        if source in copies or source.endswith(BUFFERS):
            continue
        name = _canonical_draft(own[source]) if source in own else canonical_name(source)
        if name in named:
            raise ParseError(
                f"{where}: {source!r} and {named[name]!r} both are {name!r} here"
            )
        if name is not None:
            named[name] = source
    ordered = model_order(named, described.arch, where)
    check_stated(described.text, described.family, named)
    return {name: named[name] for name in ordered}


def _canonical_draft(name: str) -> str:
    """A draft's tensor with the canonical spelling of what is inside its block."""
    inside = name.removeprefix(MTP)
    if not inside.startswith("layers."):
        return name
    renamed = canonical_name("model." + inside)
    return name if renamed is None else MTP + renamed.removeprefix("model.")


def _entry(name: str, tensor: SafeTensor, folder: Path) -> TensorEntry:
    if tensor.dtype not in DTYPES:
        raise UnsupportedFeature(
            f"{folder}: tensor {tensor.name!r} is {tensor.dtype}, which isn't a plain "
            f"float (is it quantised?); give a checkpoint of {', '.join(DTYPES)}"
        )
    stored = tensor.stored
    dtype = DTYPES[tensor.dtype]
    return TensorEntry(name, dtype, tensor.shape, stored.offset, stored.nbytes, hash64=0)


def _label(entries: Mapping[str, TensorEntry]) -> str:
    sizes: Counter[str] = Counter()
    for entry in entries.values():
        sizes[entry.dtype] += entry.nbytes
    return sizes.most_common(1)[0][0].upper()

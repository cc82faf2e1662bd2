"""A healed draft into a checkpoint: the files that change, written into a folder beside it.

What isn't the draft's stays where it is. Laid over the checkpoint by `open_hf`, or copied
with it, the patch gives the healed model.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cmfio.codecs.base import F32
from cmfio.errors import DamagedTensor, UnknownCodec, UnsupportedFeature
from cmfio.header import HEAL
from cmfio.hf_checkpoint import Checkpoint
from cmfio.hf_folder import PROVENANCE
from cmfio.hf_header import CONFIG, read_object
from cmfio.hf_heads import EH_PROJ, MTP, HeadRow, head_copies, head_name, head_row
from cmfio.json_text import Json
from cmfio.layout import Payload
from cmfio.policy import FLOATS, KEEP
from cmfio.rewrite import encode_tensor
from cmfio.safetensors_files import INDEX, SafeTensor, read_file
from cmfio.safetensors_write import METADATA, spelled, write_safetensors
from cmfio.swapped import swapped_payload

NEW_FILE = "model-mtp.safetensors"  # a new head's, beside several files


def write_patch(
    source: Checkpoint,
    folder: Path,
    values: Mapping[str, F32],
    codec: str = KEEP,
    said: Json = None,
) -> list[Path]:
    """The files written into `folder`, a new one: those of `source` that get `values`.

    These are draft tensors by canonical name. Each keeps its dtype, or with another `codec`
    (f32, f16, bf16) matrices get that; a new head is stored like most of the checkpoint,
    under its family's names, with the config's count of MTP layers. `said` becomes the
    provenance file. NotEncodable names a value that isn't finite or too large.
    """
    if codec not in (KEEP, *FLOATS):
        raise UnknownCodec(
            f"a checkpoint can't hold {codec!r}, only {KEEP}, {', '.join(FLOATS)}; "
            "give an output that ends in .cmf"
        )
    changed = _payloads(source, values, codec)
    folder.mkdir(parents=True)
    single = source.weight_files[0].name if _is_single(source) else NEW_FILE
    places = {
        name: source.tensors[name].stored.path.name if name in source.tensors else single
        for name in changed
    }
    for file in sorted(set(places.values())):
        own = {name: p for name, p in changed.items() if places[name] == file}
        _rewrite_file(source, folder / file, own)
    _write_index(source, folder, changed, places)
    if any(name.startswith(MTP) for name in values):
        _write_config(source, folder)
    (folder / PROVENANCE).write_bytes(spelled({HEAL: said}))
    return sorted(folder.iterdir())


def audit(
    before: Checkpoint,
    after: Checkpoint,
    digests: tuple[Mapping[str, str], Mapping[str, str]],
    replaced: set[str],
) -> None:
    """DamagedTensor if `after` isn't `before` but for the tensors `replaced`.

    `digests` are of every tensor before and after, `replaced` has the files' names: those
    keep their shapes, all others also dtype and bytes; none may be lacking.
    """
    old, new = digests
    for name, tensor in before.tensors.items():
        found = after.tensors.get(name)
        if found is None:
            raise DamagedTensor(f"{after.path}: lost tensor {name!r} as it was written")
        is_kept = name not in replaced
        if found.shape != tensor.shape or (
            is_kept and (found.dtype != tensor.dtype or old[name] != new[name])
        ):
            raise DamagedTensor(
                f"{after.path}: tensor {name!r} isn't as in {before.path}; the disk or the "
                "file is damaged, run again"
            )
    surplus = sorted(after.tensors.keys() - before.tensors.keys() - replaced)
    if surplus:
        raise DamagedTensor(f"{after.path}: has a tensor {surplus[0]!r} nobody wrote")


def source_names(source: Checkpoint, names: Mapping[str, object] | list[str]) -> set[str]:
    """The files' names of draft tensors, and of a new head's own copies."""
    row, first, is_new = _head_of(source)
    copies = set(head_copies(row, first)) if is_new else set()
    return {_source_name(source, name) for name in names} | copies


def _payloads(
    source: Checkpoint, values: Mapping[str, F32], codec: str
) -> dict[str, Payload]:
    """What is written anew, by the file's names."""
    row, first, is_new = _head_of(source)
    changed = {}
    for name, array in values.items():
        payload = encode_tensor(name, array, _dtype(source, name, array, codec))
        if row.hidden_first and name == MTP + EH_PROJ:
            payload = swapped_payload(payload)
        theirs = _source_name(source, name)
        changed[theirs] = replace(payload, name=theirs)
    if is_new:
        tied = {} if "lm_head.weight" in source.entries else {
            "lm_head.weight": "model.embed_tokens.weight"}  # fmt: skip
        for copy, trunk in head_copies(row, first).items():
            tensor = source.tensors[source.sources[tied.get(trunk, trunk)]]
            changed[copy] = replace(_kept(tensor), name=copy)
    return changed


def _head_of(source: Checkpoint) -> tuple[HeadRow, int, bool]:
    """The row of its head, the number of the draft's layer, and whether it is to come."""
    if source.head is not None:
        return source.head.row, source.head.numbers[0], False
    row = head_row(source.described.family.head)
    return row, source.header.arch.num_layers if row.follows_trunk else 0, True


def _source_name(source: Checkpoint, name: str) -> str:
    if name in source.sources:
        return source.sources[name]
    row, first, is_new = _head_of(source)
    if not is_new:
        raise UnsupportedFeature(
            f"{source.path}: its draft has no tensor {name!r}, the one to be written has; "
            "heal from a draft with the same layout"
        )
    return head_name(row, name, first, source.described.family.renames)


def _dtype(source: Checkpoint, name: str, values: F32, codec: str) -> str:
    entry = source.entries.get(name)
    kept = source.dtype if entry is None else entry.dtype
    return kept if codec == KEEP or values.ndim < 2 else codec


def _is_single(source: Checkpoint) -> bool:
    return len(source.weight_files) == 1 and not (source.path / INDEX).exists()


def _rewrite_file(source: Checkpoint, out: Path, own: Mapping[str, Payload]) -> None:
    """One file with some tensors replaced in their places, new ones behind."""
    theirs = next((p for p in source.weight_files if p.name == out.name), None)
    if theirs is None:
        write_safetensors(out, list(own.values()), dict(METADATA))
        return
    with theirs.open("rb", buffering=0) as file:
        described = read_file(theirs, file.fileno())
        kept = sorted(described.tensors.values(), key=lambda t: t.stored.offset)
        payloads = [own.get(tensor.name) or _kept(tensor) for tensor in kept]
        new = [payload for name, payload in own.items() if name not in described.tensors]
        write_safetensors(out, [*payloads, *new], described.metadata)


def _kept(tensor: SafeTensor) -> Payload:
    """A tensor as it is, of whatever dtype."""
    stored = tensor.stored
    return Payload(tensor.name, tensor.dtype, tensor.shape, stored, stored.nbytes)


def _write_index(
    source: Checkpoint,
    folder: Path,
    changed: Mapping[str, Payload],
    places: Mapping[str, str],
) -> None:
    """The index, where there is one and something in it changes."""
    if not (source.path / INDEX).exists():
        return
    index = read_object(source.path, INDEX)
    listed, metadata = index["weight_map"], index.get("metadata")
    assert isinstance(listed, dict)
    grown = sum(
        (payload.nbytes or 0)
        - (source.tensors[name].stored.nbytes if name in source.tensors else 0)
        for name, payload in changed.items()
    )
    if not grown and not changed.keys() - listed.keys():
        return
    if isinstance(metadata, dict) and isinstance(metadata.get("total_size"), int):
        metadata["total_size"] = int(str(metadata["total_size"])) + grown
    listed |= places
    (folder / INDEX).write_bytes(spelled(index))


def _write_config(source: Checkpoint, folder: Path) -> None:
    """config.json, where it doesn't say that there is a draft."""
    if source.header.arch.mtp is not None:
        return
    path = source.described.text.path
    config = read_object(path.parent, CONFIG)
    text = config.get("text_config", config)
    assert isinstance(text, dict)
    text[_head_of(source)[0].count_key] = 1
    (folder / CONFIG).write_bytes(spelled(config))

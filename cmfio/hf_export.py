"""A container as a Hugging Face checkpoint: safetensors, config.json, tokenizer."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cmfio.atomic import replacing_folder
from cmfio.codecs.registry import CODECS
from cmfio.errors import UnknownCodec
from cmfio.header import Header
from cmfio.hf_config_out import config_from_header
from cmfio.hf_families import HfFamily, family_of_arch
from cmfio.hf_header import CONFIG, TOKENIZER
from cmfio.hf_heads import EH_PROJ, EMBED, LM_HEAD, MTP, HeadRow, head_copies, head_row
from cmfio.hf_layout import model_order
from cmfio.hf_names import checkpoint_name
from cmfio.json_text import Json
from cmfio.layout import Payload
from cmfio.policy import FLOATS
from cmfio.reader import Container
from cmfio.reencode import reencoded
from cmfio.rewrite import copy_tensor
from cmfio.safetensors_files import INDEX, SINGLE
from cmfio.safetensors_write import METADATA, index_bytes, spelled, write_safetensors
from cmfio.swapped import swapped_payload
from cmfio.writer import Output


def export_hf(
    source: Container,
    folder: Path,
    dtype: str = "f16",
    output: Output = Output(),  # noqa: B008 — frozen
) -> list[Path]:
    """The files written into `folder`, which appears whole or not at all.

    Tensors stored as floats keep their bytes, others are decoded and stored as `dtype`.
    The draft gets its family's names. Skills, masks and index have no place in a checkpoint
    and stay behind. CmfError if the folder has something in it; UnsupportedFeature names
    what a config.json can't say.
    """
    if dtype not in FLOATS:
        raise UnknownCodec(
            f"no dtype {dtype!r} in a checkpoint; there are {', '.join(FLOATS)}"
        )
    where = str(source.path)
    config = config_from_header(source.header, source.entries, where)
    payloads = _payloads(source, dtype, output.threads)
    with replacing_folder(folder) as made:
        _write_weights(made, _cut(payloads, output.shard_max_bytes), output)
        for name, data in _texts(source, config).items():
            (made / name).write_bytes(data)
    return sorted(folder.iterdir())


def _payloads(source: Container, dtype: str, threads: int) -> list[Payload]:
    """Every tensor under its checkpoint's name, the draft's own copies behind."""
    where, arch = str(source.path), source.header.arch
    family = family_of_arch(arch.arch_name, where)
    row = head_row(family.head)
    first = arch.num_layers if row.follows_trunk else 0
    names = [name for name in source.entries if not name.startswith("skill.")]
    made = {
        name: _payload(source, name, dtype, threads)
        for name in model_order(names, arch, where)
    }
    written = [_renamed(payload, family, row, first) for payload in made.values()]
    if MTP + EH_PROJ in made:
        for copy, trunk in head_copies(row, first).items():
            # A tied model has no head of its own to copy.
            origin = made.get(trunk, made[EMBED]) if trunk == LM_HEAD else made[trunk]
            written.append(replace(origin, name=copy))
    return written


def _renamed(payload: Payload, family: HfFamily, row: HeadRow, first: int) -> Payload:
    is_swapped = row.hidden_first and payload.name == MTP + EH_PROJ
    kept = swapped_payload(payload) if is_swapped else payload
    return replace(kept, name=checkpoint_name(payload.name, family, row, first))


def _payload(source: Container, name: str, dtype: str, threads: int) -> Payload:
    entry = source.entries[name]
    if entry.dtype in FLOATS:
        return copy_tensor(source, name)
    if entry.dtype not in CODECS:
        raise UnknownCodec(
            f"{source.path}: tensor {name!r} ({entry.dtype}) holds no weights"
        )
    return reencoded(source, entry, dtype, threads)


def _cut(payloads: Sequence[Payload], most: int | None) -> list[list[Payload]]:
    """Payloads by file; one alone may be larger than `most`, as every checkpoint's may."""
    files: list[list[Payload]] = [[]]
    filled = 0
    for payload in payloads:
        assert payload.nbytes is not None
        if most is not None and files[-1] and filled + payload.nbytes > most:
            files.append([])
            filled = 0
        files[-1].append(payload)
        filled += payload.nbytes
    return files


def _write_weights(
    folder: Path, files: Sequence[Sequence[Payload]], output: Output
) -> None:
    places: dict[str, str] = {}
    total = sum(len(payloads) for payloads in files)
    for number, payloads in enumerate(files, start=1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        name = SINGLE if len(files) == 1 else name
        write_safetensors(folder / name, payloads, dict(METADATA))
        places |= {payload.name: name for payload in payloads}
        if output.progress is not None:
            output.progress(len(places), total)
    if len(files) > 1:
        size = sum(payload.nbytes or 0 for payloads in files for payload in payloads)
        (folder / INDEX).write_bytes(index_bytes(places, size))


def _texts(source: Container, config: dict[str, Json]) -> dict[str, bytes]:
    texts = {CONFIG: spelled(config)}
    if source.vocab is not None:
        texts[TOKENIZER] = bytes(source.vocab)
    texts |= _special(source.header)
    return texts


def _special(header: Header) -> dict[str, bytes]:
    special = header.tokenizer_config
    if special is None:
        return {}
    found = {}
    if special.eos_token_ids:
        ends: dict[str, Json] = {"eos_token_id": list[Json](special.eos_token_ids)}
        found["generation_config.json"] = spelled(ends)
    if special.chat_template is not None:
        found["chat_template.jinja"] = special.chat_template.encode("utf-8")
    return found

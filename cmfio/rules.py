"""What a header may claim: attention cores, rotated bases, skills, genomes."""

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise

from cmfio.arch import Arch, PrismHadamard
from cmfio.dtypes import dtype_named, is_tiled
from cmfio.errors import ParseError
from cmfio.hash64 import Hash64, hash64
from cmfio.header import Header, Skill, TensorEntry
from cmfio.json_text import Json, spell_sorted

CORES = ("gated_delta_net", "vmf_phase", "vmf_phase_delta_v1")
SKILL_KINDS = ("ffn_replace", "expert_append", "lookup")
RESERVED_SKILLS = ("@backbone", "backbone", "none", "auto")
PRISM_ARCH = "prism_hadamard_qwen35"


def check_arch(arch: Arch, where: str) -> None:
    """Raise ParseError where `arch` contradicts itself."""
    for rule in (_linear_core_problem, _anchor_core_problem, _prism_problem):
        problem = rule(arch)
        if problem is not None:
            raise ParseError(f"{where}: arch.{problem}")


def check_prism_targets(header: Header, entries: Sequence[TensorEntry], where: str) -> None:
    """Raise ParseError unless each affine target is one q2tp matrix in groups of 32."""
    prism = header.arch.prism_hadamard
    if prism is None or prism.affine is None:
        return
    for name in prism.affine.target_names:
        found = [entry for entry in entries if entry.name == name]
        if len(found) != 1 or found[0].dtype != "q2tp" or not is_tiled(found[0].shape):
            raise ParseError(f"{where}: affine target {name!r} isn't one q2tp matrix")


def check_knowledge(
    header: Header,
    names: Mapping[str, TensorEntry],
    sections: Mapping[str, memoryview],
    where: str,
) -> None:
    """Raise ParseError where v2 skills, router or genome break their rules."""
    used = header.genome is not None or header.router is not None
    used = used or any(skill.kind is not None for skill in header.skills)
    if not used:
        return
    _check_skills(header, names, where)
    if header.genome is not None:
        _check_genome(header, names, sections, where)


def trunk_hash(
    header: Header, names: Mapping[str, TensorEntry], sections: Mapping[str, memoryview]
) -> int:
    """The genome's hash over everything but skills and routes."""
    running = Hash64()
    running.update(b"cmf-trunk-v1\0")
    for name in sorted(names, key=lambda name: name.encode("utf-8")):
        if not name.startswith(("skill.", "route.")):
            running.update(_trunk_line(names[name]))
    vocab = sections.get("vocab")
    config: Json = None
    if header.tokenizer_config is not None:
        config = header.tokenizer_config.to_json()
    running.update(b"\x1e" + spell_sorted(header.arch.to_json()).encode("utf-8"))
    running.update(b"\x1e" + struct.pack("<Q", 0 if vocab is None else hash64(vocab)))
    running.update(b"\x1e" + spell_sorted(config).encode("utf-8"))
    if "masks" in sections or "index" in sections:
        running.update(b"\x1eexec\0")
        for section in (sections.get("masks"), sections.get("index")):
            running.update(
                b"\0" if section is None else b"\1" + struct.pack("<Q", hash64(section))
            )
    return running.value()


def _trunk_line(entry: TensorEntry) -> bytes:
    dims = struct.pack(f"<{len(entry.shape)}Q", *entry.shape)
    head = entry.name.encode("utf-8") + b"\0" + bytes([dtype_named(entry.dtype).id])
    return (
        head
        + b"\0"
        + bytes([len(entry.shape)])
        + dims
        + b"\0"
        + struct.pack("<Q", entry.hash64)
    )


def _linear_core_problem(arch: Arch) -> str | None:
    core = arch.linear_core
    if core is None:
        return None
    if core.kind not in CORES:
        return f"linear_core.kind is {core.kind!r}; there are {', '.join(CORES)}"
    listed = core.phase_delta_layers
    is_delta = core.kind == "vmf_phase_delta_v1"
    if (listed is not None) != is_delta:
        return f"linear_core.phase_delta_layers doesn't go with kind {core.kind!r}"
    if is_delta and not _are_linear_layers(listed or (), arch):
        return "linear_core.phase_delta_layers must list LinearAttention layers, each once"
    needs_sizes = is_delta or "LinearAttention" in arch.layer_types
    if core.kind != "gated_delta_net" and needs_sizes:
        sizes = (core.num_heads, core.nphase, core.value_head_dim)
        return None if all(sizes) else "linear_core sizes must be above 0"
    return None


def _are_linear_layers(listed: Sequence[int], arch: Arch) -> bool:
    if not listed or len(set(listed)) != len(listed):
        return False
    kinds = arch.layer_types
    in_range = len(kinds) == arch.num_layers and max(listed) < arch.num_layers
    return in_range and all(kinds[layer] == "LinearAttention" for layer in listed)


def _anchor_core_problem(arch: Arch) -> str | None:
    core = arch.anchor_core
    bounded = "BoundedAttention" in arch.layer_types
    if core is None:
        return "layer_types has BoundedAttention without anchor_core" if bounded else None
    words = (core.kind, core.rope, core.sink_scores)
    rules = {
        "without a BoundedAttention layer": bounded,
        "kind, rope or sink_scores unknown": words
        == ("swa_sink_v1", "relative_in_window", "nope"),
        "window must be at least 1 and sink + window at most 160": core.window >= 1
        and core.sink + core.window <= 160,
        "train_windows must lie in 1..window": all(
            1 <= window <= core.window for window in core.train_windows
        ),
        "far isn't supported": core.far is None,
        "layer_types must name every layer": len(arch.layer_types) == arch.num_layers,
    }
    broken = [text for text, holds in rules.items() if not holds]
    return f"anchor_core: {broken[0]}" if broken else None


def _prism_problem(arch: Arch) -> str | None:
    prism = arch.prism_hadamard
    if prism is None:
        return None
    words = (prism.transform, prism.axis, prism.sign_mode)
    block = prism.block_size
    rules = {
        f"needs arch_name {PRISM_ARCH}": arch.arch_name == PRISM_ARCH,
        "version must be 1": prism.version == 1,
        "transform, axis or sign_mode unknown": words
        == ("normalized-sylvester-walsh-hadamard", "input-last-dimension", "explicit"),
        "block_size must be a power of two": block > 0 and block & (block - 1) == 0,
        "widths must be multiples of block_size": all(
            width > 0 and width % max(block, 1) == 0 for width in prism.widths
        ),
        "signs must be +1 or -1, one an input": len(prism.signs) == sum(prism.widths)
        and all(abs(sign) == 1 for sign in prism.signs),
        "a weight is listed forward and inverse": not set(prism.forward_weight_names)
        & set(prism.inverse_weight_names),
        "affine record invalid": _is_affine_valid(prism),
    }
    broken = [text for text, holds in rules.items() if not holds]
    return f"prism_hadamard: {broken[0]}" if broken else None


def _is_affine_valid(prism: PrismHadamard) -> bool:
    affine = prism.affine
    if affine is None:
        return True
    listed = {
        name.removeprefix("language_model.")
        for name in (*prism.forward_weight_names, *prism.inverse_weight_names)
    }
    targets = affine.target_names
    numbers = (affine.version, affine.group_size, affine.correction_scale)
    are_listed = {name.removeprefix("language_model.") for name in targets} <= listed
    is_ours = numbers == (1, 32, 0.5) and affine.profile == "q2tp_affine"
    return is_ours and bool(targets) and len(set(targets)) == len(targets) and are_listed


def _check_skills(header: Header, names: Mapping[str, TensorEntry], where: str) -> None:
    ids = [skill.id for skill in header.skills]
    if len(set(ids)) != len(ids):
        raise ParseError(f"{where}: two skills share an id")
    for skill in header.skills:
        _check_skill(skill, header, where)
    for name in names:
        if name.startswith("skill.") and name.split(".")[1] not in ids:
            raise ParseError(f"{where}: tensor {name!r} belongs to no skill of the header")


def _check_skill(skill: Skill, header: Header, where: str) -> None:
    if "." in skill.id or skill.id in RESERVED_SKILLS:
        raise ParseError(f"{where}: skill id {skill.id!r} isn't allowed")
    if skill.kind is not None and skill.kind not in SKILL_KINDS:
        raise ParseError(f"{where}: skill {skill.id!r} is of unknown kind {skill.kind!r}")
    genome = header.genome
    if isinstance(skill.bound, dict) and genome is not None:
        own = (genome.id, genome.generation, genome.master_trunk_hash)
        keys = ("genome_id", "generation", "master_trunk_hash")
        if tuple(skill.bound.get(key) for key in keys) != own:
            raise ParseError(f"{where}: skill {skill.id!r} is bound to another genome")


def _check_genome(
    header: Header,
    names: Mapping[str, TensorEntry],
    sections: Mapping[str, memoryview],
    where: str,
) -> None:
    genome = header.genome
    assert genome is not None
    has_o1_attn = "o1_attn" in header.provenance_by_key
    if "vocab" not in sections or header.shard is not None or has_o1_attn:
        raise ParseError(f"{where}: a genome needs a vocab, no shards and no o1_attn")
    numbers = [_number(event) for event in header.lineage]
    if any(later <= earlier for earlier, later in pairwise(numbers)) or -1 in numbers:
        raise ParseError(f"{where}: lineage isn't numbered upwards")
    actual = f"{trunk_hash(header, names, sections):016x}"
    if genome.trunk_hash != actual:
        raise ParseError(
            f"{where}: the genome's trunk_hash is {genome.trunk_hash!r}, the file's "
            f"is {actual}"
        )


def _number(event: object) -> int:
    number = event.get("seq") if isinstance(event, dict) else None
    return number if isinstance(number, int) else -1

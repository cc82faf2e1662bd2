"""Which tensors a model of a checkpoint's family has, in a container's order and names."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cmfio.arch import Arch, LayerType
from cmfio.config_json import Config
from cmfio.errors import ParseError, UnsupportedFeature
from cmfio.hf_families import HfFamily, family_of_arch
from cmfio.hf_heads import EMBED, LM_HEAD, MTP, PARTS
from cmfio.hf_tensors import Names

NORM = "model.norm.weight"
ROUTER = "mlp.gate.weight"
FUSED = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
SPLIT = ("gate_proj", "up_proj", "down_proj")
DENSE = tuple(f"mlp.{part}.weight" for part in SPLIT)
LAYER = re.compile(r"(model\.layers\.\d+\.|model\.mtp\.layers\.\d+\.)(.*)")
EXPERT = re.compile(r"mlp\.experts\.(\d+)\.")


@dataclass(frozen=True)
class LayerNames:
    """What one layer has, without its prefix."""

    given: frozenset[str]

    @property
    def is_sparse(self) -> bool:
        """Whether it has a router."""
        return ROUTER in self.given

    def expected(self, family: HfFamily, kind: LayerType) -> list[str]:
        """What such a layer of the family has, in order."""
        mixer: Names = family.attention
        if kind == "LinearAttention":
            assert family.linear is not None
            mixer = family.linear
        flagged = [
            name
            for names in family.flags.values()
            for name in names
            if kind != "LinearAttention" and names[0] in self.given
        ]
        ffn = self._sparse(family) if self.is_sparse else DENSE
        return ["input_layernorm.weight", *mixer, *flagged,
                "post_attention_layernorm.weight", *ffn]  # fmt: skip

    def _sparse(self, family: HfFamily) -> Sequence[str]:
        if family.experts is None:
            return DENSE  # so the router has no place
        return [ROUTER, *family.experts.extra, *self._experts()]

    def _experts(self) -> list[str]:
        if self.given & set(FUSED):
            return list(FUSED)
        numbers = {int(m[1]) for name in self.given if (m := EXPERT.match(name))}
        return [
            f"mlp.experts.{number}.{part}.weight"
            for number in sorted(numbers) or [0]
            for part in SPLIT
        ]


def model_order(names: Iterable[str], arch: Arch, where: str) -> list[str]:
    """`names`, canonical, as a container lists them: embedding, layers, norm, head, draft.

    ParseError if one is missing, UnsupportedFeature if one has no place in such a model.
    """
    given = dict.fromkeys(names)
    family = family_of_arch(arch.arch_name, where)
    layers = layers_of(given)
    trunk = [EMBED]
    for number, kind in enumerate(arch.layer_types):
        prefix = f"model.layers.{number}."
        layer = layers.get(prefix, LayerNames(frozenset()))
        trunk += [prefix + name for name in layer.expected(family, kind)]
    trunk.append(NORM)
    missing = next((name for name in trunk if name not in given), None)
    if missing is not None:
        raise ParseError(f"{where}: a {arch.arch_name} model needs tensor {missing!r}")
    if not arch.tie_word_embeddings and LM_HEAD not in given:
        raise ParseError(f"{where}: the head isn't tied, so it needs {LM_HEAD!r}")
    # A tied head may be stored too; a declared draft may be kept elsewhere.
    rest = [LM_HEAD, *(MTP + part for part in PARTS), *_draft_block(layers, family)]
    kept = sorted(n for n in given if re.match(r"model\.mtp\.layers\.[1-9]", n))
    unplaced = sorted(given.keys() - {*trunk, *rest, *kept})
    if unplaced:
        raise UnsupportedFeature(
            f"{where}: tensor {unplaced[0]!r} has no place in a {arch.arch_name} model; "
            "this variant isn't known here"
        )
    return trunk + [name for name in rest if name in given] + kept


def layers_of(names: Iterable[str]) -> Mapping[str, LayerNames]:
    """What every layer has, by its prefix."""
    layers: dict[str, set[str]] = {}
    for name in names:
        found = LAYER.fullmatch(name)
        if found is not None:
            layers.setdefault(found[1], set()).add(found[2])
    return {prefix: LayerNames(frozenset(given)) for prefix, given in layers.items()}


def check_stated(config: Config, family: HfFamily, names: Iterable[str]) -> None:
    """UnsupportedFeature where a setting and the tensors contradict each other.

    transformers believes the setting, so the tensors would be ignored, or made up.
    """
    layers = layers_of(names)
    trunk = [layers[p] for p in layers if p.startswith("model.layers.")]
    for key, announced in family.flags.items():
        is_said, is_there = config.flag(key), any(announced[0] in t.given for t in trunk)
        if is_said != is_there:
            raise UnsupportedFeature(
                f"{config.path}: {key} is {is_said}, and the checkpoint has "
                f"{'a' if is_there else 'no'} tensor {announced[0]!r}"
            )
    if family.experts is None or family.experts.dense_key is None:
        return
    for number in range(config.whole("num_hidden_layers")):
        layer = layers.get(f"model.layers.{number}.")
        if layer is not None and layer.is_sparse != _is_sparse(config, family, number):
            raise UnsupportedFeature(
                f"{config.path}: says that layer {number} has "
                f"{'no ' if layer.is_sparse else ''}experts, the tensors say the opposite"
            )


def _is_sparse(config: Config, family: HfFamily, number: int) -> bool:
    assert family.experts is not None
    if family.experts.dense_key == "first_k_dense_replace":
        dense = config.get("first_k_dense_replace")
        return number >= (dense if isinstance(dense, int) else 0)
    step = config.whole("decoder_sparse_step", 1)
    return number not in config.wholes("mlp_only_layers") and (number + 1) % step == 0


def _draft_block(layers: Mapping[str, LayerNames], family: HfFamily) -> list[str]:
    prefix = MTP + "layers.0."
    layer = layers.get(prefix, LayerNames(frozenset()))
    return [prefix + name for name in layer.expected(family, "FullAttention")]

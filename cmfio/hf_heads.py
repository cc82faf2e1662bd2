"""Draft heads that checkpoints ship: one table of names, read both ways.

A head is found by its tensors, never by a layer number that a config implies: a fold that
dropped layers leaves the head where it was. Of several MTP layers the first is the draft;
the others are carried byte for byte as `model.mtp.layers.1.*` and on.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cmfio.errors import ParseError, UnsupportedFeature

MTP = "model.mtp."
BLOCK = "model.mtp.layers.0."
EH_PROJ = "eh_proj.weight"
EMBED, LM_HEAD = "model.embed_tokens.weight", "lm_head.weight"
PARTS = ("enorm.weight", "hnorm.weight", EH_PROJ, "norm.weight")


@dataclass(frozen=True)
class HeadRow:
    """A family's names of a draft. `{n}` is an MTP layer's number.

    `parts` are the tensors around the block by their canonical names; without `norm.weight`
    the head reads the block's raw output. `copies` are own copies of what the trunk has:
    they must equal it, are no tensors of the draft, and are written beside a new one.
    """

    key: str
    title: str
    parts: Mapping[str, str]
    block: str
    count_key: str  # the config's number of MTP layers
    hidden_first: bool = False  # the projection reads [hidden; embedding]
    follows_trunk: bool = False  # numbered on from the trunk's last layer
    copies: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_norm(self) -> bool:
        """Whether the draft's output is normed before the head."""
        return "norm.weight" in self.parts

    @property
    def is_numbered(self) -> bool:
        """Whether each MTP layer has norms and a projection of its own."""
        return "{n}" in self.parts[EH_PROJ]


HEADS = (
    HeadRow(
        key="qwen",
        title="Qwen3-Next, Qwen3.5",
        parts={
            "enorm.weight": "mtp.pre_fc_norm_embedding.weight",
            "hnorm.weight": "mtp.pre_fc_norm_hidden.weight",
            EH_PROJ: "mtp.fc.weight",
            "norm.weight": "mtp.norm.weight",
        },
        block="mtp.layers.{n}.",
        count_key="mtp_num_hidden_layers",
    ),
    HeadRow(
        key="glm",
        title="GLM-4.5",
        parts={
            "enorm.weight": "model.layers.{n}.enorm.weight",
            "hnorm.weight": "model.layers.{n}.hnorm.weight",
            EH_PROJ: "model.layers.{n}.eh_proj.weight",
            "norm.weight": "model.layers.{n}.shared_head.norm.weight",
        },
        block="model.layers.{n}.",
        count_key="num_nextn_predict_layers",
        follows_trunk=True,
        copies={
            "model.layers.{n}.embed_tokens.weight": EMBED,
            "model.layers.{n}.shared_head.head.weight": LM_HEAD,
        },
    ),
    HeadRow(
        key="mimo",
        title="MiMo-7B",
        parts={
            "enorm.weight": "model.mtp_layers.{n}.token_layernorm.weight",
            "hnorm.weight": "model.mtp_layers.{n}.hidden_layernorm.weight",
            EH_PROJ: "model.mtp_layers.{n}.input_proj.weight",
            "norm.weight": "model.mtp_layers.{n}.final_layernorm.weight",
        },
        block="model.mtp_layers.{n}.",
        count_key="num_nextn_predict_layers",
        hidden_first=True,
    ),
    HeadRow(
        key="ernie",
        title="Ernie-4.5",
        parts={
            "enorm.weight": "model.mtp_emb_norm.{n}.weight",
            "hnorm.weight": "model.mtp_hidden_norm.{n}.weight",
            EH_PROJ: "model.mtp_linear_proj.{n}.weight",
        },
        block="model.mtp_block.{n}.",
        count_key="num_nextn_predict_layers",
    ),
    HeadRow(
        key="cmf",
        title="canonical",
        parts={part: MTP + part for part in PARTS},
        block=MTP + "layers.{n}.",
        count_key="mtp_num_hidden_layers",
    ),
)

# Heads that are known and not run, by a tensor that only they have.
FOREIGN: Mapping[str, str] = {
    r"mtp\.\d+\..*": "DeepSeek-V4's three coupled draft stages",
    r"mtp\.layers\.\d+\.(enorm|hnorm|eh_proj)\..*": "Nemotron-H's draft",
    r"model\.mtp\.layers\.\d+\.(enorm|hnorm|eh_proj)\.m\..*": "LongCat-Flash's draft",
    r"model\.mtp\.layers\.0\.(enorm|hnorm|eh_proj)\.weight": "MiMo-V2's drafts",
}
MLA = re.compile(r"self_attn\.(kv_[ab]_proj|q_[ab]_proj|kv_a_layernorm)")


@dataclass(frozen=True)
class Head:
    """A head that was found: canonical names of its tensors by the checkpoint's own.

    `numbers` are its MTP layers', the draft's first. `copies` names the trunk tensor that
    each own copy of the draft's layer must equal.
    """

    row: HeadRow
    numbers: tuple[int, ...]
    names: Mapping[str, str]
    copies: Mapping[str, str]

    @property
    def healed(self) -> str:
        """Where the draft's block lies, as the checkpoint names it."""
        return self.row.block.format(n=self.numbers[0]).removesuffix(".")

    @property
    def kept(self) -> tuple[str, ...]:
        """The further MTP layers, which stay as they are."""
        others = self.numbers[1:]
        return tuple(self.row.block.format(n=n).removesuffix(".") for n in others)


def head_row(key: str) -> HeadRow:
    """The row of that key."""
    return next(row for row in HEADS if row.key == key)


def find_head(names: Iterable[str], where: str) -> Head | None:
    """The draft among a checkpoint's tensors; None if there is none.

    UnsupportedFeature for a head that is known and not run, naming it; ParseError where
    two rows would fit.
    """
    given = list(names)
    _refuse_foreign(given, where)
    found = [(row, numbers) for row in HEADS if (numbers := _numbers(row, given))]
    if not found:
        return None
    for (row, _), (other, _) in pairwise(found):
        raise ParseError(
            f"{where}: has drafts under two sets of names, {row.title} and {other.title}; "
            "remove one"
        )
    row, numbers = found[0]
    tensors, copies = _named(row, numbers, given)
    latent = next((name for name in tensors if MLA.search(name)), None)
    if latent is not None:
        raise UnsupportedFeature(
            f"{where}: the draft's tensor {latent!r} is multi-head latent attention "
            "(DeepSeek), which isn't run here"
        )
    return Head(row, numbers, tensors, copies)


def head_name(row: HeadRow, name: str, first: int, renames: Mapping[str, str]) -> str:
    """The checkpoint's name of `model.mtp.…` where the draft's layer is number `first`.

    UnsupportedFeature where the family's head has no place for it.
    """
    layer = re.match(r"model\.mtp\.layers\.(\d+)\.", name)
    if layer is None:
        part = name.removeprefix(MTP)
        if part not in row.parts:
            raise UnsupportedFeature(f"tensor {name!r} has no place in a {row.title} head")
        return row.parts[part].format(n=first)
    number = first + int(layer[1])
    rest = name[layer.end() :]
    if rest in row.parts and row.is_numbered:
        return row.parts[rest].format(n=number)
    for ours, theirs in renames.items():
        rest = rest.replace(ours, theirs)
    return row.block.format(n=number) + rest


def head_problem(where: str, copy: str, trunk: str) -> str:
    """Why a head or embedding of the draft's own is refused."""
    return (
        f"{where}: the draft has its own {copy!r}, which differs from the trunk's "
        f"{trunk!r}; here a draft shares the trunk's, so it can't be healed or imported"
    )


def head_copies(row: HeadRow, number: int) -> dict[str, str]:
    """The own copies a head of this row has, and the trunk tensors they copy."""
    return {name.format(n=number): trunk for name, trunk in row.copies.items()}


def _numbers(row: HeadRow, names: Sequence[str]) -> tuple[int, ...]:
    """The numbers of a row's MTP layers among `names`; empty if there is no such head."""
    if row.is_numbered:
        return tuple(sorted(_matches(row.parts[EH_PROJ], names)))
    numbers = sorted(_matches(row.block, names))
    whole = set(row.parts.values())
    if not numbers and not any(name in whole for name in names):
        return ()
    return tuple(numbers) or (0,)


def _matches(template: str, names: Sequence[str]) -> Iterator[int]:
    before, after = template.split("{n}")
    pattern = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
    found = (pattern.match(name) for name in names)
    return iter({int(match[1]) for match in found if match is not None})


def _named(
    row: HeadRow, numbers: Sequence[int], names: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Canonical names of the head's tensors, and its copies."""
    parts = {
        template.format(n=number): _layer(place) * (place > 0) + part
        for part, template in row.parts.items()
        for place, number in enumerate(numbers if row.is_numbered else numbers[:1])
    }
    blocks = {row.block.format(n=number): _layer(i) for i, number in enumerate(numbers)}
    copies = head_copies(row, numbers[0])
    tensors = {}
    for name in names:
        block = next((block for block in blocks if name.startswith(block)), None)
        if name in parts:
            tensors[name] = MTP + parts[name]
        elif block is not None and name not in copies:
            tensors[name] = MTP + blocks[block] + name.removeprefix(block)
    return tensors, {name: trunk for name, trunk in copies.items() if name in set(names)}


def _layer(place: int) -> str:
    return f"layers.{place}."


def _refuse_foreign(names: Sequence[str], where: str) -> None:
    for pattern, what in FOREIGN.items():
        matcher = re.compile(pattern)
        for name in names:
            if matcher.fullmatch(name):
                raise UnsupportedFeature(
                    f"{where}: tensor {name!r} belongs to {what}, which isn't run here"
                )

"""What a row of the table of families says. No torch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cmfio.header import LayerType
from nets.header_check import HeaderRules
from nets.layer_tensors import DENSE, NORMS, Axes


@dataclass(frozen=True)
class Family:
    """A line of models: what marks it, its layers' tensors, and its `transformers` classes.

    Every layer has `NORMS`, a mixer and an FFN: `attention` or `linear` (None: the family
    has no such layers), `DENSE` or `sparse`. `options` are tensors a layer may have, under
    the name of the class' setting that says so.
    """

    title: str
    arch_name: re.Pattern[str]  # matched against arch_name, lower case, no punctuation
    module: str  # in transformers.models
    class_prefix: str
    attention: Axes
    linear: Axes | None = None
    sparse: Axes | None = None
    options: Mapping[str, Axes] = field(default_factory=dict)
    mark: str | None = None  # a layer tensor that tells this row from others of its name
    norm_style: Literal["qwen", "gemma"] = "qwen"
    rules: HeaderRules = field(default_factory=HeaderRules)
    # Where the family's own class can't be dense: one that can, else the same.
    dense_classes: tuple[str, str] | None = None
    rotary: str = "half-split"
    needs_draft_norm: bool = True
    not_compiled: str | None = None  # why its layers run as they are

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        """The layer types of the header it runs."""
        windowed: tuple[LayerType, ...] = ("SlidingAttention",)
        linear: tuple[LayerType, ...] = ("LinearAttention",)
        return (
            "FullAttention",
            *(windowed if self.rules.has_windows else ()),
            *(linear if self.linear is not None else ()),
        )

    @property
    def is_plain(self) -> bool:
        """True for a family of attention and MLPs only."""
        return self.linear is None and self.sparse is None

    def layer_axes(
        self, kind: LayerType, *, is_sparse: bool, options: frozenset[str]
    ) -> Axes:
        """The tensors of a layer of the class; the kind and FFN are ones it has."""
        mixer = self.linear if kind == "LinearAttention" else self.attention
        ffn = self.sparse if is_sparse else DENSE
        assert mixer is not None
        assert ffn is not None
        chosen = {n: a for option in options for n, a in self.options[option].items()}
        return {**NORMS, **mixer, **chosen, **ffn}

    def every_tensor(self) -> Axes:
        """All tensors any layer of the family may have."""
        tables = (self.attention, self.linear, DENSE, self.sparse, *self.options.values())
        return {n: a for table in (NORMS, *tables) if table for n, a in table.items()}

"""Trunks, drafts and batches of random numbers, made on the device they run on.

Axes: B windows, T positions, H hidden, V vocabulary, K kept tokens, R rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.scale_model import TRUNKS, TrunkSize
from cmfio.header import Arch
from nets.draft import Draft, draft_from, fresh_draft_tensors
from nets.families import family_named
from nets.geometry import EMBED, FINAL_NORM, HEAD, layer_prefix
from nets.layer_geometry import LayerGeometry
from nets.source import Batch
from nets.trunk import Trunk, build_shared, build_trunk

KEPT = 64
SPREAD = 0.02  # of a random matrix' entries, about what trained ones have


@dataclass(frozen=True)
class Sizes:
    """What is run: a trunk's widths, and the tokens of its calls and of a draft's batch."""

    trunk: TrunkSize
    window: int
    batch: int
    depth: int
    gemm: int  # side of the square product that is the roofline
    copied_bytes: int
    calls: tuple[int, ...]  # windows a call of the trunk
    budgets_mib: tuple[int, ...]  # for the head's slices
    compile_s: float | None = None  # to allow for compiling; None: not tried


WHOLE = Sizes(TRUNKS["14B"], 2048, 2, 3, 8192, 4 << 30, (1, 4), (256, 4096), 90.0)
TINY = Sizes(TrunkSize(64, 2, 128, 4, 2, 16, 512), 32, 2, 2, 128, 1 << 20, (1, 2), (1, 2))


def arch_of(size: TrunkSize) -> Arch:
    """A Qwen3 header of these widths."""
    return Arch(
        arch_name="qwen3",
        hidden_size=size.hidden,
        intermediate_size=size.ffn,
        num_layers=size.layers,
        num_attention_heads=size.heads,
        num_kv_heads=size.kv_heads,
        head_dim=size.head_dim,
        vocab_size=size.vocab,
        layer_types=("FullAttention",) * size.layers,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        max_position_embeddings=32_768,
    )


def shapes_of(size: TrunkSize) -> Mapping[str, tuple[int, ...]]:
    """Every tensor of that trunk."""
    arch = arch_of(size)
    layer = LayerGeometry(size.heads, size.kv_heads, size.ffn)
    lengths = layer.sizes(arch)
    axes = family_named(arch).layer_axes(
        "FullAttention", is_sparse=False, options=frozenset()
    )
    table = (size.vocab, size.hidden)
    shapes = {EMBED: table, HEAD: table, FINAL_NORM: (size.hidden,)}
    for index in range(size.layers):
        for name, letters in axes.items():
            shapes[layer_prefix(index) + name] = tuple(lengths[a] for a in letters)
    return shapes


def random_read(size: TrunkSize, device: str) -> Callable[[str], Tensor]:
    """Reads a trunk's tensors, each drawn anew from its name: equal on every call."""
    shapes = shapes_of(size)
    places = {name: place for place, name in enumerate(shapes)}

    def read(name: str) -> Tensor:
        generator = torch.Generator(device).manual_seed(places[name])
        tensor = torch.empty(shapes[name], device=device, dtype=torch.bfloat16)
        if tensor.dim() == 1:
            return tensor.fill_(1.0)
        return tensor.normal_(0.0, SPREAD, generator=generator)

    return read


def random_trunk(size: TrunkSize, device: str) -> Trunk:
    """The trunk in bf16, in the device's memory once."""
    return build_trunk(
        arch_of(size),
        shapes_of(size),
        random_read(size, device),
        device=device,
        dtype=torch.bfloat16,
    )


def random_draft(size: TrunkSize, device: str) -> Draft:
    """A draft that starts from that trunk's last layer, f32; no other layer is made."""
    arch, shapes, read = arch_of(size), shapes_of(size), random_read(size, device)
    shared = build_shared(arch, shapes, read, device=device, dtype=torch.bfloat16)
    return draft_from(fresh_draft_tensors(arch, shapes, read, 1.0), shared)


def random_ids(sizes: Sizes, windows: int, device: str) -> Tensor:
    """Token ids [B, T]."""
    generator = torch.Generator(device).manual_seed(windows)
    shape = (windows, sizes.window)
    return torch.randint(sizes.trunk.vocab, shape, generator=generator, device=device)


def random_batch(sizes: Sizes, device: str) -> Batch:
    """Windows of random ids with rows and a top-k that no trunk made."""
    ids_BT = random_ids(sizes, sizes.batch, device)
    shape = (*ids_BT.shape, KEPT)
    first_BT1 = torch.randint(sizes.trunk.vocab - KEPT, (*ids_BT.shape, 1), device=device)
    p_BTK = torch.randn(shape, device=device).softmax(-1).sort(-1, descending=True).values
    return Batch(
        ids_BT,
        torch.full((sizes.batch,), sizes.window, device=device),
        torch.randn((*ids_BT.shape, sizes.trunk.hidden), device=device).bfloat16(),
        first_BT1 + torch.arange(KEPT, device=device),  # different ids in each row
        0.9 * p_BTK,
    )

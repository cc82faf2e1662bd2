"""Tapped rows against forward hooks on `transformers`' own model."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from nets.stream import Call, StreamedTrunk, stream_trunk
from nets.taps import tap_rows
from nets.trunk import Trunk, build_trunk
from tests.builders import (
    HEAD_DIM,
    HIDDEN,
    VOCAB,
    TinyModel,
    TinySpec,
    tiny_llama,
    tiny_qwen3_5,
)

torch.set_num_threads(1)

LAYERS = ((4, 2, 48),) * 4


def some_ids(batch: int, length: int) -> Tensor:
    return torch.randint(
        VOCAB, (batch, length), generator=torch.Generator().manual_seed(batch)
    )


def resident(model: TinyModel) -> Trunk:
    return build_trunk(*model, device="cpu", dtype=torch.float32)


def streamed(model: TinyModel) -> StreamedTrunk:
    return stream_trunk(
        *model,
        read_rows=lambda name, ids: model.read(name)[ids],
        device="cpu",
        dtype=torch.float32,
    )


def hooked(model: TinyModel, ids_BT: Tensor) -> list[Tensor]:
    """Each layer's output in `transformers`' model of the same tensors."""
    config = LlamaConfig(
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
        head_dim=HEAD_DIM,
        intermediate_size=48,
        num_hidden_layers=len(LAYERS),
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": model.arch.rope_theta},
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    peer: Any = LlamaForCausalLM(config)  # transformers has no types
    trunk = {n: t for n, t in model.tensors.items() if not n.startswith("model.mtp.")}
    peer.load_state_dict(trunk)
    seen: list[Tensor] = []
    for layer in peer.model.layers:
        layer.register_forward_hook(lambda _module, _given, out: seen.append(out))
    with torch.no_grad():
        peer.eval()(input_ids=ids_BT, use_cache=False)
    return seen


@pytest.mark.parametrize("layers", [(2,), (3, 0), (1, 1)])
def test_taps_are_what_hooks_on_transformers_see(layers: tuple[int, ...]) -> None:
    model = tiny_llama(TinySpec(layers=LAYERS))
    calls = [Call(some_ids(2, 9)), Call(some_ids(1, 5))]
    for trunk in (resident(model), streamed(model)):
        for call, found_BLTH in zip(calls, tap_rows(trunk, calls, layers), strict=True):
            seen = hooked(model, call.ids_BT)
            assert torch.equal(found_BLTH, torch.stack([seen[i] for i in layers], dim=1))


def test_the_last_layer_s_tap_is_the_raw_row_records_apart_or_not() -> None:
    model = tiny_qwen3_5(TinySpec())
    trunk, ids_BT = resident(model), some_ids(1, 9)
    for record_BT in (None, torch.tensor([[0] * 4 + [1] * 5])):
        (found_BLTH,) = tap_rows(trunk, [Call(ids_BT, record_BT)], [1, 0])
        assert torch.equal(found_BLTH[:, 0], trunk.hidden(ids_BT, record_BT))
        # A layer run record by record gives its rows once, whole.
        assert found_BLTH.shape[2] == 9

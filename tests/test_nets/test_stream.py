"""A streamed trunk against the resident one: the same rows, bit for bit."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nets.draft import last_input_rms
from nets.errors import ModelError
from nets.stream import Call, StreamedTrunk, stream_trunk
from nets.trunk import build_trunk
from tests.builders import EVERY_FAMILY, VOCAB, TinyModel, TinySpec, tiny_qwen3

torch.set_num_threads(1)

LAYERS = [(4, 2, 48), (2, 1, 17), (3, 3, 40), (4, 2, 48)]
Build = Callable[[TinySpec], TinyModel]


def streamed(model: TinyModel, dtype: torch.dtype = torch.float32) -> StreamedTrunk:
    def read_rows(name: str, ids: Tensor) -> Tensor:
        return model.read(name)[ids]

    return stream_trunk(
        model.arch, model.shapes, model.read, read_rows, device="cpu", dtype=dtype
    )


def some_ids(batch: int, length: int, seed: int) -> Tensor:
    return torch.randint(
        VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed)
    )


def some_calls() -> list[Call]:
    record_BT = torch.tensor([[0] * 5 + [1] * 6, [0] * 9 + [1] * 2])
    return [
        Call(some_ids(2, 11, 1)),
        Call(some_ids(2, 11, 2), record_BT),
        Call(some_ids(1, 7, 3)),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tiny", EVERY_FAMILY, ids=lambda tiny: tiny.__name__)
def test_rows_and_head_are_the_resident_trunks(tiny: Build, dtype: torch.dtype) -> None:
    model = tiny(TinySpec())
    resident = build_trunk(*model, device="cpu", dtype=dtype)
    trunk = streamed(model, dtype)
    for call, found_BTH in zip(some_calls(), trunk.hidden(some_calls()), strict=True):
        wanted_BTH = resident.hidden(call.ids_BT, call.record_BT)
        assert torch.equal(found_BTH, wanted_BTH)
    head = trunk.read_head()
    assert torch.equal(head.head_VH, resident.shared.head_VH)
    assert head.head_VH.dtype == dtype
    assert torch.equal(head.final_norm(found_BTH), resident.final_norm(wanted_BTH))


def test_each_layer_is_read_once_for_all_calls_and_its_rows_are_shown() -> None:
    model, reads = tiny_qwen3(TinySpec(layers=LAYERS)), list[str]()

    def read(name: str) -> Tensor:
        reads.append(name)
        return model.read(name)

    trunk = stream_trunk(
        model.arch, model.shapes, read, lambda name, ids: model.read(name)[ids],
        device="cpu", dtype=torch.float32,
    )  # fmt: skip
    resident = build_trunk(*model, device="cpu", dtype=torch.float32)
    wanted: list[Tensor] = []
    hook = resident.layers[1].register_forward_hook(lambda _m, _a, out: wanted.append(out))
    shown: list[tuple[int, int]] = []
    second: list[Tensor] = []

    def passed(layer: int, call: int, x_BTH: Tensor) -> None:
        shown.append((layer, call))
        if layer == 1:
            second.append(x_BTH)

    trunk.hidden(some_calls(), passed)
    assert shown == [(layer, call) for layer in range(4) for call in range(3)]
    assert len(reads) == len(set(reads))
    assert "model.embed_tokens.weight" not in reads
    for call in some_calls():
        resident.hidden(call.ids_BT, call.record_BT)
    hook.remove()
    assert all(torch.equal(a, b) for a, b in zip(second, wanted, strict=True))
    # Stopped after two layers, those two's rows come back.
    early = trunk.hidden(some_calls(), layers=2)
    assert all(torch.equal(a, b) for a, b in zip(early, wanted, strict=True))


def test_an_error_between_two_layers_ends_it_and_its_reader() -> None:
    trunk = streamed(tiny_qwen3(TinySpec(layers=LAYERS)))

    def passed(layer: int, _call: int, _x: Tensor) -> None:
        if layer == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trunk.hidden(some_calls(), passed)
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]


def test_a_tensor_that_cannot_be_read_ends_it() -> None:
    model = tiny_qwen3(TinySpec(layers=LAYERS))

    def read(name: str) -> Tensor:
        if name.startswith("model.layers.2."):
            raise ModelError(f"tensor {name!r} is damaged")
        return model.read(name)

    trunk = stream_trunk(
        model.arch, model.shapes, read, lambda name, ids: model.read(name)[ids],
        device="cpu", dtype=torch.float32,
    )  # fmt: skip
    with pytest.raises(ModelError, match=r"layers\.2\.input_layernorm"):
        trunk.hidden(some_calls())


@pytest.mark.parametrize("layers", [LAYERS, LAYERS[:1]], ids=["several", "only one"])
def test_a_fresh_draft_starts_from_the_same_size(
    layers: list[tuple[int, int, int]],
) -> None:
    model = tiny_qwen3(TinySpec(layers=layers))
    resident = build_trunk(*model, device="cpu", dtype=torch.float32)
    ids_BT = some_ids(3, 11, 1)
    assert last_input_rms(streamed(model), ids_BT) == last_input_rms(resident, ids_BT)

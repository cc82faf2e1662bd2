import pytest

from conf.errors import ConfigError
from conf.machine import Device, resolve_device


@pytest.mark.parametrize(
    ("cards", "built_for_cuda", "device"),
    [(0, True, "cpu"), (1, False, "cpu"), (1, True, "cuda")],
)
def test_a_card_is_taken_only_if_torch_can_use_it(
    monkeypatch: pytest.MonkeyPatch, cards: int, *, built_for_cuda: bool, device: Device
) -> None:
    monkeypatch.setattr("conf.machine.cuda_devices", lambda: cards)
    monkeypatch.setattr("conf.machine.torch_knows_cuda", lambda: built_for_cuda)
    assert resolve_device("auto") == device
    assert resolve_device("cpu") == "cpu"
    if device == "cpu":
        with pytest.raises(ConfigError, match=r"runtime\.device is cuda"):
            resolve_device("cuda")
    else:
        assert resolve_device("cuda") == "cuda"

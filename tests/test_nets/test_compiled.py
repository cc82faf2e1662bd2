"""A compiled layer against the layer as it is: the weights must be each layer's own."""

import pytest
import torch

from conf.machine import has_compiler
from nets.trunk import build_trunk
from tests.builders import VOCAB, tiny_qwen3

torch.set_num_threads(1)


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_each_compiled_layer_has_its_own_weights() -> None:
    model = tiny_qwen3()
    plain, compiled = (
        build_trunk(*model, device="cpu", dtype=torch.float32, is_compiled=is_compiled)
        for is_compiled in (False, True)
    )
    ids_BT = torch.randint(VOCAB, (2, 11), generator=torch.Generator().manual_seed(5))
    wanted, found = plain.hidden(ids_BT), compiled.hidden(ids_BT)
    assert not torch.equal(found, wanted), "nothing was compiled"
    # f32 sums of 48 terms near 1 in another order, two layers deep.
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-5)
    # The second layer with the first one's weights is what this would miss otherwise.
    plain.layers[1].load_state_dict(plain.layers[0].state_dict())
    assert (plain.hidden(ids_BT) - wanted).abs().max() > 1e-2

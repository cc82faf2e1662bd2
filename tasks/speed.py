"""How fast this machine multiplies matrices, measured: what a long pass takes at least."""

import time

from conf.machine import ComputeType, Device

SIZE = 1024
REPEATS = 4


def products_a_second(device: Device, dtype: ComputeType) -> float:
    """Floating point operations a second of a square matrix product, the best of a few."""
    import torch

    from tasks.model_file import torch_dtype

    one = torch.ones(SIZE, SIZE, device=device, dtype=torch_dtype(dtype))
    best = float("inf")
    for _ in range(REPEATS):
        begun = time.perf_counter()
        product = one @ one
        float(product[0, 0])  # waits for a card
        best = min(best, time.perf_counter() - begun)
    return 2 * SIZE**3 / best

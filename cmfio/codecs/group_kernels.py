"""What all codecs of groups begin with."""

import numpy as np

from cmfio.codecs.base import F32
from cmfio.codecs.jit import kernel


@kernel
def largest_magnitudes(groups: F32, largest: F32) -> None:
    """`largest[g]` = the largest magnitude of the 32 values `groups[g]`."""
    for g in range(groups.shape[0]):
        so_far = np.float32(0)
        for k in range(32):
            so_far = max(so_far, abs(groups[g, k]))
        largest[g] = so_far

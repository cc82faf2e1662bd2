"""The reference's order of records, written out from healing.md §4, step 2."""

MASK = (1 << 64) - 1


def reference_order(count: int) -> list[int]:
    order, r = list(range(count)), 0x9E3779B97F4A7C15
    for i in range(count - 1, 0, -1):
        r = (r ^ (r << 13)) & MASK
        r = r ^ (r >> 7)
        r = (r ^ (r << 17)) & MASK
        j = r % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order

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


def reference_windows(
    sets: list[tuple[list[list[int]], int]], width: int, depth: int
) -> list[tuple[list[int], bool]]:
    """Every window's ids and whether it is held out, token by token (healing.md §4).

    A set is its records in file order and its cap.
    """
    windows: list[list[int]] = []
    for records, cap in sets:
        current: list[int] = []
        total = 0
        for place in reference_order(len(records)):
            for token in records[place]:
                if total == cap:
                    break
                current.append(token)
                total += 1
                if len(current) == width:
                    windows.append(current)
                    current = []
        if len(current) >= 16 + depth:
            windows.append(current)
    return [(ids, i % 10 == 9) for i, ids in enumerate(windows)]

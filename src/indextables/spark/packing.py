"""Which splits a task reads: small ones together, in tasks of about equal size. Pure."""

from collections.abc import Sequence
from typing import Final

# What opening a split costs, as if it were so many bytes more.
OPEN_COST_BYTES: Final = 4 * 1024**2


def pack(sizes: Sequence[int], task_bytes: int, min_tasks: int, max_splits: int) -> list[list[int]]:
    """Groups of positions in `sizes`, each of up to `task_bytes` and `max_splits`; a larger split is alone.

    If the whole is small, the groups are, too, so that there are `min_tasks` of them where there can be.
    """
    costs = [size + OPEN_COST_BYTES for size in sizes]
    bound = min(task_bytes, max(OPEN_COST_BYTES, -(-sum(costs) // max(min_tasks, 1))))
    groups: list[list[int]] = []
    filled = bound
    for position in sorted(range(len(sizes)), key=lambda each: costs[each], reverse=True):
        if filled + costs[position] > bound or len(groups[-1]) >= max_splits:
            groups.append([])
            filled = 0
        groups[-1].append(position)
        filled += costs[position]
    return groups

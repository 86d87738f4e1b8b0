"""Which splits a task reads: small ones together, in tasks of about equal size. Pure."""

import heapq
from collections.abc import Sequence
from typing import Final

# What opening a split costs, as if it were so many bytes more.
OPEN_COST_BYTES: Final = 4 * 1024**2


def pack(sizes: Sequence[int], task_bytes: int, min_tasks: int, max_splits: int) -> list[list[int]]:
    """Groups of positions in `sizes`, each of up to `task_bytes` and `max_splits`; a larger split is alone.

    If the whole is small, the groups are, too, so that there are `min_tasks` of them where there can be.
    """
    costs = [size + OPEN_COST_BYTES for size in sizes]
    count = min(len(sizes), max(min_tasks, -(-sum(costs) // task_bytes)))
    groups: list[list[int]] = [[] for _ in range(count)]
    by_cost = [(0, number) for number in range(count)]
    # The largest first, each into the group that has least, makes them the most equal.
    for position in sorted(range(len(sizes)), key=lambda each: costs[each], reverse=True):
        while by_cost and len(groups[by_cost[0][1]]) >= max_splits:
            heapq.heappop(by_cost)
        if by_cost and (not by_cost[0][0] or by_cost[0][0] + costs[position] <= task_bytes):
            filled, number = heapq.heappop(by_cost)
        else:
            filled, number = 0, len(groups)
            groups.append([])
        groups[number].append(position)
        heapq.heappush(by_cost, (filled + costs[position], number))
    return groups

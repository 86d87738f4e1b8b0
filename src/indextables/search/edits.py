"""The distance between two words: insertions, deletions, substitutions, and swaps of neighbours."""


def is_within(left: str, right: str, distance: int) -> bool:
    """Whether one word becomes the other by at most `distance` edits, none of them inside another's swap."""
    if abs(len(left) - len(right)) > distance:
        return False
    before: list[int] = []
    previous = list(range(len(right) + 1))
    for row, letter in enumerate(left, start=1):
        current = [row]
        for column, other in enumerate(right, start=1):
            cost = min(
                previous[column] + 1, current[column - 1] + 1, previous[column - 1] + (letter != other)
            )
            is_swap = row > 1 and column > 1 and letter == right[column - 2] and left[row - 2] == other
            if is_swap:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        if min(current) > distance:
            return False
        before, previous = previous, current
    return previous[-1] <= distance

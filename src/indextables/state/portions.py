"""Small things are done several at a time, because to begin costs as much as a thousand entries."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def portions(items: Iterable[T], entries_of: Callable[[T], int], min_entries: int) -> Iterator[list[T]]:
    """The items in order, as many at a time as it takes for so many entries."""
    portion: list[T] = []
    entries = 0
    for item in items:
        portion.append(item)
        entries += entries_of(item)
        if entries >= min_entries:
            yield portion
            portion, entries = [], 0
    if portion:
        yield portion

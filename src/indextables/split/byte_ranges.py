"""Reads byte ranges of a split, and tells a truncated file from a store that fails."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from indextables.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    SplitCorruptedError,
    StorageError,
    TransientStorageError,
)
from indextables.storage import ObjectStore

T = TypeVar("T")
R = TypeVar("R")


def read_range(store: ObjectStore, key: str, start: int, end: int) -> bytes:
    """Read exactly these bytes of a split. Raises storage errors, and SplitCorruptedError if the file is truncated."""
    return _checked(store, key, [(start, end)], lambda: [store.get_range(key, start, end)])[0]


def read_ranges(store: ObjectStore, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Read exactly these ranges of a split, in one round trip. Raises what `read_range` raises."""
    return _checked(store, key, ranges, lambda: store.get_ranges(key, ranges))


def _checked(
    store: ObjectStore, key: str, ranges: Sequence[tuple[int, int]], read: Callable[[], list[bytes]]
) -> list[bytes]:
    last = max((end for _, end in ranges), default=0)
    try:
        found = read()
    except (ObjectNotFoundError, AccessDeniedError, TransientStorageError):
        raise
    except StorageError as error:
        size = store.head(key).size
        if size >= last:
            raise
        raise _truncated(store, key, last, size) from error
    for (start, end), data in zip(ranges, found, strict=True):
        if len(data) != end - start:
            raise _truncated(store, key, end, start + len(data))
    return found


def _truncated(store: ObjectStore, key: str, end: int, size: int) -> SplitCorruptedError:
    return SplitCorruptedError(f"{store.url}: {key} is truncated: it ends at byte {size}, before byte {end}")


def prefetched(fetch: Callable[[T], R], items: Sequence[T], depth: int) -> Iterator[tuple[T, R]]:
    """Yield each item with its fetched value, in order, while up to `depth` more are fetched ahead.

    `fetch` runs in other threads; its errors surface in the iteration.
    """
    if len(items) <= 1:
        yield from ((item, fetch(item)) for item in items)
        return
    with ThreadPoolExecutor(depth, thread_name_prefix="indextables-fetch") as pool:
        waiting: deque[Future[R]] = deque(pool.submit(fetch, item) for item in items[:depth])
        try:
            for number, item in enumerate(items):
                fetched = waiting.popleft().result()
                if number + depth < len(items):
                    waiting.append(pool.submit(fetch, items[number + depth]))
                yield item, fetched
        finally:
            for future in waiting:
                future.cancel()

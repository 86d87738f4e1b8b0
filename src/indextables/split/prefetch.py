"""Fetches ahead: while one piece is in use, the next ones are on their way."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def prefetched(fetch: Callable[[T], R], items: Sequence[T], depth: int) -> Iterator[tuple[T, R]]:
    """Each item with what `fetch` returns for it, in order; up to `depth` of them are fetched ahead.

    `fetch` is called in other threads, and raises through the iteration.
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

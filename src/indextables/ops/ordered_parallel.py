"""Streams produced by several threads, consumed in order, in bounded memory."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
S = TypeVar("S")

# How many items of one stream wait for the consumer.
_ITEMS_AHEAD = 4


def parallel_map(function: Callable[[S], T], items: Sequence[S], parallelism: int) -> list[T]:
    """The results of a function, in the order of the items, computed by up to `parallelism` threads."""
    if len(items) <= 1 or parallelism <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(parallelism, len(items)), thread_name_prefix="indextables") as pool:
        return list(pool.map(function, items))


def ordered_streams(streams: Iterable[Callable[[], Iterator[T]]], parallelism: int) -> Iterator[T]:
    """The items of all streams, one stream after the other, while the next ones are being produced already.

    An error in a stream is raised where its next item would have come. No thread ever waits for the consumer: one
    that stops early, or just never comes back, keeps nobody from ending.
    """
    stop = threading.Event()
    waiting = iter(streams)
    with ThreadPoolExecutor(parallelism, thread_name_prefix="indextables") as pool:
        started = deque(_Stream(pool, stream, stop) for stream in islice(waiting, parallelism))
        try:
            while started:
                yield from started.popleft()
                started.extend(_Stream(pool, stream, stop) for stream in islice(waiting, 1))
        finally:
            stop.set()


class _End(msgspec.Struct, frozen=True):
    """The end of a stream, and why it ended if that was not its own doing."""

    error: BaseException | None = None


class _Stream(Generic[T]):
    """A stream of which some items are ready. A thread works on it as long as there is room for more."""

    def __init__(
        self, pool: ThreadPoolExecutor, stream: Callable[[], Iterator[T]], stop: threading.Event
    ) -> None:
        self._pool = pool
        self._source = _opened(stream)
        self._stop = stop
        self._ready: deque[T | _End] = deque()
        self._changed = threading.Condition()
        self._is_at_work = True
        pool.submit(self._produce)

    def __iter__(self) -> Iterator[T]:
        while True:
            item = self._take()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                return

    def _take(self) -> T | _End:
        with self._changed:
            while not self._ready:
                self._changed.wait()
            item = self._ready.popleft()
            if not self._is_at_work:
                self._is_at_work = True
                self._pool.submit(self._produce)
        return item

    def _produce(self) -> None:
        while True:
            item = self._next()
            with self._changed:
                self._ready.append(item)
                self._changed.notify()
                if isinstance(item, _End):
                    return
                if len(self._ready) >= _ITEMS_AHEAD or self._stop.is_set():
                    self._is_at_work = False
                    return

    def _next(self) -> T | _End:
        try:
            return next(self._source, _End())
        except BaseException as error:  # noqa: BLE001  # handed to the consumer, whatever it is
            return _End(error)


def _opened(stream: Callable[[], Iterator[T]]) -> Iterator[T]:
    """The items of a stream, which is opened by the thread that asks for the first of them."""
    yield from stream()

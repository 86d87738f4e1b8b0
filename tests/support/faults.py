"""Stores with injected faults. The same seed and the same calls produce the same faults."""

import enum
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from indextables.errors import TransientStorageError
from indextables.storage.store import Clock, KeyRange, ObjectMeta, ObjectStore, PutOutcome

_Result = TypeVar("_Result")

# The distance that an entry of a scrambled listing may move.
_SCRAMBLE_WINDOW = 4


class Moment(enum.Enum):
    """When a call fails: before it reaches the store, or after it took effect but before the response arrives."""

    BEFORE = "before"
    AFTER = "after"


class Call(msgspec.Struct, frozen=True):
    """One call of the store. The key of a listing is its prefix; the key of `delete_many` is its first one."""

    operation: str
    key: str


class FaultStore:
    """A store with injected faults. It records its calls, numbered from 0; a listing counts when its iteration starts.

    Args:
        inner: The store that performs the calls.
        seed: The seed of the random faults.
        fail_call: The number of the call that fails, and when it fails.
        error_rate: The share of calls that fail, before or after their effect.
        outage_from: The number of the first call of an outage that never ends.
        short_reads: Keys whose reads return truncated data, as a faulty store does.
        scramble_rate: The share of listed entries that are repeated, and of neighbors that are swapped.
        latency_seconds: The duration of each call, by `clock`.
        clock: The clock that latency advances; the inner store's by default.
    """

    def __init__(
        self,
        inner: ObjectStore,
        *,
        seed: int = 0,
        fail_call: tuple[int, Moment] | None = None,
        error_rate: float = 0.0,
        outage_from: int | None = None,
        short_reads: Collection[str] = (),
        scramble_rate: float = 0.0,
        latency_seconds: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self._inner = inner
        self._random = random.Random(seed)
        self._fail_call = fail_call
        self._error_rate = error_rate
        self._outage_from = outage_from
        self._short_reads = frozenset(short_reads)
        self._scramble_rate = scramble_rate
        self._latency_seconds = latency_seconds
        self._clock = clock or inner.clock
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"FaultStore({self._inner!r})"

    @property
    def url(self) -> str:
        """The canonical URL of the root."""
        return self._inner.url

    @property
    def identity(self) -> str:
        """The identity of the inner store."""
        return self._inner.identity

    @property
    def clock(self) -> Clock:
        """The clock that latency and backoff advance."""
        return self._clock

    def count(self, operation: str) -> int:
        """Return the number of calls of one operation."""
        return sum(call.operation == operation for call in self.calls)

    def get(self, key: str) -> bytes:
        """Return the bytes of an object, truncated for a key in `short_reads`."""
        return self._shortened(key, self._perform("get", key, lambda: self._inner.get(key)))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, truncated for a key in `short_reads`."""
        data = self._perform("get_range", key, lambda: self._inner.get_range(key, start, end))
        return self._shortened(key, data)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of several ranges, each truncated for a key in `short_reads`."""
        found = self._perform("get_ranges", key, lambda: self._inner.get_ranges(key, ranges))
        return [self._shortened(key, data) for data in found]

    def open_local(self, key: str) -> None:
        """Return None, so every read goes through this store."""

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self._perform("put", key, lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Write an object if the key is free."""
        return self._perform("put_if_absent", key, lambda: self._inner.put_if_absent(key, data))

    def put_if_unchanged(self, key: str, data: bytes, expected: bytes) -> PutOutcome:
        """Replace an object if it still has the expected bytes."""
        return self._perform(
            "put_if_unchanged", key, lambda: self._inner.put_if_unchanged(key, data, expected)
        )

    def head(self, key: str) -> ObjectMeta:
        """Return the metadata of an object."""
        return self._perform("head", key, lambda: self._inner.head(key))

    def list(
        self, prefix: str, *, start_after: str | None = None, skip: KeyRange | None = None
    ) -> Iterator[ObjectMeta]:
        """Iterate over the objects in a folder. A failure AFTER happens in the middle of the listing."""
        moment = self._start("list", prefix)
        self._fail_if(moment, Moment.BEFORE, "list", prefix)
        windows = list(self._scrambled(list(self._inner.list(prefix, start_after=start_after, skip=skip))))
        for position, window in enumerate(windows):
            if position >= len(windows) // 2:
                self._fail_if(moment, Moment.AFTER, "list", prefix)
            yield from window
        self._fail_if(moment, Moment.AFTER, "list", prefix)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        wanted = list(keys)
        first = wanted[0] if wanted else ""
        self._perform("delete_many", first, lambda: self._inner.delete_many(wanted))

    def remove_empty_folders(self, prefix: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove empty folders."""
        return self._perform(
            "remove_empty_folders", prefix, lambda: self._inner.remove_empty_folders(prefix, dry_run=dry_run)
        )

    def now_ms(self) -> int:
        """Return the time by the store's clock."""
        return self._perform("now_ms", "", self._inner.now_ms)

    def _perform(self, operation: str, key: str, call: Callable[[], _Result]) -> _Result:
        moment = self._start(operation, key)
        self._fail_if(moment, Moment.BEFORE, operation, key)
        result = call()
        self._fail_if(moment, Moment.AFTER, operation, key)
        return result

    def _start(self, operation: str, key: str) -> Moment | None:
        """Record a call, advance the clock, and decide whether the call fails."""
        with self._lock:
            index = len(self.calls)
            self.calls.append(Call(operation, key))
            # Drawn for every call: the faults of one call must not depend on the settings for another.
            draw, moment = self._random.random(), self._random.choice(tuple(Moment))
        if self._latency_seconds:
            self._clock.sleep(self._latency_seconds)
        if self._outage_from is not None and index >= self._outage_from:
            return Moment.BEFORE
        if self._fail_call is not None and index == self._fail_call[0]:
            return self._fail_call[1]
        return moment if draw < self._error_rate else None

    def _fail_if(self, planned: Moment | None, now: Moment, operation: str, key: str) -> None:
        if planned is now:
            raise TransientStorageError(
                f"{self.url}: {operation} {key}: failed on purpose, {now.value} its effect"
            )

    def _shortened(self, key: str, data: bytes) -> bytes:
        if key not in self._short_reads or not data:
            return data
        with self._lock:
            return data[: self._random.randrange(len(data))]

    def _scrambled(self, metas: Collection[ObjectMeta]) -> "Iterator[Collection[ObjectMeta]]":
        """Yield the listing in windows. Entries move only within their window, so a listing that failed between two
        windows can resume after the greatest key seen.
        """
        remaining = list(metas)
        while remaining:
            window, remaining = remaining[:_SCRAMBLE_WINDOW], remaining[_SCRAMBLE_WINDOW:]
            with self._lock:
                for position in range(len(window) - 1):
                    if self._random.random() < self._scramble_rate:
                        window[position : position + 2] = window[position + 1], window[position]
                repeated = [meta for meta in window if self._random.random() < self._scramble_rate]
            yield window + repeated


class NoConditionalPutStore(FaultStore):
    """A store that treats put-if-absent as put, like some S3-compatible stores."""

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Overwrite the object and return WRITTEN."""
        self.put(key, data)
        return PutOutcome.WRITTEN

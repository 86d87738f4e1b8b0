"""A store that tries again when a call fails in passing."""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec
import pyarrow as pa

from indextables.errors import ObjectNotFoundError, StorageTimeoutError, TransientStorageError
from indextables.storage.store import Clock, ObjectMeta, ObjectStore, PutOutcome

_Result = TypeVar("_Result")


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often, and how long to wait between: a random time up to a limit that doubles ("full jitter")."""

    max_attempts: int = 8
    base_seconds: float = 0.05
    cap_seconds: float = 2.0

    def pause(self, failures: int) -> float:
        """The time to wait after so many failures in a row."""
        limit = min(self.cap_seconds, self.base_seconds * 2 ** (failures - 1))
        return random.uniform(0.0, limit)


class RetryingStore:
    """The same store, with calls repeated that raised TransientStorageError. The last is raised."""

    def __init__(
        self, inner: ObjectStore, policy: RetryPolicy | None = None, deadline: "Deadline | None" = None
    ) -> None:
        self._inner = inner
        self._policy = policy or RetryPolicy()
        self._deadline = deadline

    def __repr__(self) -> str:
        return f"RetryingStore({self._inner!r})"

    @property
    def url(self) -> str:
        """The canonical URL of the root."""
        return self._inner.url

    @property
    def identity(self) -> str:
        """Differs between roots and between credentials, and reveals neither."""
        return self._inner.identity

    @property
    def clock(self) -> Clock:
        """The clock of the local side, on which the pauses are spent."""
        return self._inner.clock

    def get(self, key: str) -> bytes:
        """All bytes of an object. Raises ObjectNotFoundError."""
        return self._repeat(lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Exactly the bytes from `start` to `end`. Raises ObjectNotFoundError and StorageError."""
        return self._repeat(lambda: self._inner.get_range(key, start, end))

    def open_local(self, key: str) -> pa.NativeFile | None:
        """An object as a file, if it is one. Raises ObjectNotFoundError."""
        return self._repeat(lambda: self._inner.open_local(key))

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing any that is there."""
        self._repeat(lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Write an object if there is none under this key.

        A failed attempt may have written the object all the same. If a later one finds an object, it is read
        back: with our bytes it counts as WRITTEN. `data` must therefore differ from what any other writer
        would write. If no attempt gives an answer, TransientStorageError leaves the outcome open.
        """
        failures = 0
        while True:
            self._check_deadline()
            try:
                outcome = self._inner.put_if_absent(key, data)
                if outcome is PutOutcome.EXISTS and failures and self._holds(key, data):
                    return PutOutcome.WRITTEN
            except TransientStorageError as error:
                failures += 1
                self._pause_or_raise(failures, error)
            else:
                return outcome

    def head(self, key: str) -> ObjectMeta:
        """Size and time of an object. Raises ObjectNotFoundError."""
        return self._repeat(lambda: self._inner.head(key))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """The objects below a folder. After a failure it goes on behind the last one that was handed out."""
        listing = self._inner.list(prefix, start_after=start_after)
        return self._resumed(listing, prefix, start_after)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects. An absent key is no error, so that a repeated batch is none either."""
        wanted = list(keys)
        self._repeat(lambda: self._inner.delete_many(wanted))

    def now_ms(self) -> int:
        """The store's clock."""
        return self._repeat(self._inner.now_ms)

    def _repeat(self, call: Callable[[], _Result]) -> _Result:
        failures = 0
        while True:
            self._check_deadline()
            try:
                return call()
            except TransientStorageError as error:
                failures += 1
                self._pause_or_raise(failures, error)

    def _resumed(
        self, listing: Iterator[ObjectMeta], prefix: str, start_after: str | None
    ) -> Iterator[ObjectMeta]:
        failures = 0
        while True:
            self._check_deadline()
            try:
                for meta in listing:
                    failures = 0
                    start_after = meta.key if start_after is None else max(start_after, meta.key)
                    yield meta
            except TransientStorageError as error:
                failures += 1
                self._pause_or_raise(failures, error)
                listing = self._inner.list(prefix, start_after=start_after)
            else:
                return

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self._inner.get(key) == data
        except ObjectNotFoundError as error:
            # It was there a moment ago: not visible everywhere yet, or removed. Another attempt can tell.
            raise TransientStorageError(
                f"{self._inner.url}: {key} exists, and yet it cannot be read back"
            ) from error

    def with_deadline(self, deadline: "Deadline") -> "RetryingStore":
        """The same store with the same retries, as long as there is time."""
        return RetryingStore(self._inner, self._policy, deadline)

    def _check_deadline(self) -> None:
        if self._deadline is not None and self.clock.now_ms() >= self._deadline.at_ms:
            raise StorageTimeoutError(f"{self.url}: {self._deadline.description}")

    def _pause_or_raise(self, failures: int, error: TransientStorageError) -> None:
        if failures >= self._policy.max_attempts:
            raise error
        self._inner.clock.sleep(self._policy.pause(failures))


class Deadline(msgspec.Struct, frozen=True):
    """The time, by the local clock, from which on no attempt starts. `description` completes the error message."""

    at_ms: int
    description: str


def with_time_limit(store: ObjectStore, seconds: int, what: str, setting_key: str) -> ObjectStore:
    """Return the same store, on which calls raise StorageTimeoutError once `seconds` have passed from now.

    No attempt starts after that, and none is interrupted: the client's own time-outs bound an attempt. `what` is being
    read, and the limit comes from the setting `setting_key`; the error names both.
    """
    description = f"{what} was not read within {seconds} seconds; check the store, or raise {setting_key}"
    deadline = Deadline(store.clock.now_ms() + seconds * 1000, description)
    if isinstance(store, RetryingStore):
        return store.with_deadline(deadline)
    return RetryingStore(store, RetryPolicy(max_attempts=1), deadline)

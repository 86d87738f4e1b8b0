"""The interface of an object store: its protocol and values, the clock, the probe for put-if-absent, and retries.

Keys are relative to the table's root and separated by '/'. Every store validates each key with `urls.validate_key`
before any access. `RetryingStore` retries transient failures, with backoff and an optional deadline.
"""

import contextlib
import enum
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

import msgspec
import pyarrow as pa

from indextables.errors import (
    ObjectNotFoundError,
    StorageError,
    StorageTimeoutError,
    TransientStorageError,
    UnsupportedStoreError,
)

_Result = TypeVar("_Result")


PROBE_PREFIX = "_transaction_log/.probe-"
"""The prefix of objects that only test a store: inside the log's folder, with names that readers ignore."""


class Clock(Protocol):
    """The local time, and a way to wait."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return no earlier than `seconds` from now."""
        ...


class SystemClock(msgspec.Struct, frozen=True):
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        time.sleep(seconds)


class PutOutcome(enum.Enum):
    """The outcome of a conditional put."""

    WRITTEN = "written"
    EXISTS = "exists"
    CHANGED = "changed"


class KeyRange(msgspec.Struct, frozen=True):
    """All keys from `first` to `last`, inclusive."""

    first: str
    last: str

    def __contains__(self, key: str) -> bool:
        return self.first <= key <= self.last

    def contains_folder(self, folder: str) -> bool:
        """Whether every key in a folder, which ends in '/', is in the range."""
        return folder in self and not self.last.startswith(folder)


class ObjectMeta(msgspec.Struct, frozen=True):
    """The metadata of an object. The time is by the store's clock."""

    key: str
    size: int
    last_modified_ms: int


# A request costs more than reading this many bytes, so ranges this close are fetched as one.
_MAX_GAP_BYTES: Final = 256 * 1024


class ObjectStore(Protocol):
    """The root of one table in an object store. Thread-safe.

    Every method raises UnsafePathError for an invalid key, AccessDeniedError if the store denies access,
    TransientStorageError if the same call may succeed later, and StorageError for any other failure.
    """

    @property
    def url(self) -> str:
        """The canonical URL of the root, without credentials; equal for all spellings of a path."""
        ...

    @property
    def identity(self) -> str:
        """A cache key that depends on the root and the credentials, and reveals neither.

        It is salted per process and meaningless in any other.
        """
        ...

    @property
    def clock(self) -> Clock:
        """The local clock, for backoff and the age of cached values; not the store's clock."""
        ...

    def get(self, key: str) -> bytes:
        """Return all bytes of an object. Raises ObjectNotFoundError."""
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return exactly the bytes from `start` to `end` (exclusive).

        Raises ObjectNotFoundError, and StorageError if the object ends before `end`.
        """
        ...

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return exactly the bytes of several ranges, in their order, within one round trip.

        The store joins ranges that are close together, and requests the rest at the same time. Raises what `get_range`
        raises.
        """
        ...

    def open_local(self, key: str) -> pa.NativeFile | None:
        """Open an object as a local file for Arrow; None if the store is not on the local disk.

        The caller closes the file. Raises ObjectNotFoundError.
        """
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object. A concurrent reader sees either the old bytes or the new ones."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Write an object if the key is free: of all concurrent callers, exactly one writes.

        A reader sees the whole object or none. After WRITTEN the object survives a crash of this machine. After a
        TransientStorageError the outcome is unknown.
        """
        ...

    def put_if_unchanged(self, key: str, data: bytes, expected: bytes) -> PutOutcome:
        """Replace an object if it still has the bytes `expected`; otherwise, or if it is missing, return CHANGED.

        A store that cannot compare and replace in one step does it in two: it may then overwrite an object that
        changes in between.
        """
        ...

    def head(self, key: str) -> ObjectMeta:
        """Return the metadata of an object. Raises ObjectNotFoundError."""
        ...

    def list(
        self, prefix: str, *, start_after: str | None = None, skip: KeyRange | None = None
    ) -> Iterator[ObjectMeta]:
        """Iterate over the objects in a folder, recursively, in the string order of their keys.

        `prefix` is a folder such as "_transaction_log/", or "" for the root; a missing folder is empty. With
        `start_after`, only greater keys are listed. Keys in `skip` are not listed, and as far as possible not even
        read. Pages are fetched on demand: a caller may stop early, and errors occur during iteration.
        """
        ...

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, in batches. Missing keys are ignored. After a failure, some objects may be deleted."""
        ...

    def remove_empty_folders(self, prefix: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the empty folders whose names start with `prefix`, such as "_transaction_log/state-v".

        Returns their names; with `dry_run`, they stay. A folder in which a file is being written is not empty, or is
        created again. Only disks have folders, so other stores return nothing.
        """
        ...

    def now_ms(self) -> int:
        """Return the time by the store's clock, which also sets `ObjectMeta.last_modified_ms`."""
        ...


def is_on_disk(store: ObjectStore) -> bool:
    """Return whether the objects of a store are files of this machine, so that a request takes microseconds."""
    return store.url.startswith("file:")


def coalesce(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return byte ranges in order, with those joined that are close together."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start - joined[-1][1] <= _MAX_GAP_BYTES:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def probe_key() -> str:
    """Return a new, unique key for a probe."""
    return f"{PROBE_PREFIX}{uuid.uuid4().hex}"


def require_put_if_absent(store: ObjectStore) -> None:
    """Check that the store supports put-if-absent, with a probe object that is deleted afterwards.

    Raises UnsupportedStoreError if the store overwrites instead.
    """
    key = probe_key()
    try:
        first = store.put_if_absent(key, b"first")
        second = store.put_if_absent(key, b"second")
    finally:
        with contextlib.suppress(StorageError):
            store.delete_many([key])
    if first is not PutOutcome.WRITTEN or second is not PutOutcome.EXISTS:
        raise UnsupportedStoreError(
            f"{store.url}: the store ignores put-if-absent, so two writers could overwrite each other's commits; "
            f"use a store that supports 'If-None-Match: *' (Amazon S3, Azure, Google Cloud, MinIO, R2)"
        )


# Doubled this often, any pause exceeds its cap. Without a bound, the thousandth pause would overflow a float.
_MAX_DOUBLINGS: Final = 64


class RetryPolicy(msgspec.Struct, frozen=True):
    """The number of attempts, and exponential backoff with full jitter between them."""

    max_attempts: int = 8
    base_seconds: float = 0.05
    cap_seconds: float = 2.0

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after this many consecutive failures: random, up to a limit that doubles."""
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        limit = min(self.cap_seconds, self.base_seconds * 2**doublings)
        return random.uniform(0.0, limit)


class Deadline(msgspec.Struct, frozen=True):
    """The time, by the local clock, after which no attempt starts. The error message contains `description`."""

    at_ms: int
    description: str


class RetryingStore:
    """A store that retries calls that raise TransientStorageError. After the last attempt, the error propagates."""

    def __init__(
        self, inner: ObjectStore, policy: RetryPolicy | None = None, deadline: Deadline | None = None
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
        """A cache key that depends on the root and the credentials, and reveals neither."""
        return self._inner.identity

    @property
    def clock(self) -> Clock:
        """The local clock, which times the pauses."""
        return self._inner.clock

    def get(self, key: str) -> bytes:
        """Return all bytes of an object. Raises ObjectNotFoundError."""
        return self._repeat(lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return exactly the bytes from `start` to `end`. Raises ObjectNotFoundError and StorageError."""
        return self._repeat(lambda: self._inner.get_range(key, start, end))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return exactly the bytes of several ranges. Raises ObjectNotFoundError and StorageError."""
        return self._repeat(lambda: self._inner.get_ranges(key, ranges))

    def open_local(self, key: str) -> pa.NativeFile | None:
        """Open an object as a local file, if it is one. Raises ObjectNotFoundError."""
        return self._repeat(lambda: self._inner.open_local(key))

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object."""
        self._repeat(lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Write an object if the key is free.

        A failed attempt may have written the object. If a later attempt finds an object with the same bytes, the
        outcome is WRITTEN, so `data` must differ from the data of any other writer. If every attempt fails, the outcome
        is unknown and TransientStorageError is raised.
        """
        return self._put_on_condition(key, data, lambda: self._inner.put_if_absent(key, data))

    def put_if_unchanged(self, key: str, data: bytes, expected: bytes) -> PutOutcome:
        """Replace an object if it still has the bytes `expected`. A failed attempt counts as in `put_if_absent`."""
        return self._put_on_condition(key, data, lambda: self._inner.put_if_unchanged(key, data, expected))

    def head(self, key: str) -> ObjectMeta:
        """Return the metadata of an object. Raises ObjectNotFoundError."""
        return self._repeat(lambda: self._inner.head(key))

    def list(
        self, prefix: str, *, start_after: str | None = None, skip: KeyRange | None = None
    ) -> Iterator[ObjectMeta]:
        """Iterate over the objects in a folder. After a failure, resume after the last key returned."""
        listing = self._inner.list(prefix, start_after=start_after, skip=skip)
        return self._resumed(listing, prefix, start_after, skip)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects. Missing keys are ignored, so a batch can be repeated."""
        wanted = list(keys)
        self._repeat(lambda: self._inner.delete_many(wanted))

    def remove_empty_folders(self, prefix: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the empty folders whose names start with `prefix`."""
        return self._repeat(lambda: self._inner.remove_empty_folders(prefix, dry_run=dry_run))

    def now_ms(self) -> int:
        """Return the time by the store's clock."""
        return self._repeat(self._inner.now_ms)

    def with_deadline(self, deadline: Deadline) -> "RetryingStore":
        """Return the same store with the same retry policy and a deadline."""
        return RetryingStore(self._inner, self._policy, deadline)

    def _repeat(self, call: Callable[[], _Result]) -> _Result:
        failures = 0
        while True:
            self._check_deadline()
            try:
                return call()
            except TransientStorageError as error:
                failures += 1
                self._pause_or_raise(failures, error)

    def _put_on_condition(self, key: str, data: bytes, put: Callable[[], PutOutcome]) -> PutOutcome:
        failures = 0
        while True:
            self._check_deadline()
            try:
                outcome = put()
                if outcome is not PutOutcome.WRITTEN and failures and self._holds(key, data):
                    return PutOutcome.WRITTEN
            except TransientStorageError as error:
                failures += 1
                self._pause_or_raise(failures, error)
            else:
                return outcome

    def _resumed(
        self, listing: Iterator[ObjectMeta], prefix: str, start_after: str | None, skip: KeyRange | None
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
                listing = self._inner.list(prefix, start_after=start_after, skip=skip)
            else:
                return

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self._inner.get(key) == data
        except ObjectNotFoundError as error:
            # The object existed a moment ago: it is not visible yet, or was deleted. The next attempt finds out.
            raise TransientStorageError(f"{self._inner.url}: {key} exists but cannot be read back") from error

    def _check_deadline(self) -> None:
        if self._deadline is not None and self.clock.now_ms() >= self._deadline.at_ms:
            raise StorageTimeoutError(f"{self.url}: {self._deadline.description}")

    def _pause_or_raise(self, failures: int, error: TransientStorageError) -> None:
        if failures >= self._policy.max_attempts:
            raise error
        self._inner.clock.sleep(self._policy.pause(failures))


def with_time_limit(store: ObjectStore, seconds: int, what: str, setting_key: str) -> ObjectStore:
    """Return the same store with a deadline `seconds` from now, after which calls raise StorageTimeoutError.

    No attempt starts after the deadline, and none is interrupted: the client's timeouts bound each attempt. The error
    names `what` is being read and `setting_key`, the setting of the limit.
    """
    description = f"{what} was not read within {seconds} seconds; check the store, or raise {setting_key}"
    deadline = Deadline(store.clock.now_ms() + seconds * 1000, description)
    if isinstance(store, RetryingStore):
        return store.with_deadline(deadline)
    return RetryingStore(store, RetryPolicy(max_attempts=1), deadline)

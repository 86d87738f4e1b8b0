"""The interface of an object store: its protocol and values, the clock, and the probe for put-if-absent.

Keys are relative to the table's root and separated by '/'. Every store validates each key with `keys.validate_key`
before any access.
"""

import contextlib
import enum
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec
import pyarrow as pa

from indextables.errors import StorageError, UnsupportedStoreError


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
    """The outcome of a put-if-absent."""

    WRITTEN = "written"
    EXISTS = "exists"


class ObjectMeta(msgspec.Struct, frozen=True):
    """The metadata of an object. The time is by the store's clock."""

    key: str
    size: int
    last_modified_ms: int


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
        """A cache key that differs between roots and between credentials, and reveals neither.

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

    def head(self, key: str) -> ObjectMeta:
        """Return the metadata of an object. Raises ObjectNotFoundError."""
        ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """Iterate over the objects in a folder, recursively, in the string order of their keys.

        `prefix` is a folder such as "_transaction_log/", or "" for the root; a missing folder is empty. With
        `start_after`, only greater keys are listed. Pages are fetched on demand: a caller may stop early, and errors
        occur during iteration.
        """
        ...

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, in batches. Missing keys are ignored. After a failure, some objects may be deleted."""
        ...

    def now_ms(self) -> int:
        """Return the time by the store's clock, which also sets `ObjectMeta.last_modified_ms`."""
        ...


PROBE_PREFIX = "_transaction_log/.probe-"
"""The prefix of objects that only test a store: inside the log's folder, with names that readers ignore."""


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

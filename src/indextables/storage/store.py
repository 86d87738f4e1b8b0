"""The object store as the rest of the package sees it: a small protocol, its values, and the clock beside it."""

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
    """The time of the local side, and a way to wait."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return no earlier than `seconds` from now."""
        ...


class SystemClock(msgspec.Struct, frozen=True):
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        time.sleep(seconds)


# The object store as the rest of the package sees it: a small protocol, and the values that pass through.
#
# Keys are relative to the table's root and separated by '/'. Every store passes each key through
# `paths.validate_key` before it touches anything.


class PutOutcome(enum.Enum):
    """What became of a put-if-absent."""

    WRITTEN = "written"
    EXISTS = "exists"


class ObjectMeta(msgspec.Struct, frozen=True):
    """An object without its bytes. The time is the store's own."""

    key: str
    size: int
    last_modified_ms: int


class ObjectStore(Protocol):
    """One table's root in an object store. Safe for use by several threads.

    Every method raises UnsafePathError for a key that the path rules refuse, AccessDeniedError when the store
    says no, TransientStorageError when the same call may go through later, and StorageError for the rest.
    """

    @property
    def url(self) -> str:
        """The canonical URL of the root, without credentials: one spelling for all spellings of a path."""
        ...

    @property
    def identity(self) -> str:
        """A key for caches: differs between roots and between credentials, and reveals neither.

        It is salted per process, so it means nothing outside of it.
        """
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the local side, for back-off and ages of cached things. Not the store's."""
        ...

    def get(self, key: str) -> bytes:
        """All bytes of an object. Raises ObjectNotFoundError."""
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end` (exclusive): exactly that many.

        Raises ObjectNotFoundError, and StorageError if the object ends before `end`.
        """
        ...

    def open_local(self, key: str) -> pa.NativeFile | None:
        """An object as a file that Arrow reads by itself, or None where objects are no files of this machine.

        It is for the caller to close. Raises ObjectNotFoundError.
        """
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing any that is there. A reader sees the old bytes or the new ones."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Write an object if there is none under this key: of all racing callers, exactly one writes.

        A reader sees the whole object or none. After WRITTEN the object survives a crash of this machine.
        After a TransientStorageError nobody knows whether it was written.
        """
        ...

    def head(self, key: str) -> ObjectMeta:
        """Size and time of an object. Raises ObjectNotFoundError."""
        ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """The objects below a folder and all folders in it, in the string order of their keys.

        `prefix` is a folder such as "_transaction_log/", or "" for the root; a folder that is not there lists
        nothing. With `start_after`, only keys greater than it. Pages are fetched as they are consumed: a
        caller may stop early, and errors therefore surface during iteration.
        """
        ...

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, in batches. An absent key is no error. After a failure, some may be gone."""
        ...

    def now_ms(self) -> int:
        """The store's clock, which is the one that `ObjectMeta.last_modified_ms` comes from."""
        ...


# Objects written only to learn something about a store.


PROBE_PREFIX = "_transaction_log/.probe-"
"""How the keys of such objects start: where the log's own objects are, under a name that no reader knows."""


def probe_key() -> str:
    """A new key for a probe."""
    return f"{PROBE_PREFIX}{uuid.uuid4().hex}"


def require_put_if_absent(store: ObjectStore) -> None:
    """Return if the store honours put-if-absent; the probe is deleted either way, as far as the store allows.

    Raises UnsupportedStoreError if it overwrites instead.
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
            f"{store.url}: the store ignores put-if-absent, so that two writers could overwrite each other's "
            f"commits; use one that honours 'If-None-Match: *' (Amazon S3, Azure, Google Cloud, MinIO, R2)"
        )

"""The four caches of the log: versions, file lists, metadata and checkpoints.

Keys carry the store's identity (root and credentials) and the stamps of the files that a value was read
from, so a table that was dropped and created again never meets its predecessor's values. A value's time to
live counts from when it was written. Caches are shared by all tables of a process, and bounded.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import msgspec

from indextables.storage import ObjectMeta, ObjectStore

T = TypeVar("T")

Stamp = tuple[str, int, int]

_VERSIONS_KEPT = 4096
_VERSION_BYTES_KEPT = 64 * 1024 * 1024
_FILE_LISTS_KEPT = 8
_METADATA_KEPT = 64
_CHECKPOINTS_KEPT = 16


def stamp(meta: ObjectMeta) -> Stamp:
    """What tells one file from another that took its place."""
    return (meta.key, meta.size, meta.last_modified_ms)


class _Kept(msgspec.Struct, frozen=True):
    written_ms: int
    value: Any
    size_bytes: int


class ExpiringCache:
    """A cache bounded by the number and the size of its values, least recently used out first.

    Safe for several threads.
    """

    def __init__(self, capacity: int, capacity_bytes: int | None = None) -> None:
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[str, Hashable], _Kept] = OrderedDict()

    def get(self, store: ObjectStore, key: Hashable, expiration_seconds: int) -> Any | None:
        """The value, unless it is older than `expiration_seconds`."""
        full_key = (store.identity, key)
        with self._lock:
            found = self._values.get(full_key)
            if found is None:
                return None
            if store.clock.now_ms() - found.written_ms >= expiration_seconds * 1000:
                self._forget(full_key)
                return None
            self._values.move_to_end(full_key)
            return found.value

    def put(self, store: ObjectStore, key: Hashable, value: object, size_bytes: int = 0) -> None:
        """Keep a value; the time to live starts now. Its size counts if the cache is bounded by that."""
        full_key = (store.identity, key)
        with self._lock:
            self._forget(full_key)
            self._values[full_key] = _Kept(store.clock.now_ms(), value, size_bytes)
            self._size_bytes += size_bytes
            while self._is_over_full():
                self._forget(next(iter(self._values)))

    def drop(self, identity: str | None = None) -> int:
        """Forget what belongs to one store, or everything; returns how many values that were."""
        with self._lock:
            doomed = [key for key in self._values if identity is None or key[0] == identity]
            for key in doomed:
                self._forget(key)
            return len(doomed)

    def __len__(self) -> int:
        with self._lock:
            return len(self._values)

    def _is_over_full(self) -> bool:
        if len(self._values) > self._capacity:
            return True
        return self._capacity_bytes is not None and self._size_bytes > self._capacity_bytes

    def _forget(self, full_key: tuple[str, Hashable]) -> None:
        kept = self._values.pop(full_key, None)
        if kept is not None:
            self._size_bytes -= kept.size_bytes


class LogCache(msgspec.Struct, frozen=True):
    """The four caches, each with its own bound."""

    versions: ExpiringCache = msgspec.field(
        default_factory=lambda: ExpiringCache(_VERSIONS_KEPT, _VERSION_BYTES_KEPT)
    )
    file_lists: ExpiringCache = msgspec.field(default_factory=lambda: ExpiringCache(_FILE_LISTS_KEPT))
    metadata: ExpiringCache = msgspec.field(default_factory=lambda: ExpiringCache(_METADATA_KEPT))
    checkpoints: ExpiringCache = msgspec.field(default_factory=lambda: ExpiringCache(_CHECKPOINTS_KEPT))

    def invalidate(self, store: ObjectStore | None = None) -> int:
        """Forget a table, or all tables; returns how many cached values that were."""
        identity = None if store is None else store.identity
        return sum(
            cache.drop(identity)
            for cache in (self.versions, self.file_lists, self.metadata, self.checkpoints)
        )


def cached(
    cache: ExpiringCache, store: ObjectStore, key: Hashable, expiration_seconds: int, load: Callable[[], T]
) -> T:
    """The cached value, or the one that `load` gives, which is then kept."""
    found: T | None = cache.get(store, key, expiration_seconds)
    if found is not None:
        return found
    value = load()
    cache.put(store, key, value)
    return value


def process_cache() -> LogCache:
    """The caches that all tables of this process share."""
    return _PROCESS_CACHE


_PROCESS_CACHE = LogCache()
NO_CACHE = LogCache(ExpiringCache(0), ExpiringCache(0), ExpiringCache(0), ExpiringCache(0))

"""The four caches of the log: versions, file lists, metadata and checkpoints.

Keys carry the store's identity (root and credentials) and the stamps of the files that a value was read
from, so a table that was dropped and created again never meets its predecessor's values. A value's time to
live counts from when it was written. Caches are shared by all tables of a process, and bounded.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import msgspec

from indextables._caching import LruCache, register_cache
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


class _Entry(msgspec.Struct, frozen=True):
    value: Any
    written_ms: int


class ExpiringCache:
    """An LRU cache of values by store and key, whose values expire. Thread-safe."""

    def __init__(self, capacity: int, capacity_bytes: int | None = None) -> None:
        self._entries: LruCache[tuple[str, Hashable], _Entry] = LruCache(
            max_entries=capacity, max_bytes=capacity_bytes
        )

    def get(self, store: ObjectStore, key: Hashable, expiration_seconds: int) -> Any | None:
        """Return the value, unless it is older than `expiration_seconds`."""
        full_key = (store.identity, key)
        found = self._entries.get(full_key)
        if found is None:
            return None
        if store.clock.now_ms() - found.written_ms >= expiration_seconds * 1000:
            self._entries.discard(full_key)
            return None
        return found.value

    def put(self, store: ObjectStore, key: Hashable, value: object, size_bytes: int = 0) -> None:
        """Store a value; its time to live starts now."""
        self._entries.put((store.identity, key), _Entry(value, store.clock.now_ms()), size_bytes)

    def drop(self, identity: str | None = None) -> int:
        """Remove the values of one store, or all of them, and return their number."""
        return self._entries.discard_where(lambda key: identity is None or key[0] == identity)

    def __len__(self) -> int:
        return len(self._entries)


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
register_cache(
    "table.cache.log",
    "version files, file lists, metadata and checkpoints",
    f"{_VERSIONS_KEPT} versions of {_VERSION_BYTES_KEPT} bytes, {_FILE_LISTS_KEPT} file lists, "
    f"{_METADATA_KEPT} metadata, {_CHECKPOINTS_KEPT} checkpoints",
    _PROCESS_CACHE.invalidate,
)
NO_CACHE = LogCache(ExpiringCache(0), ExpiringCache(0), ExpiringCache(0), ExpiringCache(0))

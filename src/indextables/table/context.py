"""How a table is reached: its store, the caller's settings, and the process-wide caches of log files.

There are four caches: version files, file lists, headers and checkpoints. A key carries the identity of the store (root
and credentials) and the stamps of the files that the value was read from. So a table that was dropped and created again
never sees cached values of its predecessor. All tables of a process share the caches; each cache is bounded.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from indextables.config import Settings
from indextables.config.registry import CHECKPOINT_PARALLELISM, TRANSACTION_CACHE_ENABLED
from indextables.log.actions import Metadata
from indextables.state.manifest_executor import ManifestExecutor
from indextables.storage import ObjectMeta, ObjectStore, StoreLocation

T = TypeVar("T")

# Key, size and modification time: two files with the same stamp have the same content.
Stamp = tuple[str, int, int]

_MAX_VERSIONS = 4096
_MAX_VERSION_BYTES = 64 * 1024 * 1024
_MAX_FILE_LISTS = 8
_MAX_HEADERS = 64
_MAX_CHECKPOINTS = 16


class TableContext(msgspec.Struct, frozen=True):
    """What every operation on a table needs. Cheap to create; holds no state of the table itself.

    `location` lets another process open the same store. It is None if only this process can reach the store.
    `manifest_executor` reads and writes the manifests of a very large state; without one, this process does.
    """

    store: ObjectStore
    settings: Settings
    location: StoreLocation | None = None
    manifest_executor: ManifestExecutor | None = None

    @property
    def url(self) -> str:
        """The root of the table, for messages."""
        return self.store.url

    @property
    def cache(self) -> "LogCache":
        """The caches of this process, or caches that keep nothing if the settings disable them."""
        return process_cache() if self.settings[TRANSACTION_CACHE_ENABLED] else NO_CACHE

    @property
    def read_parallelism(self) -> int:
        """How many log files are fetched in parallel."""
        return self.settings[CHECKPOINT_PARALLELISM]

    def with_properties(self, metadata: Metadata) -> "TableContext":
        """The same table, with the table properties added to the settings."""
        return replace(self, settings=self.settings.with_table_properties(metadata.configuration))


class ExpiringCache:
    """A thread-safe LRU cache, bounded by the number and the total size of its values.

    A value expires a fixed time after it was written, however often it is read.
    """

    def __init__(self, capacity: int, capacity_bytes: int | None = None) -> None:
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[str, Hashable], _CachedValue] = OrderedDict()

    def get(self, store: ObjectStore, key: Hashable, expiration_seconds: int) -> Any | None:
        """The value, or None if it is missing or older than `expiration_seconds`."""
        full_key = (store.identity, key)
        with self._lock:
            found = self._values.get(full_key)
            if found is None:
                return None
            if store.clock.now_ms() - found.written_ms >= expiration_seconds * 1000:
                self._remove(full_key)
                return None
            self._values.move_to_end(full_key)
            return found.value

    def put(self, store: ObjectStore, key: Hashable, value: object, size_bytes: int = 0) -> None:
        """Cache a value. `size_bytes` counts against the size limit, if the cache has one."""
        full_key = (store.identity, key)
        with self._lock:
            self._remove(full_key)
            self._values[full_key] = _CachedValue(store.clock.now_ms(), value, size_bytes)
            self._size_bytes += size_bytes
            while self._is_over_capacity():
                self._remove(next(iter(self._values)))

    def drop(self, identity: str | None = None) -> int:
        """Drop the values of one store, or all values. Returns how many there were."""
        with self._lock:
            dropped = [key for key in self._values if identity is None or key[0] == identity]
            for key in dropped:
                self._remove(key)
            return len(dropped)

    def __len__(self) -> int:
        with self._lock:
            return len(self._values)

    def _is_over_capacity(self) -> bool:
        if len(self._values) > self._capacity:
            return True
        return self._capacity_bytes is not None and self._size_bytes > self._capacity_bytes

    def _remove(self, full_key: tuple[str, Hashable]) -> None:
        removed = self._values.pop(full_key, None)
        if removed is not None:
            self._size_bytes -= removed.size_bytes


class _CachedValue(msgspec.Struct, frozen=True):
    written_ms: int
    value: Any
    size_bytes: int


class LogCache(msgspec.Struct, frozen=True):
    """The four caches of the log, each with its own bound."""

    versions: ExpiringCache = msgspec.field(
        default_factory=lambda: ExpiringCache(_MAX_VERSIONS, _MAX_VERSION_BYTES)
    )
    file_lists: ExpiringCache = msgspec.field(default_factory=lambda: ExpiringCache(_MAX_FILE_LISTS))
    metadata: ExpiringCache = msgspec.field(default_factory=lambda: ExpiringCache(_MAX_HEADERS))
    checkpoints: ExpiringCache = msgspec.field(default_factory=lambda: ExpiringCache(_MAX_CHECKPOINTS))

    def invalidate(self, store: ObjectStore | None = None) -> int:
        """Drop the values of one table, or of all tables. Returns how many there were."""
        identity = None if store is None else store.identity
        return sum(
            cache.drop(identity)
            for cache in (self.versions, self.file_lists, self.metadata, self.checkpoints)
        )


def stamp(meta: ObjectMeta) -> Stamp:
    """The identity of a file: a file that replaced another one under the same key has another stamp."""
    return (meta.key, meta.size, meta.last_modified_ms)


def cached(
    cache: ExpiringCache, store: ObjectStore, key: Hashable, expiration_seconds: int, load: Callable[[], T]
) -> T:
    """The cached value. If there is none, the result of `load`, which is then cached."""
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

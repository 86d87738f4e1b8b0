"""How a table is reached: its store, the caller's settings, and the process-wide caches of log files.

There are four caches: version files, file lists, headers and checkpoints. A key carries the identity of the store (root
and credentials) and the stamps of the files that the value was read from. So a table that was dropped and created again
never sees cached values of its predecessor. All tables of a process share the caches; each cache is bounded.
"""

import os
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from indextables._caching import LruCache, register_cache
from indextables.config import Settings, check_options
from indextables.config.registry import CHECKPOINT_PARALLELISM, TRANSACTION_CACHE_ENABLED
from indextables.log.actions import Metadata
from indextables.metrics import CACHE_HITS, CACHE_MISSES
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

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> "TableContext":
        """The context of a table by its path or URL. Raises InvalidOptionError."""
        check_options(options or {})
        location = StoreLocation.of(path, storage_options=storage_options, options=options)
        return cls(location.open(), Settings.resolve(options), location)

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
    """An LRU cache by store and key. A value expires a fixed time after it was written, however often it is read.

    With a `name`, hits and misses are reported as metrics.
    """

    def __init__(self, capacity: int, capacity_bytes: int | None = None, name: str | None = None) -> None:
        self._name = name
        self._entries: LruCache[tuple[str, Hashable], _CachedValue] = LruCache(
            max_entries=capacity, max_bytes=capacity_bytes
        )

    def get(self, store: ObjectStore, key: Hashable, expiration_seconds: int) -> Any | None:
        """The value, or None if it is missing or older than `expiration_seconds`."""
        full_key = (store.identity, key)
        found = self._entries.get(full_key)
        if found is not None and store.clock.now_ms() - found.written_ms >= expiration_seconds * 1000:
            self._entries.discard(full_key)
            found = None
        if self._name is not None:
            (CACHE_MISSES if found is None else CACHE_HITS).record(1, store.url, cache=self._name)
        return None if found is None else found.value

    def put(self, store: ObjectStore, key: Hashable, value: object, size_bytes: int = 0) -> None:
        """Cache a value. `size_bytes` counts against the size limit, if the cache has one."""
        self._entries.put((store.identity, key), _CachedValue(store.clock.now_ms(), value), size_bytes)

    def drop(self, identity: str | None = None) -> int:
        """Drop the values of one store, or all values. Returns how many there were."""
        return self._entries.discard_where(lambda key: identity is None or key[0] == identity)

    def __len__(self) -> int:
        return len(self._entries)


class _CachedValue(msgspec.Struct, frozen=True):
    written_ms: int
    value: Any


class LogCache(msgspec.Struct, frozen=True):
    """The four caches of the log, each with its own bound."""

    versions: ExpiringCache = msgspec.field(
        default_factory=lambda: ExpiringCache(_MAX_VERSIONS, _MAX_VERSION_BYTES, name="versions")
    )
    file_lists: ExpiringCache = msgspec.field(
        default_factory=lambda: ExpiringCache(_MAX_FILE_LISTS, name="file lists")
    )
    metadata: ExpiringCache = msgspec.field(
        default_factory=lambda: ExpiringCache(_MAX_HEADERS, name="headers")
    )
    checkpoints: ExpiringCache = msgspec.field(
        default_factory=lambda: ExpiringCache(_MAX_CHECKPOINTS, name="checkpoints")
    )

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
register_cache(
    "table.context.log",
    "version files, file lists, headers and checkpoints",
    f"{_MAX_VERSIONS} versions of {_MAX_VERSION_BYTES} bytes, {_MAX_FILE_LISTS} file lists, "
    f"{_MAX_HEADERS} headers, {_MAX_CHECKPOINTS} checkpoints",
    _PROCESS_CACHE.invalidate,
)
NO_CACHE = LogCache(ExpiringCache(0), ExpiringCache(0), ExpiringCache(0), ExpiringCache(0))

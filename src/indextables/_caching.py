"""Values that are computed once and kept: a lazy property, an LRU cache, and the list of process-wide caches.

Every cache that outlives a call is declared here by `shared_cache`, `shared_memo` or `register_cache`. So all of them
are known, bounded, and cleared by `clear_process_caches`.
"""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec

T = TypeVar("T")
P = ParamSpec("P")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class lazy_property(Generic[T]):  # noqa: N801  # read as a decorator
    """A property that is computed at the first access and then stored in the object's `__dict__`.

    `functools.cached_property` holds one lock per class up to Python 3.11, so one slow store would block reads of
    every other table. This property takes no lock: two threads may compute the same value, and the last one stays.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy_property[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> "T | lazy_property[T]":
        if instance is None:
            return self
        value = self._compute(instance)
        instance.__dict__[self._name] = value
        return value


class LruCache(Generic[K, V]):
    """Values by key, bounded by their number, their total size, or both; the least recently used go first.

    A value that is larger than `max_bytes` is not kept. Thread-safe.
    """

    def __init__(self, *, max_entries: int | None = None, max_bytes: int | None = None) -> None:
        if max_entries is None and max_bytes is None:
            raise ValueError("an LruCache needs max_entries or max_bytes")
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value and mark it as the most recently used one, or return None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size_bytes: int = 0) -> None:
        """Store a value, replacing any with the same key, and evict what no longer fits."""
        with self._lock:
            self._put(key, value, size_bytes)

    def setdefault(self, key: K, value: V) -> V:
        """Return the value of a key; without one, store and return this value."""
        with self._lock:
            if key not in self._values:
                self._put(key, value, 0)
            self._values.move_to_end(key)
            return self._values[key][0]

    def discard(self, key: K) -> None:
        """Remove a value if it is present."""
        with self._lock:
            self._remove(key)

    def discard_where(self, is_doomed: Callable[[K], bool]) -> int:
        """Remove the values whose keys satisfy a condition, and return their number."""
        with self._lock:
            doomed = [key for key in self._values if is_doomed(key)]
            for key in doomed:
                self._remove(key)
            return len(doomed)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._size_bytes = 0

    def __len__(self) -> int:
        with self._lock:
            return len(self._values)

    def bound(self) -> str:
        """Describe the bound, for the list of caches."""
        entries = [] if self._max_entries is None else [f"{self._max_entries} entries"]
        size = [] if self._max_bytes is None else [f"{self._max_bytes} bytes"]
        return ", ".join(entries + size)

    def _put(self, key: K, value: V, size_bytes: int) -> None:
        self._remove(key)
        self._values[key] = (value, size_bytes)
        self._size_bytes += size_bytes
        while self._is_over_full():
            self._remove(next(iter(self._values)))

    def _is_over_full(self) -> bool:
        if self._max_entries is not None and len(self._values) > self._max_entries:
            return True
        return self._max_bytes is not None and self._size_bytes > self._max_bytes

    def _remove(self, key: K) -> None:
        _, size_bytes = self._values.pop(key, (None, 0))
        self._size_bytes -= size_bytes


class ProcessCache(msgspec.Struct, frozen=True):
    """One process-wide cache: its name, what it holds, its bound, and how to clear it."""

    name: str
    contents: str
    bound: str
    clear: Callable[[], object]


def process_caches() -> tuple[ProcessCache, ...]:
    """Return the process-wide caches of all modules imported so far."""
    return tuple(_CACHES.values())


def clear_process_caches() -> None:
    """Clear every process-wide cache. Values in use stay valid; later calls compute them again."""
    for cache in process_caches():
        cache.clear()


def register_cache(name: str, contents: str, bound: str, clear: Callable[[], object]) -> None:
    """List a process-wide cache of another kind; `name` is its module and what it caches."""
    _CACHES[name] = ProcessCache(name, contents, bound, clear)


def shared_cache(
    name: str, contents: str, *, max_entries: int | None = None, max_bytes: int | None = None
) -> LruCache[Any, Any]:
    """Create and list a process-wide LRU cache; the caller annotates the types of its keys and values."""
    cache: LruCache[Any, Any] = LruCache(max_entries=max_entries, max_bytes=max_bytes)
    register_cache(name, contents, cache.bound(), cache.clear)
    return cache


def shared_memo(name: str, contents: str, *, max_entries: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep and list the results of a pure function of hashable arguments."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        memo = functools.lru_cache(maxsize=max_entries)(function)
        register_cache(name, contents, f"{max_entries} entries", memo.cache_clear)
        return memo  # type: ignore[return-value]  # functools types the arguments as hashable

    return decorate


_CACHES: dict[str, ProcessCache] = {}

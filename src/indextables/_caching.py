"""Values computed once and kept: a lazy property without a lock, and a bounded LRU cache."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801  # read as a decorator
    """A property whose value stays with its object, under its own name in the object's dictionary.

    Unlike `functools.cached_property` up to Python 3.11, it takes no lock, which there is one for all objects of a
    class: who reads one table or split from a slow store does not keep others from reading theirs. Two threads that ask
    the same object at the same time may both compute the value; the last one stays.
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


# The most recently used of things that take time to make again.


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by key, of which the least recently used go when their sizes come to more than `capacity`.

    Safe for several threads.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, which is now the most recently used one; None if there is none."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def discard(self, key: K) -> None:
        """Keep this one no longer, if it is there."""
        with self._lock:
            _, size = self._values.pop(key, (None, 0))
            self._size -= size

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Keep a value, in place of any that has the same key. One that is larger than the capacity is not kept."""
        with self._lock:
            _, replaced = self._values.pop(key, (None, 0))
            self._values[key] = (value, size)
            self._size += size - replaced
            while self._size > self._capacity:
                _, (_, dropped) = self._values.popitem(last=False)
                self._size -= dropped

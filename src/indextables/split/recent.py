"""The most recently used of things that take time to make again."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
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

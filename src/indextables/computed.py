"""Properties that are computed when they are first asked for."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class computed(Generic[T]):  # noqa: N801  # read as a decorator
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
    def __get__(self, instance: None, owner: type) -> "computed[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> "T | computed[T]":
        if instance is None:
            return self
        value = self._compute(instance)
        instance.__dict__[self._name] = value
        return value

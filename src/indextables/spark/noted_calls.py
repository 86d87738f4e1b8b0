"""Calls on Spark's readers and writers, noted down: what they were told cannot be asked of them."""

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

_CALLS: Final = "_indextables_calls"

Call: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a method, and its arguments."""


def noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, which also notes down how it was called."""

    @functools.wraps(original)
    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        self.__dict__.setdefault(_CALLS, []).append((original.__name__, arguments, named))
        return original(self, *arguments, **named)

    return noted


def calls(writer: Any, *names: str) -> list[Call]:
    """The calls of some methods, or of all that are noted down, in their order."""
    return [call for call in writer.__dict__.get(_CALLS, []) if not names or call[0] in names]


def repeat_calls(writer: Any, other: Any) -> Any:
    """The other writer, after it was told the same."""
    for name, arguments, named in calls(writer):
        getattr(other, name)(*arguments, **named)
    return other


def last_argument(writer: Any, name: str) -> Any:
    """The argument of the last call of a method that takes one."""
    found = calls(writer, name)
    return next(iter([*found[-1][1], *found[-1][2].values()]), None) if found else None


def noted_options(writer: Any) -> dict[str, Any]:
    """The options that were given."""
    noted: dict[str, Any] = {}
    for name, arguments, named in calls(writer, "option", "options"):
        if name == "options":
            noted |= named
        else:
            key, value = [*arguments, *(named[each] for each in ("key", "value") if each in named)]
            noted[key] = value
    return noted


def noted_partition_columns(writer: Any) -> tuple[str, ...]:
    """The arguments of the last call of `partitionBy`."""
    found = calls(writer, "partitionBy")
    return flat_names(list(found[-1][1])) if found else ()


def flat_names(columns: Any) -> tuple[str, ...]:
    """Names that were given one by one, in a list, or not at all."""
    if columns is None:
        return ()
    if isinstance(columns, str):
        return (columns,)
    return tuple(
        name for each in columns for name in (flat_names(each) if not isinstance(each, str) else (each,))
    )

"""Arguments of the wrong kind: an error that names the call, the argument, its value and what to pass instead.

The annotations of the public functions say what each argument takes, so the checks cannot differ from them. Only the
kinds in `_KINDS` are checked; whatever else an annotation names is left to the function.
"""

import inspect
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from indextables.errors import InvalidOptionError


class _Kind(msgspec.Struct, frozen=True):
    """What an annotation allows: how to tell, and how to say it."""

    spoken: str
    allows: Callable[[Any], bool]


def _are(values: object, allowed: Callable[[Any], bool]) -> bool:
    """Whether a value is a collection, but not a text, of allowed values. An iterator would be consumed."""
    is_collection = hasattr(values, "__len__") and isinstance(values, Iterable)
    return is_collection and not isinstance(values, str | bytes | Mapping) and all(map(allowed, values))  # type: ignore[call-overload]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_integer(value: object) -> bool:
    """Also for the integers of numpy, but not for True."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_of(*names: str) -> Callable[[Any], bool]:
    """Instances of classes, also of their subclasses, by name: importing them here would be slow."""
    return lambda value: any(kind.__name__ in names for kind in type(value).__mro__)


_KINDS: Final = {
    "None": _Kind("None", lambda value: value is None),
    "bool": _Kind("True or False", lambda value: isinstance(value, bool)),
    "int": _Kind("a whole number", _is_integer),
    "str": _Kind("a text", _is_text),
    "datetime": _Kind("a datetime", lambda value: isinstance(value, datetime)),
    "os.PathLike[str]": _Kind("a path", lambda value: isinstance(value, os.PathLike)),
    "Sequence[str]": _Kind("a list of names", lambda value: _are(value, _is_text)),
    "Mapping[str, str]": _Kind("a dict", lambda value: isinstance(value, Mapping)),
    "Mapping[str, str | None]": _Kind("a dict", lambda value: isinstance(value, Mapping)),
    "Mapping[str, Any]": _Kind("a dict", lambda value: isinstance(value, Mapping)),
    "Predicate": _Kind("a predicate of indextables.predicates.col", _is_of("Predicate")),
    "Sequence[AddAction]": _Kind("a list of AddAction", lambda value: _are(value, _is_of("AddAction"))),
    "pa.Schema": _Kind('a schema, such as pa.schema([("id", pa.int64())])', _is_of("Schema")),
}

# What helps with a certain argument.
_HINTS: Final = {
    "limit": "to get all rows, pass len(table)",
    "query": "to read rows without a query, use scan or to_arrow",
    "where": "filters are SQL, such as \"level = 'ERROR'\"",
    "set": 'pass new values by column, as in {"level": "WARN"}',
}


def checker_of(function: Callable[..., Any]) -> Callable[[tuple[Any, ...], Mapping[str, Any]], None]:
    """A function that checks the arguments of a call of a public function. Raises InvalidOptionError."""
    signature = inspect.signature(function)
    kinds = {
        name: found
        for name, parameter in signature.parameters.items()
        if (found := _kinds_of(parameter.annotation)) is not None
    }
    names = list(signature.parameters)

    def check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            allowed = kinds.get(name)
            if allowed is not None and not any(kind.allows(value) for kind in allowed):
                raise _error(function.__name__, name, value, allowed)

    return check


def _error(function: str, name: str, value: object, allowed: tuple[_Kind, ...]) -> InvalidOptionError:
    spoken = [kind.spoken for kind in allowed]
    wanted = " or ".join(filter(None, [", ".join(spoken[:-1]), spoken[-1]]))
    call = "IndexTable" if function == "__init__" else function
    hint = f"; {_HINTS[name]}" if name in _HINTS else ""
    if isinstance(value, str) and _KINDS["Sequence[str]"] in allowed:
        hint = f", as in {name}=[{value!r}]"
    return InvalidOptionError(f"{call}: {name} is {reprlib.repr(value)}; pass {wanted}{hint}")


def _kinds_of(annotation: object) -> tuple[_Kind, ...] | None:
    """The kinds of an annotation; None if it names one that is not checked."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    found = [_KINDS.get(part) for part in _parts(text.replace("collections.abc.", ""))]
    return None if None in found else tuple(filter(None, found))


def _parts(union: str) -> Iterable[str]:
    """The members of a union, of which some may have unions in brackets."""
    part, depth = "", 0
    for character in f"{union}|":
        depth += (character == "[") - (character == "]")
        if character == "|" and not depth:
            yield part.strip()
            part = ""
        else:
            part += character

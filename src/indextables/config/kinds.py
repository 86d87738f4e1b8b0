"""The types of setting values: how to parse, format and describe each.

A kind parses the text of an option, a table property or a session setting, or accepts the Python value itself. `read`
parses the text that `show` returns into the same value.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar, Protocol, TypeVar

import msgspec

T = TypeVar("T")

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
_NUMBER_WITH_UNIT = re.compile(r"([+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([A-Za-z]*)")

_BYTES_PER_UNIT: Mapping[str, int] = {
    spelling: 1024**power
    for power, letter in enumerate("bkmgtp")
    for spelling in ({letter} if letter == "b" else {letter, f"{letter}b", f"{letter}ib"})
}
_MILLISECONDS_PER_UNIT: Mapping[str, int] = {
    spelling: milliseconds
    for milliseconds, spellings in (
        (1, "ms millisecond milliseconds"),
        (1_000, "s sec second seconds"),
        (60_000, "m min minute minutes"),
        (3_600_000, "h hour hours"),
        (86_400_000, "d day days"),
    )
    for spelling in spellings.split()
}


class Kind(Protocol[T]):
    """Parses, formats and describes the values of one type."""

    @property
    def label(self) -> str:
        """The name of the type in the documentation."""

    def describe(self, bounds: str = "") -> str:
        """Describe the valid values, following the words "must be"; `bounds` is like " from 1 to 9"."""

    def read(self, value: object) -> T:
        """Return the typed value; raises ValueError for an invalid one."""

    def show(self, value: T) -> str:
        """Return the text that `read` parses into `value`."""


class Boolean(msgspec.Struct, frozen=True):
    """`true` or `false`, in any case."""

    label: ClassVar[str] = "boolean"

    def describe(self, bounds: str = "") -> str:
        return f"true or false{bounds}"

    def read(self, value: object) -> bool:
        """Return the value of the two words; any other text is invalid."""
        if isinstance(value, bool):
            return value
        word = _text(value).lower()
        if word not in {"true", "false"}:
            raise ValueError(f"not {self.describe()}")
        return word == "true"

    def show(self, value: bool) -> str:
        return "true" if value else "false"


class Integer(msgspec.Struct, frozen=True):
    """A whole number; some values may have names, such as `auto` for 0."""

    names: tuple[tuple[str, int], ...] = ()
    label: ClassVar[str] = "integer"

    def describe(self, bounds: str = "") -> str:
        number = f"a whole number{bounds}"
        return f"{number}, or {' or '.join(name for name, _ in self.names)}" if self.names else number

    def read(self, value: object) -> int:
        """Return the number; fractions and booleans are invalid."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        text = _text(value)
        for name, number in self.names:
            if text.lower() == name.lower():
                return number
        if not _WHOLE_NUMBER.fullmatch(text):
            raise ValueError(f"not {self.describe()}")
        return int(text)

    def show(self, value: int) -> str:
        return str(value)


class Ratio(msgspec.Struct, frozen=True):
    """A ratio: `0.1` or `10%`."""

    label: ClassVar[str] = "ratio"

    def describe(self, bounds: str = "") -> str:
        return f"a number{bounds}, or a percentage"

    def read(self, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _finite(value)
        text = _text(value)
        number = text.removesuffix("%").rstrip()
        if not _DECIMAL_NUMBER.fullmatch(number):
            raise ValueError(f"not {self.describe()}")
        return _finite(float(number) / 100 if text.endswith("%") else float(number))

    def show(self, value: float) -> str:
        return _plain(value)


class Size(msgspec.Struct, frozen=True):
    """A number of bytes, with the binary units B, K, M, G, T and P: `100M` is 104,857,600."""

    label: ClassVar[str] = "size"

    def describe(self, bounds: str = "") -> str:
        return f"a number of bytes{bounds}, optionally with a unit (K, M, G, T)"

    def read(self, value: object) -> int:
        """Return the number of bytes, rounded down."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        number, unit = _number_and_unit(value, default_unit="b")
        if unit not in _BYTES_PER_UNIT:
            raise ValueError(f"not {self.describe()}")
        return int(number * _BYTES_PER_UNIT[unit])

    def show(self, value: int) -> str:
        """Return the shortest exact text."""
        for letter in "ptgmk":
            count, rest = divmod(value, _BYTES_PER_UNIT[letter])
            if count and not rest:
                return f"{count}{letter.upper()}"
        return str(value)


class WholeDuration(msgspec.Struct, frozen=True):
    """A whole number of milliseconds or seconds; other units are converted: `5 min`."""

    unit: str
    label: ClassVar[str] = "duration"

    def describe(self, bounds: str = "") -> str:
        return f"a whole number of {self.unit}{bounds}"

    def read(self, value: object) -> int:
        """Return the number of units; a fraction of a unit is invalid."""
        length = _duration(value, self.unit)
        if length.denominator != 1:
            raise ValueError(f"not {self.describe()}")
        return length.numerator

    def show(self, value: int) -> str:
        return str(value)


class Hours(msgspec.Struct, frozen=True):
    """A number of hours, fractions included; other units are converted: `7 days`."""

    label: ClassVar[str] = "duration"

    def describe(self, bounds: str = "") -> str:
        return f"a number of hours{bounds}"

    def read(self, value: object) -> float:
        return _finite(_duration(value, "hours"))

    def show(self, value: float) -> str:
        return _plain(value)


class Choice(msgspec.Struct, frozen=True):
    """One of a few words, in any case."""

    choices: tuple[str, ...]
    label: ClassVar[str] = "choice"

    def describe(self, bounds: str = "") -> str:
        return f"one of {', '.join(self.choices)}{bounds}"

    def read(self, value: object) -> str:
        """Return the word as it is spelled in `choices`."""
        word = _text(value).lower()
        for choice in self.choices:
            if choice.lower() == word:
                return choice
        raise ValueError(f"not {self.describe()}")

    def show(self, value: str) -> str:
        return value


class Text(msgspec.Struct, frozen=True):
    """Any text, unchanged."""

    label: ClassVar[str] = "text"

    def describe(self, bounds: str = "") -> str:
        return f"text{bounds}"

    def read(self, value: object) -> str:
        if isinstance(value, str):
            return value
        raise ValueError(f"not {self.describe()}")

    def show(self, value: str) -> str:
        return value


class Names(msgspec.Struct, frozen=True):
    """A list of names: text separated by commas, or a Python list or tuple."""

    label: ClassVar[str] = "list"

    def describe(self, bounds: str = "") -> str:
        return f"a list of names separated by commas{bounds}"

    def read(self, value: object) -> tuple[str, ...]:
        """Return the names in their order, without white space around them and without empty ones."""
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, list | tuple):
            return tuple(name for name in map(_text, parts) if name)
        raise ValueError(f"not {self.describe()}")

    def show(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    raise ValueError("not a text")


def _number_and_unit(value: object, default_unit: str) -> tuple[Fraction, str]:
    match = _NUMBER_WITH_UNIT.fullmatch(_text(value))
    if match is None:
        raise ValueError("not a number with an optional unit")
    return Fraction(match[1]), match[2].lower() or default_unit


def _duration(value: object, unit: str) -> Fraction:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Fraction(_finite(value))
    number, given_unit = _number_and_unit(value, default_unit=unit)
    if given_unit not in _MILLISECONDS_PER_UNIT:
        raise ValueError("not a unit of time")
    return number * _MILLISECONDS_PER_UNIT[given_unit] / _MILLISECONDS_PER_UNIT[unit]


def _finite(number: float | Fraction) -> float:
    try:
        result = float(number)
    except OverflowError as error:
        raise ValueError("too large a number") from error
    if not math.isfinite(result):
        raise ValueError("not a finite number")
    return result


def _plain(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)

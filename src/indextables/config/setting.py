"""The definition of a setting: key, type, default, bounds, one line of help and older names.

`registry` defines the settings. A `SettingFamily` is a group of keys whose last part is free, such as a column name.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec

from indextables.config.kinds import (
    Boolean,
    Choice,
    Hours,
    Integer,
    Kind,
    Names,
    Ratio,
    Size,
    Text,
    WholeDuration,
)
from indextables.errors import InvalidOptionError

PREFIX = "spark.indextables."
OLDER_PREFIX = "spark.tantivy4spark."

T = TypeVar("T")

_MAX_ECHO_CHARACTERS = 60
_MAX_DELAY_MS = 24 * 60 * 60 * 1000
_MAX_SECONDS = 365 * 24 * 60 * 60
# A hundred years: practically forever, but subtracting it from now still gives a valid date.
_MAX_HOURS = 100 * 365 * 24
_MAX_SIZE_BYTES = 1024**5


class Section(Enum):
    """The sections of the configuration, in the order of the documentation."""

    TRANSACTION = "Transaction log"
    CACHE = "Cache of the transaction log"
    CHECKPOINT = "Checkpoints"
    STATE = "State"
    COMPACTION = "Compaction of the state"
    STATE_RETENTION = "Retention of states and garbage collection"
    STATISTICS = "Statistics and data skipping"
    CLEANUP = "Cleanup of the transaction log"
    PURGE = "Purge"
    PURGE_ON_WRITE = "Purge-on-write"
    PUBLISH = "Publishing"
    MERGE = "Merge"
    DELETE = "Delete"
    MERGE_ON_WRITE = "Merge-on-write"
    SKIPPED_FILES = "Skipped files"
    PROTOCOL = "Protocol"
    INDEXING = "Indexing"
    WRITING = "Writing and reading splits"
    STORAGE = "Storage and credentials"


class Alias(msgspec.Struct, frozen=True):
    """An older key of a setting.

    If its values have another type or unit, `kind` parses them and `convert` turns them into the setting's.
    """

    key: str
    kind: Kind[Any] | None = None
    convert: Callable[[Any], Any] | None = None
    example: str | None = None


class Setting(msgspec.Struct, Generic[T], frozen=True):
    """A key, its type, and what the documentation and the validation need."""

    key: str
    kind: Kind[T]
    default: T
    section: Section
    help: str
    minimum: float | None = None
    maximum: float | None = None
    aliases: tuple[Alias, ...] = ()
    # Why the setting is accepted although no code reads it; None for a setting that does what its help says.
    without_effect: str | None = None

    @property
    def allowed(self) -> str:
        """A description of the valid values that follows the words "must be"."""
        return self.kind.describe(self._bounds())

    @property
    def example(self) -> str:
        """A valid value, as text."""
        return self.kind.show(self.default) or "id,title"

    def parse(self, value: object) -> T:
        """Return the typed value of a text, or a value that already has the right type.

        Raises InvalidOptionError with the key, the value, the valid values and an example.
        """
        return self.parse_given(f"setting {self.key}", value)

    def parse_given(self, name: str, value: object, alias: Alias | None = None) -> T:
        """Parse a value for `name` ("option spark.…"), which may use an older key; see `parse`."""
        if alias is None:
            return self._read(name, value)
        kind: Kind[Any] = alias.kind or self.kind
        try:
            older = kind.read(value)
            return self._within_bounds(alias.convert(older) if alias.convert else older)
        except (ValueError, OverflowError) as error:
            allowed = f"{kind.describe()} that makes {self.allowed}" if alias.convert else self.allowed
            message = _refusal(name, value, allowed, alias.example or self.example)
            raise InvalidOptionError(f"{message}; {self.key} has replaced it") from error

    def _read(self, name: str, value: object) -> T:
        try:
            return self._within_bounds(self.kind.read(value))
        except ValueError as error:
            raise InvalidOptionError(_refusal(name, value, self.allowed, self.example)) from error

    def _within_bounds(self, value: T) -> T:
        if isinstance(value, int | float) and not isinstance(value, bool):
            too_small = self.minimum is not None and value < self.minimum
            too_large = self.maximum is not None and value > self.maximum
            if too_small or too_large:
                raise ValueError("out of bounds")
        return value

    def _bounds(self) -> str:
        lowest = None if self.minimum is None else self._show_bound(self.minimum)
        highest = None if self.maximum is None else self._show_bound(self.maximum)
        if lowest is not None and highest is not None:
            return f" from {lowest} to {highest}"
        if lowest is not None:
            return f" of at least {lowest}"
        return "" if highest is None else f" of at most {highest}"

    def _show_bound(self, bound: float) -> str:
        kind: object = self.kind
        if isinstance(kind, Size):
            return kind.show(int(bound))
        return str(int(bound)) if float(bound).is_integer() else str(bound)


class SettingFamily(msgspec.Struct, frozen=True):
    """Keys with a common prefix and a free ending: `spark.indextables.indexing.typemap.<field>`.

    `names` are well-known endings; `spell` restores their case. The values of a `secret` family never appear in output,
    and table properties cannot set them: a table must not be able to redirect its reader's credentials.
    """

    prefix: str
    placeholder: str
    section: Section
    help: str
    names: tuple[str, ...] = ()
    secret: bool = False

    def spell(self, ending: str) -> str:
        """Return the well-known spelling of an ending, or the ending unchanged."""
        return next((name for name in self.names if name.lower() == ending.lower()), ending)


def _refusal(name: str, value: object, allowed: str, example: str) -> str:
    echo = repr(value)
    if len(echo) > _MAX_ECHO_CHARACTERS:
        echo = f"{echo[:_MAX_ECHO_CHARACTERS]}…"
    return f"{name} is {echo}, but must be {allowed}, for example {example}"


class SettingWarning(UserWarning):
    """A key or value was ignored: the common class of all warnings about settings, for filters."""


class UnknownSettingWarning(SettingWarning):
    """A key has our prefix, but there is no such setting."""


class ConflictingSettingWarning(SettingWarning):
    """One setting has different values under two of its names in the same place."""


class InvalidTablePropertyWarning(SettingWarning):
    """A table property is invalid and ignored; the table stays readable."""


class Definitions(msgspec.Struct, frozen=True):
    """Defines the settings of one section, with one method per kind of value; keys omit the common prefix."""

    section: Section

    def boolean(
        self, key: str, default: bool, line: str, *, without_effect: str | None = None
    ) -> Setting[bool]:
        """Define a switch."""
        return Setting(PREFIX + key, Boolean(), default, self.section, line, without_effect=without_effect)

    def integer(
        self,
        key: str,
        default: int,
        line: str,
        *,
        minimum: int,
        maximum: int | None = None,
        names: tuple[tuple[str, int], ...] = (),
        aliases: tuple[Alias, ...] = (),
    ) -> Setting[int]:
        """Define a whole number; some values may have names."""
        return Setting(PREFIX + key, Integer(names), default, self.section, line, minimum, maximum, aliases)

    def ratio(self, key: str, default: float, line: str) -> Setting[float]:
        """Define a ratio from 0 to 1."""
        return Setting(PREFIX + key, Ratio(), default, self.section, line, minimum=0, maximum=1)

    def size(self, key: str, default: str, line: str, *, minimum: str) -> Setting[int]:
        """Define a number of bytes; default and minimum have units."""
        kind = Size()
        smallest = kind.read(minimum)
        return Setting(PREFIX + key, kind, kind.read(default), self.section, line, smallest, _MAX_SIZE_BYTES)

    def milliseconds(self, key: str, default: int, line: str) -> Setting[int]:
        """Define a delay or timeout of up to a day."""
        kind = WholeDuration("milliseconds")
        return Setting(PREFIX + key, kind, default, self.section, line, minimum=0, maximum=_MAX_DELAY_MS)

    def seconds(self, key: str, default: int, line: str, *, minimum: int) -> Setting[int]:
        """Define a duration of up to a year."""
        kind = WholeDuration("seconds")
        return Setting(PREFIX + key, kind, default, self.section, line, minimum, _MAX_SECONDS)

    def hours(self, key: str, default: float, line: str, aliases: tuple[Alias, ...] = ()) -> Setting[float]:
        """Define a retention or an age of up to a hundred years."""
        return Setting(PREFIX + key, Hours(), float(default), self.section, line, 0, _MAX_HOURS, aliases)

    def choice(
        self, key: str, choices: tuple[str, ...], default: str, line: str, aliases: tuple[Alias, ...] = ()
    ) -> Setting[str]:
        """Define a choice between a few words."""
        return Setting(PREFIX + key, Choice(choices), default, self.section, line, aliases=aliases)

    def text(self, key: str, default: str, line: str) -> Setting[str]:
        """Define a free text."""
        return Setting(PREFIX + key, Text(), default, self.section, line)

    def names(self, key: str, line: str) -> Setting[tuple[str, ...]]:
        """Define a list of names, empty by default."""
        return Setting(PREFIX + key, Names(), (), self.section, line)

    def family(self, prefix: str, placeholder: str, line: str) -> SettingFamily:
        """Define keys with a free ending."""
        return SettingFamily(PREFIX + prefix, placeholder, self.section, line)

    def credentials(self, prefix: str, names: tuple[str, ...], line: str) -> SettingFamily:
        """Define keys with a free ending whose values never appear in output."""
        return SettingFamily(PREFIX + prefix, "name", self.section, line, names, secret=True)

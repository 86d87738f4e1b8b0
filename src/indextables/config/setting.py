"""What a setting is: its key, its type, its default, its bounds, one line of help and its older names.

The settings themselves are in `registry`; a `SettingFamily` stands for keys whose last part is free, such as
a column's name.
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

_LONGEST_ECHO = 60


class Section(Enum):
    """The parts of the configuration, in the order in which they are documented."""

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
    MERGE = "Merge"
    MERGE_ON_WRITE = "Merge-on-write"
    SKIPPED_FILES = "Skipped files"
    PROTOCOL = "Protocol"
    INDEXING = "Indexing"
    WRITING = "Writing and reading splits"
    STORAGE = "Storage and credentials"


class Alias(msgspec.Struct, frozen=True):
    """An older key of a setting.

    Without `kind` its values are read like the setting's own. With it, the older key has a type or a unit of
    its own, and `convert` turns its values into the setting's.
    """

    key: str
    kind: Kind[Any] | None = None
    convert: Callable[[Any], Any] | None = None
    example: str | None = None


class Setting(msgspec.Struct, Generic[T], frozen=True):
    """One key with everything that is known about it."""

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
        """What is accepted, as it continues the words "must be"."""
        return self.kind.describe(self._bounds())

    @property
    def example(self) -> str:
        """A text that is accepted."""
        return self.kind.show(self.default) or "id,title"

    def parse(self, value: object) -> T:
        """Return the typed value of a text, or of a value that has the right type already.

        Raises InvalidOptionError, which names the key, the value, what is allowed and an example.
        """
        return self.parse_given(f"setting {self.key}", value)

    def parse_given(self, name: str, value: object, alias: Alias | None = None) -> T:
        """Like `parse`, for a value given as `name` ("option spark.…"), perhaps under an older key."""
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
    """Keys that begin alike and end in a free name: `spark.indextables.indexing.typemap.<field>`.

    `names` are well-known endings, whose spelling is restored when a key arrives in lower case. The values of
    a `secret` family are never shown, and a table's own properties cannot set them: a table must not be able
    to send its reader's credentials somewhere else.
    """

    prefix: str
    placeholder: str
    section: Section
    help: str
    names: tuple[str, ...] = ()
    secret: bool = False

    def spell(self, ending: str) -> str:
        """Return the well-known spelling of a key's ending, or the ending as it is."""
        return next((name for name in self.names if name.lower() == ending.lower()), ending)


def _refusal(name: str, value: object, allowed: str, example: str) -> str:
    echo = repr(value)
    if len(echo) > _LONGEST_ECHO:
        echo = f"{echo[:_LONGEST_ECHO]}…"
    return f"{name} is {echo}, but must be {allowed}, for example {example}"


# The warnings that settings can give. Filter them by their common class, `SettingWarning`.


class SettingWarning(UserWarning):
    """Something about a setting was ignored."""


class UnknownSettingWarning(SettingWarning):
    """A key begins like ours, but there is no such setting."""


class ConflictingSettingWarning(SettingWarning):
    """One setting has different values under two of its names in the same place."""


class InvalidTablePropertyWarning(SettingWarning):
    """A property of a table cannot be used: the table stays readable without it."""


# Short forms to define settings: one method per kind of value, one object per section.


_LONGEST_DELAY_MS = 24 * 60 * 60 * 1000
_LONGEST_SECONDS = 365 * 24 * 60 * 60
# A hundred years: "for ever", and still a date when it is counted back from now.
_LONGEST_HOURS = 100 * 365 * 24
_LARGEST_SIZE = 1024**5


class Definitions(msgspec.Struct, frozen=True):
    """Defines the settings of one section; keys are given without the common prefix."""

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
        """Define a whole number, some values of which may have names."""
        return Setting(PREFIX + key, Integer(names), default, self.section, line, minimum, maximum, aliases)

    def ratio(self, key: str, default: float, line: str) -> Setting[float]:
        """Define a share between nothing and all."""
        return Setting(PREFIX + key, Ratio(), default, self.section, line, minimum=0, maximum=1)

    def size(self, key: str, default: str, line: str, *, minimum: str) -> Setting[int]:
        """Define a number of bytes; default and minimum are written with their units."""
        kind = Size()
        smallest = kind.read(minimum)
        return Setting(PREFIX + key, kind, kind.read(default), self.section, line, smallest, _LARGEST_SIZE)

    def milliseconds(self, key: str, default: int, line: str) -> Setting[int]:
        """Define a delay or a time-out of up to a day."""
        kind = WholeDuration("milliseconds")
        return Setting(PREFIX + key, kind, default, self.section, line, minimum=0, maximum=_LONGEST_DELAY_MS)

    def seconds(self, key: str, default: int, line: str, *, minimum: int) -> Setting[int]:
        """Define a time of up to a year."""
        kind = WholeDuration("seconds")
        return Setting(PREFIX + key, kind, default, self.section, line, minimum, _LONGEST_SECONDS)

    def hours(self, key: str, default: float, line: str, aliases: tuple[Alias, ...] = ()) -> Setting[float]:
        """Define a retention or an age of up to a hundred years."""
        return Setting(PREFIX + key, Hours(), float(default), self.section, line, 0, _LONGEST_HOURS, aliases)

    def choice(
        self, key: str, choices: tuple[str, ...], default: str, line: str, aliases: tuple[Alias, ...] = ()
    ) -> Setting[str]:
        """Define one word out of a few."""
        return Setting(PREFIX + key, Choice(choices), default, self.section, line, aliases=aliases)

    def text(self, key: str, default: str, line: str) -> Setting[str]:
        """Define a text, as it is."""
        return Setting(PREFIX + key, Text(), default, self.section, line)

    def names(self, key: str, line: str) -> Setting[tuple[str, ...]]:
        """Define a list of names, empty by default."""
        return Setting(PREFIX + key, Names(), (), self.section, line)

    def family(self, prefix: str, placeholder: str, line: str) -> SettingFamily:
        """Define keys that end in a free name."""
        return SettingFamily(PREFIX + prefix, placeholder, self.section, line)

    def credentials(self, prefix: str, names: tuple[str, ...], line: str) -> SettingFamily:
        """Define keys that end in a free name and whose values are never shown."""
        return SettingFamily(PREFIX + prefix, "name", self.section, line, names, secret=True)

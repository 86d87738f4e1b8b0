"""Finds the setting behind a key, under any of its names and in any case, and the nearest to a wrong key."""

import difflib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

import msgspec

from indextables.config.registry import FAMILIES, SETTINGS
from indextables.config.setting import (
    OLDER_PREFIX,
    PREFIX,
    Alias,
    ConflictingSettingWarning,
    InvalidTablePropertyWarning,
    Setting,
    SettingFamily,
    SettingWarning,
    UnknownSettingWarning,
)
from indextables.errors import InvalidOptionError

_NEAR_ENOUGH = 0.7


class SettingMatch(msgspec.Struct, frozen=True):
    """A key that names a setting; `alias` is the older name that it used, if any."""

    setting: Setting[Any]
    alias: Alias | None = None


class FamilyMatch(msgspec.Struct, frozen=True):
    """A key that belongs to a family; `ending` is its free part."""

    family: SettingFamily
    ending: str

    @property
    def key(self) -> str:
        """The key in its current spelling."""
        return self.family.prefix + self.ending


def list_settings() -> tuple[Setting[Any], ...]:
    """Return every setting, in the order of the documentation."""
    return SETTINGS


def list_families() -> tuple[SettingFamily, ...]:
    """Return every family of keys with a free ending."""
    return FAMILIES


def is_ours(key: str) -> bool:
    """Tell whether a key claims to be a setting of IndexTables, known or not."""
    return key.lower().startswith((PREFIX, OLDER_PREFIX))


def find(key: str) -> SettingMatch | FamilyMatch | None:
    """Return what a key stands for, in any case, with either prefix or none; None if it is unknown."""
    name = _name(key)
    match = _MATCH_OF_NAME.get(name.lower())
    if match is not None:
        return match
    for family in FAMILIES:
        family_name = _name(family.prefix)
        if name.lower().startswith(family_name.lower()) and len(name) > len(family_name):
            return FamilyMatch(family, family.spell(name[len(family_name) :]))
    return None


def nearest(key: str) -> str | None:
    """Return the known key that a misspelled one most likely means, or None if nothing is near.

    The prefix `spark.indextables.` may be left out. For a key of a family the free ending is kept.
    """
    name = _name(key)
    found = difflib.get_close_matches(name.lower(), _MATCH_OF_NAME, n=1, cutoff=_NEAR_ENOUGH)
    suggestions = [(_similarity(name, near), _MATCH_OF_NAME[near].setting.key) for near in found]
    for family in FAMILIES:
        family_name = _name(family.prefix)
        parts = name.split(".")
        beginning = "".join(f"{part}." for part in parts[: family_name.count(".")])
        ending = ".".join(parts[family_name.count(".") :])
        if ending:
            suggestions.append((_similarity(beginning, family_name), family.prefix + family.spell(ending)))
    similarity, suggestion = max(suggestions, default=(0.0, ""))
    return suggestion if similarity >= _NEAR_ENOUGH else None


def _similarity(given: str, known: str) -> float:
    return difflib.SequenceMatcher(None, given.lower(), known.lower()).ratio()


def _name(key: str) -> str:
    for prefix in (PREFIX, OLDER_PREFIX):
        if key.lower().startswith(prefix):
            return key[len(prefix) :]
    return key


_MATCH_OF_NAME: dict[str, SettingMatch] = {
    **{
        _name(alias.key).lower(): SettingMatch(setting, alias)
        for setting in SETTINGS
        for alias in setting.aliases
    },
    **{_name(setting.key).lower(): SettingMatch(setting) for setting in SETTINGS},
}


# Reads the settings out of one place: the options of a call, the properties of a table, or a session.
#
# Other people's keys are passed over. What is wrong in options and sessions is an error; what is wrong in a
# table's properties is a complaint, because it must never make the table unreadable.


Place = Literal["option", "table property", "session setting"]


# A dataclass, since a Struct would show all of its fields to whoever prints with rich: these may be secret.
@dataclass(frozen=True, slots=True)
class Layer:
    """The typed values of one place by key, and the texts of the families by their whole key."""

    values: Mapping[str, Any] = field(default_factory=dict)
    family_values: Mapping[str, str] = field(default_factory=dict, repr=False)


class Complaints(msgspec.Struct):
    """Collects what will be warned of: each kind of complaint once per key."""

    messages: dict[tuple[type[SettingWarning], str], str] = msgspec.field(default_factory=dict)

    def add(self, category: type[SettingWarning], key: str, message: str) -> None:
        """Remember a complaint, unless there is one of its kind about this key."""
        self.messages.setdefault((category, key.lower()), message)

    def warn(self) -> None:
        """Give every complaint as a warning, as if the caller's caller had given it."""
        for (category, _), message in self.messages.items():
            warnings.warn(message, category, stacklevel=3)


def read_layer(place: Place, given: Mapping[str, object], complaints: Complaints) -> Layer:
    """Return the settings in `given`; unknown keys and names that contradict each other become complaints.

    Raises InvalidOptionError for a wrong value in an option or a session setting.
    """
    reader = _Reader(place, complaints)
    for key in sorted(filter(is_ours, given), key=_age_of_spelling):
        reader.take(key, given[key])
    return Layer(reader.values, reader.family_values)


class _Reader(msgspec.Struct):
    place: Place
    complaints: Complaints
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    family_values: dict[str, str] = msgspec.field(default_factory=dict)
    winners: dict[str, tuple[str, object]] = msgspec.field(default_factory=dict)

    def take(self, key: str, value: object) -> None:
        try:
            self._take(key, value)
        except InvalidOptionError as error:
            if self.place != "table property":
                raise
            self.complaints.add(InvalidTablePropertyWarning, key, f"{error}; it is ignored")

    def _take(self, key: str, value: object) -> None:
        match find(key):
            case SettingMatch(setting, alias):
                parsed = setting.parse_given(f"{self.place} {key}", value, alias)
                self._keep(self.values, setting.key, key, parsed)
            case FamilyMatch() as match:
                self._take_family(match, key, value)
            case None:
                near = nearest(key)
                remedy = f"did you mean {near}?" if near else "docs/configuration.md lists the settings"
                message = f"{self.place} {key} is unknown and ignored; {remedy}"
                self.complaints.add(UnknownSettingWarning, key, message)

    def _take_family(self, match: FamilyMatch, key: str, value: object) -> None:
        if match.family.secret and self.place == "table property":
            message = f"table property {key} is ignored: storage is set by options or the session only"
            self.complaints.add(InvalidTablePropertyWarning, key, message)
            return
        if value is None:
            raise InvalidOptionError(f"{self.place} {key} has no value; leave it out or give it a text")
        self._keep(self.family_values, match.key, key, _as_text(value))

    def _keep(self, kept: dict[str, Any], name: str, key: str, value: object) -> None:
        """Keep the value that the newest spelling gave; spellings arrive with the newest first."""
        winner_key, winner = self.winners.setdefault(name.lower(), (key, value))
        if winner_key == key:
            kept[name] = value
        elif winner != value:
            names = f"{winner_key} and {key}"
            message = f"{names} mean the same {self.place} but have different values; {winner_key} is used"
            self.complaints.add(ConflictingSettingWarning, name, message)


def _age_of_spelling(key: str) -> tuple[bool, bool, bool]:
    match = find(key)
    by_alias = isinstance(match, SettingMatch) and match.alias is not None
    by_older_prefix = key.lower().startswith(OLDER_PREFIX)
    exact = isinstance(match, SettingMatch) and match.setting.key == key
    return by_older_prefix, by_alias, not exact


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# The settings of one table as one caller sees them: option over table property over session over default.


Source = Literal["option", "table property", "session", "default"]

T = TypeVar("T")


# A dataclass, since a Struct would show all of its fields to whoever prints with rich: these may be secret.
@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Typed values for every setting; immutable, and picklable for tasks that run elsewhere.

    Made by `resolve`. Everything in it has been checked, so that reading a value cannot fail.
    """

    options: Layer = field(default_factory=Layer)
    table_properties: Layer = field(default_factory=Layer)
    session: Layer = field(default_factory=Layer)

    @classmethod
    def resolve(
        cls,
        options: Mapping[str, object] | None = None,
        table_properties: Mapping[str, object] | None = None,
        session: Mapping[str, object] | None = None,
    ) -> Self:
        """Read the settings out of the three places; keys match in any case, foreign keys are passed over.

        An unknown key of ours warns (UnknownSettingWarning) and suggests the nearest one. A wrong value in a
        table property warns and is ignored, so that no property makes a table unreadable. Raises
        InvalidOptionError for a wrong value in an option or a session setting.
        """
        complaints = Complaints()
        settings = cls(
            read_layer("option", options or {}, complaints),
            read_layer("table property", table_properties or {}, complaints),
            read_layer("session setting", session or {}, complaints),
        )
        complaints.warn()
        return settings

    def with_table_properties(self, table_properties: Mapping[str, object]) -> Self:
        """Return these settings with another table's properties; what is wrong in them warns."""
        complaints = Complaints()
        layer = read_layer("table property", table_properties, complaints)
        complaints.warn()
        return replace(self, table_properties=layer)

    def __getitem__(self, setting: Setting[T]) -> T:
        key = setting.key
        for layer in (self.options, self.table_properties, self.session):
            if key in layer.values:
                value: T = layer.values[key]
                return value
        return setting.default

    def source(self, setting: Setting[Any]) -> Source:
        """Return where the value of a setting comes from."""
        return next((source for source, layer in self._layers() if setting.key in layer.values), "default")

    def family(self, family: SettingFamily) -> dict[str, str]:
        """Return what is set in a family: the free endings of its keys, and their texts.

        Endings that differ in case only are the same one. The values of a secret family are the caller's
        to keep secret.
        """
        merged: dict[str, tuple[str, str]] = {}
        for _, layer in reversed(self._layers()):
            for key, text in layer.family_values.items():
                if key.startswith(family.prefix):
                    ending = key.removeprefix(family.prefix)
                    merged[ending.lower()] = (ending, text)
        return dict(merged.values())

    def items(self) -> Iterator[tuple[Setting[Any], Any]]:
        """Iterate over every setting and its value, in the order of the documentation."""
        return ((setting, self[setting]) for setting in list_settings())

    def __repr__(self) -> str:
        shown = [
            f"{setting.key}={value!r}" for setting, value in self.items() if self.source(setting) != "default"
        ]
        family_keys = {key for _, layer in self._layers() for key in layer.family_values}
        shown.extend(f"{key}=…" for key in sorted(family_keys))
        return f"Settings({', '.join(shown)})"

    def _layers(self) -> tuple[tuple[Source, Layer], ...]:
        return (
            ("option", self.options),
            ("table property", self.table_properties),
            ("session", self.session),
        )

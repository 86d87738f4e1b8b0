"""The settings of one table as one caller sees them: option over table property over session over default.

`Settings.resolve` reads the three places and warns about what it ignores. `find` and `nearest` look a key up under
any of its names.
"""

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

Source = Literal["option", "table property", "session", "default"]
Place = Literal["option", "table property", "session setting"]

T = TypeVar("T")

_MIN_SIMILARITY = 0.7
# Settings of object stores under the names of Hadoop and Spark.
_HADOOP_PREFIXES = ("fs.", "google.cloud.", "spark.hadoop.")


# `Layer` and `Settings` are dataclasses: rich prints every field of a msgspec.Struct, and these may hold secrets.
@dataclass(frozen=True, slots=True)
class Layer:
    """The settings of one place: typed values by key, and the texts of setting families by full key."""

    values: Mapping[str, Any] = field(default_factory=dict)
    family_values: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Typed values for every setting; immutable, and picklable for tasks in other processes.

    `resolve` creates it and validates every value, so reading a value never fails.
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
        """Read the settings from the three places. Keys are case-insensitive; keys of other libraries are skipped.

        An unknown key with our prefix warns (UnknownSettingWarning) and suggests the nearest known one. An invalid
        table property warns and is ignored, so no property makes a table unreadable. Raises InvalidOptionError for an
        invalid value in an option or a session setting.
        """
        pending = PendingWarnings()
        settings = cls(
            read_layer("option", options or {}, pending),
            read_layer("table property", table_properties or {}, pending),
            read_layer("session setting", session or {}, pending),
        )
        pending.emit()
        return settings

    def with_table_properties(self, table_properties: Mapping[str, object]) -> Self:
        """Return these settings with the properties of another table; invalid properties warn."""
        pending = PendingWarnings()
        layer = read_layer("table property", table_properties, pending)
        pending.emit()
        return replace(self, table_properties=layer)

    def __getitem__(self, setting: Setting[T]) -> T:
        key = setting.key
        for layer in (self.options, self.table_properties, self.session):
            if key in layer.values:
                value: T = layer.values[key]
                return value
        return setting.default

    def source(self, setting: Setting[Any]) -> Source:
        """Return the place that the value of a setting comes from."""
        return next((source for source, layer in self._layers() if setting.key in layer.values), "default")

    def family(self, family: SettingFamily) -> dict[str, str]:
        """Return the values of a family by the free endings of their keys.

        Endings that differ only in case are the same ending. The caller keeps the values of a secret family secret.
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


# --- reading one place --------------------------------------------------------------------------------


class PendingWarnings(msgspec.Struct):
    """Collects warnings while settings are read: one of each category per key."""

    messages: dict[tuple[type[SettingWarning], str], str] = msgspec.field(default_factory=dict)

    def add(self, category: type[SettingWarning], key: str, message: str) -> None:
        """Keep a warning, unless there is one of this category for this key."""
        self.messages.setdefault((category, key.lower()), message)

    def emit(self) -> None:
        """Issue every warning; its location is the caller of the function that calls this one."""
        for (category, _), message in self.messages.items():
            warnings.warn(message, category, stacklevel=3)


def read_layer(place: Place, given: Mapping[str, object], pending: PendingWarnings) -> Layer:
    """Return the settings in `given`; unknown keys and conflicting names add a warning to `pending`.

    Raises InvalidOptionError for an invalid value in an option or a session setting. In a table property it is only a
    warning, because a property must never make a table unreadable.
    """
    reader = _LayerReader(place, pending)
    for key in sorted(filter(is_ours, given), key=_age_of_spelling):
        reader.read(key, given[key])
    return Layer(reader.values, reader.family_values)


class _LayerReader(msgspec.Struct):
    place: Place
    pending: PendingWarnings
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    family_values: dict[str, str] = msgspec.field(default_factory=dict)
    # For each setting, the spelling that was read first, and its value.
    first_read: dict[str, tuple[str, object]] = msgspec.field(default_factory=dict)

    def read(self, key: str, value: object) -> None:
        try:
            self._read(key, value)
        except InvalidOptionError as error:
            if self.place != "table property":
                raise
            self.pending.add(InvalidTablePropertyWarning, key, f"{error}; it is ignored")

    def _read(self, key: str, value: object) -> None:
        match find(key):
            case SettingMatch(setting, alias):
                parsed = setting.parse_given(f"{self.place} {key}", value, alias)
                self._keep_newest_spelling(self.values, setting.key, key, parsed)
            case FamilyMatch() as match:
                self._read_family(match, key, value)
            case None:
                message = f"{self.place} {key} is unknown and ignored; {_remedy(key)}"
                self.pending.add(UnknownSettingWarning, key, message)

    def _read_family(self, match: "FamilyMatch", key: str, value: object) -> None:
        if match.family.secret and self.place == "table property":
            message = f"table property {key} is ignored: only options and the session can set storage"
            self.pending.add(InvalidTablePropertyWarning, key, message)
            return
        if value is None:
            raise InvalidOptionError(f"{self.place} {key} has no value; leave it out or set it to a text")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self._keep_newest_spelling(self.family_values, match.key, key, text)

    def _keep_newest_spelling(self, kept: dict[str, Any], name: str, key: str, value: object) -> None:
        """Keep the value of the newest spelling. Keys arrive with the newest spelling first."""
        first_key, first_value = self.first_read.setdefault(name.lower(), (key, value))
        if first_key == key:
            kept[name] = value
        elif first_value != value:
            message = f"{first_key} and {key} are the same {self.place} but have different values; {first_key} is used"
            self.pending.add(ConflictingSettingWarning, name, message)


def _age_of_spelling(key: str) -> tuple[bool, bool, bool]:
    """Sort key: current prefix before the older one, names before aliases, the exact case before any other."""
    match = find(key)
    by_alias = isinstance(match, SettingMatch) and match.alias is not None
    by_older_prefix = key.lower().startswith(OLDER_PREFIX)
    exact = isinstance(match, SettingMatch) and match.setting.key == key
    return by_older_prefix, by_alias, not exact


def check_options(options: Mapping[str, object]) -> None:
    """Raise InvalidOptionError, with the nearest key, for options that would have no effect.

    Settings of stores under the names of Hadoop pass.
    """
    for key in options:
        is_unknown = find(key) is None or not is_ours(key)
        if is_unknown and not key.lower().startswith(_HADOOP_PREFIXES):
            raise InvalidOptionError(f"unknown option {key!r}; {_remedy(key)}")


def check_properties(properties: Mapping[str, object]) -> None:
    """Raise InvalidOptionError, with the nearest key, for unknown settings among properties. Other keys are free."""
    for key in properties:
        if is_ours(key) and find(key) is None:
            raise InvalidOptionError(f"unknown table property {key!r}; {_remedy(key)}")


def _remedy(key: str) -> str:
    near = nearest(key)
    return f"did you mean {near}?" if near else "docs/configuration.md lists the settings"


# --- looking up keys ----------------------------------------------------------------------------------


class SettingMatch(msgspec.Struct, frozen=True):
    """A key that names a setting; `alias` is the older name that the key uses, if any."""

    setting: Setting[Any]
    alias: Alias | None = None


class FamilyMatch(msgspec.Struct, frozen=True):
    """A key of a family; `ending` is its free part."""

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
    """Return whether a key has a prefix of IndexTables, known or not."""
    return key.lower().startswith((PREFIX, OLDER_PREFIX))


def find(key: str) -> SettingMatch | FamilyMatch | None:
    """Return the setting or family of a key, in any case, with either prefix or none; None if it is unknown."""
    name = _without_prefix(key)
    match = _MATCH_OF_NAME.get(name.lower())
    if match is not None:
        return match
    for family in FAMILIES:
        family_name = _without_prefix(family.prefix)
        if name.lower().startswith(family_name.lower()) and len(name) > len(family_name):
            return FamilyMatch(family, family.spell(name[len(family_name) :]))
    return None


def nearest(key: str) -> str | None:
    """Return the known key that is most similar to a misspelled one, or None if none is similar.

    The prefix `spark.indextables.` may be missing. A key of a family keeps its free ending.
    """
    name = _without_prefix(key)
    found = difflib.get_close_matches(name.lower(), _MATCH_OF_NAME, n=1, cutoff=_MIN_SIMILARITY)
    suggestions = [(_similarity(name, near), _MATCH_OF_NAME[near].setting.key) for near in found]
    for family in FAMILIES:
        family_name = _without_prefix(family.prefix)
        parts = name.split(".")
        beginning = "".join(f"{part}." for part in parts[: family_name.count(".")])
        ending = ".".join(parts[family_name.count(".") :])
        if ending:
            suggestions.append((_similarity(beginning, family_name), family.prefix + family.spell(ending)))
    similarity, suggestion = max(suggestions, default=(0.0, ""))
    return suggestion if similarity >= _MIN_SIMILARITY else None


def _similarity(given: str, known: str) -> float:
    return difflib.SequenceMatcher(None, given.lower(), known.lower()).ratio()


def _without_prefix(key: str) -> str:
    for prefix in (PREFIX, OLDER_PREFIX):
        if key.lower().startswith(prefix):
            return key[len(prefix) :]
    return key


# A current name takes precedence over an alias of another setting.
_MATCH_OF_NAME: dict[str, SettingMatch] = {
    **{
        _without_prefix(alias.key).lower(): SettingMatch(setting, alias)
        for setting in SETTINGS
        for alias in setting.aliases
    },
    **{_without_prefix(setting.key).lower(): SettingMatch(setting) for setting in SETTINGS},
}

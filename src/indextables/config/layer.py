"""Reads the settings out of one place: the options of a call, the properties of a table, or a session.

Other people's keys are passed over. What is wrong in options and sessions is an error; what is wrong in a
table's properties is a complaint, because it must never make the table unreadable.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from indextables.config.lookup import FamilyMatch, SettingMatch, find, is_ours, nearest
from indextables.config.setting import OLDER_PREFIX
from indextables.config.setting_warnings import (
    ConflictingSettingWarning,
    InvalidTablePropertyWarning,
    SettingWarning,
    UnknownSettingWarning,
)
from indextables.errors import InvalidOptionError

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

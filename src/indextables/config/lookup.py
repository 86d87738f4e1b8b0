"""Finds the setting behind a key, under any of its names and in any case, and the nearest to a wrong key."""

import difflib
from typing import Any

import msgspec

from indextables.config.registry import FAMILIES, SETTINGS
from indextables.config.setting import OLDER_PREFIX, PREFIX, Alias, Setting, SettingFamily

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

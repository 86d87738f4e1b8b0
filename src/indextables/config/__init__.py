"""Every setting with its type, default, bounds and help, and the rules by which a value is chosen."""

from indextables.config.lookup import list_families, list_settings, nearest
from indextables.config.setting import Alias, Section, Setting, SettingFamily
from indextables.config.setting_warnings import (
    ConflictingSettingWarning,
    InvalidTablePropertyWarning,
    SettingWarning,
    UnknownSettingWarning,
)
from indextables.config.settings import Settings, Source

__all__ = [
    "Alias",
    "ConflictingSettingWarning",
    "InvalidTablePropertyWarning",
    "Section",
    "Setting",
    "SettingFamily",
    "SettingWarning",
    "Settings",
    "Source",
    "UnknownSettingWarning",
    "list_families",
    "list_settings",
    "nearest",
]

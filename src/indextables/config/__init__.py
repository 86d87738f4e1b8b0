"""Every setting with its type, default, bounds and help, and the rules by which a value is chosen."""

from indextables.config.setting import (
    Alias,
    ConflictingSettingWarning,
    InvalidTablePropertyWarning,
    Section,
    Setting,
    SettingFamily,
    SettingWarning,
    UnknownSettingWarning,
)
from indextables.config.settings import (
    Settings,
    Source,
    check_options,
    check_properties,
    list_families,
    list_settings,
    nearest,
)

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
    "check_options",
    "check_properties",
    "list_families",
    "list_settings",
    "nearest",
]

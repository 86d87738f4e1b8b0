"""The warnings that settings can give. Filter them by their common class, `SettingWarning`."""


class SettingWarning(UserWarning):
    """Something about a setting was ignored."""


class UnknownSettingWarning(SettingWarning):
    """A key begins like ours, but there is no such setting."""


class ConflictingSettingWarning(SettingWarning):
    """One setting has different values under two of its names in the same place."""


class InvalidTablePropertyWarning(SettingWarning):
    """A property of a table cannot be used: the table stays readable without it."""

"""Renders docs/configuration.md from the registry of settings."""

from collections.abc import Iterator

from indextables.config.setting import Alias, Section, Setting, SettingFamily
from indextables.config.settings import list_families, list_settings

_INTRODUCTION = """\
<!-- Generated from src/indextables/config/registry.py by `make docs-generated`. Do not edit. -->

# Configuration

Every setting is a key with the prefix `spark.indextables.`. Its value comes from the first of these places that sets
it:

1. an **option** of the read, the write or the call;
2. a **property of the table**, stored in its metadata;
3. the **session**: the Spark session's configuration;
4. the **default**.

```python
from indextables.config import Settings
from indextables.config.registry import CHECKPOINT_ENABLED, CHECKPOINT_INTERVAL

settings = Settings.resolve(
    options={"spark.indextables.checkpoint.interval": "5"},
    table_properties={"spark.indextables.checkpoint.interval": "20"},
    session={"spark.indextables.checkpoint.interval": "50"},
)
assert settings[CHECKPOINT_INTERVAL] == 5
assert settings.source(CHECKPOINT_INTERVAL) == "option"
assert settings.source(CHECKPOINT_ENABLED) == "default"
```

Keys are case-insensitive. The older prefix `spark.tantivy4spark.` and the older names of a setting still work; if one
place sets both, the newer name wins. An invalid value in an option or in the session is an error. An invalid table
property is ignored with a warning, so no property makes a table unreadable. An unknown key is ignored with a warning
that suggests the nearest known key.

Sizes take the binary units K, M, G and T: `100M` is 104857600 bytes. Durations use the unit in the column "Allowed"
unless they have their own: `500 ms`, `30s`, `5 min`, `12h`, `7 days`.
"""

_SETTING_COLUMNS = ("Key", "Type", "Default", "Allowed", "Meaning", "Older names")
_FAMILY_COLUMNS = ("Keys", "Well-known names", "Meaning")

_SECRETS_NOTE = """\
The values of these keys never appear in messages, and table properties cannot set them.
"""


def render() -> str:
    """Return the page as Markdown."""
    return "\n".join([_INTRODUCTION, *_sections()])


def _sections() -> Iterator[str]:
    for section in Section:
        yield f"## {section.value}\n"
        settings = [setting for setting in list_settings() if setting.section is section]
        families = [family for family in list_families() if family.section is section]
        if settings:
            yield _table(_SETTING_COLUMNS, [_setting_row(setting) for setting in settings])
        if any(family.secret for family in families):
            yield _SECRETS_NOTE
        if families:
            yield _table(_FAMILY_COLUMNS, [_family_row(family) for family in families])


def _setting_row(setting: Setting[object]) -> tuple[str, ...]:
    return (
        _code(setting.key),
        setting.kind.label,
        _code(setting.kind.show(setting.default)),
        setting.allowed,
        _meaning(setting),
        ", ".join(_alias(alias) for alias in setting.aliases),
    )


def _meaning(setting: Setting[object]) -> str:
    if setting.without_effect is None:
        return setting.help
    return f"{setting.help} **Accepted without effect**: {setting.without_effect}."


def _alias(alias: Alias) -> str:
    return f"{_code(alias.key)} ({alias.kind.describe()})" if alias.kind else _code(alias.key)


def _family_row(family: SettingFamily) -> tuple[str, ...]:
    return (
        _code(f"{family.prefix}<{family.placeholder}>"),
        ", ".join(_code(name) for name in family.names),
        family.help,
    )


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""

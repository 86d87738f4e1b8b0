"""`indextables config`: every setting, with its value, default and meaning."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from indextables.cli.command import examples
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, open_table, parse_settings, remedy
from indextables.cli.output import Column, is_terminal, print_facts, print_heading, print_line, print_table
from indextables.config import Section, Setting, SettingFamily, Settings, list_families, list_settings
from indextables.config.settings import FamilyMatch, SettingMatch, find
from indextables.storage.redaction import REDACTED

EXAMPLES = examples(
    "indextables config",
    "indextables config checkpoint",
    "indextables config spark.indextables.state.format --json",
    "indextables config retention --table ./logs",
)

Entry = Setting[Any] | SettingFamily

_COLUMNS = (Column("key"), Column("value"), Column("default"), Column("meaning"))
_SECTIONS = [section.value for section in Section]


def config(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="A key, or part of one.", show_default=False)
    ] = None,
    table: Annotated[str | None, typer.Option(metavar="PATH", help="Show the values for this table.")] = None,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """List the settings: value, default and meaning.

    A value comes from --option, then from the properties of --table, then from the default.
    """
    chosen = _choose(key)
    properties = _properties(table, option, storage_option)
    settings = Settings.resolve(parse_settings(option), properties)
    documents = [
        _setting_document(entry, settings)
        if isinstance(entry, Setting)
        else _family_document(entry, settings)
        for entry in chosen
    ]
    if as_json:
        print_json(documents)
    elif len(documents) == 1:
        _print_one(documents[0])
    elif is_terminal():
        _print_sections(sorted(documents, key=_section_order))
    else:
        _print_table(documents)


def _choose(key: str | None) -> Sequence[Entry]:
    everything: list[Entry] = [*list_settings(), *list_families()]
    if key is None:
        return everything
    match find(key):
        case SettingMatch(setting):
            return [setting]
        case FamilyMatch(family):
            return [family]
        case None:
            pass
    matching = [entry for entry in everything if any(key.lower() in name.lower() for name in _names(entry))]
    if not matching:
        raise typer.BadParameter(f"no setting matches {key}; {remedy(key)}", param_hint="'KEY'")
    return matching


def _names(entry: Entry) -> list[str]:
    if isinstance(entry, SettingFamily):
        return [f"{entry.prefix}<{entry.placeholder}>", *(entry.prefix + name for name in entry.names)]
    return [entry.key, *(alias.key for alias in entry.aliases)]


def _properties(
    path: str | None, option: Sequence[str] | None, storage_option: Sequence[str] | None
) -> Mapping[str, str]:
    return {} if path is None else open_table(path, option, storage_option).metadata.configuration


def _setting_document(setting: Setting[Any], settings: Settings) -> dict[str, Any]:
    return {
        "key": setting.key,
        "value": settings[setting],
        "default": setting.default,
        "source": settings.source(setting),
        "type": setting.kind.label,
        "allowed": setting.allowed,
        "section": setting.section.value,
        "help": setting.help,
        "older_keys": [alias.key for alias in setting.aliases],
        "value_text": setting.kind.show(settings[setting]),
        "default_text": setting.kind.show(setting.default),
    }


def _family_document(family: SettingFamily, settings: Settings) -> dict[str, Any]:
    found = settings.family(family)
    value = {ending: REDACTED if family.secret else text for ending, text in sorted(found.items())}
    endings = f" ({', '.join(family.names)})" if family.names else ""
    return {
        "key": f"{family.prefix}<{family.placeholder}>",
        "value": value,
        "default": {},
        "source": _family_source(family, settings),
        "type": "family",
        "allowed": f"any text for any {family.placeholder}{endings}",
        "section": family.section.value,
        "help": family.help,
        "older_keys": [],
        "value_text": ", ".join(f"{ending}={text}" for ending, text in value.items()),
        "default_text": "",
    }


def _print_one(document: dict[str, Any]) -> None:
    print_facts(
        [
            ("key", document["key"]),
            ("meaning", document["help"]),
            ("value", f"{document['value_text'] or '-'} (from: {document['source']})"),
            ("default", document["default_text"] or "-"),
            ("allowed", document["allowed"]),
            ("older keys", ", ".join(document["older_keys"]) or "-"),
        ]
    )


def _print_table(documents: Sequence[dict[str, Any]]) -> None:
    rows = [
        (document["key"], document["value_text"] or "-", document["default_text"] or "-", document["help"])
        for document in documents
    ]
    print_table(_COLUMNS, rows)


def _print_sections(documents: Sequence[dict[str, Any]]) -> None:
    """For terminals, which are too narrow for a table with long keys."""
    section = None
    for document in documents:
        if document["section"] != section:
            section = document["section"]
            print_line()
            print_heading(section)
        value, default = document["value_text"] or "-", document["default_text"] or "-"
        print_facts(
            [(f"  {document['key']}", value if value == default else f"{value} (default: {default})")]
        )
        print_line(f"      {document['help']}")


def _section_order(document: dict[str, Any]) -> int:
    return _SECTIONS.index(document["section"])


def _family_source(family: SettingFamily, settings: Settings) -> str:
    for source, layer in (("option", settings.options), ("table property", settings.table_properties)):
        if any(key.startswith(family.prefix) for key in layer.family_values):
            return source
    return "default"

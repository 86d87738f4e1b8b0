"""The arguments and options that commands share, how they are parsed, and opening a table by them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from indextables.cli.progress import working
from indextables.config.settings import FamilyMatch, SettingMatch, find, is_ours, nearest
from indextables.errors import InvalidOptionError
from indextables.index_table import IndexTable
from indextables.predicates.literals import timestamp_ms

TIME_TRAVEL = "Time travel"
CONNECTION = "Settings and storage"

_HADOOP_PREFIXES = ("fs.", "spark.hadoop.")


def _check_pairs(pairs: list[str] | None) -> list[str] | None:
    for pair in pairs or ():
        if not pair.partition("=")[0].strip() or "=" not in pair:
            # Do not repeat the text: it may be a secret given without its key.
            raise typer.BadParameter("write each value as KEY=VALUE, without spaces around the '='")
    return pairs


def check_timestamp(text: str | None) -> str | None:
    """Return the text if it is a timestamp. Raises typer.BadParameter."""
    if text is not None:
        try:
            timestamp_ms(text)
        except (InvalidOptionError, OverflowError) as error:
            raise typer.BadParameter(str(error)) from error
    return text


TablePath = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="The table: a directory, or an s3://, abfss://, gs:// or hdfs:// URL."
    ),
]
Version = Annotated[
    int | None,
    typer.Option(
        "--version", metavar="N", min=0, help="Read this version of the table.", rich_help_panel=TIME_TRAVEL
    ),
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="T",
        callback=check_timestamp,
        help="Read the table as of this time, such as 2026-01-31T12:00:00Z.",
        rich_help_panel=TIME_TRAVEL,
    ),
]
SettingPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        callback=_check_pairs,
        help="A setting; `indextables config` lists them. May be repeated.",
        rich_help_panel=CONNECTION,
    ),
]
StoragePairs = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        callback=_check_pairs,
        help="An object store option, such as aws_region=eu-central-1. May be repeated.",
        rich_help_panel=CONNECTION,
    ),
]
OptionalQuery = Annotated[
    str | None,
    typer.Argument(metavar="[QUERY]", help="Terms, fields, phrases or ranges; default: every row."),
]
Where = Annotated[str | None, typer.Option(metavar="SQL", help="Only rows that satisfy this condition.")]
Fields = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="Columns that terms without a field search; default: all text columns; * means all columns.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def split_names(names: str | None) -> list[str] | None:
    """Split names at their commas."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def parse_pairs(pairs: Sequence[str] | None) -> dict[str, str]:
    """Parse KEY=VALUE pairs. The last value of a repeated key wins."""
    split = (pair.partition("=") for pair in pairs or ())
    return {key.strip(): value for key, _, value in split}


def parse_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """Parse settings; the common prefix of their keys is optional.

    Raises typer.BadParameter for a key that is neither a setting nor a Hadoop key.
    """
    return {_full_key(key): value for key, value in parse_pairs(pairs).items()}


def _full_key(key: str) -> str:
    if key.lower().startswith(_HADOOP_PREFIXES):
        return key
    match find(key):
        case SettingMatch() | FamilyMatch() if is_ours(key):
            return key
        case SettingMatch(setting, alias):
            # Keep an older key: its unit may differ.
            return setting.key if alias is None else alias.key
        case FamilyMatch() as match:
            return match.key
        case None:
            raise typer.BadParameter(f"unknown setting {key}; {remedy(key)}", param_hint="'--option'")


def remedy(key: str) -> str:
    """A suggestion for an unknown key."""
    near = nearest(key)
    return f"did you mean {near}?" if near else "`indextables config` lists all settings"


def open_table(
    path: str,
    option: Sequence[str] | None,
    storage_option: Sequence[str] | None,
    *,
    version: int | None = None,
    timestamp: str | None = None,
) -> IndexTable:
    """Open the table of a command. Raises what IndexTable raises, and typer.BadParameter for wrong usage."""
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give one of them, not both", param_hint="'--version' and '--timestamp'")
    settings, storage = parse_settings(option), parse_pairs(storage_option)
    with working(f"opening {path}"):
        return IndexTable(
            path, version=version, timestamp=timestamp, storage_options=storage, options=settings
        )

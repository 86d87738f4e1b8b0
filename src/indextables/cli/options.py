"""The arguments and options that commands share, and how their texts are read."""

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
            # The text may be a secret whose name was forgotten: it is not repeated.
            raise typer.BadParameter("every value is written as KEY=VALUE, with no space around the '='")
    return pairs


def check_moment(moment: str | None) -> str | None:
    """An option's text, if it is a moment in time. Raises typer.BadParameter."""
    if moment is not None:
        try:
            timestamp_ms(moment)
        except (InvalidOptionError, OverflowError) as error:
            raise typer.BadParameter(str(error)) from error
    return moment


TablePath = Annotated[
    str,
    typer.Argument(metavar="PATH", help="The table: a directory, or an s3://, abfss:// or gs:// URL."),
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
        callback=check_moment,
        help="Read the table as it was at this moment, such as 2026-01-31T12:00:00Z.",
        rich_help_panel=TIME_TRAVEL,
    ),
]
SettingPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        callback=_check_pairs,
        help="A setting, as `indextables config` lists them. May be repeated.",
        rich_help_panel=CONNECTION,
    ),
]
StoragePairs = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        callback=_check_pairs,
        help="A setting of the object store, such as aws_region=eu-central-1. May be repeated.",
        rich_help_panel=CONNECTION,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def parse_pairs(pairs: Sequence[str] | None) -> dict[str, str]:
    """Values by key; of a key that is given twice the last one counts."""
    split = (pair.partition("=") for pair in pairs or ())
    return {key.strip(): value for key, _, value in split}


def parse_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """Settings under their whole keys: the common prefix may be left out.

    An unknown key that has the prefix is left to the settings, which warn of it. Raises typer.BadParameter for a
    key that is no setting and nothing of Hadoop's either: it would have no effect.
    """
    return {_whole_key(key): value for key, value in parse_pairs(pairs).items()}


def _whole_key(key: str) -> str:
    if is_ours(key) or key.lower().startswith(_HADOOP_PREFIXES):
        return key
    match find(key):
        case SettingMatch(setting, alias):
            # An older name may have a unit of its own, so that it is kept.
            return setting.key if alias is None else alias.key
        case FamilyMatch() as match:
            return match.key
        case None:
            raise typer.BadParameter(f"there is no setting {key}; {remedy(key)}", param_hint="'--option'")


def remedy(key: str) -> str:
    """What to do about a key that does not exist."""
    near = nearest(key)
    return f"did you mean {near}?" if near else "`indextables config` lists them all"


# From the common options to a table.


def open_table(
    path: str,
    option: Sequence[str] | None,
    storage_option: Sequence[str] | None,
    *,
    version: int | None = None,
    timestamp: str | None = None,
) -> IndexTable:
    """The table that a command line names. Raises what IndexTable raises, and typer.BadParameter for wrong use."""
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give one of them, not both", param_hint="'--version' and '--timestamp'")
    settings, storage = parse_settings(option), parse_pairs(storage_option)
    with working(f"opening {path}"):
        return IndexTable(
            path, version=version, timestamp=timestamp, storage_options=storage, options=settings
        )

"""`indextables checkpoint`: write a checkpoint of the newest version."""

import time
from typing import Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count, duration, size
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, TablePath, open_table
from indextables.cli.output import print_line
from indextables.cli.progress import working
from indextables.config.kinds import Choice
from indextables.config.registry import STATE_FORMAT
from indextables.errors import InvalidOptionError

EXAMPLES = examples(
    "indextables checkpoint ./logs",
    "indextables checkpoint ./logs --format parquet",
    "indextables checkpoint s3://bucket/logs --json",
)


def _formats() -> list[str]:
    kind = STATE_FORMAT.kind
    return list(kind.choices) if isinstance(kind, Choice) else []


def _check_format(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        return STATE_FORMAT.parse(name)
    except InvalidOptionError as error:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(_formats())}") from error


def checkpoint(
    path: TablePath,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(_formats()),
            callback=_check_format,
            autocompletion=_formats,
            help="The format, instead of the one in the table's settings.",
        ),
    ] = None,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Write a checkpoint, from which readers load the newest version.

    Readers then need not replay the log. An existing checkpoint of the newest version in the same format is kept.
    """
    chosen = [] if format_name is None else [f"{STATE_FORMAT.key}={format_name}"]
    table = open_table(path, [*(option or ()), *chosen], storage_option)
    started = time.perf_counter()
    with working("writing the checkpoint"):
        result = table.checkpoint()
    seconds = time.perf_counter() - started
    if as_json:
        print_json(result.to_dict())
        return
    print_line(
        f"checkpoint of version {result.version} in format {result.new_format} "
        f"(previously {result.previous_format or 'none'}), in {duration(seconds)}"
    )
    print_line(f"{count(result.num_files, 'file')}, {size(result.total_bytes)}")

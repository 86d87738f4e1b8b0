"""From the common options to a table."""

from collections.abc import Sequence

import typer

from indextables.cli.options import parse_pairs, parse_settings
from indextables.cli.waiting import working
from indextables.index_table import IndexTable


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

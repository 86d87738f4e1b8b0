"""Rows by partition before they are written, where the setting asks for it: fewer and larger splits.

A data source gets the rows as they come, so this is for sessions that `enable` has equipped.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from indextables.config import Settings
from indextables.config.registry import WRITE_OPTIMIZE_ENABLED
from indextables.errors import IndexTablesError
from indextables.spark.options import PARTITION_BY, TablePlace, as_options, names_of
from indextables.table import load_snapshot


def shuffled(
    frame: DataFrame, partition_by: Sequence[str], options: Mapping[str, Any], session: Mapping[str, str]
) -> DataFrame:
    """The rows by partition, or the same frame where that is not asked for, and where there are no partitions.

    Partitions are those of `partition_by`, those that the options name, or those of the table that they name. What is
    wrong with them the source says in better words than Spark would here. Raises InvalidOptionError for settings.
    """
    given = {key.lower(): _text(value) for key, value in options.items() if value is not None}
    if not Settings.resolve(given, session=session)[WRITE_OPTIMIZE_ENABLED]:
        return frame
    named = given.get(PARTITION_BY.lower())
    wanted = partition_by or (_of_table(given, session) if named is None else names_of(named))
    found = [[name for name in frame.columns if name.lower() == each.lower()] for each in wanted]
    if not found or any(len(names) != 1 for names in found):
        return frame
    return frame.repartition(*(quoted(name) for (name,) in found))


def quoted(name: str) -> str:
    """A column's name as Spark does not take it apart."""
    return f"`{name.replace('`', '``')}`"


def _of_table(options: Mapping[str, str], session: Mapping[str, str]) -> tuple[str, ...]:
    with contextlib.suppress(IndexTablesError):
        place = TablePlace.of({**options, **as_options(session)})
        return load_snapshot(place.context()).partition_columns
    return ()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

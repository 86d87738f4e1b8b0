"""IndexTables statements in `spark.sql`: executed on the session's executors, returned as a DataFrame."""

import re
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from indextables.errors import InvalidStatementError, TableNotFoundError
from indextables.spark.catalog import find_catalog_table
from indextables.spark.jobs import SparkRunner
from indextables.spark.options import PATH, session_settings
from indextables.spark.releases import arrow_of, frame_of
from indextables.spark.source import FORMATS
from indextables.spark.sql.names import our_table, split_name
from indextables.spark.sql.run import ONE_NAME
from indextables.spark.sql.tables import options_of_view
from indextables.spark.types import spark_schema
from indextables.statements import (
    Caller,
    TableName,
    parse_ours,
    parse_statement,
    row_change_target,
    run_statement,
)

_GAP: Final = r"(?:\s|--[^\n]*\n|/\*.*?\*/)"
_NAME: Final = r"(?:`(?:[^`]|``)+`|\w+)"
# Spark's own ALTER TABLE changes columns of other tables, and other things of all tables.
_ALTER: Final = re.compile(
    rf"(?is){_GAP}*ALTER{_GAP}+TABLE{_GAP}+({_NAME}(?:\s*\.\s*{_NAME}){{0,2}})"
    rf"{_GAP}+(?:ADD|DROP|RENAME|ALTER|CHANGE){_GAP}+COLUMNS?\b"
)


def execute_statement(spark: SparkSession, text: object) -> DataFrame | None:
    """Execute an IndexTables statement; returns None for any other text, which Spark then executes.

    The statement runs immediately, like Spark's own commands, with the session's settings and on its executors.
    Table names are resolved in the session's catalog. Raises what `parse_statement` and `run_statement` raise.
    """
    # Spark reports a wrong argument type itself.
    if not isinstance(text, str):
        return None
    statement = parse_statement(text)
    if statement is None and (_alters_table_of_ours(spark, text) or _changes_rows_of_ours(spark, text)):
        statement = parse_ours(text)
    if statement is None:
        return None
    caller = Caller(
        session=session_settings(spark),
        runner=SparkRunner(spark),
        resolve_table=lambda name: _table_location(spark, name),
        # The caller's own name or subquery.
        read_relation=lambda relation: arrow_of(spark.sql(f"SELECT * FROM {relation}")),  # noqa: S608
    )
    result = run_statement(statement, caller)
    return frame_of(spark, result, spark_schema(result.schema))


def _alters_table_of_ours(spark: SparkSession, text: str) -> bool:
    """Whether a text changes columns of a table of ours that it names, or whose path it has in backticks."""
    found = _ALTER.match(text)
    if found is None:
        return False
    parts = split_name(found[1])
    return _is_path(parts) or our_table(spark, parts) is not None


def _changes_rows_of_ours(spark: SparkSession, text: str) -> bool:
    """Whether a text deletes, updates or merges rows of a table of ours, likewise."""
    place = row_change_target(text)
    name = None if place is None else ONE_NAME.match(text, place)
    if place is None or name is None:
        return False
    parts = split_name(name[0])
    if _is_path(parts) or our_table(spark, parts) is not None:
        return True
    options = options_of_view(spark, ".".join(parts))
    if options is not None:
        raise InvalidStatementError(
            f"{name[0]} is a view, and shows one version of {options[PATH]}; change the table itself, as "
            f"indextables.`{options[PATH]}`",
            position=place,
        )
    return False


def _is_path(parts: Sequence[str]) -> bool:
    """Whether a name is a path, as in indextables.`/data/logs`."""
    return len(parts) == 2 and parts[0].lower() in FORMATS


def _table_location(spark: SparkSession, name: TableName) -> str:
    """The location of a catalog table, or of the table behind a temporary view.

    Raises TableNotFoundError if the catalog has no such table, or if it has no location (another view).
    """
    if _is_path(name.parts):
        return name.parts[1]
    options = options_of_view(spark, ".".join(name.parts))
    if options is not None:
        return options[PATH]
    table = find_catalog_table(spark, name.parts)
    if table is None:
        raise TableNotFoundError(
            f"Spark's catalog has no table {name}; check the name, or give the table's path in quotes"
        )
    if table.location is None:
        raise TableNotFoundError(
            f"Spark's catalog has no location for {name}; give the table's path in quotes"
        )
    return table.location

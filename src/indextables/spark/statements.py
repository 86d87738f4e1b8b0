"""IndexTables statements in `spark.sql`: executed on the session's executors, returned as a DataFrame."""

from pyspark.sql import DataFrame, SparkSession

from indextables.errors import TableNotFoundError
from indextables.spark.catalog import find_catalog_table
from indextables.spark.jobs import SparkRunner
from indextables.spark.options import PATH, session_settings
from indextables.spark.releases import frame_of
from indextables.spark.sql.tables import options_of_view
from indextables.spark.types import spark_schema
from indextables.statements import Caller, TableName, parse_statement, run_statement


def execute_statement(spark: SparkSession, text: object) -> DataFrame | None:
    """Execute an IndexTables statement; returns None for any other text, which Spark then executes.

    The statement runs immediately, like Spark's own commands, with the session's settings and on its executors.
    Table names are resolved in the session's catalog. Raises what `parse_statement` and `run_statement` raise.
    """
    # Spark reports a wrong argument type itself.
    statement = parse_statement(text) if isinstance(text, str) else None
    if statement is None:
        return None
    caller = Caller(
        session=session_settings(spark),
        runner=SparkRunner(spark),
        resolve_table=lambda name: _table_location(spark, name),
    )
    result = run_statement(statement, caller)
    return frame_of(spark, result, spark_schema(result.schema))


def _table_location(spark: SparkSession, name: TableName) -> str:
    """The location of a catalog table, or of the table behind a temporary view.

    Raises TableNotFoundError if the catalog has no such table, or if it has no location (another view).
    """
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

"""IndexTables statements in `spark.sql`: executed on the session's executors, returned as a DataFrame."""

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from indextables.errors import TableNotFoundError
from indextables.spark.jobs import SparkRunner
from indextables.spark.options import session_settings
from indextables.spark.releases import frame_of
from indextables.spark.types import quote_name, spark_schema
from indextables.statements import Caller, TableName, parse_statement, run_statement

_LOCATION: Final = "Location"
_DETAILS: Final = "# Detailed Table Information"


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
    """The location of a catalog table.

    Raises TableNotFoundError if the catalog has no such table, or if it has no location (a view).
    """
    quoted = ".".join(quote_name(part) for part in name.parts)
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    except AnalysisException as error:
        raise TableNotFoundError(
            f"Spark's catalog has no table {name}; check the name, or give the table's path in quotes"
        ) from error
    names = [row["col_name"] for row in rows]
    # The table's columns come before the details, and one of them may be called "Location".
    details = rows[names.index(_DETAILS) :] if _DETAILS in names else []
    location = next((row["data_type"] for row in details if row["col_name"] == _LOCATION), None)
    if not location:
        raise TableNotFoundError(
            f"Spark's catalog has no location for {name}; give the table's path in quotes"
        )
    return str(location)

"""The statements of IndexTables in `spark.sql`: executed here, and answered as a DataFrame."""

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from indextables.errors import TableNotFoundError
from indextables.spark.dataframe_api import session_settings
from indextables.spark.jobs import SparkRunner
from indextables.spark.types import spark_schema
from indextables.statements import Caller, TableName, parse_statement, run_statement

_LOCATION: Final = "Location"
_DETAILS: Final = "# Detailed Table Information"


def execute_statement(spark: SparkSession, text: object) -> DataFrame | None:
    """Execute a statement if it is one of ours; None leaves it to Spark.

    It runs at once, as Spark's own commands do, with the session's settings; the executors do the work. Names of
    tables are looked up in the session's catalog. Raises what `parse_statement` and `run_statement` raise.
    """
    # Whoever hands over something else than a text gets Spark's own error.
    statement = parse_statement(text) if isinstance(text, str) else None
    if statement is None:
        return None
    caller = Caller(
        session=session_settings(spark),
        runner=SparkRunner(spark),
        resolve_table=lambda name: location_of(spark, name),
    )
    answer = run_statement(statement, caller)
    # Spark Connect cannot tell the schema of an answer without rows.
    # It also takes an empty chunk for the end of a table.
    return spark.createDataFrame(answer.combine_chunks(), spark_schema(answer.schema))


def location_of(spark: SparkSession, name: TableName) -> str:
    """Where the session's catalog says that a table is.

    Raises TableNotFoundError if it has no such table, or one without a place of its own, such as a view.
    """
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in name.parts)
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    except AnalysisException as error:
        raise TableNotFoundError(
            f"Spark's catalog has no table {name}; check the name, or give the path of the table in quotes"
        ) from error
    names = [row["col_name"] for row in rows]
    # Before the details stand the table's columns, which may have any name.
    details = rows[names.index(_DETAILS) :] if _DETAILS in names else []
    place = next((row["data_type"] for row in details if row["col_name"] == _LOCATION), None)
    if not place:
        raise TableNotFoundError(
            f"Spark's catalog does not say where {name} is; give the path of the table in quotes"
        )
    return str(place)

"""SQL functions of enabled sessions: table functions that search and aggregate, and functions that make buckets.

They are functions of the session itself, so every SQL client of the session has them, with or without our `spark.sql`.
Buckets are plain SQL expressions. Table functions run in a Python worker, which cannot see the session, so they take
the settings that the session has when it is enabled.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from indextables.errors import InvalidOptionError
from indextables.ops.read import projected_schema
from indextables.ops.search import SCORE, SearchRequest, aggregate, check_query, search
from indextables.search.aggregation import Aggregation, split_list
from indextables.search.merge_aggregates import merge_aggregates
from indextables.spark.options import PATH, TablePlace, as_options, parse_names, session_settings
from indextables.spark.types import spark_schema
from indextables.table import Snapshot, load_snapshot

DEFAULT_LIMIT: Final = 10

# More ranges than anybody writes by hand.
_MAX_RANGES: Final = 50


def register_functions(spark: SparkSession) -> None:
    """Add the functions to a session; those of the same name are replaced."""
    session = session_settings(spark)
    spark.udtf.register("indextables_search", udtf(_search_function(session)))  # type: ignore[arg-type]
    spark.udtf.register("indextables_aggregate", udtf(_aggregate_function(session)))  # type: ignore[arg-type]
    for statement in (_DATE_HISTOGRAM, _HISTOGRAM, _range_function()):
        spark.sql(statement)


# Table functions. Spark pickles classes that are defined in a function, with what they refer to.


def _search_function(session: Mapping[str, str]) -> type:
    class Search:
        @staticmethod
        def analyze(
            path: AnalyzeArgument,
            query: AnalyzeArgument,
            limit: AnalyzeArgument | None = None,  # noqa: ARG004  # it does not change the columns
            columns: AnalyzeArgument | None = None,
        ) -> AnalyzeResult:
            snapshot = _open(session, _constant("path", path))
            check_query(snapshot, SearchRequest.of(snapshot, _constant("query", query), None))
            found = projected_schema(snapshot.schema, _names("columns", columns))
            return AnalyzeResult(spark_schema(pa.schema([*found, SCORE])))

        def eval(
            self, path: str, query: str, limit: int | None = None, columns: str | None = None
        ) -> Iterator[tuple[Any, ...]]:
            snapshot = _open(session, path)
            request = SearchRequest.of(snapshot, query, None)
            names = None if columns is None else parse_names(columns)
            return _tuples(search(snapshot, request, names, DEFAULT_LIMIT if limit is None else limit))

    return Search


def _aggregate_function(session: Mapping[str, str]) -> type:
    class Aggregate:
        @staticmethod
        def analyze(
            path: AnalyzeArgument,
            metrics: AnalyzeArgument,
            by: AnalyzeArgument | None = None,
            query: AnalyzeArgument | None = None,
        ) -> AnalyzeResult:
            snapshot = _open(session, _constant("path", path))
            column = None if by is None else _optional("by", by)
            aggregation = Aggregation.of(split_list(_constant("metrics", metrics)), _groupings(column))
            aggregation.check(snapshot.schema)
            text = None if query is None else _optional("query", query)
            check_query(snapshot, SearchRequest.of(snapshot, text, None))
            return AnalyzeResult(spark_schema(merge_aggregates(aggregation, [], snapshot.schema).schema))

        def eval(
            self, path: str, metrics: str, by: str | None = None, query: str | None = None
        ) -> Iterator[tuple[Any, ...]]:
            snapshot = _open(session, path)
            request = SearchRequest.of(snapshot, query, None)
            return _tuples(aggregate(snapshot, request, split_list(metrics), _groupings(by)))

    return Aggregate


def _groupings(by: str | None) -> tuple[str, ...] | None:
    return None if by is None else split_list(by)


def _open(session: Mapping[str, str], path: str) -> Snapshot:
    return load_snapshot(TablePlace.of({PATH: path, **as_options(session)}).context())


def _constant(name: str, argument: AnalyzeArgument) -> str:
    value = _optional(name, argument)
    if value is None:
        raise InvalidOptionError(f"the argument {name} is NULL, but must be a string")
    return value


def _optional(name: str, argument: AnalyzeArgument) -> str | None:
    if not argument.isConstantExpression:
        raise InvalidOptionError(f"the argument {name} must be a constant string, not a column")
    return None if argument.value is None else str(argument.value)


def _names(name: str, argument: AnalyzeArgument | None) -> tuple[str, ...] | None:
    text = None if argument is None else _optional(name, argument)
    return None if text is None else parse_names(text)


def _tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        yield tuple(row.values())


# Buckets.


def _microseconds(interval: str) -> str:
    """SQL for the length of an interval such as '15m'."""
    number = f"CAST(regexp_extract({interval}, '^([0-9]+)(ms|s|m|h|d)$', 1) AS BIGINT)"
    unit = (
        f"CASE regexp_extract({interval}, '^([0-9]+)(ms|s|m|h|d)$', 2) WHEN 'ms' THEN 1000L WHEN 's' THEN 1000000L "
        f"WHEN 'm' THEN 60000000L WHEN 'h' THEN 3600000000L WHEN 'd' THEN 86400000000L END"
    )
    wrong = (
        f"concat('the interval is ', {interval}, ', but must be a number with ms, s, m, h or d, such as 15m')"
    )
    return f"CASE WHEN {interval} RLIKE '^[0-9]+(ms|s|m|h|d)$' THEN {number} * {unit} ELSE raise_error({wrong}) END"


_STEP: Final = _microseconds("step")
_SHIFT: Final = _microseconds("shift")

_DATE_HISTOGRAM: Final = f"""
CREATE OR REPLACE TEMPORARY FUNCTION indextables_date_histogram(
    moment TIMESTAMP, step STRING, shift STRING DEFAULT '0s')
RETURNS TIMESTAMP COMMENT 'The start of the interval of this length that a moment is in; intervals start at shift.'
RETURN timestamp_micros(
    unix_micros(moment) - pmod(unix_micros(moment) - ({_SHIFT}), ({_STEP})))
"""

_HISTOGRAM: Final = """
CREATE OR REPLACE TEMPORARY FUNCTION indextables_histogram(number DOUBLE, step DOUBLE, shift DOUBLE DEFAULT 0)
RETURNS DOUBLE COMMENT 'The start of the interval of this length that a number is in; intervals start at shift.'
RETURN CASE WHEN step > 0 THEN floor((number - shift) / step) * step + shift
    ELSE raise_error(concat('the interval is ', step, ', but must be positive')) END
"""


def _range_function() -> str:
    defaults = ["", *[" DEFAULT NULL"] * (_MAX_RANGES - 1)]
    parameters = ", ".join(
        f"name{number} STRING{default}, from{number} DOUBLE{default}, to{number} DOUBLE{default}"
        for number, default in enumerate(defaults)
    )
    cases = " ".join(
        f"WHEN name{number} IS NOT NULL AND number >= coalesce(from{number}, number) "
        f"AND (to{number} IS NULL OR number < to{number}) THEN name{number}"
        for number in range(_MAX_RANGES)
    )
    return (
        f"CREATE OR REPLACE TEMPORARY FUNCTION indextables_range(number DOUBLE, {parameters}) RETURNS STRING "
        f"COMMENT 'The name of the range that a number is in: from a bound (inclusive) to a bound (exclusive).' "
        f"RETURN CASE {cases} END"
    )

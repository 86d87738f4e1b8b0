"""Decides which calls of `spark.sql` need to be rewritten, without importing the SQL parser for the others."""

import re
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from indextables.errors import MissingExtraError
from indextables.spark.sql.names import our_table, split_name

_SEARCHES: Final = re.compile(r"(?i)\b(textsearch|fieldmatch|indexquery|indexqueryall|_query)\b")
_PATHS: Final = re.compile(r"(?i)\b(indextables|tantivy4spark)\s*\.\s*`")

# Views over tables of ours are created differently.
_VIEWS: Final = re.compile(r"(?i)\b(CREATE|ALTER)\b[\s\w]*\bVIEW\b")

_CREATES: Final = re.compile(
    r"(?is)\bCREATE\b.*\bTABLE\b.*\bUSING\b[\s`]*(io|com)?[\s`.]*(indextables|tantivy4spark)"
)

# The names after FROM, JOIN and INTO, and lists of names after FROM. Other texts may match, too; the catalog decides.
_NAME: Final = r"(?:`(?:[^`]|``)+`|\w+)(?:\s*\.\s*(?:`(?:[^`]|``)+`|\w+)){0,2}"
_LISTED: Final = rf"{_NAME}(?:\s+(?:AS\s+)?\w+)?"
_NAMES: Final = re.compile(
    rf"(?is)\b(?:FROM|JOIN|INTO|OVERWRITE|USING)\s+(?:TABLE\s+)?((?:{_LISTED}\s*,\s*)*{_NAME})"
)
_EACH_NAME: Final = re.compile(rf"(?is){_LISTED}")
ONE_NAME: Final = re.compile(_NAME)


def _concerns_us(spark: SparkSession, text: str) -> bool:
    """Whether a text may have searches, or names tables of ours."""
    if any(each.search(text) for each in (_SEARCHES, _PATHS, _VIEWS, _CREATES)):
        return True
    names = {
        name[0]
        for listed in _NAMES.findall(text)
        for each in _EACH_NAME.findall(listed)
        if (name := ONE_NAME.match(each))
    }
    return any(our_table(spark, split_name(name)) is not None for name in names)


def run_sql(
    spark: SparkSession, sql: Callable[..., DataFrame], text: object, args: Any, frames: dict[str, Any]
) -> DataFrame:
    """Execute a text with Spark's own `sql`, after searches and tables of ours are replaced.

    Raises InvalidStatementError, with the place, for a search that does not work where it is.
    """
    if not isinstance(text, str) or not _concerns_us(spark, text):
        return sql(text, args, **frames)
    try:
        # Only texts that need it pay for importing the parser.
        from indextables.spark.sql.rewrite import Rewriter, SqlCall
    except ModuleNotFoundError as error:
        if error.name != "sqlglot":
            raise
        raise MissingExtraError(
            "search in SQL needs the package sqlglot, which is not installed; run: pip install indextables[spark]"
        ) from error
    call = SqlCall(text, args, frames)
    rewritten = Rewriter(spark, sql, call).rewrite()
    if isinstance(rewritten, DataFrame):
        return rewritten
    try:
        return (rewritten or call).run(sql)
    except ParseException as error:
        _explain(text, error)
        raise


def _explain(text: str, error: ParseException) -> None:
    """Raise an error of ours if Spark stopped at a search operator."""
    from indextables.spark.sql.operators import Operator, sql_error

    for operator in Operator:
        if f"'{operator.value}'" not in str(error).lower():
            continue
        found = re.search(rf"(?i)\b{operator.value}\b", text)
        if found:
            raise sql_error(
                text,
                *found.span(),
                f"{operator.name} takes a column, or *, on its left, and a string or a parameter on its right, as in "
                f"message {operator.name} 'a AND b'",
            ) from error

"""The function that decides for rows of a query whether they match a search, by their values alone.

Where an index cannot select the rows of a table, `spark.sql` writes a call of this function in place of the search. It
indexes each batch of rows in memory, with the analyzers of the table, so the result is that of the table's own index.
"""

import hashlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from indextables._caching import LruCache, shared_cache
from indextables.errors import SparkUnavailableError, UnsupportedSplitError
from indextables.ops.search import known_mappings
from indextables.schema import TableShape, to_spark_json
from indextables.search.compile import DEFAULT_KINDS
from indextables.search.conditions import RowMatcher, TextCondition, columns_searched
from indextables.spark.session import PYSPARK_VERSION
from indextables.spark.sql.tables import SearchableTable, session_key
from indextables.split.doc_mapping import DocMapping, FieldMapping
from indextables.split.doc_mapping_settings import mapping_from_settings

if TYPE_CHECKING:
    from collections.abc import Callable

_REGISTERED: LruCache[tuple[str, str], bool] = shared_cache(
    "spark.sql.matching", "the search functions that sessions have", max_entries=100_000
)


def row_matcher(table: SearchableTable, condition: TextCondition) -> RowMatcher:
    """What decides the search for rows of a table. Raises InvalidQueryError and UnsupportedSplitError."""
    names = columns_searched(condition, table.scope)
    fields = condition.fields or tuple(field.name for field in table.mapping if field.kind in DEFAULT_KINDS)
    # Partition columns have no index; as rows of a query, they are columns like the others.
    unpartitioned = mapping_from_settings(TableShape(table.schema), table.snapshot.context.settings)
    mapping = DocMapping(tuple(_field(table.mapping, unpartitioned, name) for name in names))
    _check_uniform(table, mapping)
    schema = pa.schema([table.schema.field(field.name) for field in mapping])
    return RowMatcher(condition.query, fields, mapping, schema)


def register_matcher(spark: SparkSession, matcher: RowMatcher) -> str:
    """Register the function of a search in a session, once; returns its name.

    It takes a struct of the columns of the matcher's schema.
    """
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError as error:
        raise SparkUnavailableError(
            f"the query does not demand this search of every row (it is next to an OR, in a SELECT list, or on the "
            f"optional side of an outer join), and computing it for each row needs Spark 4.1; this is {PYSPARK_VERSION}"
        ) from error
    described = repr(
        (matcher.query, matcher.fields, matcher.mapping.to_json(), to_spark_json(matcher.schema))
    )
    name = f"indextables_match_{hashlib.sha256(described.encode()).hexdigest()[:24]}"
    key = (session_key(spark), name)
    if _REGISTERED.get(key) is None:
        spark.udf.register(name, arrow_udf(_match_function(matcher), "boolean"))  # type: ignore[call-overload]
        _REGISTERED.put(key, True)
    return name


def _match_function(matcher: RowMatcher) -> "Callable[[Any], Any]":
    def match(rows: pa.Array) -> pa.Array:
        # A null struct is a row without a match of an outer join; its fields are null.
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(rows.flatten(), matcher.schema, strict=True)
        ]
        return matcher.matches(pa.Table.from_arrays(columns, schema=matcher.schema))

    # Spark tells the kinds of Arrow functions apart by their annotations.
    match.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return match


def _field(mapping: DocMapping, unpartitioned: DocMapping, name: str) -> FieldMapping:
    found = mapping.find(name) or unpartitioned.find(name)
    assert found is not None  # the scope has resolved the name
    return found


def _check_uniform(table: SearchableTable, mapping: DocMapping) -> None:
    """Raise UnsupportedSplitError if splits of the table index one of these columns differently."""
    for known in known_mappings(table.snapshot):
        for field in mapping:
            other = known.find(field.name)
            if other is not None and _analysis(other) != _analysis(field):
                raise UnsupportedSplitError(
                    f"{table.snapshot.context.url}: some splits index column {field.name!r} as {other.kind.value} "
                    f"({other.tokenizer}), and others as {field.kind.value} ({field.tokenizer}), so only their indexes "
                    f"can decide a search of it: write it in WHERE, joined to other conditions by AND"
                )


def _analysis(field: FieldMapping) -> tuple[object, ...]:
    return field.kind, field.tokenizer, field.max_token_bytes, field.is_array, field.scale

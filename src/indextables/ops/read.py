"""Reading rows: scans of the Parquet members, with the index untouched."""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidSchemaError
from indextables.ops.ordered_parallel import ordered_streams
from indextables.ops.splits import SplitRef, open_ref, split_refs
from indextables.predicates import Predicate, bind
from indextables.schema import find_column
from indextables.table import Snapshot


def scan(snapshot: Snapshot, where: Predicate | None, columns: Sequence[str] | None) -> pa.RecordBatchReader:
    """The rows for which `where` is true, split by split, with these columns (None: all).

    Splits are skipped by partition value and statistics, row groups by their own. Several splits are read at
    once; memory stays bounded. Raises InvalidPredicateError and InvalidSchemaError before anything is
    read; a split that cannot be read ends the stream with an error, it is never left out.
    """
    schema = projected_schema(snapshot.schema, columns)
    predicate = None if where is None else bind(where, snapshot.schema)
    refs = split_refs(snapshot.select(predicate).entries)
    streams = (partial(_scan_split, snapshot, ref, schema.names, predicate) for ref in refs)
    batches = ordered_streams(streams, snapshot.context.settings[READ_PARALLELISM])
    return pa.RecordBatchReader.from_batches(schema, batches)


def projected_schema(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The columns that a caller asked for, each once, as the table spells them. Raises InvalidSchemaError."""
    if columns is None:
        return schema
    fields: list[pa.Field] = []
    for name in columns:
        field = find_column(schema, name)
        if field is None:
            raise InvalidSchemaError(
                f"there is no column {name!r}; the columns are {', '.join(schema.names)}"
            )
        if field in fields:
            raise InvalidSchemaError(f"column {field.name!r} is asked for twice; name it once")
        fields.append(field)
    return pa.schema(fields)


def _scan_split(
    snapshot: Snapshot, ref: SplitRef, names: Sequence[str], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    return open_ref(snapshot, ref).scan(names, predicate)

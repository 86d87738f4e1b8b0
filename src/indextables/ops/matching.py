"""Streams all rows that match a full-text query, in no order of their scores, for SQL."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from indextables.config.registry import READ_PARALLELISM
from indextables.ops.read import SplitRef, open_again, projected_schema
from indextables.ops.runner import ordered_streams
from indextables.ops.search import SearchRequest, matching_rows_of, matching_splits
from indextables.table import Snapshot

_BATCH_ROWS: Final = 64 * 1024


def scan_matching(
    snapshot: Snapshot, request: SearchRequest, columns: Sequence[str] | None
) -> pa.RecordBatchReader:
    """The rows that match a request, split by split. Several splits are read at once, in bounded memory.

    Raises InvalidQueryError and InvalidSchemaError. An unreadable split ends the stream with an error.
    """
    schema = projected_schema(snapshot.schema, columns)
    refs, request = matching_splits(snapshot, request)
    streams = (partial(_rows_of, snapshot, request, schema.names, ref) for ref in refs)
    return pa.RecordBatchReader.from_batches(
        schema, ordered_streams(streams, snapshot.context.settings[READ_PARALLELISM])
    )


def _rows_of(
    snapshot: Snapshot, request: SearchRequest, names: Sequence[str], ref: SplitRef
) -> Iterator[pa.RecordBatch]:
    split = open_again(snapshot, ref)
    rows = matching_rows_of(snapshot, request, split)
    for start in range(0, len(rows), _BATCH_ROWS):
        yield from split.take(rows[start : start + _BATCH_ROWS], names).to_batches()

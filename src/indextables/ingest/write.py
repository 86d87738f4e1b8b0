"""`indextables.write`: data of Python's libraries into a table, which is created if there is none."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from indextables import ops
from indextables._public import public_call
from indextables.errors import InvalidOptionError, InvalidSchemaError, TableNotFoundError
from indextables.index_table import IndexTable, one_or_several, table_at
from indextables.ingest.lattice import final_type, table_type
from indextables.ingest.operation import removing_new_folder
from indextables.ingest.text_choice import SAMPLE_ROWS, choose_text_columns
from indextables.ingest.typed_source import check_names, conformed
from indextables.schema import canonical_schema, find_column
from indextables.schema.python_data import as_reader
from indextables.table import TableContext
from indextables.table.create import plan_table

_DATA: Final = "the data"
_REMEDY: Final = "cast the column, or write to a new table"


@public_call
def write(
    path: str | os.PathLike[str],
    data: Any,
    *,
    text: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] = (),
    merge_schema: bool = False,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> IndexTable:
    """Append data to a table, in one commit that also creates the table if there is none.

    Nothing is lost on the way in: a column that the table does not have, and a value that does not fit its column, is
    an error, and nothing is committed then.

    Args:
        path: The table: a local directory, or an s3://, abfss://, gs:// or hdfs:// URL.
        data: A pandas or Polars DataFrame, a DuckDB relation, a list of dicts, a dict of columns, a pyarrow Table or
            RecordBatchReader, or any object with the Arrow PyCapsule interface.
        text: The string columns to tokenize for full-text search: a name, or several. By default, the values of a new
            table decide: `indextables describe` shows the choice. Pass `[]` for none.
        partition_by: The columns to partition a new table by: a name, or several.
        merge_schema: Whether to add columns that an existing table does not have, in the same commit.
        properties: Settings that are stored in a new table.
        name: A name of the new table, for its readers.
        description: A description of the new table, likewise.
        storage_options: Settings and credentials of the object store.
        options: Settings of this call. Index settings among them are stored in a new table, too.

    Returns:
        The table, at the version of the commit.

    Raises:
        InvalidSchemaError: Columns do not fit the table, or have types that no table holds.
        InvalidValueError: Values do not fit their columns.
        InvalidOptionError: The data is of an unknown kind, or the table exists with other text or partition columns.

    Example:
        >>> import indextables
        >>> events = indextables.write("events", [{"id": 1, "message": "disk full"}], text="message")
        >>> events.search("disk")["id"].to_pylist()
        [1]
        >>> indextables.write("events", [{"id": 2, "message": "disk cleaned"}]).num_rows
        2
    """
    place = os.fspath(path)
    reader = as_reader(data)
    check_names(reader.schema.names, _DATA)
    chosen = None if text is None else _names(text, "text")
    partitions = _names(partition_by, "partition_by")
    try:
        table = IndexTable(place, storage_options=storage_options, options=options)
    except TableNotFoundError:
        context = TableContext.at(place, storage_options, options)
        schema = _table_schema(reader)
        if chosen is None:
            sample, reader = _sampled(reader)
            chosen = tuple(choose_text_columns(_conformed_table(sample, schema), partitions))
        planned = plan_table(
            context,
            schema,
            partitions,
            {
                **ops.write.indexing_properties(options or {}),
                **(properties or {}),
                **ops.write.text_properties(schema, chosen),
            },
            **ops.write.checked_metadata(name, description),
        )
        with removing_new_folder(place):
            rows = _conformed(reader, planned.schema)
            return table_at(ops.write.create_with_rows(planned, rows).snapshot)
    _check_same(table, chosen, partitions)
    schema = table.schema
    if merge_schema:
        known = {name.lower() for name in schema.names}
        added = [field for field in _table_schema(reader) if field.name.lower() not in known]
        schema = pa.schema([*schema, *added])
    table.append(_conformed(reader, schema), merge_schema=merge_schema)
    return table


def _table_schema(reader: pa.RecordBatchReader) -> pa.Schema:
    """The schema of a new table for the data."""
    fields = [(field.name, final_type(table_type(field.type))) for field in reader.schema]
    if not fields:
        raise InvalidSchemaError("the data has no columns, so there is nothing to write")
    return canonical_schema(pa.schema(fields))


def _sampled(reader: pa.RecordBatchReader) -> tuple[pa.Table, pa.RecordBatchReader]:
    """The first rows, and a reader of all rows."""
    taken: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in taken) < SAMPLE_ROWS:
        batch = next(reader, None)
        if batch is None:
            break
        taken.append(batch)
    sample = pa.Table.from_batches(taken, reader.schema).slice(0, SAMPLE_ROWS)
    return sample, pa.RecordBatchReader.from_batches(reader.schema, chain(taken, reader))


def _conformed(reader: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    new = next((name for name in reader.schema.names if find_column(schema, name) is None), None)
    if new is not None:
        raise InvalidSchemaError(
            f"column {new!r} is not in the table, whose columns are {', '.join(schema.names)}; drop it, or add it with "
            f"merge_schema=True"
        )

    def batches() -> Iterator[pa.RecordBatch]:
        row = 1
        for batch in reader:
            yield from conformed(pa.Table.from_batches([batch]), schema, _DATA, row, _REMEDY).to_batches()
            row += batch.num_rows

    return pa.RecordBatchReader.from_batches(schema, batches())


def _conformed_table(sample: pa.Table, schema: pa.Schema) -> pa.Table:
    return conformed(sample, schema, _DATA, 1, _REMEDY)


def _check_same(table: IndexTable, text: Sequence[str] | None, partition_by: Sequence[str]) -> None:
    if partition_by and list(partition_by) != table.partition_columns:
        raise InvalidOptionError(
            f"{table.snapshot.context.url}: the table exists and is partitioned by "
            f"{', '.join(table.partition_columns) or 'no column'}; leave partition_by out"
        )
    search = ops.describe.column_search(table.snapshot)
    other = [each for each in text or () if not search.get(each, "").startswith(ops.describe.FULL_TEXT)]
    if other:
        raise InvalidOptionError(
            f"{table.snapshot.context.url}: the table exists, and {', '.join(other)} is not a text column in it; leave "
            f"text out"
        )


def _names(names: str | Sequence[str], argument: str) -> tuple[str, ...]:
    chosen = one_or_several(names)
    if not all(isinstance(each, str) for each in chosen):
        raise InvalidOptionError(f"{argument} must be a column name, or several; not {names!r}")
    return chosen

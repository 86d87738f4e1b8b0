"""Rows by partition: which rows share their partition values, and what those are as text."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from indextables.errors import InvalidValueError
from indextables.pruning import format_value


class PartitionRows(msgspec.Struct, frozen=True):
    """The rows of one partition, in their order and without the partition columns."""

    values: tuple[str | None, ...]
    rows: pa.Table


def by_partition(table: pa.Table, partition_columns: Sequence[str]) -> Iterator[PartitionRows]:
    """The rows of a table, partition by partition.

    Raises InvalidValueError for a value that has no text from which it could be read back.
    """
    if not table.num_rows:
        return
    data = table.drop_columns(list(partition_columns))
    if not partition_columns:
        yield PartitionRows((), data)
        return
    groups = np.zeros(table.num_rows, np.int64)
    for name in partition_columns:
        encoded = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy()
        # Renumbered after each column, so that many columns of many values do not overflow.
        groups = np.unique(groups * (len(encoded.dictionary) + 1) + codes, return_inverse=True)[1]
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        places = order[start:end]
        values = tuple(_text(table, name, int(places[0])) for name in partition_columns)
        is_contiguous = places[-1] - places[0] == len(places) - 1
        rows = data.slice(places[0], len(places)) if is_contiguous else data.take(pa.array(places))
        yield PartitionRows(values, rows)


def _text(table: pa.Table, name: str, row: int) -> str | None:
    value = table.column(name)[row]
    if not value.is_valid:
        return None
    text = format_value(value)
    if text is None:
        raise InvalidValueError(
            f"partition column {name!r} has a {value.type} that cannot be written as text and read back, such as "
            f"a year beyond 9999; clean the data, or partition by another column"
        )
    return text

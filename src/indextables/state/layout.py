"""How entries are laid out over manifests: sorted by partition, cut where partitions end. Pure.

A reader that wants one partition of a huge table should find it in few manifests, each of them small. A reader that
wants everything should not have to open too many. So a large partitioned table is cut into about
`_MANIFESTS_OF_LARGE_TABLE` pieces, and a small one is not cut at all.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.pruning import map_values, parse_values

_MANIFESTS_OF_LARGE_TABLE = 128
_SMALLEST_TARGET_ENTRIES = 4096


def target_entries(total_entries: int, entries_per_manifest: int, *, is_partitioned: bool) -> int:
    """How many entries a manifest of a table of this size should have at most."""
    if not is_partitioned:
        return entries_per_manifest
    ideal = max(_SMALLEST_TARGET_ENTRIES, -(-total_entries // _MANIFESTS_OF_LARGE_TABLE))
    return min(ideal, entries_per_manifest)


def pieces(
    entries: pa.Table, partition_columns: Sequence[str], schema: pa.Schema, max_entries: int
) -> Iterator[pa.Array]:
    """The rows of each manifest: in the order of the partition values, and of at most `max_entries`.

    Values are compared by the columns' types, nulls last; a column with values that do not parse is compared as
    text: the order is a matter of speed alone. Pieces end where partitions end, if that is possible.
    """
    values = [map_values(entries["partitionValues"], column) for column in partition_columns]
    keys = {
        f"key{index}": _sort_key(texts, schema.field(column).type)
        for index, (column, texts) in enumerate(zip(partition_columns, values, strict=True))
    }
    order = pa.array(np.arange(entries.num_rows))
    if keys:
        order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    starts = _partition_starts([texts.take(order) for texts in values], entries.num_rows)
    start, total = 0, entries.num_rows
    while start < total:
        end = min(start + max_entries, total)
        if end < total:
            boundary = starts[np.searchsorted(starts, end, side="right") - 1]
            end = int(boundary) if boundary > start else end
        yield order.slice(start, end - start)
        start = end


def _sort_key(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    distinct = texts.dictionary_encode()
    parsed = parse_values(distinct.dictionary, data_type)
    return parsed.values.take(distinct.indices) if pc.all(parsed.understood).as_py() else texts


def _partition_starts(values: Sequence[pa.Array], rows: int) -> npt.NDArray[np.int64]:
    """The rows at which another partition begins, 0 included."""
    is_start = np.zeros(rows, dtype=np.bool_)
    is_start[:1] = True
    for texts in values:
        codes = texts.dictionary_encode("encode").indices
        is_start[1:] |= np.diff(codes.to_numpy()) != 0
    return np.flatnonzero(is_start)

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

_MANIFESTS_OF_LARGE_TABLE = 64
_SMALLEST_TARGET_ENTRIES = 4096


def target_entries(total_entries: int, entries_per_manifest: int, *, is_partitioned: bool) -> int:
    """How many entries a manifest of a table of this size should have at most."""
    if not is_partitioned:
        return entries_per_manifest
    ideal = max(_SMALLEST_TARGET_ENTRIES, -(-total_entries // _MANIFESTS_OF_LARGE_TABLE))
    return min(ideal, entries_per_manifest)


def sorted_by_partition(entries: pa.Table, partition_columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Entries in the order of their partition values, compared by the columns' types, nulls last.

    A column with values that do not parse is compared as text: the order is a matter of speed alone.
    """
    if not partition_columns or entries.num_rows < 2:
        return entries
    keys = {
        f"key{index}": _sort_key(entries, column, schema) for index, column in enumerate(partition_columns)
    }
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    return entries.take(order)


def cut(entries: pa.Table, partition_columns: Sequence[str], max_entries: int) -> Iterator[pa.Table]:
    """Sorted entries in pieces of at most `max_entries`, at the ends of partitions where that is possible."""
    starts = _partition_starts(entries, partition_columns)
    start, total = 0, entries.num_rows
    while start < total:
        end = min(start + max_entries, total)
        if end < total:
            boundary = starts[np.searchsorted(starts, end, side="right") - 1]
            end = int(boundary) if boundary > start else end
        yield entries.slice(start, end - start)
        start = end


def _sort_key(entries: pa.Table, column: str, schema: pa.Schema) -> pa.Array:
    texts = map_values(entries["partitionValues"], column)
    parsed = parse_values(texts, schema.field(column).type)
    return parsed.values if pc.all(parsed.understood).as_py() else texts


def _partition_starts(entries: pa.Table, partition_columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """The rows at which another partition begins, 0 included."""
    is_start = np.zeros(entries.num_rows, dtype=np.bool_)
    is_start[:1] = True
    for column in partition_columns:
        codes = map_values(entries["partitionValues"], column).dictionary_encode("encode").indices
        is_start[1:] |= np.diff(codes.to_numpy()) != 0
    return np.flatnonzero(is_start)

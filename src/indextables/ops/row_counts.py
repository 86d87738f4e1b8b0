"""How many rows a DELETE, UPDATE or MERGE changes, by partition."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa

from indextables.ops.row_changes import FoundRows

PARTITION_ROWS: Final = pa.struct([("partition", pa.map_(pa.string(), pa.string())), ("rows", pa.int64())])

# A partition, and the number of rows in it; None if a split does not record its rows.
Counted: TypeAlias = tuple[Mapping[str, str | None], int | None]


class PartitionCount(msgspec.Struct, frozen=True):
    """A partition, and how many of its rows match; None if a split does not record its rows."""

    partition: dict[str, str | None]
    rows: int | None


def partition_counts(found: Sequence[FoundRows], more: Iterable[Counted] = ()) -> tuple[PartitionCount, ...]:
    """The rows that were found, and more rows, by partition."""
    rows: Counter[tuple[tuple[str, str | None], ...]] = Counter()
    uncounted = set()
    for values, count in [*((each.ref.partition_values, each.count) for each in found), *more]:
        partition = tuple(sorted(values.items()))
        rows[partition] += count or 0
        if count is None:
            uncounted.add(partition)
    return tuple(
        PartitionCount(dict(partition), None if partition in uncounted else count)
        for partition, count in sorted(rows.items(), key=repr)
    )


def total_rows(found: Sequence[FoundRows]) -> int | None:
    """The number of rows that were found; None if a split does not record its rows."""
    counts = [each.count for each in found]
    return None if None in counts else sum(count for count in counts if count is not None)

"""Files by partition, decided exactly: for operations that must not take a file too many."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import InvalidPredicateError
from indextables.predicates import Predicate
from indextables.pruning import match_partitions
from indextables.table.snapshot import Snapshot


def files_of_partitions(snapshot: Snapshot, where: Predicate, columns: Sequence[str]) -> pa.Table:
    """The live files whose partition values satisfy `where`: every row of them does.

    Raises InvalidPredicateError if `where` needs more than partition values, or if a file has a value that is
    not of its column's type, so that nobody can tell.
    """
    # Skipping keeps every file that may match, which leaves the exact decision to a few.
    wanted = tuple(dict.fromkeys([*columns, "path", "partitionValues", "minValues", "maxValues"]))
    candidates = snapshot.select(where, wanted).entries
    matches = match_partitions(candidates, where, snapshot.schema, snapshot.partition_columns)
    if matches.null_count:
        path = candidates["path"].filter(matches.is_null())[0].as_py()
        raise InvalidPredicateError(
            f"{snapshot.context.url}: a partition value of {path} does not parse as its column's type, so it cannot "
            f"be told whether the predicate holds for it; name the partitions by values that all files have"
        )
    return candidates.filter(pc.fill_null(matches, False)).select(list(columns))

"""DROP PARTITIONS: remove whole partitions in one commit."""

import pyarrow as pa

from indextables.errors import InvalidPredicateError
from indextables.log.entries import empty_entries
from indextables.ops.write import run
from indextables.predicates import Predicate, parse_predicate
from indextables.pruning import match_partitions
from indextables.table import CommitResult, Operation, Snapshot
from indextables.table.intent import DropPartitions


def drop_partitions(snapshot: Snapshot, where: str | Predicate) -> CommitResult:
    """Remove the splits of all partitions for which `where` is true. They stay on disk until a purge.

    Values are compared by the types of their columns. If others commit meanwhile, the partitions are looked up again,
    so that what they added to them goes, too; if nothing is left to remove, nothing is committed. Raises
    InvalidPredicateError if `where` needs more than partition columns, or if it cannot be decided for a file,
    CommitConflictError if the table's metadata changed meanwhile, and what else `commit` raises.
    """
    predicate = parse_predicate(where) if isinstance(where, str) else where
    check_partition_predicate(snapshot, predicate)
    return run(snapshot, DropPartitions(predicate), Operation("DROP PARTITIONS", {"predicate": str(where)}))


def check_partition_predicate(snapshot: Snapshot, where: Predicate) -> None:
    """Raises InvalidPredicateError unless `where` is about partition columns only, and about some."""
    if not snapshot.partition_columns:
        raise InvalidPredicateError(
            f"{snapshot.context.url}: the table is not partitioned, so that it has no partitions to drop"
        )
    nothing: pa.Table = empty_entries()
    match_partitions(nothing, where, snapshot.schema, snapshot.partition_columns)

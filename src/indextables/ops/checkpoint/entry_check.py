"""The thorough check of the state that CHECKPOINT and COMPACT build on: every entry is read."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.decode import UnknownContent
from indextables.log.segment import Base, BaseFormat
from indextables.ops.checkpoint.cleanup import read_entries
from indextables.state.source import StateSource
from indextables.table import Snapshot
from indextables.table.log_reader import read_base_uncached


def entry_problem(snapshot: Snapshot) -> str | None:
    """What is wrong with the state that the snapshot starts from, or None. Nothing is taken from a cache.

    JSON and Parquet checkpoints are read completely when they are loaded. Raises LogCorruptedError if a version file
    after the base cannot be read: every other base needs it, too.
    """
    _ = snapshot.tail
    base = snapshot.segment.base
    if base is None or base.format is not BaseFormat.AVRO_STATE:
        return None
    try:
        count = read_entries(snapshot.context, base)
    except LogCorruptedError as error:
        damaged = list(_damaged_manifests(snapshot))
        return "; ".join(damaged) if damaged else str(error)
    if count.found == count.recorded:
        return None
    return (
        f"it holds {count.found[0]} files of {count.found[1]} bytes, but records {count.recorded[0]} files of "
        f"{count.recorded[1]} bytes"
    )


class EntriesToRewrite:
    """Checks a state as `entry_problem` does, and keeps its entries for the rewrite, which so reads nothing twice."""

    def __init__(self) -> None:
        self._base: Base | None = None
        self._entries: pa.Table | None = None

    def problem(self, snapshot: Snapshot) -> str | None:
        """What is wrong with the state that the snapshot starts from, or None."""
        base = snapshot.segment.base
        if base is None or base.format is not BaseFormat.AVRO_STATE:
            return entry_problem(snapshot)
        _ = snapshot.tail
        try:
            _, source = read_base_uncached(snapshot.context, base, UnknownContent.IGNORE)
            assert isinstance(source, StateSource)  # because the base is an Avro state
            entries = source.load_with_foreign_columns()
        except (LogCorruptedError, ObjectNotFoundError):
            return entry_problem(snapshot)
        if (len(entries), pc.sum(entries["size"]).as_py() or 0) != (source.num_files, source.total_bytes):
            return entry_problem(snapshot)
        self._base, self._entries = base, entries
        return None

    def of(self, base: Base | None) -> pa.Table | None:
        """The live entries of a state with their foreign columns, if it is the one that was checked last."""
        return self._entries if base is not None and base == self._base else None


def _damaged_manifests(snapshot: Snapshot) -> Iterator[str]:
    """Every manifest that cannot be read, with the number of its entries: what is lost with it."""
    source = snapshot.source
    assert isinstance(source, StateSource)  # because the base is an Avro state
    for info in source.state.manifests:
        try:
            StateSource.read_files(source.store, source.state.state_version, [info], ["path"])
        except (LogCorruptedError, ObjectNotFoundError) as error:
            yield f"{info.path} with {info.num_entries} file entries cannot be read ({error})"

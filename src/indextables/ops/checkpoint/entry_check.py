"""The thorough check of the state that CHECKPOINT and COMPACT build on: every entry is read."""

from collections.abc import Iterator

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.segment import BaseFormat
from indextables.ops.checkpoint.cleanup import read_entries
from indextables.state.source import StateSource
from indextables.table import Snapshot


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


def _damaged_manifests(snapshot: Snapshot) -> Iterator[str]:
    """Every manifest that cannot be read, with the number of its entries: what is lost with it."""
    source = snapshot.source
    assert isinstance(source, StateSource)  # because the base is an Avro state
    for info in source.state.manifests:
        try:
            StateSource.read_files(source.store, source.state.state_version, [info], ["path"])
        except (LogCorruptedError, ObjectNotFoundError) as error:
            yield f"{info.path} with {info.num_entries} file entries cannot be read ({error})"

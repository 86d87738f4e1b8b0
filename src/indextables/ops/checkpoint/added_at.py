"""When the entries of an older checkpoint were added: the version files tell, as long as they exist.

Checkpoints of older writers do not record the version and the time at which an entry was added. A reader takes those of
the checkpoint; a rewrite, which makes them permanent, looks them up.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.segment import Base, VersionEntry, list_log
from indextables.table import TableContext
from indextables.table.log_reader import read_tail

_VERSIONS_PER_READ: Final = 64
_COLUMNS: Final = ("addedAtVersion", "addedAtTimestamp")


def with_versions_of_adds(context: TableContext, base: Base, entries: pa.Table) -> pa.Table:
    """The entries of a checkpoint, with the version and time of the add in the version files, where these exist.

    Only entries that seem to be as new as the checkpoint are looked up: in version files from the newest to the oldest,
    until all are found or a version is missing or unreadable. Before that version, a path may have been another file.
    """
    is_new = pc.equal(entries["addedAtVersion"], base.version)
    missing = entries["path"].filter(is_new).combine_chunks()
    found: list[pa.Table] = []
    batches = _newest_first(context, base)
    while len(missing) and (adds := next(batches, None)) is not None:
        adds = adds.filter(pc.is_in(adds["path"], value_set=missing))
        found.append(adds)
        missing = missing.filter(pc.invert(pc.is_in(missing, value_set=adds["path"].combine_chunks())))
    return _updated(entries, is_new, pa.concat_tables(found)) if found else entries


def _newest_first(context: TableContext, base: Base) -> Iterator[pa.Table]:
    """The last add of each path in batches of version files, without gaps, that end at the checkpoint."""
    listing = list_log(context.store)
    version = base.version
    size = 1  # The entries of our own checkpoints need the newest version at most.
    while version in listing.versions:
        files: list[VersionEntry] = []
        while len(files) < size and version in listing.versions:
            files.insert(0, listing.version_file(version))
            version -= 1
        try:
            yield _last_adds(context, files)
        except (LogCorruptedError, ObjectNotFoundError):
            return
        size = _VERSIONS_PER_READ


def _last_adds(context: TableContext, files: Sequence[VersionEntry]) -> pa.Table:
    adds = read_tail(context, files).adds.select(["path", *_COLUMNS, "sequence"])
    last = adds.group_by("path", use_threads=False).aggregate([("sequence", "max")])
    is_last = pc.is_in(adds["sequence"], value_set=last["sequence_max"].combine_chunks())
    return adds.filter(is_last).select(["path", *_COLUMNS])


def _updated(entries: pa.Table, is_new: pa.ChunkedArray, adds: pa.Table) -> pa.Table:
    place = pc.index_in(entries["path"], value_set=adds["path"].combine_chunks())
    place = pc.if_else(is_new, place, pa.scalar(None, pa.int32()))
    for name in _COLUMNS:
        index = entries.schema.get_field_index(name)
        known = adds[name].combine_chunks().take(place.combine_chunks())
        entries = entries.set_column(index, entries.schema.field(index), pc.coalesce(known, entries[name]))
    return entries

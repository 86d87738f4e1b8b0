"""Checks of the log: every file of it can be read, and all ways to a version lead to the same table."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError, UnsafePathError
from indextables.log.checkpoint import LastCheckpoint, read_hint
from indextables.log.decode import UnknownContent
from indextables.log.entries import empty_entries
from indextables.log.paths import LAST_CHECKPOINT_KEY
from indextables.log.replay import EMPTY_HEADER, LogHeader, removed_paths, replay_entries, replay_header
from indextables.log.segment import Base, BaseFormat, LogListing, VersionEntry
from indextables.log.version_file import find_object
from indextables.ops.fsck.report import Finding, Severity
from indextables.ops.references import read_actions
from indextables.pruning import map_values
from indextables.storage import ObjectMeta
from indextables.table import Snapshot, TableContext
from indextables.table.log_reader import read_base_uncached, read_last_actions

_COMPARED = ("path", "size", "modificationTime", "numRecords")
_NEEDED = [*_COMPARED, "partitionValues"]

_CHECKPOINT_AGAIN = "write it again with CHECKPOINT"
_REPAIR = "restore the file from a backup, or rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"


class CheckedBase(msgspec.Struct, frozen=True):
    """A checkpoint that was read to the last entry."""

    base: Base
    header: LogHeader
    entries: pa.Table


def check_reach(head: Snapshot, listing: LogListing) -> Iterator[Finding]:
    """Versions that should be there and are not."""
    if head.gap is not None:
        yield Finding(
            Severity.ERROR,
            "log-gap",
            f"version {head.gap.first_missing}",
            f"is missing or unreadable although version {head.gap.newest} exists; what was committed from there on "
            f"is not visible, and nothing can be committed",
            _REPAIR,
        )
    reachable = reachable_versions(listing)
    stranded = sorted(v for v in listing.versions if v not in reachable and v < head.version)
    if stranded:
        yield Finding(
            Severity.INFO,
            "versions-unreachable",
            f"versions {stranded[0]} to {stranded[-1]}",
            f"{len(stranded)} version files lie before what can be read, left by a cleanup that was interrupted",
            "they go with the next purge",
        )


def reachable_versions(listing: LogListing) -> frozenset[int]:
    """The versions that a checkpoint stands at, or that version files lead to from one or from the start."""
    reachable: set[int] = set()
    for version in sorted({*listing.versions, *listing.bases}):
        if version in listing.bases or version == 0 or version - 1 in reachable:
            reachable.add(version)
    return frozenset(reachable)


def check_promise(head: Snapshot, hint: LastCheckpoint | None) -> Iterator[Finding]:
    """The version that the hint names is there. It must have been read before the head, which may have moved on."""
    newest = head.version if head.gap is None else head.gap.newest
    if hint is not None and hint.proves_version_after(newest):
        yield Finding(
            Severity.ERROR,
            "version-lost",
            f"version {hint.version}",
            f"the hint names a checkpoint of it, and the newest version that can be read is {head.version}; what was "
            f"committed in between is not visible, and its splits look as if nobody needed them",
            f"{_REPAIR}; do not run PURGE INDEXTABLE before that",
        )


def check_hint(context: TableContext, listing: LogListing) -> Iterator[Finding]:
    """The hint at the newest checkpoint: without a good one opening the table costs time."""
    if find_object(context.store, LAST_CHECKPOINT_KEY) is None:
        if listing.bases:
            message = "there is no hint although there are checkpoints: opening the table takes longer"
            yield Finding(Severity.INFO, "hint-missing", LAST_CHECKPOINT_KEY, message, _CHECKPOINT_AGAIN)
        return
    hint = read_hint(context.store)
    if hint is None:
        message = "it cannot be read, and is ignored"
        yield Finding(Severity.WARNING, "hint-unreadable", LAST_CHECKPOINT_KEY, message, _CHECKPOINT_AGAIN)
    elif hint.version not in listing.bases:
        message = f"it points at a checkpoint of version {hint.version}, which is not there"
        yield Finding(Severity.WARNING, "hint-stale", LAST_CHECKPOINT_KEY, message, _CHECKPOINT_AGAIN)
    elif hint.version < max(listing.bases):
        message = f"it points at version {hint.version}, and version {max(listing.bases)} has a checkpoint"
        yield Finding(Severity.INFO, "hint-behind", LAST_CHECKPOINT_KEY, message, _CHECKPOINT_AGAIN)


def check_version_files(context: TableContext, versions: Iterable[VersionEntry]) -> Iterator[Finding]:
    """Every version file can be read."""
    files = list(versions)
    try:
        read_actions(context, files)
    except ObjectNotFoundError:
        return  # cleaned up since it was listed
    except (LogCorruptedError, UnsafePathError) as error:
        if len(files) > 1:
            # Which one it is shows when they are read in halves.
            yield from check_version_files(context, files[: len(files) // 2])
            yield from check_version_files(context, files[len(files) // 2 :])
        else:
            yield Finding(Severity.ERROR, "version-unreadable", files[0].meta.key, str(error), _REPAIR)


def check_base(context: TableContext, base: Base) -> CheckedBase | Finding:
    """A checkpoint can be read to the last entry, and its counts are exact."""
    try:
        header, source = read_base_uncached(context, base, UnknownContent.IGNORE)
        entries = source.load(None, _NEEDED).entries
    except (LogCorruptedError, ObjectNotFoundError) as error:
        return Finding(Severity.ERROR, "checkpoint-unreadable", base.meta.key, str(error), _CHECKPOINT_AGAIN)
    found = (entries.num_rows, pc.sum(entries["size"]).as_py() or 0)
    promised = (source.num_files, source.total_bytes)
    if found != promised:
        message = f"it holds {found[0]} files of {found[1]} bytes, and says {promised[0]} of {promised[1]}"
        return Finding(Severity.ERROR, "counts-wrong", base.meta.key, message, _CHECKPOINT_AGAIN)
    return CheckedBase(base, header, entries)


def check_replays(head: Snapshot, listing: LogListing, bases: Iterable[CheckedBase]) -> Iterator[Finding]:
    """Each checkpoint is what the one before it, or nothing at all, and the versions in between give.

    Checkpoints without version files in between cannot be compared.
    """
    start = CheckedBase(_BEFORE_ALL, EMPTY_HEADER, empty_entries().select(_NEEDED))
    for before, after in pairwise([start, *sorted(bases, key=lambda checked: checked.base.version)]):
        between = range(before.base.version + 1, after.base.version + 1)
        if any(version not in listing.versions for version in between):
            continue
        try:
            tail = read_last_actions(head.context, [listing.version_file(version) for version in between])
        except (LogCorruptedError, ObjectNotFoundError):
            continue  # found by the check of version files
        header = replay_header(before.header, tail.versions, removed_paths(tail))
        reused = sorted(version for version in between if _is_used_again(version, header, after.header))
        if reused:
            yield from (_used_again(listing.versions[version], after.base) for version in reused)
            continue
        difference = _difference(replay_entries(before.entries, tail), after.entries, head)
        difference = difference or _header_difference(header, after.header)
        if difference is not None:
            yield Finding(
                Severity.ERROR,
                "replay-differs",
                after.base.meta.key,
                f"the versions from {between.start} on lead to another table: {difference}",
                "compare both with what was written; the version files are what was committed",
            )


def _is_used_again(version: int, replayed: LogHeader, recorded: LogHeader) -> bool:
    """Whether a checkpoint of this table remembers another commit of this number than the one that its file has."""
    found = replayed.recent_commits.get(version)
    is_of_table = recorded.metadata is None or replayed.metadata == recorded.metadata
    return is_of_table and found is not None and recorded.recent_commits.get(version, found) != found


def _used_again(file: ObjectMeta, base: Base) -> Finding:
    return Finding(
        Severity.WARNING,
        "version-used-again",
        file.key,
        f"{base.meta.key} remembers another commit of this number: if nobody has exchanged the file, it is of a writer "
        f"that slept while that commit was cleaned up, and is no part of the table",
        "the version cannot be read any more; its file goes with the next purge",
    )


# Where a replay without any checkpoint starts.
_BEFORE_ALL = Base(-1, BaseFormat.AVRO_STATE, ObjectMeta("", 0, 0))


def _difference(replayed: pa.Table, recorded: pa.Table, head: Snapshot) -> str | None:
    """What differs between two lists of files, or None."""
    left, right = _comparable(replayed, head), _comparable(recorded, head)
    if left.equals(right):
        return None
    for one, other, where in ((left, right, "only the versions have"), (right, left, "only it has")):
        only = one["path"].filter(pc.invert(pc.is_in(one["path"], value_set=other["path"].combine_chunks())))
        if len(only):
            return f"{where} {only[0].as_py()}" + (f" and {len(only) - 1} more" if len(only) > 1 else "")
    for name in left.column_names:
        if not left[name].equals(right[name]):
            return f"files differ in {name}"
    return None


def _comparable(entries: pa.Table, head: Snapshot) -> pa.Table:
    values = entries["partitionValues"].combine_chunks()
    columns = {name: entries[name] for name in _COMPARED}
    columns |= {f"partition {name}": map_values(values, name) for name in head.partition_columns}
    return pa.table(columns).sort_by("path").combine_chunks()


def _header_difference(replayed: LogHeader, recorded: LogHeader) -> str | None:
    # States of other writers may leave out both.
    if recorded.metadata is not None and replayed.metadata != recorded.metadata:
        return "the metadata differs"
    if recorded.protocol is not None and replayed.protocol not in (None, recorded.protocol):
        return "the protocol differs"
    return None

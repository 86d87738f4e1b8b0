"""FSCK checks of the log: every file is readable, and every way to load a version yields the same table."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import (
    ConcurrentMaintenanceError,
    LogCorruptedError,
    ObjectNotFoundError,
    UnsafePathError,
    VersionNotFoundError,
)
from indextables.log.actions import Metadata, ProtocolAction, upgraded
from indextables.log.decode import UnknownContent
from indextables.log.entries import empty_entries
from indextables.log.paths import LAST_CHECKPOINT_KEY, STATE_PREFIX
from indextables.log.replay import (
    EMPTY_HEADER,
    LogHeader,
    check_partition_values,
    removed_paths,
    replay_entries,
    replay_header,
)
from indextables.log.segment import Base, BaseFormat, LastCheckpoint, LogListing, VersionEntry, read_hint
from indextables.log.version_file import find_object
from indextables.ops.fsck.report import Finding, Severity
from indextables.ops.references import read_actions
from indextables.pruning import map_values
from indextables.storage import ObjectMeta
from indextables.table import Snapshot, TableContext, load_snapshot
from indextables.table.log_reader import read_base_uncached, read_last_actions

_COMPARED_COLUMNS: Final = ("path", "size", "modificationTime", "numRecords", "deletionVector")
_LOADED_COLUMNS: Final = [*_COMPARED_COLUMNS, "partitionValues"]

_CHECKPOINT_AGAIN: Final = "write it again with CHECKPOINT"
_REMOVES_FOLDERS: Final = "the next CHECKPOINT or PURGE INDEXTABLE removes them"
REPAIR: Final = "restore the file from a backup, or rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
_COVERED: Final = (
    "other files of the log lead to its version; cleanup deletes it after its retention, and TRUNCATE INDEXTABLES TIME "
    "TRAVEL deletes it now, with all older versions"
)
_OLD_VERSION: Final = (
    "restore the file from a backup, or drop the old versions with TRUNCATE INDEXTABLES TIME TRAVEL"
)

# The starting point of a replay without a checkpoint.
_EMPTY_BASE = Base(-1, BaseFormat.AVRO_STATE, ObjectMeta("", 0, 0))


class CheckedBase(msgspec.Struct, frozen=True):
    """A checkpoint whose entries are all readable."""

    base: Base
    header: LogHeader
    entries: pa.Table


def check_reachability(head: Snapshot, listing: LogListing) -> Iterator[Finding]:
    """Report missing versions, and version files that no reader can reach."""
    if head.gap is not None:
        yield Finding(
            Severity.ERROR,
            "log-gap",
            f"version {head.gap.first_missing}",
            f"is missing or unreadable although version {head.gap.newest} exists; readers do not see the commits from "
            f"there on, and writers cannot commit",
            REPAIR,
        )
    reachable = reachable_versions(listing)
    stranded = sorted(v for v in listing.versions if v not in reachable and v < head.version)
    if stranded:
        yield Finding(
            Severity.INFO,
            "versions-unreachable",
            f"versions {stranded[0]} to {stranded[-1]}",
            f"{len(stranded)} version files precede the oldest readable version; an interrupted cleanup left them",
            "the next PURGE INDEXTABLE deletes them",
        )


def reachable_versions(listing: LogListing) -> frozenset[int]:
    """The versions that readers can load: from a checkpoint, or by replay from a checkpoint or from version 0."""
    reachable: set[int] = set()
    for version in sorted({*listing.versions, *listing.bases}):
        if version in listing.bases or version == 0 or version - 1 in reachable:
            reachable.add(version)
    return frozenset(reachable)


def check_hinted_version(head: Snapshot, hint: LastCheckpoint | None) -> Iterator[Finding]:
    """Check that the version of the hint still exists. The hint must be read before the head."""
    newest = head.version if head.gap is None else head.gap.newest
    if hint is not None and hint.proves_version_after(newest):
        yield Finding(
            Severity.ERROR,
            "version-lost",
            f"version {hint.version}",
            f"the hint points at a checkpoint of this version, but the newest version that can be read is "
            f"{head.version}; readers do not see the commits in between, and their splits look orphaned",
            f"{REPAIR}; do not run PURGE INDEXTABLE before that",
        )


def check_hint(context: TableContext, listing: LogListing) -> Iterator[Finding]:
    """Check the hint that points at the newest checkpoint. Without a current one, tables open more slowly."""
    if find_object(context.store, LAST_CHECKPOINT_KEY) is None:
        if listing.bases:
            message = "the hint is missing although checkpoints exist; the table opens more slowly"
            yield Finding(Severity.INFO, "hint-missing", LAST_CHECKPOINT_KEY, message, _CHECKPOINT_AGAIN)
        return
    hint = read_hint(context.store)
    if hint is None:
        message = "the hint cannot be read; readers ignore it"
        yield Finding(Severity.WARNING, "hint-unreadable", LAST_CHECKPOINT_KEY, message, _CHECKPOINT_AGAIN)
    elif hint.version not in listing.bases:
        message = f"the hint points at a checkpoint of version {hint.version}, which does not exist"
        yield Finding(Severity.WARNING, "hint-stale", LAST_CHECKPOINT_KEY, message, _CHECKPOINT_AGAIN)
    elif hint.version < max(listing.bases):
        message = (
            f"the hint points at version {hint.version}, but version {max(listing.bases)} has a checkpoint"
        )
        yield Finding(Severity.INFO, "hint-behind", LAST_CHECKPOINT_KEY, message, _CHECKPOINT_AGAIN)


def check_state_folders(context: TableContext) -> Iterator[Finding]:
    """Count the empty folders that states left behind on a disk. They make listings slower."""
    empty = context.store.remove_empty_folders(STATE_PREFIX, dry_run=True)
    if empty:
        message = f"{len(empty)} folders of states are empty; they make the table open more slowly"
        yield Finding(Severity.INFO, "empty-state-folders", empty[0], message, _REMOVES_FOLDERS)


def check_version_files(
    context: TableContext, versions: Iterable[VersionEntry], metadata: Metadata | None
) -> Iterator[Finding]:
    """Report version files that cannot be read. `metadata` is of the newest version, if that can be read."""
    files = list(versions)
    try:
        actions = read_actions(context, files)
        if metadata is not None:
            check_partition_values(actions.summaries, metadata, context.url)
    except ObjectNotFoundError:
        return  # a concurrent cleanup deleted it after the listing
    except (LogCorruptedError, UnsafePathError) as error:
        if len(files) > 1:
            # Bisect to isolate the damaged files.
            yield from check_version_files(context, files[: len(files) // 2], metadata)
            yield from check_version_files(context, files[len(files) // 2 :], metadata)
        else:
            yield Finding(Severity.ERROR, "version-unreadable", files[0].meta.key, str(error), REPAIR)


class DamagedBase(msgspec.Struct, frozen=True):
    """A checkpoint that cannot be read to the last entry, or whose counts are wrong."""

    base: Base
    code: str
    message: str


def check_base(context: TableContext, base: Base) -> CheckedBase | DamagedBase:
    """Read a checkpoint to the last entry and compare its counts."""
    try:
        header, source = read_base_uncached(context, base, UnknownContent.IGNORE)
        entries = source.load(None, _LOADED_COLUMNS).entries
    except (LogCorruptedError, ObjectNotFoundError) as error:
        return DamagedBase(base, "checkpoint-unreadable", str(error))
    found = (entries.num_rows, pc.sum(entries["size"]).as_py() or 0)
    recorded = (source.num_files, source.total_bytes)
    if found != recorded:
        message = (
            f"the checkpoint holds {found[0]} files of {found[1]} bytes, but records {recorded[0]} files of "
            f"{recorded[1]} bytes"
        )
        return DamagedBase(base, "counts-wrong", message)
    return CheckedBase(base, header, entries)


def report_damaged_bases(
    context: TableContext, damaged: Sequence[DamagedBase], bases: Sequence[CheckedBase], *, is_readable: bool
) -> Iterator[Finding]:
    """Report damaged checkpoints, each with a remedy that helps; `is_readable` says whether the newest version is.

    CHECKPOINT replaces those that the newest version would be read from. For older ones it matters only whether other
    files of the log lead to their versions.
    """
    newest_whole = max((checked.base.version for checked in bases), default=-1)
    keys = [found.base.meta.key for found in damaged]
    for found in damaged:
        base, severity, remedy = found.base, Severity.ERROR, _CHECKPOINT_AGAIN if is_readable else REPAIR
        if base.version < newest_whole:
            is_covered = _is_covered(context, base.version, keys)
            severity, remedy = (Severity.WARNING, _COVERED) if is_covered else (Severity.ERROR, _OLD_VERSION)
        yield Finding(severity, found.code, base.meta.key, found.message, remedy)


def _is_covered(context: TableContext, version: int, damaged: Sequence[str]) -> bool:
    """Whether the version can be read without the damaged checkpoints."""
    try:
        _ = load_snapshot(context, version, excluded_bases=damaged).entries
    except (LogCorruptedError, VersionNotFoundError, ConcurrentMaintenanceError):
        return False
    return True


def check_replays(head: Snapshot, listing: LogListing, bases: Iterable[CheckedBase]) -> Iterator[Finding]:
    """Check that each checkpoint equals the previous one (or an empty table) plus the versions in between.

    Checkpoints are compared only if all version files in between exist.
    """
    start = CheckedBase(_EMPTY_BASE, EMPTY_HEADER, empty_entries().select(_LOADED_COLUMNS))
    for before, after in pairwise([start, *sorted(bases, key=lambda checked: checked.base.version)]):
        between = range(before.base.version + 1, after.base.version + 1)
        if any(version not in listing.versions for version in between):
            continue
        try:
            tail = read_last_actions(head.context, [listing.version_file(version) for version in between])
        except (LogCorruptedError, ObjectNotFoundError):
            continue  # check_version_files reports it
        if any(version.without_partition_values for version in tail.versions) and head.partition_columns:
            continue  # check_version_files reports it, too
        header = replay_header(before.header, tail.versions, removed_paths(tail))
        reused = sorted(version for version in between if _is_reused(version, header, after.header))
        if reused:
            yield from (_reused_version_finding(listing.versions[version], after.base) for version in reused)
            continue
        difference = _difference(replay_entries(before.entries, tail), after.entries, head)
        difference = difference or _header_difference(header, after.header)
        if difference is not None:
            yield Finding(
                Severity.ERROR,
                "replay-differs",
                after.base.meta.key,
                f"replaying the versions from {between.start} on yields a different table: {difference}",
                "compare both with your data; the version files are what writers committed",
            )


def _is_reused(version: int, replayed: LogHeader, recorded: LogHeader) -> bool:
    """Whether a checkpoint of this table records another commit under this version than the version file holds."""
    found = replayed.recent_commits.get(version)
    is_same_table = recorded.metadata is None or replayed.metadata == recorded.metadata
    return is_same_table and found is not None and recorded.recent_commits.get(version, found) != found


def _reused_version_finding(file: ObjectMeta, base: Base) -> Finding:
    return Finding(
        Severity.WARNING,
        "version-used-again",
        file.key,
        f"{base.meta.key} records another commit of this version: unless the file was replaced by hand, it was written "
        f"by a stalled writer after cleanup and is not part of the table",
        "this version can no longer be read; the next PURGE INDEXTABLE deletes its file",
    )


def _difference(replayed: pa.Table, recorded: pa.Table, head: Snapshot) -> str | None:
    """The first difference between two lists of files, or None."""
    left, right = _comparable(replayed, head), _comparable(recorded, head)
    if left.equals(right):
        return None
    sides = (
        (left, right, "only the versions have"),
        (right, left, "only the checkpoint has"),
    )
    for one, other, label in sides:
        only = one["path"].filter(pc.invert(pc.is_in(one["path"], value_set=other["path"].combine_chunks())))
        if len(only):
            more = f" and {len(only) - 1} more" if len(only) > 1 else ""
            return f"{label} {only[0].as_py()}{more}"
    for name in left.column_names:
        if not left[name].equals(right[name]):
            return f"files differ in {name}"
    return None


def _comparable(entries: pa.Table, head: Snapshot) -> pa.Table:
    values = entries["partitionValues"].combine_chunks()
    columns = {name: entries[name] for name in _COMPARED_COLUMNS}
    columns |= {f"partition {name}": map_values(values, name) for name in head.partition_columns}
    return pa.table(columns).sort_by("path").combine_chunks()


def _header_difference(replayed: LogHeader, recorded: LogHeader) -> str | None:
    # States of other writers may omit both.
    if recorded.metadata is not None and replayed.metadata != recorded.metadata:
        return "the metadata differs"
    if recorded.protocol is not None and not _is_raised(replayed.protocol, recorded.protocol):
        return "the protocol differs"
    return None


def _is_raised(before: ProtocolAction | None, after: ProtocolAction) -> bool:
    """Whether one protocol is the other, or what a checkpoint raises it to."""
    return before is None or upgraded(before, after.min_reader_version, after.min_writer_version) == after

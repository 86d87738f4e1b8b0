"""From the log to a snapshot: opening a table, and following it to its newest version.

To open a table:

1. The hint says where to start listing. Without a hint that matches, the whole log is listed.
2. The newest readable base (checkpoint or state) is taken. An unreadable one is skipped with a warning.
3. The version files after it are replayed, as far as they are contiguous.

A gap ends the readable log: readers log a warning, and writers refuse to commit (`commit`).
"""

import logging
import time
from collections.abc import Collection, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from indextables.config import Settings
from indextables.config.registry import TRANSACTION_CACHE_EXPIRATION_SECONDS
from indextables.errors import (
    ConcurrentMaintenanceError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageTimeoutError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.actions import DEFAULT_PROTOCOL, Metadata, ProtocolAction, check_readable
from indextables.log.entries import EntrySource, MemorySource, empty_entries
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, version_key
from indextables.log.replay import (
    EMPTY_HEADER,
    LogHeader,
    check_partition_values,
    removed_paths,
    replay_header,
)
from indextables.log.segment import (
    Base,
    Gap,
    LastCheckpoint,
    LogListing,
    LogSegment,
    VersionEntry,
    build_segment,
    contiguous_versions,
    list_log,
    read_hint,
)
from indextables.log.version_file import find_object, find_version_file
from indextables.metrics import LOAD_DURATION_MS
from indextables.state.source import StateSource, report_tombstones
from indextables.storage import StoreLocation
from indextables.table.conflict import ConcurrentCommit, concurrent_commit_of
from indextables.table.context import TableContext, stamp
from indextables.table.foreign_state import completed_header
from indextables.table.log_reader import (
    read_base,
    read_last_actions,
    read_log_files,
    read_tail,
    with_unlisted_versions,
)
from indextables.table.snapshot import Snapshot, segment_identity

logger = logging.getLogger(__name__)

# How often a reader starts again when a concurrent cleanup removes files while it reads.
_LOAD_ATTEMPTS = 3

# A snapshot with a longer tail is read again from a newer checkpoint, if there is one.
_MAX_TAIL = 50

# Beyond this many new versions, it is cheaper to start from a newer checkpoint than to read all of them.
_MAX_CAUGHT_UP_VERSIONS = 200

# Beyond this many new versions, one listing is cheaper than one request per version.
_MAX_FOLLOWED_VERSIONS = 8


# --- opening a table ----------------------------------------------------------------------------------


def load_snapshot(
    context: TableContext, version: int | None = None, *, excluded_bases: Collection[str] = ()
) -> Snapshot:
    """The table at `version`, or at its newest version, read without the bases under the keys `excluded_bases`.

    Raises TableNotFoundError, VersionNotFoundError if the log does not hold the version, ConcurrentMaintenanceError if
    files of the log keep vanishing, UnsupportedProtocolError, LogCorruptedError if a required file is damaged, and
    StorageTimeoutError if a required checkpoint takes too long to read.
    """
    if version is not None and version < 0:
        raise VersionNotFoundError(f"{context.url}: there is no version {version}; versions start at 0")
    started = time.perf_counter()
    for attempt in range(_LOAD_ATTEMPTS):
        try:
            snapshot = _load(context, version, excluded_bases)
            _report_load(snapshot, (time.perf_counter() - started) * 1000)
            return _reported(snapshot) if version is None else snapshot
        except ObjectNotFoundError as error:
            if attempt == _LOAD_ATTEMPTS - 1:
                raise ConcurrentMaintenanceError(
                    f"{context.url}: a concurrent purge, cleanup or truncate removed a file of the log while it was "
                    f"read ({error}); open the table again"
                ) from error
    raise AssertionError("unreachable: the loop returns or raises")


def reopen(location: StoreLocation, settings: Settings, version: int, table_id: str) -> Snapshot:
    """The version of a table that was pickled, as it is in the store now.

    Raises VersionNotFoundError if the log no longer holds that version of that table, and what `load_snapshot` raises.
    """
    snapshot = load_snapshot(TableContext(location.open(), settings, location), version)
    if snapshot.metadata.id != table_id:
        raise VersionNotFoundError(
            f"{snapshot.context.url}: the table was dropped and created again after version {version} of it was "
            f"pickled; open the table again"
        )
    return snapshot


def _report_load(snapshot: Snapshot, took_ms: float) -> None:
    base, table = snapshot.segment.base, snapshot.context.url
    format_ = base.format.value if base is not None else "none"
    LOAD_DURATION_MS.record(took_ms, table, format=format_)
    logger.debug(
        "%s: opened version %d from a checkpoint of the format %s and %d versions in %.1f ms",
        table, snapshot.version, format_, len(snapshot.segment.version_files), took_ms,
    )  # fmt: skip


def _reported(newest: Snapshot) -> Snapshot:
    """Set the gauges of the table. Only for the newest version: an older one would turn them back."""
    if isinstance(newest.source, StateSource):
        report_tombstones(newest.source.state, newest.context.url)
    return newest


class _Start(msgspec.Struct, frozen=True):
    """A segment, with the content of its base."""

    segment: LogSegment
    header: LogHeader
    source: EntrySource


def _load(context: TableContext, version: int | None, excluded_bases: Collection[str]) -> Snapshot:
    hint = read_hint(context.store)
    start, listing = None, None
    timed_out: dict[Base, StorageTimeoutError] = {}
    if hint is not None and (version is None or version >= hint.version):
        listing = _list_from_hint(context, hint, excluded_bases)
        start = _first_readable(context, listing, version, timed_out) if listing is not None else None
    if start is None:
        listing = list_log(context.store).without(excluded_bases)
        if listing.is_empty and not excluded_bases:
            raise TableNotFoundError(
                f"{context.url}: there is no table here (no transaction log found under {LOG_PREFIX}); check the "
                f"path, or create the table with IndexTable.create"
            )
        start = _first_readable(context, listing, version, timed_out)
    if start is None:
        if timed_out:
            raise next(iter(timed_out.values()))
        _check_still_listed(context, listing)
        raise _out_of_reach(context, listing, version)
    snapshot = _build(context, start, excluded_bases)
    if version is None and hint is not None:
        _warn_if_lost(snapshot, hint)
    if version is not None and listing is not None:
        _check_not_reused(snapshot, listing)
    return snapshot


def _list_from_hint(
    context: TableContext, hint: LastCheckpoint, excluded_bases: Collection[str]
) -> LogListing | None:
    """The log from the version of the hint on, or None if the base that the hint names is missing.

    If that version has several bases, the one in the format of the hint comes first.
    """
    listing = list_log(context.store, from_version=hint.version).without(excluded_bases)
    if hint.version not in listing.bases:
        return None
    base_format = hint.base_format
    return listing if base_format is None else listing.preferring(hint.version, base_format)


def _first_readable(
    context: TableContext,
    listing: LogListing,
    version: int | None,
    timed_out: dict[Base, StorageTimeoutError],
) -> _Start | None:
    """The newest readable base, with the version files after it. None if there is neither a base nor version 0.

    A base whose read takes too long goes into `timed_out` and is not tried again. Its versions exist, so a base and
    version files that end before them do not replace it.
    """
    bases = [base for base in listing.bases_newest_first() if version is None or base.version <= version]
    first = bases[0].version + 1 if bases else 0
    listing = with_unlisted_versions(context, listing, first, version)
    unreadable: list[int] = []
    for base in bases:
        if base in timed_out:
            continue
        try:
            header, source = read_base(context, base)
        except StorageTimeoutError as error:
            logger.warning(
                "%s: failed to read checkpoint at version %d in time, falling back to older files: %s",
                context.url, base.version, error,
            )  # fmt: skip
            timed_out[base] = error
            continue
        except (LogCorruptedError, ObjectNotFoundError) as error:
            logger.warning(
                "%s: failed to read checkpoint at version %d, falling back to older files: %s",
                context.url, base.version, error,
            )  # fmt: skip
            unreadable.append(base.version)
            continue
        segment = build_segment(listing, base, version=version)
        if _ends_before(segment, timed_out):
            return None
        return _Start(_with_gap(segment, unreadable), header, source)
    if 0 not in listing.versions:
        return None
    segment = build_segment(listing, None, version=version)
    if _ends_before(segment, timed_out):
        return None
    return _Start(_with_gap(segment, unreadable), EMPTY_HEADER, MemorySource(empty_entries()))


def _ends_before(segment: LogSegment, timed_out: Collection[Base]) -> bool:
    return any(base.version > segment.version for base in timed_out)


def _with_gap(segment: LogSegment, unreadable: list[int]) -> LogSegment:
    """The segment, with a gap if an unreadable base proves that later versions existed."""
    newest = max(unreadable, default=-1)
    if newest <= segment.version or segment.gap is not None:
        return segment
    return replace(segment, gap=Gap(first_missing=segment.version + 1, newest=newest))


def _build(context: TableContext, start: _Start, excluded_bases: Collection[str]) -> Snapshot:
    segment = start.segment
    header = _cached_header(context, segment)
    tail = None
    if header is None:
        tail = read_last_actions(context, segment.version_files)
        base = completed_header(context, segment.base, start.header)
        header = replay_header(base, tail.versions, removed_paths(tail))
        if header.metadata is None or header.protocol is None:
            header = _recover_identity(context, header)
        check_partition_values(tail.versions, header.metadata, context.url)
        context.cache.metadata.put(context.store, segment_identity(segment), header)
    if header.metadata is None:
        raise LogCorruptedError(
            f"{context.url}: no metadata found: no metaData action is left in the log, so the schema is unknown; "
            f"rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
        )
    protocol = header.protocol or DEFAULT_PROTOCOL
    check_readable(protocol, context.url)
    if segment.gap is not None:
        logger.warning(
            "%s: version %d is missing or unreadable although version %d exists; commits from version %d on "
            "are not visible, and writers cannot commit before REPAIR INDEXFILES TRANSACTION LOG",
            context.url, segment.gap.first_missing, segment.gap.newest, segment.gap.first_missing,
        )  # fmt: skip
    table_context = context.with_properties(header.metadata)
    tried = [*excluded_bases, *([segment.base.meta.key] if segment.base is not None else [])]
    recover = partial(_entries_from_other_files, context, tried)
    return Snapshot(table_context, segment, header, protocol, header.metadata, start.source, tail, recover)


def _cached_header(context: TableContext, segment: LogSegment) -> LogHeader | None:
    expiration = context.settings[TRANSACTION_CACHE_EXPIRATION_SECONDS]
    found: LogHeader | None = context.cache.metadata.get(context.store, segment_identity(segment), expiration)
    return found


def _recover_identity(context: TableContext, header: LogHeader) -> LogHeader:
    """The header with metadata and protocol from older files: some writers leave them out of their states.

    Raises LogCorruptedError if a damaged checkpoint may hold newer ones than those that were found.
    """
    listing = list_log(context.store)
    bases = {version: found for version, found in listing.bases.items() if version < header.version}
    versions = {version for version in listing.versions if version <= header.version}
    metadata: Metadata | None = header.metadata
    protocol: ProtocolAction | None = header.protocol
    damaged: int | None = None
    # From newest to oldest: the newest metadata and the newest protocol are in effect.
    for version in sorted(versions.union(bases), reverse=True):
        if metadata and protocol:
            break
        if damaged is not None and not versions.issuperset(range(version + 1, damaged + 1)):
            raise LogCorruptedError(
                f"{context.url}: failed to read checkpoint at version {damaged}, and version files after {version} are "
                f"missing, so an older schema or protocol might be taken for the current one; restore the files from a "
                f"backup, or rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
            )
        if version in versions:
            summary = read_tail(context, [listing.version_file(version)]).versions[0].actions
            metadata, protocol = metadata or summary.metadata, protocol or summary.protocol
        for base in bases.get(version, ()):
            try:
                older, _ = read_base(context, base)
            except (LogCorruptedError, ObjectNotFoundError):
                continue
            metadata, protocol = metadata or older.metadata, protocol or older.protocol
            break
        else:
            if version in bases and damaged is None:
                damaged = version
    return replace(header, metadata=metadata, protocol=protocol)


def _entries_from_other_files(
    context: TableContext, tried: Collection[str], segment: LogSegment
) -> EntrySource:
    """The entries of a segment that cannot be read, from other bases than those under the keys `tried`."""
    other = load_snapshot(context, segment.version, excluded_bases=tried)
    if segment_identity(other.segment) == segment_identity(segment):
        raise VersionNotFoundError(
            f"{context.url}: version {segment.version} cannot be read from any other files of the log"
        )
    return MemorySource(other.entries)


def _check_still_listed(context: TableContext, listing: LogListing | None) -> None:
    """Raise ObjectNotFoundError, which restarts the load, if a concurrent cleanup removed a listed checkpoint."""
    for base in listing.bases_newest_first() if listing is not None else ():
        if find_object(context.store, base.meta.key) is None:
            raise ObjectNotFoundError(f"{context.url}: {base.meta.key} was removed after it was listed")


def _out_of_reach(
    context: TableContext, listing: LogListing | None, version: int | None
) -> VersionNotFoundError | LogCorruptedError:
    earliest = min([*listing.versions, *listing.bases], default=0) if listing is not None else 0
    if version is not None:
        return VersionNotFoundError(
            f"{context.url}: version {version} is no longer readable: no checkpoint at or before it is left, and "
            f"{version_key(0)} is gone; the oldest file of the log is of version {earliest}"
        )
    return LogCorruptedError(
        f"{context.url}: no transaction log found that can be read: no checkpoint can be read, and {version_key(0)} "
        f"is missing; rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
    )


def _warn_if_lost(snapshot: Snapshot, hint: LastCheckpoint) -> None:
    """Warn if the hint, which was read before the log was listed, names a version that is out of reach."""
    newest = snapshot.version if snapshot.gap is None else snapshot.gap.newest
    if hint.proves_version_after(newest):
        logger.warning(
            "%s: %s names a checkpoint of version %d, and the newest version that can be read is %d; commits in "
            "between are not visible. Restore the log from a backup, or rebuild it with REPAIR INDEXFILES "
            "TRANSACTION LOG, before anything is committed or purged",
            snapshot.context.url, LAST_CHECKPOINT_KEY, hint.version, snapshot.version,
        )  # fmt: skip


def _check_not_reused(snapshot: Snapshot, listing: LogListing) -> None:
    """Raise VersionNotFoundError if a stalled writer reused the number of a version that cleanup had removed.

    Its file looks like a part of the log, but a later checkpoint remembers the commit id of the original version.
    """
    context, found = snapshot.context, snapshot.header.recent_commits
    tail = [file.version for file in snapshot.segment.version_files if file.version in found]
    later = [base for base in listing.bases_newest_first() if base.version > snapshot.version]
    for base in reversed(later) if tail else ():
        try:
            remembered = read_base(context, base)[0].recent_commits
        except (LogCorruptedError, ObjectNotFoundError):
            continue
        for version in tail:
            if remembered.get(version, found[version]) != found[version]:
                raise VersionNotFoundError(
                    f"{context.url}: version {snapshot.version} is no longer readable: cleanup removed version "
                    f"{version}, and {version_key(version)} was written by a stalled writer after cleanup and is not "
                    f"part of the table"
                )
        return


# --- the same version from a newer base ---------------------------------------------------------------


def reload_from_newest_base(snapshot: Snapshot) -> Snapshot:
    """The same version, read from the newest checkpoint at or before it. Entries in memory stay there.

    Without this, a long-lived table object would carry every version since it was opened.
    """
    return load_snapshot(snapshot.context, snapshot.version).sharing_entries_of(snapshot)


def reload_if_tail_is_long(snapshot: Snapshot) -> Snapshot:
    """The snapshot, read from a newer checkpoint if its tail is long and there is one."""
    segment = snapshot.segment
    if len(segment.version_files) <= _MAX_TAIL:
        return snapshot
    hint = read_hint(snapshot.context.store)
    known = segment.base.version if segment.base is not None else -1
    if hint is None or not known < hint.version <= snapshot.version:
        return snapshot
    return reload_from_newest_base(snapshot)


# --- from a snapshot to the newest version ------------------------------------------------------------


class CaughtUp(msgspec.Struct, frozen=True):
    """The newest snapshot, and the commits since the older one, in order.

    `concurrent_commits` is None if they are unknown: cleanup removed them, the table was created again, or there are
    too many to read one by one.
    """

    snapshot: Snapshot
    concurrent_commits: tuple[ConcurrentCommit, ...] | None


def catch_up(snapshot: Snapshot) -> CaughtUp:
    """The newest version of the table, read from the versions after `snapshot`. Raises as `load_snapshot` does."""
    context = snapshot.context
    listing = list_log(context.store, from_version=snapshot.version)
    if not _is_base_file_listed(snapshot, listing):
        return CaughtUp(load_snapshot(context), None)
    listing = with_unlisted_versions(context, listing, snapshot.version + 1)
    files = contiguous_versions(listing, snapshot.version + 1)
    # There are versions after a hole: cleanup removed those in between, or the log has a gap.
    has_hole = listing.newest_version > snapshot.version + len(files)
    is_far_behind = len(files) > _MAX_CAUGHT_UP_VERSIONS and max(listing.bases, default=-1) > snapshot.version
    if has_hole or is_far_behind:
        return CaughtUp(load_snapshot(context), None)
    try:
        caught_up = _extend(snapshot, files)
    except ObjectNotFoundError:
        # Cleanup removed a file after it was listed.
        return CaughtUp(load_snapshot(context), None)
    reload = (
        reload_from_newest_base if _has_another_base(caught_up.snapshot, listing) else reload_if_tail_is_long
    )
    try:
        return replace(caught_up, snapshot=_reported(reload(caught_up.snapshot)))
    except VersionNotFoundError:
        # A concurrent truncate removed the version after it was read, so there is a newer one.
        return CaughtUp(load_snapshot(context), None)


def follow(snapshot: Snapshot) -> CaughtUp:
    """The same as `catch_up`, but faster for a writer that just met a concurrent commit.

    Requests the next versions by name, which takes as long in a long log as in a short one. A listing does not.
    """
    files: list[VersionEntry] = []
    while (meta := find_version_file(snapshot.context.store, snapshot.version + len(files) + 1)) is not None:
        files.append(VersionEntry(snapshot.version + len(files) + 1, meta))
        if len(files) > _MAX_FOLLOWED_VERSIONS:
            return catch_up(snapshot)
    try:
        caught_up = _extend(snapshot, files)
    except ObjectNotFoundError:
        return catch_up(snapshot)
    # Checked last: if the base file is unchanged now, the files that were read belong to the same table.
    return caught_up if files and is_base_file_unchanged(snapshot) else catch_up(snapshot)


def is_base_file_unchanged(snapshot: Snapshot) -> bool:
    """False if the table was created again, or cleaned up past the snapshot. Raises StorageError."""
    base_file = snapshot.base_file
    try:
        return stamp(snapshot.context.store.head(base_file.key)) == stamp(base_file)
    except ObjectNotFoundError:
        return False


def _is_base_file_listed(snapshot: Snapshot, listing: LogListing) -> bool:
    """The same as `is_base_file_unchanged`, answered by a listing."""
    version, base_file = snapshot.version, stamp(snapshot.base_file)
    found = [base.meta for base in listing.bases.get(version, ())]
    if version in listing.versions:
        found.append(listing.versions[version])
    return any(stamp(meta) == base_file for meta in found)


def _extend(snapshot: Snapshot, files: Sequence[VersionEntry]) -> CaughtUp:
    if not files:
        return CaughtUp(snapshot, ())
    log_files = read_log_files(snapshot.context, files)
    concurrent = tuple(concurrent_commit_of(log_file) for log_file in log_files)
    return CaughtUp(snapshot.extended(files, log_files), concurrent)


def _has_another_base(snapshot: Snapshot, listing: LogListing) -> bool:
    """Whether there is a newer base, or one of the same version in another format, which the hint may prefer."""
    base = snapshot.segment.base
    known = base.version if base is not None else -1
    is_alone = len(listing.bases.get(known, ())) <= 1
    return not is_alone or any(known < version <= snapshot.version for version in listing.bases)

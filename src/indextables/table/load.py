"""Is the newest file that a snapshot was read from still the same file?"""

import logging
from collections.abc import Collection, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from indextables.config.registry import TRANSACTION_CACHE_EXPIRATION_SECONDS
from indextables.errors import (
    LogCorruptedError,
    ObjectNotFoundError,
    StorageTimeoutError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.actions import Metadata, Protocol
from indextables.log.checkpoint import LastCheckpoint, read_hint
from indextables.log.entries import EntrySource, MemorySource, empty_entries
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, version_key
from indextables.log.protocol import DEFAULT_PROTOCOL, check_readable
from indextables.log.replay import EMPTY_HEADER, LogHeader, removed_paths, replay_header
from indextables.log.segment import (
    Base,
    Gap,
    LogListing,
    LogSegment,
    build_segment,
    contiguous_versions,
    list_log,
)
from indextables.log.version_file import find_object, find_version_file
from indextables.storage import ObjectMeta
from indextables.table.cache import stamp
from indextables.table.context import TableContext
from indextables.table.intent import ConcurrentCommit, concurrent_commit_of
from indextables.table.log_reader import (
    read_base,
    read_last_actions,
    read_log_files,
    read_tail,
    with_unlisted_versions,
)
from indextables.table.snapshot import Snapshot, segment_identity


def is_base_file_unchanged(snapshot: Snapshot) -> bool:
    """False if the table was created again since, or cleaned up past the snapshot. Raises StorageError."""
    ground = snapshot.ground
    try:
        return stamp(snapshot.context.store.head(ground.key)) == stamp(ground)
    except ObjectNotFoundError:
        return False


# Opening a table: from the hint and a listing to a snapshot.
#
# 1. The hint tells where to start listing; without one that matches, everything is listed. 2. The newest base
# that can be read is taken; one that cannot is passed over with a warning. 3. The version files after it are
# replayed as far as they are contiguous.
#
# A gap ends the readable log: visibly for readers, and writers refuse (`commit`).


logger = logging.getLogger(__name__)

# How often a reader starts again when the log is cleaned up under it.
_LOAD_ATTEMPTS = 3


def load_snapshot(
    context: TableContext, version: int | None = None, *, passing_over: Collection[str] = ()
) -> Snapshot:
    """The table at `version`, or at its newest; without the checkpoints under the keys in `passing_over`.

    Raises TableNotFoundError, VersionNotFoundError if the log does not hold this version any more, or
    not yet, UnsupportedProtocolError, LogCorruptedError if a file that cannot be done without is damaged, and
    StorageTimeoutError if a checkpoint that cannot be done without takes too long to read.
    """
    if version is not None and version < 0:
        raise VersionNotFoundError(f"{context.url}: there is no version {version}; versions start at 0")
    for attempt in range(_LOAD_ATTEMPTS):
        try:
            return _load(context, version, passing_over)
        except ObjectNotFoundError as error:
            if attempt == _LOAD_ATTEMPTS - 1:
                raise VersionNotFoundError(
                    f"{context.url}: a file of the log vanished while it was read ({error}), probably deleted by "
                    f"a concurrent purge; open the table again"
                ) from error
    raise AssertionError("unreachable: the loop returns or raises")


class _Start(msgspec.Struct, frozen=True):
    """A segment, and what its base says."""

    segment: LogSegment
    header: LogHeader
    source: EntrySource


def _load(context: TableContext, version: int | None, passing_over: Collection[str]) -> Snapshot:
    hint = read_hint(context.store)
    start, listing = None, None
    timed_out: dict[Base, StorageTimeoutError] = {}
    if hint is not None and (version is None or version >= hint.version):
        listing = _list_from_hint(context, hint, passing_over)
        start = _first_readable(context, listing, version, timed_out) if listing is not None else None
    if start is None:
        listing = list_log(context.store).without(passing_over)
        if listing.is_empty and not passing_over:
            raise TableNotFoundError(
                f"{context.url}: there is no table here (no versions under {LOG_PREFIX}); check the path, or "
                f"create the table with IndexTable.create"
            )
        start = _first_readable(context, listing, version, timed_out)
    if start is None:
        if timed_out:
            raise next(iter(timed_out.values()))
        _check_still_listed(context, listing)
        raise _out_of_reach(context, listing, version)
    snapshot = _build(context, start, passing_over)
    if version is None and hint is not None:
        _warn_if_lost(snapshot, hint)
    if version is not None and listing is not None:
        _check_is_first_use(snapshot, listing)
    return snapshot


def _check_is_first_use(snapshot: Snapshot, listing: LogListing) -> None:
    """Raise VersionNotFoundError if a writer that slept used the number of a version that had been cleaned up.

    Its file looks like a part of the log. But a later checkpoint remembers who the first one was.
    """
    context, found = snapshot.context, snapshot.header.recent_commits
    tail = [version for version, _ in snapshot.segment.tail if version in found]
    later = [base for base in listing.bases_newest_first() if base.version > snapshot.version]
    for base in reversed(later) if tail else ():
        try:
            remembered = read_base(context, base)[0].recent_commits
        except (LogCorruptedError, ObjectNotFoundError):
            continue
        for version in tail:
            if remembered.get(version, found[version]) != found[version]:
                raise VersionNotFoundError(
                    f"{context.url}: version {snapshot.version} cannot be read any more: version {version} was cleaned "
                    f"up, and {version_key(version)} is of a writer that slept meanwhile; it is no part of the table"
                )
        return


def _warn_if_lost(snapshot: Snapshot, hint: LastCheckpoint) -> None:
    """Say so if the hint names a version that nothing leads to any more: it was read before the log was listed."""
    newest = snapshot.version if snapshot.gap is None else snapshot.gap.newest
    if hint.bears_witness_beyond(newest):
        logger.warning(
            "%s: %s names a checkpoint of version %d, and the newest version that can be read is %d; what was "
            "committed in between is not visible. Restore the log from a backup, or rebuild it with REPAIR INDEXFILES "
            "TRANSACTION LOG, before anything is committed or purged",
            snapshot.context.url, LAST_CHECKPOINT_KEY, hint.version, snapshot.version,
        )  # fmt: skip


def _check_still_listed(context: TableContext, listing: LogListing | None) -> None:
    """Raise ObjectNotFoundError if checkpoints are gone since they were listed: whoever was so slow looks again."""
    for base in listing.bases_newest_first() if listing is not None else ():
        if find_object(context.store, base.meta.key) is None:
            raise ObjectNotFoundError(f"{context.url}: {base.meta.key} is gone since it was listed")


def _list_from_hint(
    context: TableContext, hint: LastCheckpoint, passing_over: Collection[str]
) -> LogListing | None:
    """The log from the hint on, or None if the base that it promises is not there.

    Of several bases of that version the hint names the one that was asked for last.
    """
    listing = list_log(context.store, from_version=hint.version).without(passing_over)
    if hint.version not in listing.bases:
        return None
    kind = hint.base_format
    return listing if kind is None else listing.preferring(hint.version, kind)


def _first_readable(
    context: TableContext,
    listing: LogListing,
    version: int | None,
    timed_out: dict[Base, StorageTimeoutError],
) -> _Start | None:
    """The newest base that can be read, with the version files after it.

    A base whose read takes too long goes into `timed_out` and is not tried again. It is not lost, so nothing that ends
    before its version takes its place.
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
            logger.warning("%s: the checkpoint at %d is passed over: %s", context.url, base.version, error)
            timed_out[base] = error
            continue
        except (LogCorruptedError, ObjectNotFoundError) as error:
            logger.warning("%s: the checkpoint at %d is passed over: %s", context.url, base.version, error)
            unreadable.append(base.version)
            continue
        segment = build_segment(listing, base, version=version)
        if _falls_short(segment, timed_out):
            return None
        return _Start(_with_gap(segment, unreadable), header, source)
    if 0 not in listing.versions:
        return None
    segment = build_segment(listing, None, version=version)
    if _falls_short(segment, timed_out):
        return None
    return _Start(_with_gap(segment, unreadable), EMPTY_HEADER, MemorySource(empty_entries()))


def _falls_short(segment: LogSegment, timed_out: Collection[Base]) -> bool:
    return any(base.version > segment.version for base in timed_out)


def _with_gap(segment: LogSegment, unreadable: list[int]) -> LogSegment:
    """A base beyond the last version, that cannot be read, bears witness of versions that are lost."""
    newest = max(unreadable, default=-1)
    if newest <= segment.version or segment.gap is not None:
        return segment
    return replace(segment, gap=Gap(first_missing=segment.version + 1, newest=newest))


def _build(context: TableContext, start: _Start, passed_over: Collection[str]) -> Snapshot:
    segment = start.segment
    header = _cached_header(context, segment)
    tail = None
    if header is None:
        tail = read_last_actions(context, segment.tail)
        header = replay_header(start.header, tail.versions, removed_paths(tail))
        if header.metadata is None or header.protocol is None:
            header = _recover_identity(context, header)
        context.cache.metadata.put(context.store, segment_identity(segment), header)
    if header.metadata is None:
        raise LogCorruptedError(
            f"{context.url}: no metaData action is left in the log, so the schema is unknown; rebuild the log "
            f"with REPAIR INDEXFILES TRANSACTION LOG"
        )
    protocol = header.protocol or DEFAULT_PROTOCOL
    check_readable(protocol, context.url)
    if segment.gap is not None:
        logger.warning(
            "%s: version %d is missing or unreadable although version %d exists; what was committed from %d on "
            "is not visible, and nothing can be committed before REPAIR INDEXFILES TRANSACTION LOG",
            context.url, segment.gap.first_missing, segment.gap.newest, segment.gap.first_missing,
        )  # fmt: skip
    own_context = context.with_properties(header.metadata)
    tried = [*passed_over, *([segment.base.meta.key] if segment.base is not None else [])]
    recover = partial(_by_other_files, context, tried)
    return Snapshot(own_context, segment, header, protocol, header.metadata, start.source, tail, recover)


def _by_other_files(context: TableContext, tried: Collection[str], segment: LogSegment) -> EntrySource:
    """The entries that a segment stands for, when it cannot be read (any more): without the bases under `tried`."""
    other = load_snapshot(context, segment.version, passing_over=tried)
    if segment_identity(other.segment) == segment_identity(segment):
        raise VersionNotFoundError(f"{context.url}: no other files of the log lead there")
    return MemorySource(other.entries)


def _cached_header(context: TableContext, segment: LogSegment) -> LogHeader | None:
    expiration = context.settings[TRANSACTION_CACHE_EXPIRATION_SECONDS]
    found: LogHeader | None = context.cache.metadata.get(context.store, segment_identity(segment), expiration)
    return found


def _recover_identity(context: TableContext, header: LogHeader) -> LogHeader:
    """States of other writers may leave out metadata and protocol: older states and version files have them."""
    listing = list_log(context.store)
    bases = {base.version: base for base in listing.bases_newest_first() if base.version < header.version}
    versions = {version for version in listing.versions if version <= header.version}
    metadata: Metadata | None = header.metadata
    protocol: Protocol | None = header.protocol
    # From the newest to the oldest: what was said last holds.
    for version in sorted(versions.union(bases), reverse=True):
        if metadata and protocol:
            break
        if version in versions:
            summary = read_tail(context, [(version, listing.versions[version])]).versions[0].actions
            metadata, protocol = metadata or summary.metadata, protocol or summary.protocol
        if version in bases:
            try:
                older, _ = read_base(context, bases[version])
            except (LogCorruptedError, ObjectNotFoundError):
                continue
            metadata, protocol = metadata or older.metadata, protocol or older.protocol
    return replace(header, metadata=metadata, protocol=protocol)


def _out_of_reach(
    context: TableContext, listing: LogListing | None, version: int | None
) -> VersionNotFoundError | LogCorruptedError:
    earliest = min([*listing.versions, *listing.bases], default=0) if listing is not None else 0
    if version is not None:
        return VersionNotFoundError(
            f"{context.url}: version {version} cannot be read any more: no checkpoint at or before it is left, and "
            f"{version_key(0)} is gone; the oldest file of the log is of version {earliest}"
        )
    return LogCorruptedError(
        f"{context.url}: no checkpoint can be read, and {version_key(0)} is missing; rebuild the log with "
        f"REPAIR INDEXFILES TRANSACTION LOG"
    )


# The same version, from a newer base.


_LONG_TAIL = 50


def reload_from_newest_base(snapshot: Snapshot) -> Snapshot:
    """The snapshot's version, read from the newest checkpoint at or before it.

    Whoever holds a table for long would otherwise carry every version since it was opened. File entries that are
    in memory stay there.
    """
    return load_snapshot(snapshot.context, snapshot.version).sharing_entries_of(snapshot)


def reload_if_tail_is_long(snapshot: Snapshot) -> Snapshot:
    """The snapshot, read from a newer checkpoint if it carries many versions and there is one."""
    segment = snapshot.segment
    if len(segment.tail) <= _LONG_TAIL:
        return snapshot
    hint = read_hint(snapshot.context.store)
    known = segment.base.version if segment.base is not None else -1
    if hint is None or not known < hint.version <= snapshot.version:
        return snapshot
    return reload_from_newest_base(snapshot)


# From a snapshot to the newest one, reading only what is new.


# Beyond this, it is cheaper to start again from a checkpoint than to read the versions in between.
_MANY_VERSIONS = 200

# Beyond this, one listing is cheaper than asking for each version.
_FOLLOWED_VERSIONS = 8


class CaughtUp(msgspec.Struct, frozen=True):
    """The newest snapshot, and each version that was committed since, in order.

    `winners` is None if nobody can tell: the log was cleaned up past the older snapshot, or the table was created
    again, or there are so many that they were not looked at one by one.
    """

    snapshot: Snapshot
    winners: tuple[ConcurrentCommit, ...] | None


def catch_up(snapshot: Snapshot) -> CaughtUp:
    """The table as it is now, by way of the versions after `snapshot`. Raises what `load_snapshot` raises."""
    context = snapshot.context
    listing = list_log(context.store, from_version=snapshot.version)
    if not _is_ground_listed(snapshot, listing):
        return CaughtUp(load_snapshot(context), None)
    listing = with_unlisted_versions(context, listing, snapshot.version + 1)
    files = contiguous_versions(listing, snapshot.version + 1)
    # Behind a hole there is more: the versions in between were cleaned up, or the log has a gap.
    has_hole = listing.newest_version > snapshot.version + len(files)
    is_far_behind = len(files) > _MANY_VERSIONS and max(listing.bases, default=-1) > snapshot.version
    if has_hole or is_far_behind:
        return CaughtUp(load_snapshot(context), None)
    try:
        caught_up = _extended(snapshot, files)
    except ObjectNotFoundError:
        # Cleaned up since it was listed.
        return CaughtUp(load_snapshot(context), None)
    if _has_another_base(caught_up.snapshot, listing):
        return replace(caught_up, snapshot=reload_from_newest_base(caught_up.snapshot))
    return replace(caught_up, snapshot=reload_if_tail_is_long(caught_up.snapshot))


def follow(snapshot: Snapshot) -> CaughtUp:
    """What `catch_up` gives, for a writer that lost a race just now and is in a hurry to lose no other.

    The next versions are asked for by name. That takes no longer in a long log than in a short one, as a listing would.
    """
    files: list[tuple[int, ObjectMeta]] = []
    while (meta := find_version_file(snapshot.context.store, snapshot.version + len(files) + 1)) is not None:
        files.append((snapshot.version + len(files) + 1, meta))
        if len(files) > _FOLLOWED_VERSIONS:
            return catch_up(snapshot)
    try:
        caught_up = _extended(snapshot, files)
    except ObjectNotFoundError:
        return catch_up(snapshot)
    # Looked at last: what was found so far belongs to the same table then.
    return caught_up if files and is_base_file_unchanged(snapshot) else catch_up(snapshot)


def _extended(snapshot: Snapshot, files: Sequence[tuple[int, ObjectMeta]]) -> CaughtUp:
    if not files:
        return CaughtUp(snapshot, ())
    log_files = read_log_files(snapshot.context, files)
    winners = tuple(concurrent_commit_of(log_file) for log_file in log_files)
    return CaughtUp(snapshot.extended(files, log_files), winners)


def _has_another_base(snapshot: Snapshot, listing: LogListing) -> bool:
    """Whether there is a newer base, or one of the same version in another format, which may be the one to read."""
    base = snapshot.segment.base
    known = base.version if base is not None else -1
    is_alone = len(listing.bases.get(known, ())) <= 1
    return not is_alone or any(known < version <= snapshot.version for version in listing.bases)


def _is_ground_listed(snapshot: Snapshot, listing: LogListing) -> bool:
    """What `is_base_file_unchanged` tells, by a listing."""
    version, ground = snapshot.version, stamp(snapshot.ground)
    found = [base.meta for base in listing.bases.get(version, ())]
    if version in listing.versions:
        found.append(listing.versions[version])
    return any(stamp(meta) == ground for meta in found)

"""Decides which files PURGE may delete, as of one point in time.

    now ──▶ list the storage ──▶ read the whole log ──▶ expired log files ──▶ paths that the rest refers to
                                                                                        │
              files in the order of deletion ◀── old enough? ◀── all other files ◀──────┘

The listing comes before the log: a file that is committed after the listing is then seen as referenced. Anything
unreadable raises an error; corrupt never means orphan.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.config.registry import (
    CLEANUP_ENABLED,
    PURGE_DEFAULT_RETENTION_HOURS,
    PURGE_MAX_FILES_TO_DELETE,
    PURGE_MIN_RETENTION_HOURS,
    PURGE_RETENTION_CHECK_ENABLED,
)
from indextables.errors import InvalidOptionError, LogGapError
from indextables.log.actions import check_writable
from indextables.log.deletion_vectors import are_vector_files
from indextables.log.file_keys import normalised_paths
from indextables.log.paths import version_key
from indextables.log.segment import LastCheckpoint, LogListing, list_log, read_hint
from indextables.ops.checkpoint.cleanup import CleanupPlan, CleanupRules, verified_plan
from indextables.ops.purge.garbage import checkpoint_files, find_orphans
from indextables.ops.purge.report import (
    MS_PER_HOUR,
    PurgeKind,
    Retention,
    doomed_files,
    doomed_rows,
    retention_hours,
    store_now_ms,
)
from indextables.ops.references import (
    LivePaths,
    among,
    data_files,
    latest_removes,
    oldest_known_version,
    read_actions,
    stored_table,
)
from indextables.storage import ObjectMeta
from indextables.table import Snapshot, TableContext, load_snapshot
from indextables.table.commit import LONG_WAIT_MS

# A writer may take hours between the upload of a split and its commit.
ORPHAN_FLOOR_HOURS: Final = 24.0


class PurgeRules(msgspec.Struct, frozen=True):
    """The retentions of a purge, in hours. With `log_rules` of None, the purge deletes no versions or checkpoints."""

    split_hours: float
    orphan_hours: float
    log_rules: CleanupRules | None
    max_files: int


class PurgePlan(msgspec.Struct, frozen=True):
    """The files to delete (`doomed`, with DOOMED_SCHEMA, in the order of deletion) and what the plan is based on.

    `checkpoints` are the keys of all checkpoints that the plan considered. `anchor` is the newest checkpoint that
    remains, or None if the purge deletes no log files. `fence_ms` is the upload time of the youngest doomed orphan
    among those that only a stalled writer could still commit, or None: the purge then commits a marker version first.
    """

    head: Snapshot
    now_ms: int
    split_cutoff_ms: int
    orphan_cutoff_ms: int
    doomed: pa.Table
    checkpoints: frozenset[str]
    anchor: int | None
    fence_ms: int | None
    left_over: int
    kept_for_time_travel: int
    kept_for_time_travel_bytes: int


def purge_rules(
    context: TableContext, older_than: Retention | None, log_retention: Retention | None
) -> PurgeRules:
    """Combine the arguments of a purge with the table's settings.

    With a `log_retention`, age alone decides on versions and checkpoints; without one, the table's settings do. Raises
    InvalidOptionError for a retention that is shorter than the settings allow.
    """
    settings = context.settings
    hours = settings[PURGE_DEFAULT_RETENTION_HOURS] if older_than is None else retention_hours(older_than)
    is_checked, shortest = settings[PURGE_RETENTION_CHECK_ENABLED], settings[PURGE_MIN_RETENTION_HOURS]
    if is_checked and hours < shortest:
        raise InvalidOptionError(
            f"{context.url}: a retention of {hours:g} hours could delete files of active writers and readers; keep at "
            f"least {shortest:g} hours, or set {PURGE_RETENTION_CHECK_ENABLED.key} to false"
        )
    log_rules: CleanupRules | None = None
    if log_retention is not None:
        log_hours = retention_hours(log_retention)
        log_rules = CleanupRules(log_hours, 0, log_hours, 0)
    elif settings[CLEANUP_ENABLED]:
        log_rules = CleanupRules.from_settings(settings)
    return PurgeRules(
        split_hours=hours,
        orphan_hours=max(hours, ORPHAN_FLOOR_HOURS) if is_checked else hours,
        log_rules=log_rules,
        max_files=settings[PURGE_MAX_FILES_TO_DELETE],
    )


def plan_purge(context: TableContext, rules: PurgeRules) -> PurgePlan:
    """Decide which files may be deleted. Deletes nothing.

    Raises ClockSkewError, LogGapError, UnsupportedProtocolError, LogCorruptedError if any file of the log cannot be
    read, UnsafePathError if the log names files outside of the table, and ObjectNotFoundError if a concurrent cleanup
    deletes log files during the planning.
    """
    now_ms = store_now_ms(context)
    metas = list(context.store.list(""))
    # Read the hint before the head: a hint read later may belong to a newer version than the head.
    hint = read_hint(context.store)
    head = load_snapshot(context)
    _check_may_purge(head, hint)
    listing = _complete_listing(head)
    cleanup = _plan_cleanup(head, listing, rules, now_ms)
    retained = _without(listing, cleanup)

    # Expired checkpoints are read, too: an unreadable one stops the purge.
    protected, expired = LivePaths(context), LivePaths(context)
    for base in listing.bases_newest_first():
        (protected if base in retained.bases.get(base.version, ()) else expired).add(base)
    kept = read_actions(context, retained.version_files)
    dropped = read_actions(
        context, [file for file in listing.version_files if file.version not in retained.versions]
    )
    references = _References(
        protected=pc.unique(pa.concat_arrays([protected.paths(), kept.added])),
        removed=latest_removes(pa.concat_tables([kept.removed, dropped.removed])),
        forgotten_until_ms=_forgotten_until_ms(
            head, listing, {**kept.timestamps_ms, **dropped.timestamps_ms}
        ),
    )
    cutoffs = _Cutoffs(
        now_ms,
        split_ms=int(now_ms - rules.split_hours * MS_PER_HOUR),
        orphan_ms=int(now_ms - rules.orphan_hours * MS_PER_HOUR),
    )
    splits = data_files(stored_table(metas))
    log_files = _doomed_log_files(context, metas, listing, retained, cleanup, now_ms)
    doomed = pa.concat_tables([log_files, *_doomed_splits(splits, references, cutoffs)])
    history = splits.filter(_is_kept_for_history(splits["path"], references, head))
    return PurgePlan(
        head=head,
        now_ms=now_ms,
        split_cutoff_ms=cutoffs.split_ms,
        orphan_cutoff_ms=cutoffs.orphan_ms,
        doomed=doomed.slice(0, rules.max_files),
        checkpoints=frozenset(base.meta.key for base in listing.bases_newest_first()),
        anchor=max(retained.bases, default=None) if cleanup.keys else None,
        fence_ms=_fence_ms(splits, doomed.slice(0, rules.max_files), now_ms),
        left_over=max(0, doomed.num_rows - rules.max_files),
        kept_for_time_travel=history.num_rows,
        kept_for_time_travel_bytes=pc.sum(history["size"]).as_py() or 0,
    )


class _References(msgspec.Struct, frozen=True):
    """The paths that must stay (`protected`), and the known removal times of other paths (`removed`).

    Removals whose versions were cleaned up happened no later than `forgotten_until_ms`: 0 if there are none.
    """

    protected: pa.Array
    removed: pa.Table
    forgotten_until_ms: int


class _Cutoffs(msgspec.Struct, frozen=True):
    now_ms: int
    split_ms: int
    orphan_ms: int


def _check_may_purge(head: Snapshot, hint: LastCheckpoint | None) -> None:
    # A release that does not support the table's protocol may miss references to its files.
    check_writable(head.protocol, head.context.url)
    if head.gap is not None:
        raise LogGapError(
            f"{head.context.url}: nothing was deleted, because version {head.gap.first_missing} is missing or "
            f"unreadable although version {head.gap.newest} exists, so the files that it refers to are unknown. "
            f"Restore the file, or rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
        )
    if hint is not None and hint.proves_version_after(head.version):
        raise LogGapError(
            f"{head.context.url}: nothing was deleted, because the hint points at a checkpoint of version "
            f"{hint.version}, but the newest version that can be read is {head.version}; the files that the lost "
            f"versions refer to are unknown. Restore the log from a backup, or rebuild it with REPAIR INDEXFILES "
            f"TRANSACTION LOG"
        )


def _complete_listing(head: Snapshot) -> LogListing:
    """The current listing of the log, plus the head's version files, which an inconsistent listing may lack."""
    listing = list_log(head.context.store)
    known = {file.version: file.meta for file in head.segment.version_files}
    versions = dict(sorted({**known, **listing.versions}.items()))
    return replace(listing, versions=versions)


def _plan_cleanup(head: Snapshot, listing: LogListing, rules: PurgeRules, now_ms: int) -> CleanupPlan:
    checkpoint_version = max((version for version in listing.bases if version <= head.version), default=None)
    if rules.log_rules is None or checkpoint_version is None:
        return CleanupPlan((), ())
    plan = verified_plan(head.context, listing, checkpoint_version, rules.log_rules, now_ms)
    newest_file = version_key(max(listing.versions, default=-1))
    return replace(plan, versions=tuple(key for key in plan.versions if key != newest_file))


def _without(listing: LogListing, cleanup: CleanupPlan) -> LogListing:
    """The listing after the cleanup."""
    gone = frozenset(cleanup.versions)
    versions = {version: meta for version, meta in listing.versions.items() if meta.key not in gone}
    return replace(listing.without(frozenset(cleanup.checkpoints)), versions=versions)


def _forgotten_until_ms(head: Snapshot, listing: LogListing, timestamps_ms: dict[int, int]) -> int:
    """The latest time of a removal that the log may have forgotten, or 0 if it still holds every version.

    An unreferenced split is aged by its own modification time only if the log still holds every remove. Otherwise a
    version that was cleaned up may have removed it, and it counts as removed as late as possible.
    """
    oldest = oldest_known_version(listing, head.version)
    return timestamps_ms.get(oldest, head.timestamp_ms) if oldest > 0 else 0


def _doomed_log_files(
    context: TableContext,
    metas: Iterable[ObjectMeta],
    listing: LogListing,
    retained: LogListing,
    cleanup: CleanupPlan,
    now_ms: int,
) -> pa.Table:
    bases = {base.meta.key: base.meta for base in listing.bases_newest_first()}
    versions = {meta.key: meta for meta in listing.versions.values()}
    orphans = find_orphans(context, metas, checkpoint_files(context, retained.bases_newest_first()), now_ms)
    groups = (
        (PurgeKind.CHECKPOINT, [bases[key] for key in cleanup.checkpoints]),
        (PurgeKind.VERSION, [versions[key] for key in cleanup.versions]),
        (PurgeKind.MANIFEST, orphans),
    )
    return pa.concat_tables([doomed_files(kind, found, now_ms) for kind, found in groups])


def _doomed_splits(splits: pa.Table, references: _References, cutoffs: _Cutoffs) -> list[pa.Table]:
    """Unreferenced splits and deletion vectors that are old enough.

    First removed splits, then orphans, which the log never mentions. It does not mention when a vector goes out of use
    either, so vectors age like orphans.
    """
    unreferenced = splits.filter(pc.invert(among(splits["path"], references.protected))).combine_chunks()
    paths = unreferenced["path"].combine_chunks()
    rows = pc.index_in(paths, value_set=references.removed["path"].combine_chunks())
    removed_ms = references.removed["removedMs"].combine_chunks().take(rows)
    modified_ms = unreferenced["modifiedMs"].combine_chunks()
    since_ms = pc.coalesce(removed_ms, pc.max_element_wise(modified_ms, references.forgotten_until_ms))
    is_removed = rows.is_valid()
    is_old_removed = pc.and_(is_removed, pc.less_equal(since_ms, cutoffs.split_ms))
    # Some stores list folders as objects without a time. An object without a time stays.
    has_time = pc.greater(modified_ms, 0)
    is_old_orphan = pc.and_(
        pc.and_(pc.invert(is_removed), has_time), pc.less_equal(since_ms, cutoffs.orphan_ms)
    )
    is_vector = are_vector_files(paths)
    sizes = unreferenced["size"].combine_chunks()
    return [
        doomed_rows(kind, paths.filter(mask), sizes.filter(mask), since_ms.filter(mask), cutoffs.now_ms)
        for kind, mask in (
            (PurgeKind.REMOVED_SPLIT, is_old_removed),
            (PurgeKind.ORPHANED_SPLIT, pc.and_not(is_old_orphan, is_vector)),
            (PurgeKind.DELETION_VECTOR, pc.and_(is_old_orphan, is_vector)),
        )
    ]


def _fence_ms(splits: pa.Table, doomed: pa.Table, now_ms: int) -> int | None:
    """The upload time of the youngest doomed orphan that only a stalled writer could still commit, or None."""
    kinds = pa.array([PurgeKind.ORPHANED_SPLIT.value, PurgeKind.DELETION_VECTOR.value])
    orphans = doomed.filter(pc.is_in(doomed["kind"], value_set=kinds))["path"]
    modified_ms = splits["modifiedMs"].filter(among(splits["path"], orphans.combine_chunks()))
    long_ago = modified_ms.filter(pc.less_equal(modified_ms, now_ms - LONG_WAIT_MS))
    newest: int | None = pc.max(long_ago).as_py()
    return newest


def _is_kept_for_history(paths: pa.ChunkedArray, references: _References, head: Snapshot) -> pa.Array:
    """A mask of the splits that only older versions refer to."""
    is_protected = among(paths, references.protected)
    is_removed = among(paths, references.removed["path"].combine_chunks())
    live = head.select(columns=["path"]).entries["path"].combine_chunks()
    is_live = among(paths, normalised_paths(live, head.context.url))
    return pc.and_(pc.and_(is_protected, is_removed), pc.invert(is_live))

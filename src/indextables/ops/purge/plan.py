"""What a purge may delete: one moment, one look at the storage and then at the log, one list that does not change.

    now ──▶ list the storage ──▶ read the whole log ──▶ what of the log may go ──▶ what the rest refers to
                                                                                        │
            the list, in the order of deletion ◀── old enough? ◀── everything else ◀────┘

A file that is committed after the listing is seen as referred to. Anything that cannot be read is an error.
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
from indextables.log.checkpoint import LastCheckpoint, read_hint
from indextables.log.paths import version_key
from indextables.log.protocol import check_writable
from indextables.log.segment import LogListing, list_log
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
    VersionActions,
    among,
    normalised_paths,
    oldest_known_version,
    read_actions,
    split_files,
    stored_table,
)
from indextables.storage import ObjectMeta
from indextables.table import Snapshot, TableContext, load_snapshot
from indextables.table.commit import LONG_WAIT_MS

# A writer may take long between the upload of a split and its commit.
ORPHAN_FLOOR_HOURS: Final = 24.0


class PurgeRules(msgspec.Struct, frozen=True):
    """How long what is kept, in hours; `log_rules` is None if the log is to be left alone."""

    split_hours: float
    orphan_hours: float
    log_rules: CleanupRules | None
    max_files: int


class PurgePlan(msgspec.Struct, frozen=True):
    """The files that go, with the columns of `DOOMED_SCHEMA`, in the order of deletion.

    `checkpoints` are the keys of those that were looked at. `anchor` is the one that the log rests on afterwards, None
    if none is touched. `fence_ms` is when the youngest of the orphaned splits was uploaded, of those that no writer
    could be about to commit unless it slept.
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
    """The rules that a purge's arguments and the table's settings give.

    With a `log_retention` the age of versions and checkpoints alone decides; without one, the table's own rules.
    Raises InvalidOptionError for a retention that is shorter than the settings allow.
    """
    settings = context.settings
    hours = settings[PURGE_DEFAULT_RETENTION_HOURS] if older_than is None else retention_hours(older_than)
    is_checked, shortest = settings[PURGE_RETENTION_CHECK_ENABLED], settings[PURGE_MIN_RETENTION_HOURS]
    if is_checked and hours < shortest:
        raise InvalidOptionError(
            f"{context.url}: a purge of what is older than {hours:g} hours could delete files of writers and readers "
            f"that are at work; keep at least {shortest:g} hours, or set {PURGE_RETENTION_CHECK_ENABLED.key} to false"
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
    """Decide what may be deleted, without deleting anything.

    Raises ClockSkewError, LogGapError, UnsupportedProtocolError, LogCorruptedError if any file of the log cannot be
    read, UnsafePathError if the log names files outside of the table, and ObjectNotFoundError if the log is being
    cleaned up by somebody else at the same time.
    """
    now_ms = store_now_ms(context)
    metas = list(context.store.list(""))
    # Before the newest version is looked for, which may be a later one by the time that this is read.
    hint = read_hint(context.store)
    head = load_snapshot(context)
    _check_may_purge(head, hint)
    listing = _whole_listing(head)
    cleanup = _plan_cleanup(head, listing, rules, now_ms)
    retained = _without(listing, cleanup)

    # Checkpoints that are about to go are read, too: what cannot be read stops the purge.
    protected, expendable = LivePaths(context), LivePaths(context)
    for base in listing.bases_newest_first():
        (protected if base in retained.bases.get(base.version, ()) else expendable).add(base)
    kept = read_actions(context, retained.version_files)
    gone = read_actions(
        context, [file for file in listing.version_files if file.version not in retained.versions]
    )
    references = _References(
        protected=pc.unique(pa.concat_arrays([protected.paths(), kept.added])),
        removed=_joined_removes(kept, gone),
        forgotten_until_ms=_forgotten_until_ms(head, listing, {**kept.timestamps_ms, **gone.timestamps_ms}),
    )
    cutoffs = _Cutoffs(
        now_ms,
        split_ms=int(now_ms - rules.split_hours * MS_PER_HOUR),
        orphan_ms=int(now_ms - rules.orphan_hours * MS_PER_HOUR),
    )
    splits = split_files(stored_table(metas))
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
    """`protected` are paths that stay. `removed` tells when others were removed, as far as the log remembers.

    Removals that it has forgotten happened up to `forgotten_until_ms`: 0 if there are none.
    """

    protected: pa.Array
    removed: pa.Table
    forgotten_until_ms: int


class _Cutoffs(msgspec.Struct, frozen=True):
    now_ms: int
    split_ms: int
    orphan_ms: int


def _check_may_purge(head: Snapshot, hint: LastCheckpoint | None) -> None:
    # Whoever does not know what the table needs does not know what refers to its files either.
    check_writable(head.protocol, head.context.url)
    if head.gap is not None:
        raise LogGapError(
            f"{head.context.url}: nothing was deleted, because version {head.gap.first_missing} is missing or "
            f"unreadable although version {head.gap.newest} exists, and what it refers to is unknown. Restore the "
            f"file, or rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
        )
    if hint is not None and hint.proves_version_after(head.version):
        raise LogGapError(
            f"{head.context.url}: nothing was deleted, because there was a checkpoint of version {hint.version}, and "
            f"the newest version that can be read is {head.version}; what the lost ones refer to is unknown. Restore "
            f"the log from a backup, or rebuild it with REPAIR INDEXFILES TRANSACTION LOG"
        )


def _whole_listing(head: Snapshot) -> LogListing:
    """The log as it is now, with version files that a listing may have missed."""
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
    """The listing as the cleanup will leave it."""
    gone = frozenset(cleanup.versions)
    versions = {version: meta for version, meta in listing.versions.items() if meta.key not in gone}
    return replace(listing.without(frozenset(cleanup.checkpoints)), versions=versions)


def _joined_removes(*actions: VersionActions) -> pa.Table:
    both = pa.concat_tables([each.removed for each in actions])
    latest = both.group_by("path", use_threads=False).aggregate([("removedMs", "max")])
    return pa.table({"path": latest["path"], "removedMs": latest["removedMs_max"]})


def _forgotten_until_ms(head: Snapshot, listing: LogListing, timestamps_ms: dict[int, int]) -> int:
    """Until when files may have been removed without the log knowing it any more.

    A split that no log refers to is an orphan by its own age only if the log remembers every remove. Otherwise it may
    have been removed as late as in the last version that is gone.
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
    """Splits that nothing refers to and that are old enough: first the removed ones, then those never seen."""
    loose = splits.filter(pc.invert(among(splits["path"], references.protected))).combine_chunks()
    paths = loose["path"].combine_chunks()
    place = pc.index_in(paths, value_set=references.removed["path"].combine_chunks())
    removed_ms = references.removed["removedMs"].combine_chunks().take(place)
    modified_ms = loose["modifiedMs"].combine_chunks()
    since_ms = pc.coalesce(removed_ms, pc.max_element_wise(modified_ms, references.forgotten_until_ms))
    is_removed = place.is_valid()
    is_old_removed = pc.and_(is_removed, pc.less_equal(since_ms, cutoffs.split_ms))
    # Some stores show folders as objects without a time: what has no time stays.
    has_time = pc.greater(modified_ms, 0)
    is_old_orphan = pc.and_(
        pc.and_(pc.invert(is_removed), has_time), pc.less_equal(since_ms, cutoffs.orphan_ms)
    )
    sizes = loose["size"].combine_chunks()
    return [
        doomed_rows(kind, paths.filter(mask), sizes.filter(mask), since_ms.filter(mask), cutoffs.now_ms)
        for kind, mask in (
            (PurgeKind.REMOVED_SPLIT, is_old_removed),
            (PurgeKind.ORPHANED_SPLIT, is_old_orphan),
        )
    ]


def _fence_ms(splits: pa.Table, doomed: pa.Table, now_ms: int) -> int | None:
    orphans = doomed.filter(pc.equal(doomed["kind"], PurgeKind.ORPHANED_SPLIT.value))["path"]
    modified_ms = splits["modifiedMs"].filter(among(splits["path"], orphans.combine_chunks()))
    long_ago = modified_ms.filter(pc.less_equal(modified_ms, now_ms - LONG_WAIT_MS))
    newest: int | None = pc.max(long_ago).as_py()
    return newest


def _is_kept_for_history(paths: pa.ChunkedArray, references: _References, head: Snapshot) -> pa.Array:
    """Files that only older versions show."""
    is_protected = among(paths, references.protected)
    is_removed = among(paths, references.removed["path"].combine_chunks())
    live = head.select(columns=["path"]).entries["path"].combine_chunks()
    is_live = among(paths, normalised_paths(live, head.context.url))
    return pc.and_(pc.and_(is_protected, is_removed), pc.invert(is_live))

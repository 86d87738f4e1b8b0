"""Cleanup of the log: deletes version files and checkpoints that a newer checkpoint covers.

The plan is pure. It deletes a version file only if all of these hold:

- a checkpoint that was read back covers it,
- it is older than the retention, and not among the newest versions, which are always kept,
- every version before it is deleted, too. Version 0 is no exception: checkpoints carry protocol and metadata.

The retained versions stay readable: version files are deleted up to a checkpoint (the anchor) from which readers can
reach all later versions. The plan deletes a checkpoint only if a newer one was read back, its retention has passed,
and it is not the anchor.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.config import Settings
from indextables.config.registry import (
    CHECKPOINT_RETENTION,
    CLEANUP_DRY_RUN,
    CLEANUP_ENABLED,
    CLEANUP_FAILURE_POLICY,
    PURGE_TX_LOG_RETENTION_HOURS,
    STATE_RETENTION_HOURS,
    STATE_RETENTION_VERSIONS,
)
from indextables.errors import (
    CheckpointCorruptionError,
    ConcurrentMaintenanceError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
)
from indextables.log.decode import UnknownContent
from indextables.log.paths import (
    LOG_PREFIX,
    SHARED_MANIFEST_PREFIX,
    STATE_PREFIX,
    StateManifestFile,
    VersionFile,
    parse_log_path,
)
from indextables.log.segment import Base, LogListing, list_log
from indextables.log.version_file import find_object
from indextables.metrics import CLEANUP_DELETED_FILES
from indextables.storage import KeyRange, ObjectMeta
from indextables.table import TableContext
from indextables.table.log_reader import read_base_uncached

logger = logging.getLogger(__name__)

MS_PER_HOUR: Final = 3_600_000


class CleanupRules(msgspec.Struct, frozen=True):
    """The retention of versions and checkpoints. Ages are measured by the store's clock."""

    version_retention_hours: float
    versions_kept: int
    checkpoint_retention_hours: float
    checkpoints_kept: int

    @classmethod
    def from_settings(cls, settings: Settings) -> "CleanupRules":
        return cls(
            version_retention_hours=settings[PURGE_TX_LOG_RETENTION_HOURS],
            versions_kept=settings[CHECKPOINT_RETENTION],
            checkpoint_retention_hours=settings[STATE_RETENTION_HOURS],
            checkpoints_kept=settings[STATE_RETENTION_VERSIONS],
        )


class CleanupPlan(msgspec.Struct, frozen=True):
    """The keys to delete: checkpoints before versions, so a crash leaves orphans but no dangling references.

    `anchor` is the checkpoint that readers of the oldest retained version start from; None if no version is deleted.
    """

    checkpoints: tuple[str, ...]
    versions: tuple[str, ...]
    anchor: int | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys, in the order of deletion."""
        return (*self.checkpoints, *self.versions)


def clean_up(context: TableContext, checkpoint_version: int) -> CleanupPlan | None:
    """Delete what the settings allow after a checkpoint. Returns the plan, or None if cleanup is off or failed.

    Before deleting anything, the cleanup reads every entry of the checkpoints that readers will depend on. On a disk,
    it also removes the empty folders of states that are gone. A failure is logged, or raised if the failure policy is
    "fail"; the table is intact either way.
    """
    settings = context.settings
    if not settings[CLEANUP_ENABLED]:
        return None
    rules = CleanupRules.from_settings(settings)
    try:
        now_ms = context.store.now_ms()
        if not _may_have_expired(context, rules, now_ms):
            return CleanupPlan((), ())
        plan = verified_plan(context, list_log(context.store), checkpoint_version, rules, now_ms)
        if settings[CLEANUP_DRY_RUN]:
            for key in plan.keys:
                logger.info("%s: cleanup would delete %s", context.url, key)
            return plan
        if plan.keys:
            context.store.delete_many(plan.keys)
            CLEANUP_DELETED_FILES.record(len(plan.checkpoints), context.url, kind="checkpoint")
            CLEANUP_DELETED_FILES.record(len(plan.versions), context.url, kind="version")
            logger.info(
                "%s: cleaned up %d checkpoints and %d versions after the checkpoint of version %d",
                context.url, len(plan.checkpoints), len(plan.versions), checkpoint_version,
            )  # fmt: skip
        context.store.remove_empty_folders(STATE_PREFIX)
        return plan
    except (StorageError, LogCorruptedError, ConcurrentMaintenanceError) as error:
        if settings[CLEANUP_FAILURE_POLICY] == "fail":
            raise
        logger.warning("%s: the cleanup of the log failed: %s", context.url, error)
        return None


def verified_plan(
    context: TableContext,
    listing: LogListing,
    checkpoint_version: int,
    rules: CleanupRules,
    now_ms: int | None = None,
) -> CleanupPlan:
    """A plan whose anchor was read to the last entry. If an anchor is damaged, an older checkpoint replaces it.

    Ages are as of `now_ms`, by default now by the store's clock. Raises LogCorruptedError if the checkpoint at
    `checkpoint_version` is damaged, and ObjectNotFoundError if a concurrent cleanup deleted it.
    """
    now_ms = context.store.now_ms() if now_ms is None else now_ms
    plan = plan_cleanup(listing, checkpoint_version, now_ms, rules)
    bases = listing.bases.get(checkpoint_version, ())
    if plan.keys and not has_whole_checkpoint(context, bases):
        raise _unusable_checkpoint(context, bases, checkpoint_version)
    while plan.anchor not in (None, checkpoint_version):
        if has_whole_checkpoint(context, listing.bases[plan.anchor]):
            break
        trusted = {version: bases for version, bases in listing.bases.items() if version != plan.anchor}
        listing = replace(listing, bases=trusted)
        plan = plan_cleanup(listing, checkpoint_version, now_ms, rules)
    return plan


def plan_cleanup(
    listing: LogListing, checkpoint_version: int, now_ms: int, rules: CleanupRules
) -> CleanupPlan:
    """Decide what to delete, given that the checkpoint at `checkpoint_version` was read back."""
    expendable_before = _expendable_before(listing, checkpoint_version, now_ms, rules)
    anchor = max((version for version in listing.bases if version <= expendable_before), default=None)
    doomed = [
        meta.key for version, meta in listing.versions.items() if anchor is not None and version < anchor
    ]
    return CleanupPlan(
        checkpoints=tuple(
            base.meta.key for base in _doomed_bases(listing, checkpoint_version, anchor, now_ms, rules)
        ),
        versions=tuple(doomed),
        anchor=anchor if doomed else None,
    )


class EntryCount(msgspec.Struct, frozen=True):
    """The numbers of files and bytes in the entries of a checkpoint, and the numbers that it records."""

    found: tuple[int, int]
    recorded: tuple[int, int]


def read_entries(context: TableContext, base: Base) -> EntryCount:
    """Read every entry of a checkpoint. Raises LogCorruptedError if a part is damaged or missing."""
    try:
        _, source = read_base_uncached(context, base, UnknownContent.IGNORE)
        entries = source.load(None, ["path", "size"]).entries
    except ObjectNotFoundError as error:
        raise CheckpointCorruptionError(
            f"{context.url}/{base.meta.key}: a part of the checkpoint is missing: {error}"
        ) from error
    return EntryCount(
        found=(entries.num_rows, pc.sum(entries["size"]).as_py() or 0),
        recorded=(source.num_files, source.total_bytes),
    )


def has_whole_checkpoint(context: TableContext, bases: Iterable[Base]) -> bool:
    """Whether at least one of the checkpoints of a version is fully readable and has exact counts."""
    for base in bases:
        try:
            count = read_entries(context, base)
        except LogCorruptedError as error:
            logger.warning(
                "%s: the checkpoint of version %d is damaged: %s", context.url, base.version, error
            )
            continue
        if count.found == count.recorded:
            return True
        logger.warning(
            "%s: the checkpoint of version %d holds %d files of %d bytes, but records %d files of %d bytes",
            context.url, base.version, *count.found, *count.recorded,
        )  # fmt: skip
    return False


def _may_have_expired(context: TableContext, rules: CleanupRules, now_ms: int) -> bool:
    """Whether any file may be past its retention, by the oldest version file and the oldest state.

    The others are younger, unless files were copied; then they are cleaned up later. A listing of the whole log costs
    time in proportion to all retained versions and states, and in most logs nothing has expired.
    """
    oldest_ms = now_ms - min(rules.version_retention_hours, rules.checkpoint_retention_hours) * MS_PER_HOUR
    # In key order: "0" comes before all versions, and the manifests after them.
    after_versions = KeyRange(SHARED_MANIFEST_PREFIX, f"{LOG_PREFIX}~")
    version = _first(
        context.store.list(LOG_PREFIX, start_after=f"{LOG_PREFIX}0", skip=after_versions), VersionFile
    )
    state = _first(context.store.list(LOG_PREFIX, start_after=STATE_PREFIX), StateManifestFile)
    return version is None or any(
        meta is not None and meta.last_modified_ms <= oldest_ms for meta in (version, state)
    )


def _first(metas: Iterable[ObjectMeta], kind: type[VersionFile | StateManifestFile]) -> ObjectMeta | None:
    return next((meta for meta in metas if isinstance(parse_log_path(meta.key), kind)), None)


def _unusable_checkpoint(
    context: TableContext, bases: Sequence[Base], version: int
) -> CheckpointCorruptionError | ConcurrentMaintenanceError:
    """The error for a checkpoint that is damaged or was deleted."""
    if bases and all(find_object(context.store, base.meta.key) is None for base in bases):
        return ConcurrentMaintenanceError(
            f"{context.url}: a concurrent cleanup deleted the checkpoint of version {version}, so none of the files "
            f"that it covers were deleted; try again"
        )
    return CheckpointCorruptionError(
        f"{context.url}: the checkpoint of version {version} is damaged, so none of the files that it covers were "
        f"deleted; write a new one with CHECKPOINT"
    )


def _expendable_before(listing: LogListing, checkpoint_version: int, now_ms: int, rules: CleanupRules) -> int:
    """The first version whose file must stay. All later files stay, too, so no gap opens."""
    kept_from = min(checkpoint_version, listing.newest_version - rules.versions_kept)
    oldest_ms = now_ms - rules.version_retention_hours * MS_PER_HOUR
    # A file without a time counts as young.
    young = (
        version for version, meta in listing.versions.items() if not 0 < meta.last_modified_ms <= oldest_ms
    )
    return min([kept_from, *young])


def _doomed_bases(
    listing: LogListing, checkpoint_version: int, anchor: int | None, now_ms: int, rules: CleanupRules
) -> Iterator[Base]:
    older = sorted((version for version in listing.bases if version < checkpoint_version), reverse=True)
    oldest_ms = now_ms - rules.checkpoint_retention_hours * MS_PER_HOUR
    for version in older[rules.checkpoints_kept :]:
        if version == anchor:
            continue
        yield from (base for base in listing.bases[version] if 0 < base.meta.last_modified_ms <= oldest_ms)

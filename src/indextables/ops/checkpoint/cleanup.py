"""Can a checkpoint be read to the last entry? Asked before anything is deleted on its word."""

import logging
from collections.abc import Iterable, Iterator, Sequence

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
from indextables.log.segment import Base, LogListing, list_log
from indextables.log.version_file import find_object
from indextables.table import TableContext
from indextables.table.log_reader import read_base_uncached

logger = logging.getLogger(__name__)


class EntryCount(msgspec.Struct, frozen=True):
    """The files and bytes that a checkpoint has, and those that it says it has."""

    found: tuple[int, int]
    promised: tuple[int, int]


def read_entries(context: TableContext, base: Base) -> EntryCount:
    """Read every entry of a checkpoint. Raises LogCorruptedError if that is not possible."""
    try:
        _, source = read_base_uncached(context, base, UnknownContent.IGNORE)
        entries = source.load(None, ["path", "size"]).entries
    except ObjectNotFoundError as error:
        raise CheckpointCorruptionError(
            f"{context.url}/{base.meta.key}: a part of it is missing: {error}"
        ) from error
    return EntryCount(
        found=(entries.num_rows, pc.sum(entries["size"]).as_py() or 0),
        promised=(source.num_files, source.total_bytes),
    )


def has_whole_checkpoint(context: TableContext, bases: Iterable[Base]) -> bool:
    """Whether at least one of the checkpoints of a version can be read, and holds what it says that it does."""
    for base in bases:
        try:
            count = read_entries(context, base)
        except LogCorruptedError as error:
            logger.warning("%s: the checkpoint at %d is damaged: %s", context.url, base.version, error)
            continue
        if count.found == count.promised:
            return True
        logger.warning(
            "%s: the checkpoint at %d has %d files of %d bytes, and says that it has %d of %d",
            context.url, base.version, *count.found, *count.promised,
        )  # fmt: skip
    return False


# Cleaning up the log: version files and checkpoints that nothing needs any more.
#
# The plan is pure. A version file may go when all of these hold: a checkpoint that was read back covers it;
# it is older than the retention; it is not among the newest versions, which are kept anyway; and every
# version before it goes too. Version 0 is no exception: checkpoints carry protocol and metadata. What is kept
# stays readable: version files go up to a checkpoint (the anchor) from which all later versions can be
# reached. A checkpoint may go when a newer one was read back, its retention has passed, and it is not the
# anchor.


MS_PER_HOUR = 3_600_000


class CleanupRules(msgspec.Struct, frozen=True):
    """How long what is kept. Ages are by the store's clock."""

    version_retention_hours: float
    versions_kept: int
    checkpoint_retention_hours: float
    checkpoints_kept: int

    @classmethod
    def from_settings(cls, settings: Settings) -> "CleanupRules":
        """The rules that a table's settings give."""
        return cls(
            version_retention_hours=settings[PURGE_TX_LOG_RETENTION_HOURS],
            versions_kept=settings[CHECKPOINT_RETENTION],
            checkpoint_retention_hours=settings[STATE_RETENTION_HOURS],
            checkpoints_kept=settings[STATE_RETENTION_VERSIONS],
        )


class CleanupPlan(msgspec.Struct, frozen=True):
    """Keys that may be deleted: pointers first, so that a crash leaves orphans and nothing that dangles.

    `anchor` is the checkpoint that the oldest version which is kept will be read from; None if no version goes.
    """

    checkpoints: tuple[str, ...]
    versions: tuple[str, ...]
    anchor: int | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """All of them, in the order of deletion."""
        return (*self.checkpoints, *self.versions)


def plan_cleanup(
    listing: LogListing, checkpoint_version: int, now_ms: int, rules: CleanupRules
) -> CleanupPlan:
    """What may go, now that the checkpoint at `checkpoint_version` has been read back."""
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


def clean_up(context: TableContext, checkpoint_version: int) -> CleanupPlan | None:
    """Delete what the settings allow after a checkpoint. Returns the plan, or None if that is switched off.

    Before anything goes, every entry of the checkpoints that will have to do is read. A failure is logged, unless the
    failure policy says to raise it: the table is whole either way.
    """
    settings = context.settings
    if not settings[CLEANUP_ENABLED]:
        return None
    try:
        plan = verified_plan(
            context, list_log(context.store), checkpoint_version, CleanupRules.from_settings(settings)
        )
        if settings[CLEANUP_DRY_RUN]:
            for key in plan.keys:
                logger.info("%s: a cleanup would delete %s", context.url, key)
        elif plan.keys:
            context.store.delete_many(plan.keys)
            logger.info("%s: cleaned up %d files of the log", context.url, len(plan.keys))
        return plan
    except (StorageError, LogCorruptedError, ConcurrentMaintenanceError) as error:
        if settings[CLEANUP_FAILURE_POLICY] == "fail":
            raise
        logger.warning("%s: the log was not cleaned up: %s", context.url, error)
        return None


def verified_plan(
    context: TableContext,
    listing: LogListing,
    checkpoint_version: int,
    rules: CleanupRules,
    now_ms: int | None = None,
) -> CleanupPlan:
    """The plan, whose anchor has been read to the last entry. An older checkpoint takes the place of a damaged one.

    Ages are as of `now_ms`, or of now by the store's clock. Raises LogCorruptedError if the checkpoint that everything
    rests on is damaged, and ConcurrentMaintenanceError if a concurrent cleanup removed it.
    """
    now_ms = context.store.now_ms() if now_ms is None else now_ms
    plan = plan_cleanup(listing, checkpoint_version, now_ms, rules)
    bases = listing.bases.get(checkpoint_version, ())
    if plan.keys and not has_whole_checkpoint(context, bases):
        raise _without_checkpoint(context, bases, checkpoint_version)
    while plan.anchor not in (None, checkpoint_version):
        if has_whole_checkpoint(context, listing.bases[plan.anchor]):
            break
        trusted = {version: bases for version, bases in listing.bases.items() if version != plan.anchor}
        listing = replace(listing, bases=trusted)
        plan = plan_cleanup(listing, checkpoint_version, now_ms, rules)
    return plan


def _without_checkpoint(
    context: TableContext, bases: Sequence[Base], version: int
) -> CheckpointCorruptionError | ConcurrentMaintenanceError:
    """Why there is nothing that the rest of the log could stand on."""
    if bases and all(find_object(context.store, base.meta.key) is None for base in bases):
        return ConcurrentMaintenanceError(
            f"{context.url}: a concurrent cleanup removed the checkpoint of version {version}, so nothing that it "
            f"covers was deleted; retry"
        )
    return CheckpointCorruptionError(
        f"{context.url}: the checkpoint of version {version} is damaged, so nothing that it covers was deleted; write "
        f"a new one with CHECKPOINT"
    )


def _expendable_before(listing: LogListing, checkpoint_version: int, now_ms: int, rules: CleanupRules) -> int:
    """The first version whose file has to stay: no gap ever opens in what is kept."""
    kept_from = min(checkpoint_version, listing.newest_version - rules.versions_kept)
    oldest_ms = now_ms - rules.version_retention_hours * MS_PER_HOUR
    # What has no time counts as young.
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

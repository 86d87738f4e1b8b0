"""REPAIR writes a new log for a table whose log is damaged or gone, from everything that can still be read.

1. Read the log in whatever state it is (`evidence`): the newest version that it proves, and what lies beyond.
2. Read the footers of the splits (`splits`).
3. Decide which splits are live (`plan`), and restore the table's metadata and protocol (`identity`).
4. Write the new log to another location, or in place of the old one (`write`).

In place, the old log makes room for the new one without losing anything:

1. REPAIR copies every file of the old log to a folder beside it. Nothing has changed yet.
2. It writes the new version if absent, under a number that was never used, so that no file is overwritten. Then it
   writes the state of that version: with this one write, readers switch from the old log to the new one.
3. It replaces the hint and deletes the files of the old log.

After a crash, either the old log or the new one is in force, and at least one copy of every file exists. The next
REPAIR finishes the job.
"""

import dataclasses
from enum import Enum

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables._results import Status
from indextables.errors import (
    ConcurrentMaintenanceError,
    InvalidOptionError,
    LogCorruptedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from indextables.log.actions import DELETION_VECTORS, with_feature
from indextables.log.deletion_vectors import vector_files
from indextables.log.paths import LOG_PREFIX
from indextables.ops.references import among, first_paths, split_files, stored_table
from indextables.ops.repair.evidence import LogEvidence, read_evidence
from indextables.ops.repair.identity import Identity, identify
from indextables.ops.repair.plan import RepairPlan, log_entries, make_plan
from indextables.ops.repair.report import RepairResult
from indextables.ops.repair.splits import survey_splits
from indextables.ops.repair.write import back_up_log, copy_splits, delete_old_log, write_log
from indextables.ops.runner import Runner, TaskStore
from indextables.storage import ObjectStore, parse_root, require_put_if_absent
from indextables.table import TableContext, load_snapshot


class RepairMode(Enum):
    """Where a repair writes its result.

    COPY writes a complete table to another location, with copies of the splits. LOG_ONLY writes only the new log to
    another location, for inspection. SWAP replaces the old log. PLAN writes nothing.
    """

    COPY = "copy"
    LOG_ONLY = "log only"
    SWAP = "swap"
    PLAN = "plan"

    @classmethod
    def of(cls, *, swap: bool, log_only: bool, dry_run: bool) -> "RepairMode":
        """The mode that the flags select. Raises InvalidOptionError if more than one is set."""
        flags = {cls.SWAP: swap, cls.LOG_ONLY: log_only, cls.PLAN: dry_run}
        selected = [mode for mode, is_set in flags.items() if is_set]
        if len(selected) > 1:
            raise InvalidOptionError("swap, log_only and dry_run exclude each other; choose one")
        return selected[0] if selected else cls.COPY


class Repair(msgspec.Struct, frozen=True):
    """A planned repair of the table of `context`; nothing has been written yet."""

    context: TableContext
    evidence: LogEvidence
    plan: RepairPlan
    identity: Identity

    def report(
        self, status: Status, location: str | None = None, damaged_log: str | None = None
    ) -> RepairResult:
        """The report with the given status, or PARTIAL for a success with missing, unreadable or unknown parts."""
        plan, evidence = self.plan, self.evidence
        undecided = (*plan.undecided, *self.identity.undecided)
        if status is Status.SUCCESS and (plan.missing or plan.unreadable or undecided):
            status = Status.PARTIAL
        return RepairResult(
            table_path=self.context.url,
            location=location,
            status=status,
            version=plan.version,
            proven_version=evidence.proven_version,
            newest_version=None if evidence.newest_version < 0 else evidence.newest_version,
            num_rows=plan.num_rows,
            total_bytes=plan.total_bytes,
            counts=plan.counts,
            missing_splits=plan.missing,
            unreadable_splits=plan.unreadable,
            left_out_splits=plan.left_out,
            unreadable_log_files=evidence.problems,
            undecided=undecided,
            damaged_log=damaged_log,
        )


class RepairRequest(msgspec.Struct, frozen=True):
    """How to repair a table.

    Attributes:
        target: The path or URL of the repaired table, for the modes COPY and LOG_ONLY.
        mode: What becomes of the new log.
    """

    target: str | None = None
    mode: RepairMode = RepairMode.COPY


def repair(context: TableContext, request: RepairRequest, runner: Runner) -> RepairResult:
    """Repair a table. COPY and LOG_ONLY need a target; SWAP and PLAN take none.

    COPY without a target writes the new log in place if no file of the old log is left. Otherwise it raises
    InvalidOptionError: a repair replaces an existing log only in SWAP mode.
    """
    mode, target = request.mode, request.target
    if mode in (RepairMode.SWAP, RepairMode.PLAN) and target is not None:
        raise InvalidOptionError(
            f"{context.url}: a swap or a dry run has no other location; leave out {target}"
        )
    if mode is RepairMode.PLAN:
        return plan_repair(context, runner).report(Status.DRY_RUN)
    if mode is RepairMode.SWAP:
        return repair_in_place(context, runner)
    if target is not None:
        write = repair_to if mode is RepairMode.COPY else repair_log_to
        return write(context, _context_at(context, target), runner)
    if mode is RepairMode.LOG_ONLY or has_log(context.store):
        raise InvalidOptionError(
            f"{context.url}: name a location for the repaired table, or ask for a swap, which replaces the log and "
            f"keeps the old one in a folder beside it"
        )
    return repair_in_place(context, runner)


def _context_at(context: TableContext, path: str) -> TableContext:
    """Another location, with the same settings and credentials."""
    assert context.location is not None  # a table that is repaired to a path was opened by a path
    location = dataclasses.replace(context.location, path=path)
    return TableContext(location.open(), context.settings, location)


def plan_repair(context: TableContext, runner: Runner) -> Repair:
    """Read everything that is left of the table and decide what can be recovered. Writes nothing.

    Raises TableNotFoundError if there is neither a log nor a split, LogCorruptedError if no file reveals the schema,
    UnsupportedProtocolError, and StorageError if the store fails.
    """
    # Only the stored files count as evidence; the cache may be stale.
    context.cache.invalidate(context.store)
    everything = stored_table(context.store.list(""))
    stored = split_files(everything)
    evidence = read_evidence(context)
    if not evidence.metas and not stored.num_rows:
        raise TableNotFoundError(
            f"{context.url}: there is nothing to repair: no transaction log and no split; check the path"
        )
    live = log_entries(evidence)
    needed = stored.filter(among(stored["path"], live["path"].combine_chunks()))
    survey = survey_splits(TaskStore.of(context), needed if evidence.is_complete else stored, runner)
    plan = _with_lost_vectors(make_plan(evidence, live, stored, survey), everything)
    found, paths = tuple(survey.found.values()), frozenset(plan.entries["path"].to_pylist())
    identity = identify(evidence.header, found, paths, plan.taken, context.url)
    if plan.has_vectors:
        identity = replace(identity, protocol=with_feature(identity.protocol, DELETION_VECTORS))
    return Repair(context, evidence, plan, identity)


def _with_lost_vectors(plan: RepairPlan, stored: pa.Table) -> RepairPlan:
    """The plan, with a warning if files of deletion vectors do not exist. The splits stay: their rows are not lost."""
    files = vector_files(plan.entries["deletionVector"])
    lost = files.filter(pc.invert(among(files, stored["path"].combine_chunks()))).to_pylist()
    if not lost:
        return plan
    warning = (
        f"the files {first_paths(lost)} do not exist, which record deleted rows: the splits with these rows cannot be "
        f"read until the files are restored from a backup"
    )
    return replace(plan, undecided=(*plan.undecided, warning))


def repair_in_place(context: TableContext, runner: Runner) -> RepairResult:
    """Replace the log, and keep the old one in a folder beside it. A healthy log is left alone.

    After any failure, either the old log or the new one is in force, and no file is lost. Raises as `plan_repair`
    does, UnsupportedStoreError, and CommitConflictError if another writer commits during the repair.
    """
    repair = plan_repair(context, runner)
    if not _is_needed(repair):
        return repair.report(Status.NO_ACTION)
    require_put_if_absent(context.store)
    metas = repair.evidence.metas
    backup_folder = back_up_log(context, metas) if metas else None
    write_log(context, repair.plan, repair.identity, repair.evidence.header)
    delete_old_log(context, metas)
    damaged_log = None if backup_folder is None else f"{context.url}/{backup_folder.rstrip('/')}"
    return repair.report(Status.SUCCESS, context.url, damaged_log)


def repair_to(context: TableContext, target: TableContext, runner: Runner) -> RepairResult:
    """Write the repaired table to another location: copy the splits, then write the new log.

    The source is only read. Raises as `plan_repair` does, TableAlreadyExistsError if the target already has a log, and
    InvalidOptionError if one of the two locations contains the other.
    """
    repair = _plan_repair_to(context, target, runner)
    copy_splits(context, target, repair.plan.entries, runner)
    write_log(target, repair.plan, repair.identity, repair.evidence.header)
    return repair.report(Status.SUCCESS, target.url)


def repair_log_to(context: TableContext, target: TableContext, runner: Runner) -> RepairResult:
    """Write only the new log to another location, for inspection or for installing it by hand.

    The new log can be opened, but its splits stay at the source. Raises as `repair_to` does.
    """
    repair = _plan_repair_to(context, target, runner)
    write_log(target, repair.plan, repair.identity, repair.evidence.header)
    return repair.report(Status.SUCCESS, target.url)


def has_log(store: ObjectStore) -> bool:
    """Whether the log folder holds any file."""
    return next(iter(store.list(LOG_PREFIX)), None) is not None


def _is_needed(repair: Repair) -> bool:
    """Whether the log is damaged: a file is unreadable or missing, or readers do not reach the proven version."""
    evidence, plan = repair.evidence, repair.plan
    if not evidence.is_complete or evidence.problems or evidence.has_unfinished_repair:
        return True
    if plan.missing or plan.unreadable:
        return True
    try:
        head = load_snapshot(repair.context)
    except (TableNotFoundError, ConcurrentMaintenanceError, LogCorruptedError):
        return True
    return head.gap is not None or head.version != evidence.proven_version


def _plan_repair_to(context: TableContext, target: TableContext, runner: Runner) -> Repair:
    _check_disjoint(context.url, target.url)
    if has_log(target.store):
        raise TableAlreadyExistsError(
            f"{target.url}: already has a transaction log; choose a location without one"
        )
    require_put_if_absent(target.store)
    return plan_repair(context, runner)


def _check_disjoint(source_url: str, target_url: str) -> None:
    source, target = parse_root(source_url), parse_root(target_url)
    if source_url == target_url:
        raise InvalidOptionError(
            f"{source_url}: the new log would take the place of the old one; ask for a swap, or choose another location"
        )
    if source.contains(target) or target.contains(source):
        raise InvalidOptionError(
            f"{target_url}: overlaps with {source_url}; choose a location outside of the table"
        )

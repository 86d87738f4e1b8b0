"""The old log makes room for the new one, and nothing of it is lost.

1. Every file of the old log is copied to a folder beside it. Until here nothing has changed.
2. The new version is written if it is absent; it has a number that was never used, so that no file is overwritten.
   Then its state: with that one write the new log is what everybody reads. Before it, everybody reads the old one.
3. The hint is replaced, and the files of the old log, which nobody needs any more, are deleted.

A crash leaves the old log or the new one in force, and at least one copy of everything. The next repair finishes it.
"""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import Final

import msgspec

from indextables._results import Status
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import (
    InvalidOptionError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, VersionFile, parse_log_path
from indextables.log.segment import build_listing
from indextables.ops.references import among, split_files, stored_table
from indextables.ops.repair.evidence import LogEvidence, read_evidence
from indextables.ops.repair.identity import Identity, identify
from indextables.ops.repair.plan import RepairPlan, log_entries, make_plan
from indextables.ops.repair.report import RepairResult
from indextables.ops.repair.splits import survey_splits
from indextables.ops.repair.write import copy_splits, write_log
from indextables.ops.runner import Runner, TaskStore, parallel_map
from indextables.storage import ObjectMeta, ObjectStore, parse_root, require_put_if_absent
from indextables.table import TableContext, load_snapshot

_CHECKSUM_SUFFIX: Final = ".crc"


def set_aside(context: TableContext, metas: Sequence[ObjectMeta]) -> str:
    """Copy all files of the log; returns the folder. Raises StorageError, with at most a part of the copy left."""
    folder = _new_folder(context.store)
    copy = partial(_copy, context.store, folder)
    parallel_map(copy, metas, context.settings[READ_PARALLELISM])
    there = {meta.key: meta.size for meta in context.store.list(folder)}
    for meta in metas:
        if there.get(_aside(meta.key, folder)) != meta.size and _exists(context.store, meta.key):
            raise StorageError(
                f"{context.url}: {meta.key} was copied to {folder}, and is not there as it was; nothing was changed"
            )
    return folder


def remove_old(context: TableContext, metas: Sequence[ObjectMeta]) -> None:
    """Delete the files of the old log: what points at others goes first. Files that are none of a log stay."""
    bases = {base.meta.key for base in build_listing(metas).bases_newest_first()}
    old = [meta.key for meta in metas if _is_of_log(meta.key) and meta.key != LAST_CHECKPOINT_KEY]
    context.store.delete_many(sorted(old, key=lambda key: _rank(key, bases)))
    context.cache.invalidate(context.store)


def _is_of_log(key: str) -> bool:
    """A file of the log, or the checksum that Hadoop keeps beside one: wrong as soon as that one is replaced."""
    folder, _, name = key.rpartition("/")
    is_checksum = name.startswith(".") and name.endswith(_CHECKSUM_SUFFIX)
    named = f"{folder}/{name.removeprefix('.').removesuffix(_CHECKSUM_SUFFIX)}" if is_checksum else key
    return parse_log_path(named) is not None


def _rank(key: str, bases: set[str]) -> int:
    if key in bases:
        return 0
    return 1 if isinstance(parse_log_path(key), VersionFile) else 2


def _new_folder(store: ObjectStore) -> str:
    moment = datetime.fromtimestamp(store.clock.now_ms() / 1000, UTC)
    name = f"{LOG_PREFIX.rstrip('/')}.damaged-{moment:%Y%m%dT%H%M%S}Z"
    number = 1
    folder = f"{name}/"
    while next(iter(store.list(folder)), None) is not None:
        number += 1
        folder = f"{name}-{number}/"
    return folder


def _aside(key: str, folder: str) -> str:
    return folder + key.removeprefix(LOG_PREFIX)


def _copy(store: ObjectStore, folder: str, meta: ObjectMeta) -> None:
    try:
        store.put(_aside(meta.key, folder), store.get(meta.key))
    except ObjectNotFoundError:
        return  # cleaned up since it was listed


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except ObjectNotFoundError:
        return False
    return True


# REPAIR: a new log for a table whose log is damaged or gone, from everything that can still be read.
#
# 1. Read the log, whatever state it is in (`repair_log`): the newest version that it proves, and what lies
# beyond. 2. Read the footers of the splits (`repair_splits`). 3. Decide which splits are live (`repair_plan`,
# `repair_candidates`) and what the table is (`repair_identity`). 4. Write the new log to another place, or in
# place of the old one (`repair_write`, `repair_swap`).


class RepairMode(Enum):
    """What becomes of the result of a repair.

    COPY: a whole table elsewhere, with copies of its splits. LOG_ONLY: the new log elsewhere, to be looked at.
    SWAP: the new log takes the place of the old one. PLAN: nothing is written.
    """

    COPY = "copy"
    LOG_ONLY = "log only"
    SWAP = "swap"
    PLAN = "plan"

    @classmethod
    def of(cls, *, swap: bool, log_only: bool, dry_run: bool) -> "RepairMode":
        """The mode that a user asks for. Raises InvalidOptionError for more than one."""
        modes = {cls.SWAP: swap, cls.LOG_ONLY: log_only, cls.PLAN: dry_run}
        asked = [mode for mode, is_asked in modes.items() if is_asked]
        if len(asked) > 1:
            raise InvalidOptionError(
                "a repair can swap, write the log only, or be a dry run: choose one of them"
            )
        return asked[0] if asked else cls.COPY


class Repair(msgspec.Struct, frozen=True):
    """What a repair would do to the table of `context`. Nothing has been written."""

    context: TableContext
    evidence: LogEvidence
    plan: RepairPlan
    identity: Identity

    def report(
        self, status: Status, location: str | None = None, damaged_log: str | None = None
    ) -> RepairResult:
        """What was found, and what became of it. A success with something amiss is a partial one."""
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
    """Repair a table in one of the modes; COPY and LOG_ONLY need a target, the others have none.

    Without a target, COPY is refused with InvalidOptionError as long as anything of the old log is there, which is
    never touched without being asked for; if there is nothing, the new one is simply put there.
    """
    mode, target = request.mode, request.target
    if (mode in (RepairMode.SWAP, RepairMode.PLAN)) and target is not None:
        raise InvalidOptionError(
            f"{context.url}: a repair in place, or one that only plans, has no other location; leave out {target}"
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
            f"{context.url}: say where the repaired table goes, or ask for a swap, which puts the new log in the place "
            f"of the old one and keeps that beside it"
        )
    return repair_in_place(context, runner)


def _context_at(context: TableContext, path: str) -> TableContext:
    """Another place, with the same settings and credentials."""
    assert context.location is not None  # a table that is repaired to a path was opened by a path
    location = dataclasses.replace(context.location, path=path)
    return TableContext(location.open(), context.settings, location)


def plan_repair(context: TableContext, runner: Runner) -> Repair:
    """Find out what can be recovered. Reads everything that is left, and writes nothing.

    Raises TableNotFoundError if there is nothing of a table, LogCorruptedError if nothing tells its schema,
    UnsupportedProtocolError, and StorageError if the store does not answer.
    """
    # What was remembered tells nothing about what is there.
    context.cache.invalidate(context.store)
    stored = split_files(stored_table(context.store.list("")))
    evidence = read_evidence(context)
    if not evidence.metas and not stored.num_rows:
        raise TableNotFoundError(
            f"{context.url}: there is nothing to repair here, neither a log nor any split; check the path"
        )
    live = log_entries(evidence)
    needed = stored.filter(among(stored["path"], live["path"].combine_chunks()))
    survey = survey_splits(TaskStore.of(context), needed if evidence.is_complete else stored, runner)
    plan = make_plan(evidence, live, stored, survey)
    identity = identify(evidence.header, tuple(survey.found.values()), plan.taken, context.url)
    return Repair(context, evidence, plan, identity)


def repair_in_place(context: TableContext, runner: Runner) -> RepairResult:
    """Put a new log in the place of the old one, which is kept in a folder beside it.

    If nothing is wrong with the log, nothing is done. Under any failure the old log or the new one is in force, and
    nothing is lost. Raises as `plan_repair` does, UnsupportedStoreError, and CommitConflictError if another writer
    commits meanwhile.
    """
    repair = plan_repair(context, runner)
    if not _is_needed(repair):
        return repair.report(Status.NO_ACTION)
    require_put_if_absent(context.store)
    metas = repair.evidence.metas
    folder = set_aside(context, metas) if metas else None
    write_log(context, repair.plan, repair.identity, repair.evidence.header)
    remove_old(context, metas)
    damaged = None if folder is None else f"{context.url}/{folder.rstrip('/')}"
    return repair.report(Status.SUCCESS, context.url, damaged)


def repair_to(context: TableContext, target: TableContext, runner: Runner) -> RepairResult:
    """Write the repaired table to another place: its splits are copied there, and then the new log is written.

    The source is only read. Raises as `plan_repair` does, TableAlreadyExistsError if the target has a log already, and
    InvalidOptionError if one of both lies within the other.
    """
    repair = _repair_for(context, target, runner)
    copy_splits(context, target, repair.plan.entries, runner)
    write_log(target, repair.plan, repair.identity, repair.evidence.header)
    return repair.report(Status.SUCCESS, target.url)


def repair_log_to(context: TableContext, target: TableContext, runner: Runner) -> RepairResult:
    """Write only the new log to another place: to be looked at, and to be put in the place of the old one by hand.

    It can be opened, but its splits are at the source. Raises as `repair_to` does.
    """
    repair = _repair_for(context, target, runner)
    write_log(target, repair.plan, repair.identity, repair.evidence.header)
    return repair.report(Status.SUCCESS, target.url)


def has_log(store: ObjectStore) -> bool:
    """Whether there is anything in the folder of the log."""
    return next(iter(store.list(LOG_PREFIX)), None) is not None


def _is_needed(repair: Repair) -> bool:
    """Whether anything is wrong with the log: something of it cannot be read, or readers do not get where it leads."""
    evidence, plan = repair.evidence, repair.plan
    if not evidence.is_complete or evidence.problems or evidence.has_unfinished_repair:
        return True
    if plan.missing or plan.unreadable:
        return True
    try:
        head = load_snapshot(repair.context)
    except (TableNotFoundError, VersionNotFoundError, LogCorruptedError):
        return True
    return head.gap is not None or head.version != evidence.proven_version


def _repair_for(context: TableContext, target: TableContext, runner: Runner) -> Repair:
    _check_apart(context.url, target.url)
    if has_log(target.store):
        raise TableAlreadyExistsError(
            f"{target.url}: there is a transaction log already; choose a place that has none"
        )
    require_put_if_absent(target.store)
    return plan_repair(context, runner)


def _check_apart(source_url: str, target_url: str) -> None:
    source, target = parse_root(source_url), parse_root(target_url)
    if source_url == target_url:
        raise InvalidOptionError(
            f"{source_url}: the new log would take the place of the old one; ask for that with swap, or choose another "
            f"place"
        )
    if source.contains(target) or target.contains(source):
        raise InvalidOptionError(
            f"{target_url}: lies within {source_url}, or the other way round; choose a place outside of the table"
        )

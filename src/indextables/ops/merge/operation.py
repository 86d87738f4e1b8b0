"""MERGE SPLITS: turns small splits into fewer large ones, in one commit that changes no row.

The life of a merge:

    plan ──▶ one task per group: read, index again, upload ──▶ one commit ──▶ compact the state
                      │                                             │
           a source is unreadable: it is                 a source was removed: its group is
           recorded as a skip, and the                   given up, and its upload deleted
           rest is merged without it

Until the commit, the table is unchanged. Whatever ends the merge before it deletes the uploads.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables._results import MESSAGE, PROBLEM, TABLE_PATH, Column, Columns, Result, Status
from indextables.config.registry import (
    MERGE_MAX_DELETED_SHARE,
    MERGE_MAX_SOURCE_SPLITS,
    MERGE_TARGET_SIZE,
)
from indextables.errors import (
    CommitConflictError,
    IndexTablesError,
    InvalidOptionError,
    OperationInterruptedError,
)
from indextables.log.actions import AddAction, check_writable
from indextables.metrics import MERGE_DURATION_MS, MERGE_NEW_SPLITS, MERGE_SOURCE_SPLITS
from indextables.ops.after_commit import after_commit, after_merge
from indextables.ops.merge.plan import (
    PLANNING_COLUMNS,
    MergeRules,
    plan_groups,
    resting_paths,
    skip_actions,
    small_splits,
)
from indextables.ops.merge.task import BadSource, MergedGroup, MergeSource, MergeTask
from indextables.ops.read import split_refs
from indextables.ops.runner import Failed, Runner, TaskStore
from indextables.ops.write import add_of, delete_quietly, deleting_unless_landed, uploads_check
from indextables.predicates import Predicate
from indextables.split.split import SplitFile
from indextables.table import CommitResult, Operation, Snapshot, commit
from indextables.table.intent import Merge, MergeGroup
from indextables.table.load import catch_up
from indextables.table.plan import changed_sources
from indextables.table.snapshot import files_of_partitions
from indextables.table.split_protocol import check_accepts_splits

logger = logging.getLogger(__name__)

_GIVEN_UP = pa.struct([pa.field("paths", pa.list_(pa.string())), pa.field("reason", pa.string())])


class GivenUpGroup(msgspec.Struct, frozen=True):
    """Splits that were planned to be merged but were not, and why."""

    paths: tuple[str, ...]
    reason: str


class MergeResult(Result, frozen=True):
    """What `IndexTable.merge_splits` did.

    Attributes:
        snapshot: The table after the merge.
        version: The version of the commit; None if nothing was committed.
        merged_groups: The number of groups that were merged.
        source_splits: The number of splits that were merged.
        new_splits: The number of splits that replaced them.
        rows: The number of rows in the new splits.
        bytes_before: The size of the merged splits.
        bytes_after: The size of the new splits.
        skipped: Splits that could not be read, and why. They stay live.
        given_up: Groups that were planned and not merged, and why.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column(
            "status",
            pa.string(),
            "`SUCCESS`, `NO_ACTION`: nothing to merge, or `PARTIAL`: some splits were left out",
        ),
        Column("version", pa.int64(), "the version of the commit; null: nothing was committed"),
        Column("merged_groups", pa.int64(), "the number of groups that were merged"),
        Column("source_splits", pa.int64(), "the number of splits that were merged"),
        Column("new_splits", pa.int64(), "the number of splits that replaced them"),
        Column("rows", pa.int64(), "the number of rows in the new splits"),
        Column("bytes_before", pa.int64(), "the size of the merged splits"),
        Column("bytes_after", pa.int64(), "the size of the new splits"),
        Column("skipped", pa.list_(PROBLEM), "splits that could not be read, and why; they stay live"),
        Column("given_up", pa.list_(_GIVEN_UP), "groups of splits that were not merged after all, and why"),
        MESSAGE,
    )

    snapshot: Snapshot
    version: int | None = None
    merged_groups: int = 0
    source_splits: int = 0
    new_splits: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    skipped: tuple[BadSource, ...] = ()
    given_up: tuple[GivenUpGroup, ...] = ()

    @property
    def table_path(self) -> str:
        """The URL of the table."""
        return self.snapshot.context.url

    @property
    def status(self) -> Status:
        """PARTIAL if splits were skipped or groups given up, NO_ACTION if nothing was merged."""
        if self.skipped or self.given_up:
            return Status.PARTIAL
        return Status.SUCCESS if self.merged_groups else Status.NO_ACTION

    @property
    def message(self) -> str:
        """A one-line summary."""
        if not self.merged_groups:
            return "nothing was merged"
        return f"{self.source_splits} splits became {self.new_splits}"


class MergeRequest(msgspec.Struct, frozen=True):
    """What to merge. For a field that is None, the table's settings decide.

    Attributes:
        target_size: Splits of this size are left alone: bytes, or a text such as "100M".
        where: A predicate over partition columns that selects the partitions to merge.
        max_dest_splits: The most new splits to write.
        max_source_splits_per_merge: The most splits that become one.
        max_share_of_largest: See `MergeRules`.
    """

    target_size: str | int | None = None
    where: Predicate | None = None
    max_dest_splits: int | None = None
    max_source_splits_per_merge: int | None = None
    max_share_of_largest: float = 1.0


def merge_splits(snapshot: Snapshot, request: MergeRequest, runner: Runner) -> MergeResult:
    """Merge the small splits of each partition in one commit. No row changes.

    A group is given up if another writer removes one of its sources. Unreadable sources are recorded in the log as
    skips, and left alone until their cooldown is over.

    Raises InvalidOptionError, InvalidPredicateError and ProtocolUpgradeError before anything is read, the error of the
    first group if none could be written, CommitConflictError if the table's schema or index settings changed, and what
    `commit` raises. After any of these errors, or an interruption before the commit, the table is unchanged and the
    uploads are deleted. Only after a CommitOutcomeUnknownError or an interruption of the commit itself may the merge
    have landed; nothing is deleted then.
    """
    started = time.perf_counter()
    check_writable(snapshot.protocol, snapshot.context.url)
    rules = _rules(snapshot, request)
    tasks = _plan(snapshot, request.where, rules)
    if not tasks:
        return MergeResult(snapshot)
    check_accepts_splits(snapshot)
    work = _Work()
    with _deleting_on_failure(snapshot, work):
        _execute(tasks, runner, work)
        intent = _intent(snapshot, tasks, work)
    if not intent.groups and not intent.skips:
        return _result(snapshot, None, work, ())
    with deleting_unless_landed(snapshot.context.store, [file.path for file in work.uploads]):
        operation = Operation("MERGE", {"targetSize": str(rules.target_bytes)})
        result = _commit(snapshot, intent, operation, work)
    return _reported(_finish(result, intent, work), started)


def _reported(result: MergeResult, started: float) -> MergeResult:
    if result.merged_groups:
        MERGE_DURATION_MS.record((time.perf_counter() - started) * 1000, result.table_path)
        MERGE_SOURCE_SPLITS.record(result.source_splits, result.table_path)
        MERGE_NEW_SPLITS.record(result.new_splits, result.table_path)
    return result


def plan_merge(snapshot: Snapshot, request: MergeRequest) -> list[MergeTask]:
    """The tasks of a merge, one for each group. Reads only the log.

    Raises InvalidOptionError and InvalidPredicateError.
    """
    return _plan(snapshot, request.where, _rules(snapshot, request))


def count_small_splits(snapshot: Snapshot, target_bytes: int) -> int:
    """The number of splits below the target size, without those that an earlier merge could not read."""
    entries = snapshot.select(columns=["path", "size"]).entries
    return len(small_splits(entries, target_bytes, resting_paths(snapshot)))


def _plan(snapshot: Snapshot, where: Predicate | None, rules: MergeRules) -> list[MergeTask]:
    if where is None:
        entries = snapshot.select(columns=PLANNING_COLUMNS).entries
    else:
        entries = files_of_partitions(snapshot, where, PLANNING_COLUMNS)
    groups = plan_groups(entries, snapshot.partition_columns, rules, resting_paths(snapshot))
    if not groups:
        return []
    paths = entries["path"].combine_chunks()
    return [
        MergeTask(TaskStore.of(snapshot.context), snapshot.shape, snapshot.context.settings, sources)
        for sources in _sources(snapshot, [paths.take(group) for group in groups])
    ]


def _rules(snapshot: Snapshot, request: MergeRequest) -> MergeRules:
    settings = snapshot.context.settings
    if request.max_dest_splits is not None and request.max_dest_splits < 1:
        raise InvalidOptionError(f"max_dest_splits is {request.max_dest_splits}, but must be at least 1")
    target_size, max_sources = request.target_size, request.max_source_splits_per_merge
    return MergeRules(
        target_bytes=settings[MERGE_TARGET_SIZE]
        if target_size is None
        else MERGE_TARGET_SIZE.parse_given("target_size", target_size),
        max_sources=settings[MERGE_MAX_SOURCE_SPLITS]
        if max_sources is None
        else MERGE_MAX_SOURCE_SPLITS.parse_given("max_source_splits_per_merge", max_sources),
        max_groups=request.max_dest_splits,
        max_share_of_largest=request.max_share_of_largest,
        max_deleted_share=settings[MERGE_MAX_DELETED_SHARE],
    )


def _sources(snapshot: Snapshot, groups: Sequence[pa.Array]) -> list[tuple[MergeSource, ...]]:
    wanted = pa.chunked_array(groups)
    entries = snapshot.entries.filter(pc.is_in(snapshot.entries["path"], value_set=wanted.combine_chunks()))
    refs = split_refs(entries)
    merge_ops, tags = entries["numMergeOps"].to_pylist(), entries["splitTags"].to_pylist()
    sources = {
        ref.path: MergeSource(ref, count or 0, tuple(names or ()))
        for ref, count, names in zip(refs, merge_ops, tags, strict=True)
    }
    return [tuple(sources[path] for path in group.to_pylist()) for group in groups]


class _Work(msgspec.Struct):
    """The results of the tasks. `errors` belong to groups that could not be written."""

    groups: list[MergedGroup] = msgspec.field(default_factory=list)
    bad_sources: list[BadSource] = msgspec.field(default_factory=list)
    errors: list[tuple[MergeTask, Exception]] = msgspec.field(default_factory=list)

    @property
    def uploads(self) -> list[SplitFile]:
        return [file for group in self.groups for file in group.files]


@contextlib.contextmanager
def _deleting_on_failure(snapshot: Snapshot, work: _Work) -> Iterator[None]:
    """Delete the uploads after any failure: before the commit begins, no log can refer to them."""
    try:
        yield
    except BaseException:
        delete_quietly(snapshot.context.store, [file.path for file in work.uploads])
        raise


def _execute(tasks: Sequence[MergeTask], runner: Runner, work: _Work) -> None:
    with contextlib.closing(runner.run("merging splits", tasks)) as outcomes:
        for outcome in outcomes:
            if not isinstance(outcome, Failed):
                work.bad_sources += outcome.result.bad_sources
                work.groups += [outcome.result] if outcome.result.files else []
            elif isinstance(outcome.error, OperationInterruptedError):
                raise outcome.error
            else:
                work.errors.append((tasks[outcome.index], outcome.error))
    if work.errors and not work.groups:
        raise work.errors[0][1]
    for task, error in work.errors:
        logger.warning(
            "%s: could not merge a group of %d splits: %s", task.store.store.url, len(task.sources), error
        )


def _intent(snapshot: Snapshot, tasks: Sequence[MergeTask], work: _Work) -> Merge:
    sources = {source.path: source for task in tasks for source in task.sources}
    return Merge(
        groups=tuple(
            MergeGroup(tuple(source.path for source in group.sources), _adds(group), _vectors(group))
            for group in work.groups
        ),
        skips=skip_actions(snapshot, work.bad_sources, sources),
        doc_mappings={
            file.doc_mapping_ref: file.doc_mapping_json for group in work.groups for file in group.files
        },
    )


def _vectors(group: MergedGroup) -> dict[str, str]:
    """The ids of the deletion vectors of the sources."""
    vectors = ((source.path, source.ref.deletion_vector) for source in group.sources)
    return {path: vector.id for path, vector in vectors if vector is not None}


def _adds(group: MergedGroup) -> tuple[AddAction, ...]:
    merge_ops = 1 + max(source.num_merge_ops for source in group.sources)
    return tuple(
        msgspec.structs.replace(add_of(file), data_change=False, num_merge_ops=merge_ops)
        for file in group.files
    )


def _commit(snapshot: Snapshot, intent: Merge, operation: Operation, work: _Work) -> CommitResult:
    check = uploads_check(work.uploads)
    try:
        return commit(snapshot, intent, operation, before_each_try=check)
    except CommitConflictError:
        newest = _newest_if_no_group_is_live(snapshot, intent)
        if newest is None:
            raise
        return CommitResult(newest, is_committed=False, tries=1, given_up=intent.groups)


def _newest_if_no_group_is_live(snapshot: Snapshot, intent: Merge) -> Snapshot | None:
    """The newest snapshot, if every group has lost a source, or rows of it. The conflict is then about files only."""
    try:
        newest = catch_up(snapshot).snapshot
        changed = changed_sources(intent.groups, newest)
    except IndexTablesError:
        return None
    is_same_table = newest.metadata.id == snapshot.metadata.id
    have_lost_sources = all(not changed.isdisjoint(group.sources) for group in intent.groups)
    return newest if is_same_table and intent.groups and have_lost_sources else None


def _finish(result: CommitResult, intent: Merge, work: _Work) -> MergeResult:
    """Delete the uploads of groups that were given up, and do what is due after the commit."""
    lost = [group.sources for group in result.given_up]
    delete_quietly(
        result.snapshot.context.store, [add.path for group in result.given_up for add in group.adds]
    )
    planned = zip(intent.groups, work.groups, strict=True)
    work.groups = [group for plan, group in planned if plan.sources not in lost]
    given_up = [
        GivenUpGroup(paths, "another writer removed some of these splits, or rows of them") for paths in lost
    ]
    if not result.is_committed:
        return _result(result.snapshot, None, work, given_up)
    snapshot = after_merge(result.snapshot) if work.groups else after_commit(result.snapshot)
    return _result(snapshot, result.version, work, given_up)


def _result(
    snapshot: Snapshot, version: int | None, work: _Work, given_up: Sequence[GivenUpGroup]
) -> MergeResult:
    sources = [source.ref for group in work.groups for source in group.sources]
    files = [file for group in work.groups for file in group.files]
    failed = [
        GivenUpGroup(tuple(source.path for source in task.sources), str(error)) for task, error in work.errors
    ]
    return MergeResult(
        snapshot,
        version=version,
        merged_groups=len(work.groups),
        source_splits=len(sources),
        new_splits=len(files),
        rows=sum(file.num_records for file in files),
        bytes_before=sum(ref.size for ref in sources),
        bytes_after=sum(file.size for file in files),
        skipped=tuple(work.bad_sources),
        given_up=(*given_up, *failed),
    )

"""A model of a table as plain lists of rows per version, checked against every operation while time passes.

The model knows the rows of every version, and when each file was added and was last needed. From that follows which
files may have been deleted.
"""

import itertools
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from indextables.errors import CommitConflictError
from indextables.log.segment import list_log
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.fsck.log import reachable_versions
from indextables.ops.fsck.operation import fsck
from indextables.ops.merge import MergeRequest, merge_splits
from indextables.ops.purge.garbage import collect_garbage
from indextables.ops.purge.operation import purge
from indextables.ops.purge.report import PurgeRequest
from indextables.ops.read import scan
from indextables.ops.restore import RestoreRequest, restore
from indextables.ops.runner import LocalRunner
from indextables.ops.truncate import truncate_time_travel
from indextables.ops.write import append, check_uploads, commit_files, drop_partitions, overwrite
from indextables.predicates import parse_predicate
from indextables.storage import ObjectMeta
from indextables.table import load_snapshot
from indextables.table.commit import purge_fence_ms
from support.purge_tables import HOUR, SAMPLES, clocked_store, newest, put_split, sample_ids, splits_in
from support.tables import FORMATS, SCHEMA, context, new_table

DATES = ("2024-01-01", "2024-01-02", "2024-01-03")
DATE = st.sampled_from(DATES)
SOME_DATES = st.lists(DATE, min_size=1, max_size=2, unique=True)
SAMPLE = st.integers(0, SAMPLES - 1)
WHICH = st.integers(0, 99)

KEPT_HOURS = 30
RULES = {
    "checkpoint.enabled": "true",
    "checkpoint.async.enabled": "false",
    "checkpoint.interval": "4",
    "checkpoint.retention": "1",
    "indexWriter.heapSize": "32M",
    "merge.parallelism": "1",
    "purge.txLogRetentionHours": str(KEPT_HOURS),
    "state.retention.hours": str(KEPT_HOURS),
    "state.retention.versions": "1",
    "state.entriesPerManifest": "3",
    "state.compaction.maxManifests": "2",
}
PURGED_HOURS = 24
PURGES = {
    **RULES,
    "purgeOnWrite.enabled": "true",
    "purgeOnWrite.splitRetentionHours": str(PURGED_HOURS),
    "purgeOnWrite.txLogRetentionHours": str(KEPT_HOURS),
}

# A commit at the same time as the previous one gets a slightly later timestamp.
HAIR_MS = 1000

# Operations take files in the order of their names. Names in the order of their creation make a sequence repeatable.
_NUMBERS = itertools.count(1)


def _next_name() -> uuid.UUID:
    return uuid.UUID(int=next(_NUMBERS))


T = TypeVar("T")
Rows = Counter[tuple[int, str]]


@dataclass(frozen=True)
class Upload:
    """An uploaded split that waits for its commit."""

    sample: int
    date: str
    uploaded_ms: int


@dataclass(frozen=True)
class Version:
    """The rows that a version must show for as long as it is retained."""

    rows: Rows
    paths: frozenset[str]
    committed_ms: int


class MaintenanceMachine(RuleBasedStateMachine):
    """Runs random operations on a table and compares it with the model.

    `stored` are the splits that must exist. `loose_ms` maps unreferenced splits to the time since when no version needs
    them. `contents` are the rows of splits that were written, as opposed to merged.
    """

    def __init__(self) -> None:
        super().__init__()
        self.versions: list[Version] = []
        self._names = mock.patch("uuid.uuid4", _next_name)
        self._names.start()

    @initialize()
    def create(self) -> None:
        self.store = clocked_store()
        new_table(self.store, RULES)
        self.versions = [Version(Counter(), frozenset(), self.store.clock.now_ms())]
        self.kept = [0]
        self.stored: set[str] = set()
        self.loose_ms: dict[str, int] = {}
        self.waiting: dict[str, Upload] = {}
        self.contents: dict[str, Rows] = {}
        self.number = 0
        self.looked_at: set[ObjectMeta] = set()
        self.commit_splits_of_others([(sample, date) for sample in range(SAMPLES) for date in DATES[:2]])

    # --- writes -------------------------------------------------------------------------------------

    @rule(dates=SOME_DATES)
    def append(self, dates: list[str]) -> None:
        rows = self._new_rows(dates)
        append(self._table(), _as_table(rows))
        self._committed(self._newest.rows + rows, written=rows)

    @rule(date=DATE, is_all=st.sampled_from([False, False, True]))
    def overwrite(self, date: str, is_all: bool) -> None:
        rows = self._new_rows([date])
        left = Counter() if is_all else _outside(self._newest.rows, date)
        where = None if is_all else parse_predicate(f"date = '{date}'")
        overwrite(self._table(), _as_table(rows), where)
        self._committed(left + rows, written=rows)

    @rule(samples=st.lists(st.tuples(SAMPLE, DATE), min_size=2, max_size=4))
    def commit_splits_of_others(self, samples: list[tuple[int, str]]) -> None:
        adds, rows = [], Counter()
        for sample, date in samples:
            adds.append(put_split(self.store, path := self._new_path(date), sample, date))
            self.contents[path] = _sample_rows(sample, date)
            rows += self.contents[path]
        commit_files(self._table(), adds, [])
        self._committed(self._newest.rows + rows)

    @rule(sample=SAMPLE, date=DATE)
    def upload(self, sample: int, date: str) -> None:
        path = self._new_path(date)
        put_split(self.store, path, sample, date)
        self.waiting[path] = Upload(sample, date, self.store.clock.now_ms())
        self.loose_ms[path] = self.store.clock.now_ms()
        self.stored.add(path)

    @precondition(lambda self: self.waiting)
    @rule(which=WHICH)
    def commit_an_upload(self, which: int) -> None:
        path = _pick(sorted(self.waiting), which)
        upload = self.waiting.pop(path)
        try:
            check_uploads({path: upload.uploaded_ms}, self._table())
        except CommitConflictError:
            assert path not in self.stored or upload.uploaded_ms <= purge_fence_ms(self._table())
            return
        assert path in self.stored
        add = put_split(clocked_store(), path, upload.sample, upload.date)
        commit_files(self._table(), [add], [])
        self.contents[path] = _sample_rows(upload.sample, upload.date)
        self._committed(self._newest.rows + self.contents[path])

    @precondition(lambda self: self._newest.paths & self.contents.keys())
    @rule(which=WHICH)
    def remove(self, which: int) -> None:
        written = self._newest.paths & self.contents.keys()
        path = _pick(sorted(written, key=lambda path: sorted(self.contents[path])), which)
        commit_files(self._table(), [], [path])
        self._committed(self._newest.rows - self.contents[path])

    @rule(date=DATE)
    def drop(self, date: str) -> None:
        left = _outside(self._newest.rows, date)
        result = drop_partitions(self._table(), f"date = '{date}'")
        assert result.is_committed is (left != self._newest.rows)
        self._committed(left)

    @rule(which=WHICH)
    def restore(self, which: int) -> None:
        version = _pick(self.kept, which)
        result = restore(self._table(), RestoreRequest(version))
        assert result.is_committed is (self.versions[version].paths != self._newest.paths)
        self._committed(self.versions[version].rows)
        assert self._newest.paths == self.versions[version].paths

    # --- maintenance --------------------------------------------------------------------------------

    @precondition(lambda self: self._can_merge())
    @rule(max_sources=st.sampled_from([2, 10]), size=st.sampled_from(["12K", "100M"]))
    def merge(self, max_sources: int, size: str) -> None:
        self._merge(MergeRequest(size, max_source_splits_per_merge=max_sources), RULES)

    @precondition(lambda self: self._can_merge())
    @rule()
    def merge_and_purge(self) -> None:
        assert self._merge(MergeRequest(), PURGES)
        self._check_purged(PURGED_HOURS)

    @rule(form=st.sampled_from(list(FORMATS)))
    def checkpoint(self, form: str) -> None:
        write_checkpoint(newest(self.store, {**RULES, **FORMATS[form]}))

    @rule()
    def compact(self) -> None:
        compact(self._table())
        self._committed(self._newest.rows)

    @rule(hours=st.sampled_from([1, 20, 30, 250]))
    def wait(self, hours: int) -> None:
        self.store.clock.advance(hours * HOUR)

    @rule(hours=st.sampled_from([24, 48, 200]), log_hours=st.sampled_from([None, 0, 24]))
    def purge(self, hours: int, log_hours: int | None) -> None:
        table, before = context(self.store, RULES), self._files()
        preview = PurgeRequest(hours, log_hours, dry_run=True)
        dry = purge(load_snapshot(table), preview, LocalRunner())
        real = purge(load_snapshot(table), PurgeRequest(hours, log_hours, dry_run=False), LocalRunner())
        listed = dry.files["path"].to_pylist()
        assert before - self._files() == set(listed) == set(real.files["path"].to_pylist())
        # The commit of the purge itself is one of the newest versions, which are always kept.
        again = context(self.store, {**RULES, "checkpoint.retention": "2"})
        assert purge(load_snapshot(again), preview, LocalRunner()).num_files == 0
        self._committed(self._newest.rows, kept_hours=KEPT_HOURS if log_hours is None else log_hours)
        bases = list_log(self.store).bases
        if log_hours == 0:
            assert self.kept[0] == max(bases, default=0)
        self._check_purged(hours)

    @rule()
    def collect_garbage(self) -> None:
        collect_garbage(load_snapshot(context(self.store, RULES)), dry_run=False)

    @rule()
    def truncate(self) -> None:
        table, before = context(self.store, RULES), self._files()
        dry = truncate_time_travel(load_snapshot(table), LocalRunner(), dry_run=True)
        truncate_time_travel(load_snapshot(table), LocalRunner(), dry_run=False)
        assert before - self._files() == set(dry.files["path"].to_pylist())
        self.kept = self._reachable()
        assert self.kept == [len(self.versions) - 1]

    # --- invariants ---------------------------------------------------------------------------------

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        files = set(self.store.list(""))
        if files == self.looked_at:
            return
        is_any_gone = not files.issuperset(self.looked_at)
        self.looked_at = files
        self._check_splits()
        for version in self.kept if is_any_gone else self.kept[-1:]:
            self._check_version(version)
        report = fsck(context(self.store), LocalRunner(1), deep=False)
        assert report.is_clean, report.findings

    def teardown(self) -> None:
        self._names.stop()
        # An example may be abandoned before its first step, and is torn down all the same.
        if not self.versions:
            return
        for version in self.kept:
            self._check_version(version)
        report = fsck(context(self.store), LocalRunner(), deep=True)
        assert report.is_clean, report.findings

    # --- the model ----------------------------------------------------------------------------------

    @property
    def _newest(self) -> Version:
        return self.versions[-1]

    def _committed(self, rows: Rows, *, written: Rows | None = None, kept_hours: int = KEPT_HOURS) -> None:
        """Record that all new versions, those of the operation and of its housekeeping, show these rows."""
        now_ms = self.store.clock.now_ms()
        before, head = self._newest.paths, newest(self.store).version
        for version in range(len(self.versions), head + 1):
            entries = load_snapshot(context(self.store), version).entries
            self.versions.append(Version(rows, frozenset(entries["path"].to_pylist()), now_ms))
            self.kept.append(version)
        after = self._newest.paths
        assert self._newest.rows == rows
        self.stored |= after
        self.loose_ms = {path: since for path, since in self.loose_ms.items() if path not in after}
        self.loose_ms |= dict.fromkeys(before - after, now_ms)
        for path in after - before if written is not None else ():
            date = path.split("/")[0].removeprefix("date=")
            self.contents[path] = Counter(row for row in written if row[1] == date)
        self._check_kept(kept_hours)

    def _merge(self, request: MergeRequest, settings: dict[str, str]) -> bool:
        result = merge_splits(newest(self.store, settings), request, LocalRunner(1))
        assert not result.skipped
        assert not result.given_up
        self._committed(self._newest.rows)
        return result.merged_groups > 0

    def _can_merge(self) -> bool:
        folders = Counter(path.split("/")[0] for path in self._newest.paths)
        return any(count > 1 for count in folders.values())

    def _check_splits(self) -> None:
        assert self._reachable() == self.kept
        assert splits_in(self.store) == self.stored
        assert self.stored.issuperset(path for version in self.kept for path in self.versions[version].paths)

    def _check_kept(self, hours: int) -> None:
        """Versions were deleted by age only, starting with the oldest."""
        kept, now_ms = self._reachable(), self.store.clock.now_ms()
        lost = sorted(set(self.kept) - set(kept))
        assert all(self.versions[version].committed_ms <= now_ms - hours * HOUR * 1000 for version in lost)
        assert kept[-1] == len(self.versions) - 1
        self.kept = kept

    def _check_purged(self, hours: int) -> None:
        """A file that no retained version refers to is deleted if and only if it is old enough."""
        cutoff_ms = self.store.clock.now_ms() - hours * HOUR * 1000
        there = splits_in(self.store)
        for path in self.stored - there:
            assert path in self.loose_ms, f"{path} is part of the newest version"
            assert self.loose_ms[path] <= cutoff_ms, path
        needed = frozenset(path for version in self.kept for path in self.versions[version].paths)
        # Removals in deleted version files count as no later than the oldest version file. A checkpoint before it keeps
        # its version readable, but tells nothing about removals.
        known_ms = self.versions[min(list_log(self.store).versions)].committed_ms
        for path in there - needed:
            assert max(self.loose_ms[path], known_ms) > cutoff_ms - HAIR_MS, path
        self.stored = there

    def _check_version(self, version: int) -> None:
        snapshot = load_snapshot(context(self.store, {"read.parallelism": "1"}), version)
        assert sorted(snapshot.entries["path"].to_pylist()) == sorted(self.versions[version].paths), version
        found = scan(snapshot, None, None).read_all()
        rows = zip(*(found[name].to_pylist() for name in ("id", "date", "message")), strict=True)
        expected = Counter(
            {(number, date, f"row {number}"): n for (number, date), n in self.versions[version].rows.items()}
        )
        assert Counter(rows) == expected, f"version {version}"

    def _reachable(self) -> list[int]:
        return sorted(reachable_versions(list_log(self.store)))

    def _files(self) -> set[str]:
        return {meta.key for meta in self.store.list("")}

    def _table(self):
        return newest(self.store, RULES)

    def _new_path(self, date: str) -> str:
        self.number += 1
        return f"date={date}/part-{self.number}.split"

    def _new_rows(self, dates: Iterable[str]) -> Rows:
        """Two rows for each partition, with ids that no sample has."""
        rows: Rows = Counter()
        for date in dates:
            self.number += 1
            rows |= {(1000 + 2 * self.number, date): 1, (1001 + 2 * self.number, date): 1}
        return rows


def _pick(choices: Sequence[T], which: int) -> T:
    return choices[which % len(choices)]


def _as_table(rows: Rows) -> pa.Table:
    numbers, dates = zip(*rows, strict=True)
    messages = [f"row {number}" for number in numbers]
    return pa.table({"id": numbers, "date": dates, "message": messages}, schema=SCHEMA)


def _sample_rows(sample: int, date: str) -> Rows:
    return Counter((number, date) for number in sample_ids(sample))


def _outside(rows: Rows, date: str) -> Rows:
    return Counter({row: count for row, count in rows.items() if row[1] != date})

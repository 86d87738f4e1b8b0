"""A table against a plain dictionary, under writes, drops, purges, truncations and restores, while time passes.

After every step each version that is kept reads back as it was, and the check of the table finds nothing wrong.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from indextables.errors import CommitConflictError
from indextables.log.segment import list_log
from indextables.ops.checkpoint import compact, write_checkpoint
from indextables.ops.drop_partitions import drop_partitions
from indextables.ops.fsck import fsck
from indextables.ops.fsck_log import reachable_versions
from indextables.ops.purge import purge
from indextables.ops.read import scan
from indextables.ops.restore import restore
from indextables.ops.truncate import truncate_time_travel
from indextables.ops.uploads import check_still_there
from indextables.ops.write import commit_files
from indextables.table import load_snapshot
from purge_tables import HOUR, SAMPLES, clocked_store, newest, put_split, sample_ids, splits_in
from tables import FORMATS, context, new_table

DATES = ("2024-01-01", "2024-01-02")
NUMBERS = st.integers(0, SAMPLES - 1)
RETENTION_HOURS = st.sampled_from([24, 48, 200])
LOG_RETENTION_HOURS = st.sampled_from([None, 0, 24])

RULES = {
    "purge.txLogRetentionHours": "30",
    "checkpoint.retention": "1",
    "state.retention.hours": "30",
    "state.retention.versions": "1",
    "state.entriesPerManifest": "3",
    "state.compaction.maxManifests": "2",
}

Files = dict[str, tuple[int, str]]


class MaintenanceMachine(RuleBasedStateMachine):
    """`versions[v]` is what version v must show: the sample and the partition of each path."""

    @initialize()
    def create(self) -> None:
        self.store = clocked_store()
        new_table(self.store, RULES)
        self.versions: list[Files] = [{}]
        self.removed_ms: dict[str, int] = {}
        self.waiting: dict[str, tuple[int, str, int]] = {}
        self.number = 0

    # --- writes -------------------------------------------------------------------------------------

    @rule(sample=NUMBERS, date=st.sampled_from(DATES))
    def append(self, sample, date):
        path = self._new_path(date)
        add = put_split(self.store, path, sample, date)
        self._committed(commit_files(self._table(), [add], []), {**self.versions[-1], path: (sample, date)})

    @rule(sample=NUMBERS, date=st.sampled_from(DATES))
    def upload(self, sample, date):
        path = self._new_path(date)
        put_split(self.store, path, sample, date)
        self.waiting[path] = (sample, date, self.store.clock.now_ms())

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def commit_an_upload(self, data):
        path = data.draw(st.sampled_from(sorted(self.waiting)))
        sample, date, uploaded_ms = self.waiting.pop(path)
        is_there = path in splits_in(self.store)
        try:
            check_still_there(self._table().context, {path: uploaded_ms})
        except CommitConflictError:
            assert not is_there
            return
        assert is_there
        add = put_split(clocked_store(), path, sample, date)
        self._committed(commit_files(self._table(), [add], []), {**self.versions[-1], path: (sample, date)})

    @precondition(lambda self: self.versions[-1])
    @rule(data=st.data())
    def remove(self, data):
        path = data.draw(st.sampled_from(sorted(self.versions[-1])))
        left = {name: entry for name, entry in self.versions[-1].items() if name != path}
        self._committed(commit_files(self._table(), [], [path]), left)

    @rule(date=st.sampled_from(DATES))
    def drop(self, date):
        left = {path: entry for path, entry in self.versions[-1].items() if entry[1] != date}
        result = drop_partitions(self._table(), f"date = '{date}'")
        assert result.is_committed is (len(left) < len(self.versions[-1]))
        if result.is_committed:
            self._committed(result, left)

    @rule(data=st.data())
    def restore(self, data):
        version = data.draw(st.sampled_from(self._kept()))
        result = restore(self._table(), version)
        assert result.is_committed is (self.versions[version] != self.versions[-1])
        if result.is_committed:
            self._committed(result, self.versions[version])

    # --- maintenance --------------------------------------------------------------------------------

    @rule(form=st.sampled_from(list(FORMATS)))
    def checkpoint(self, form):
        write_checkpoint(newest(self.store, {**RULES, **FORMATS[form]}))

    @rule()
    def compact(self):
        report = compact(self._table())
        if report.version == len(self.versions):
            self.versions.append(self.versions[-1])

    @rule(hours=st.sampled_from([1, 20, 30, 250]))
    def wait(self, hours):
        self.store.clock.advance(hours * HOUR)

    @rule(hours=RETENTION_HOURS, log_hours=LOG_RETENTION_HOURS)
    def purge(self, hours, log_hours):
        table, before = context(self.store, RULES), {meta.key for meta in self.store.list("")}
        dry = purge(table, hours, log_hours, dry_run=True)
        real = purge(table, hours, log_hours, dry_run=False)
        gone = before - {meta.key for meta in self.store.list("")}
        assert gone == set(dry.to_arrow()["path"].to_pylist()) == set(real.to_arrow()["path"].to_pylist())
        young_ms = self.store.clock.now_ms() - hours * HOUR * 1000
        for path in gone & self.removed_ms.keys():
            assert self.removed_ms[path] <= young_ms, path
        for path in gone & self.waiting.keys():
            assert self.waiting[path][2] <= young_ms, path

    @rule()
    def truncate(self):
        table, before = context(self.store, RULES), {meta.key for meta in self.store.list("")}
        dry = truncate_time_travel(table, dry_run=True)
        truncate_time_travel(table, dry_run=False)
        assert before - {meta.key for meta in self.store.list("")} == set(dry.to_arrow()["path"].to_pylist())
        assert self._kept() == [len(self.versions) - 1]

    # --- looking ------------------------------------------------------------------------------------

    @invariant()
    def every_version_that_is_kept_shows_what_it_did(self):
        stored = splits_in(self.store)
        for version in self._kept():
            entries = load_snapshot(context(self.store), version).entries
            assert set(entries["path"].to_pylist()) == set(self.versions[version]), f"version {version}"
            assert stored.issuperset(self.versions[version]), f"version {version}"

    @invariant()
    def nothing_is_wrong(self):
        report = fsck(context(self.store), deep=False)
        assert report.is_clean, report.findings

    def teardown(self):
        for version in self._kept():
            rows = scan(load_snapshot(context(self.store), version), None, ["id"]).read_all()
            expected = [row for sample, _ in self.versions[version].values() for row in sample_ids(sample)]
            assert sorted(rows["id"].to_pylist()) == sorted(expected), f"version {version}"

    def _table(self):
        return newest(self.store, RULES)

    def _kept(self) -> list[int]:
        return sorted(reachable_versions(list_log(self.store)))

    def _new_path(self, date) -> str:
        self.number += 1
        return f"date={date}/part-{self.number}.split"

    def _committed(self, result, files: Files) -> None:
        assert result.version == len(self.versions)
        now_ms = self.store.clock.now_ms()
        self.removed_ms |= {path: now_ms for path in self.versions[-1] if path not in files}
        self.versions.append(dict(files))


TestMaintenanceAgainstModel = MaintenanceMachine.TestCase
TestMaintenanceAgainstModel.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, derandomize=True, database=None
)

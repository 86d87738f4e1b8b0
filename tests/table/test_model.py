"""A table against a plain dictionary: all versions in the log, after any sequence of operations."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from indextables.log.segment import list_log
from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.purge.garbage import collect_garbage
from indextables.ops.write import commit_files
from indextables.table import Snapshot, changes_since, load_snapshot
from indextables.table.context import process_cache
from indextables.table.history import read_commits
from indextables.table.intent import ChangeProperties
from indextables.table.load import catch_up
from support.clock import VirtualClock
from support.tables import FORMATS, AgeingStore, add, context, do, live, memory_store, new_table, overwrite

HOUR = 3600
PATHS = [f"part-{number}.split" for number in range(8)]
SOME_PATHS = st.lists(st.sampled_from(PATHS), min_size=1, max_size=4, unique=True)
SIZES = st.integers(1, 1000)

# Short, so that cleanups delete files within one run.
RETENTION = {
    "transaction.cache.enabled": "true",
    "purge.txLogRetentionHours": "1",
    "checkpoint.retention": "2",
    "state.retention.hours": "1",
    "state.retention.versions": "1",
    "state.entriesPerManifest": "3",
    "state.compaction.maxManifests": "2",
}

Files = dict[str, tuple[int, int]]


def entries(snapshot: Snapshot) -> Files:
    """Size and version of origin by path; `live` checks the counts."""
    sizes = live(snapshot)
    added = dict(
        zip(snapshot.entries["path"].to_pylist(), snapshot.entries["addedAtVersion"].to_pylist(), strict=True)
    )
    return {path: (size, added[path]) for path, size in sizes.items()}


class TableMachine(RuleBasedStateMachine):
    """`versions[v]` is what version v must show."""

    @initialize()
    def create(self) -> None:
        self.clock = VirtualClock()
        self.store = AgeingStore(memory_store(self.clock), self.clock)
        self.table = new_table(self.store, RETENTION)
        self.late = self.table
        self.versions = [{}]

    # --- commits ------------------------------------------------------------------------------------

    @rule(paths=SOME_PATHS, size=SIZES)
    def append_or_add_again(self, paths, size):
        result = commit_files(self.table, [add(path, size=size) for path in paths], [])
        self._committed(result.snapshot, added=dict.fromkeys(paths, size))

    @rule(paths=SOME_PATHS)
    def remove(self, paths):
        removed = set(paths) & set(self.versions[-1])
        result = commit_files(self.table, [], paths)
        assert result.is_committed is bool(removed)
        if removed:
            self._committed(result.snapshot, removed=removed)

    @precondition(lambda self: self.versions[-1])
    @rule(data=st.data(), new=SOME_PATHS, size=SIZES)
    def replace(self, data, new, size):
        sources = data.draw(st.lists(st.sampled_from(sorted(self.versions[-1])), min_size=1, unique=True))
        result = commit_files(self.table, [add(path, size=size) for path in new], sources)
        self._committed(result.snapshot, removed=set(sources), added=dict.fromkeys(new, size))

    @rule(paths=SOME_PATHS)
    def overwrite(self, paths):
        result = do(self.table, overwrite(*paths))
        self._committed(result.snapshot, removed=set(self.versions[-1]), added=dict.fromkeys(paths, 10))

    @rule(value=st.sampled_from(["1", "2", "3"]))
    def set_property(self, value):
        result = do(self.table, ChangeProperties({"owner": value}))
        if result.is_committed:
            self._committed(result.snapshot)

    @rule()
    def remember_a_snapshot(self):
        self.late = self.table

    @rule(paths=SOME_PATHS, size=SIZES)
    def append_from_a_snapshot_that_is_long_out_of_date(self, paths, size):
        result = commit_files(self.late, [add(path, size=size) for path in paths], [])
        self.late = result.snapshot
        self._committed(result.snapshot, added=dict.fromkeys(paths, size))

    # --- maintenance --------------------------------------------------------------------------------

    @rule(form=st.sampled_from(list(FORMATS)))
    def checkpoint(self, form):
        newest = load_snapshot(context(self.store, {**RETENTION, **FORMATS[form]}))
        report = write_checkpoint(newest)
        files = self.versions[-1].values()
        assert (report.num_files, report.total_bytes) == (len(files), sum(size for size, _ in files))

    @rule()
    def checkpoint_by_the_handle(self):
        write_checkpoint(self.table)

    @rule()
    def compact(self):
        before = self.table.version
        report = compact(self.table)
        if report.version > before:
            self._committed(load_snapshot(self.table.context))

    @rule(hours=st.sampled_from([0, 2, 24]))
    def clean_up(self, hours):
        self.clock.advance(hours * HOUR)
        bases = list_log(self.store).bases
        if bases:
            assert clean_up(self.table.context, max(bases)) is not None

    @rule(hours=st.sampled_from([0, 2]))
    def collect_garbage(self, hours):
        self.clock.advance(hours * HOUR)
        collect_garbage(load_snapshot(self.table.context), dry_run=False)

    # --- checks ------------------------------------------------------------------------------------

    @rule()
    def reopen(self):
        process_cache().invalidate(self.store)
        self.table = load_snapshot(context(self.store, RETENTION))

    @rule()
    def refresh(self):
        self.table = catch_up(self.table).snapshot

    @rule(data=st.data())
    def changes_add_up(self, data):
        kept = sorted({*list_log(self.store).versions, *list_log(self.store).bases})
        since = data.draw(st.sampled_from(kept))
        changes = changes_since(self.table, since)
        files = {path: size for path, (size, _) in self.versions[since].items()}
        for path in changes.removes["path"].to_pylist():
            del files[path]
        wanted = {path: size for path, (size, _) in self.versions[-1].items()}
        added = dict(zip(changes.adds["path"].to_pylist(), changes.adds["size"].to_pylist(), strict=True))
        assert {**files, **added} == wanted

    @invariant()
    def every_version_that_is_kept_is_the_dictionary_of_its_time(self):
        assert self.table.version == len(self.versions) - 1
        assert entries(self.table) == self.versions[-1]
        listing = list_log(self.store)
        for version in sorted({*listing.versions, *listing.bases}):
            snapshot = load_snapshot(self.table.context, version)
            assert entries(snapshot) == self.versions[version], f"version {version}"

    @invariant()
    def history_is_contiguous(self):
        listing = list_log(self.store)
        numbers = [commit.version for commit in read_commits(self.table.context, self.table.version)]
        assert numbers == sorted({*listing.versions, *listing.bases})
        oldest_file = min(listing.versions)
        assert [v for v in numbers if v >= oldest_file] == list(range(oldest_file, len(self.versions)))

    def _committed(self, snapshot, removed=frozenset(), added=None):
        version = len(self.versions)
        files = {path: entry for path, entry in self.versions[-1].items() if path not in removed}
        files |= {path: (size, version) for path, size in (added or {}).items()}
        self.versions.append(files)
        assert snapshot.version == version
        self.table = snapshot


TestTableAgainstModel = TableMachine.TestCase
TestTableAgainstModel.settings = settings(max_examples=25, stateful_step_count=20)

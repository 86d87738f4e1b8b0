"""Tables with real splits on a store with a virtual clock: tests age files without waiting."""

import functools
import time
from collections.abc import Callable, Mapping

import msgspec
import pyarrow as pa

from indextables.log.actions import AddAction
from indextables.ops.checkpoint.operation import compact
from indextables.ops.fsck.operation import fsck
from indextables.ops.purge.operation import purge
from indextables.ops.purge.report import PurgeKind, PurgeRequest, PurgeResult
from indextables.ops.runner import LocalRunner
from indextables.ops.write import add_of, commit_files
from indextables.ops.write import append as append_rows
from indextables.schema import TableShape
from indextables.split.split import SplitFile
from indextables.split.writer import SplitWriter, WriterOptions
from indextables.storage import ObjectMeta, ObjectStore, PutOutcome
from indextables.table import Snapshot, load_snapshot
from support.clock import VirtualClock
from support.faults import FaultStore, Moment
from support.tables import PARTITION_BY, SCHEMA, checkpoint, context, memory_store, new_table

HOUR = 3600
DAY = 24 * HOUR
SAMPLES = 3

# Only the age decides, and no file is too young.
ALL_OF_THE_LOG = "0 hours"
UNCHECKED = {"purge.retentionCheckEnabled": "false"}


def current_clock() -> VirtualClock:
    """A virtual clock that starts now, so that no store reports clock skew."""
    return VirtualClock(time.time_ns() // 1_000_000)


class ClockedStore(FaultStore):
    """A store whose files have the times of a virtual clock. Stores of one table share `times`."""

    def __init__(
        self,
        inner: ObjectStore,
        clock: VirtualClock,
        times: dict[str, int] | None = None,
        *,
        fail_call: tuple[int, Moment] | None = None,
    ) -> None:
        super().__init__(inner, clock=clock, fail_call=fail_call)
        self.times = {} if times is None else times
        self.before_call: Callable[[int, str, str], object] | None = None

    def now_ms(self) -> int:
        return self._perform("now_ms", "", self.clock.now_ms)

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        self.times[key] = self.clock.now_ms()

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        before = self.clock.now_ms()
        try:
            outcome = super().put_if_absent(key, data)
        except Exception:
            self.times.setdefault(key, before)
            raise
        if outcome is PutOutcome.WRITTEN:
            self.times[key] = before
        return outcome

    def head(self, key: str) -> ObjectMeta:
        return self._dated(super().head(key))

    def put_if_unchanged(self, key: str, data: bytes, expected: bytes) -> PutOutcome:
        outcome = super().put_if_unchanged(key, data, expected)
        if outcome is PutOutcome.WRITTEN:
            self.times[key] = self.clock.now_ms()
        return outcome

    def list(self, prefix, **selection):
        return (self._dated(meta) for meta in super().list(prefix, **selection))

    def _start(self, operation: str, key: str) -> Moment | None:
        if self.before_call is not None:
            self.before_call(len(self.calls), operation, key)
        return super()._start(operation, key)

    def _dated(self, meta: ObjectMeta) -> ObjectMeta:
        return ObjectMeta(meta.key, meta.size, self.times.get(meta.key, meta.last_modified_ms))


def clocked_store() -> ClockedStore:
    clock = current_clock()
    return ClockedStore(memory_store(clock), clock)


def another(store: ClockedStore, **arguments) -> ClockedStore:
    """Another store on the same table."""
    return ClockedStore(store._inner, store.clock, store.times, **arguments)


def copy_of(store: ClockedStore) -> ClockedStore:
    """A copy of a table with the same bytes and times, and its own clock."""
    copy = ClockedStore(memory_store(), VirtualClock(store.clock.now_ms()), dict(store.times))
    for meta in store._inner.list(""):
        copy._inner.put(meta.key, store._inner.get(meta.key))
    return copy


def sample_ids(number: int) -> list[int]:
    """The ids of the rows of a sample split."""
    return list(range(number * 100, number * 100 + number + 2))


@functools.cache
def sample_split(number: int) -> tuple[bytes, SplitFile]:
    """The bytes and the description of a real split, built once."""
    store = memory_store()
    ids = sample_ids(number)
    rows = pa.table(
        {"id": ids, "date": ["2024-01-01"] * len(ids), "message": [f"row {n}" for n in ids]}, schema=SCHEMA
    )
    with SplitWriter(
        store, TableShape(SCHEMA, PARTITION_BY), context(store).settings, WriterOptions()
    ) as writer:
        writer.write(rows)
        (file,) = writer.commit()
    return store.get(file.path), file


def put_split(store: ObjectStore, path: str, number: int = 0, date: str = "2024-01-01") -> AddAction:
    """Upload a split without committing it, and return its add action."""
    data, file = sample_split(number)
    store.put(path, data)
    return msgspec.structs.replace(
        add_of(file),
        path=path,
        partition_values={"date": date},
        modification_time=store.clock.now_ms(),
    )


def add_split(snapshot: Snapshot, path: str, number: int = 0, date: str = "2024-01-01") -> Snapshot:
    """Upload a split and commit it."""
    return commit_files(snapshot, [put_split(snapshot.context.store, path, number, date)], []).snapshot


def remove_split(snapshot: Snapshot, *paths: str) -> Snapshot:
    return commit_files(snapshot, [], paths).snapshot


def table_of(store: ObjectStore, *paths: str, settings: Mapping[str, str] | None = None) -> Snapshot:
    """A table with one version per split."""
    table = new_table(store, settings)
    for path in paths:
        table = add_split(table, path)
    return table


def newest(store: ObjectStore, settings: Mapping[str, str] | None = None) -> Snapshot:
    return load_snapshot(context(store, settings))


def splits_in(store: ObjectStore) -> set[str]:
    """All stored splits, whether or not the log refers to them."""
    return {meta.key for meta in store.list("") if meta.key.endswith(".split")}


def append_some_rows(snapshot: Snapshot) -> None:
    """Append rows: upload and commit."""
    append_rows(snapshot, pa.table({"id": [1], "date": ["2024-01-02"], "message": ["new"]}, schema=SCHEMA))


def run_purge(store, older_than="7 days", log_retention=None, *, dry_run=False, settings=None) -> PurgeResult:
    return purge(
        load_snapshot(context(store, settings)),
        PurgeRequest(older_than, log_retention, dry_run=dry_run),
        LocalRunner(),
    )


def doomed(report: PurgeResult, *kinds: PurgeKind) -> set[str]:
    rows = report.files.to_pylist()
    return {row["path"] for row in rows if not kinds or row["kind"] in {kind.value for kind in kinds}}


def is_clean(store: ObjectStore) -> bool:
    return fsck(context(store), LocalRunner(), deep=False).is_clean


def live_paths(store) -> set[str]:
    return set(newest(store).entries["path"].to_pylist())


def everything_goes(store: ClockedStore) -> None:
    """A table with files of every kind that a purge without log retention deletes."""
    table = remove_split(table_of(store, "a.split", "b.split"), "a.split")
    checkpoint(store)
    for name in ("c.split", "d.split"):
        table = add_split(table, name)
        checkpoint(store)
    put_split(store, "orphan.split")
    store.put("deletion_vector_orphan.bin", b"left over")
    compact(newest(store))
    store.clock.advance(30 * DAY)

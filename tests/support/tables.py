"""Tables for tests, built through the real write path, on stores that tests can inspect and damage."""

import functools
import uuid
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from indextables.config import Settings
from indextables.log.actions import AddAction, AnyAction, Metadata, ProtocolAction, encode_actions
from indextables.log.paths import LOG_PREFIX, version_key
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.predicates import parse_predicate
from indextables.schema import to_spark_json
from indextables.storage import Clock, ObjectStore, PutOutcome, open_store
from indextables.table import (
    CommitResult,
    Operation,
    Snapshot,
    TableContext,
    commit,
    create_table,
    load_snapshot,
)
from indextables.table.intent import (
    Append,
    DropPartitions,
    Intent,
    Merge,
    MergeGroup,
    Overwrite,
    RemoveFiles,
)
from support.faults import FaultStore, Moment

SCHEMA = pa.schema([("id", pa.int64()), ("date", pa.string()), ("message", pa.string())])
PARTITION_BY = ("date",)

# No automatic checkpoints, no caches, no threads, and no pauses between attempts to write a checkpoint.
PLAIN = {
    "checkpoint.enabled": "false",
    "transaction.cache.enabled": "false",
    "checkpoint.parallelism": "1",
    "state.read.parallelism": "1",
    "state.retry.baseDelayMs": "0",
}

# Lets splits of ours go into a table that holds splits of the JVM.
CONVERT = {"protocol.convertJvmTables": "true"}

FORMATS: Mapping[str, Mapping[str, str]] = {
    "avro": {"state.format": "avro"},
    "json": {"state.format": "json"},
    "multi-part json": {"state.format": "json", "checkpoint.maxFileSize": "1K"},
    "parquet": {"state.format": "parquet"},
    "multi-part parquet": {"state.format": "parquet", "checkpoint.maxFileSize": "1K"},
}


def options(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings without their common prefix, as the options that a user passes."""
    return {f"spark.indextables.{key}": value for key, value in settings.items()}


def memory_store(clock: Clock | None = None) -> ObjectStore:
    """A new store in memory."""
    return open_store(f"memory://{uuid.uuid4().hex}/table", clock=clock)


def context(store: ObjectStore, settings: Mapping[str, str] | None = None) -> TableContext:
    """The context of a table, without automatic checkpoints and caches unless the settings enable them."""
    return TableContext(store, Settings.resolve(options({**PLAIN, **(settings or {})})))


def new_table(store: ObjectStore, settings: Mapping[str, str] | None = None) -> Snapshot:
    """A table partitioned by date."""
    return create_table(context(store, settings), SCHEMA, PARTITION_BY, {})


def older_table(store: ObjectStore, settings: Mapping[str, str] | None = None) -> Snapshot:
    """The same table with protocol version 3, without files."""
    return jvm_table(store, settings=settings, protocol=3)


def jvm_table(
    store: ObjectStore, *paths: str, settings: Mapping[str, str] | None = None, protocol: int = 4
) -> Snapshot:
    """The same table as a release on the JVM left it, with one version for each path."""
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=to_spark_json(SCHEMA),
        partition_columns=PARTITION_BY,
        created_time=1_600_000_000_000,
    )
    versions = ProtocolAction(min_reader_version=protocol, min_writer_version=protocol)
    write_version(store, 0, versions, metadata)
    for version, path in enumerate(paths, start=1):
        write_version(store, version, add(path))
    return load_snapshot(context(store, settings))


def add(
    path: str, *, size: int = 10, date: str = "2024-01-01", modified: int = 1, data_change: bool = True
) -> AddAction:
    """An add action for a split that is not written."""
    return AddAction(
        path=path,
        partition_values={"date": date},
        size=size,
        modification_time=modified,
        data_change=data_change,
        num_records=size,
        min_values={"id": "0"},
        max_values={"id": str(size)},
    )


def append(*paths: str, date: str = "2024-01-01") -> Append:
    return Append(tuple(add(path, date=date) for path in paths))


def overwrite(*paths: str, date: str = "2024-01-01") -> Overwrite:
    return Overwrite(tuple(add(path, date=date) for path in paths))


def remove(*paths: str) -> RemoveFiles:
    return RemoveFiles(paths)


def merge(*groups: tuple[Iterable[str], Iterable[str]]) -> Merge:
    """Groups of (sources, targets). Rows move, but the data does not change."""
    return Merge(
        tuple(
            MergeGroup(tuple(sources), tuple(add(path, data_change=False) for path in targets))
            for sources, targets in groups
        )
    )


def drop(where: str) -> DropPartitions:
    return DropPartitions(parse_predicate(where))


def do(snapshot: Snapshot, intent: Intent, name: str = "TEST") -> CommitResult:
    """Commit without after-commit work."""
    return commit(snapshot, intent, Operation(name))


def after(snapshot: Snapshot, *intents: Intent) -> Snapshot:
    """The snapshot after some commits."""
    for intent in intents:
        snapshot = do(snapshot, intent).snapshot
    return snapshot


def live(snapshot: Snapshot) -> dict[str, int]:
    """The live paths and their sizes. Asserts that paths are unique and that the counts match."""
    entries = snapshot.entries
    paths = entries["path"].to_pylist()
    assert len(set(paths)) == len(paths)
    files = dict(zip(paths, entries["size"].to_pylist(), strict=True))
    assert snapshot.num_files == len(files)
    assert snapshot.total_bytes == sum(files.values())
    return files


def paths(snapshot: Snapshot) -> set[str]:
    return set(live(snapshot))


def busy_table(store: ObjectStore) -> list[dict[str, int]]:
    """A table with every kind of commit in its log. Returns the live files of each version."""
    objects, history = _busy_log()
    for key, data in objects.items():
        store.put(key, data)
    return [dict(files) for files in history]


@functools.cache
def _busy_log() -> tuple[dict[str, bytes], list[dict[str, int]]]:
    store = memory_store()
    table = new_table(store)
    history = [live(table)]
    intents = [
        append("a", "b"),
        append("c", date="2024-01-02"),
        remove("b"),
        append("b"),
        merge((["a", "b"], ["ab"])),
        append("d", "e"),
        overwrite("f", "g"),
        append("a"),
        remove("f", "a"),
        append("h", date="2024-01-03"),
        drop("date = '2024-01-03'"),
        append("i"),
    ]
    for intent in intents:
        table = after(table, intent)
        history.append(live(table))
    return {meta.key: store.get(meta.key) for meta in store.list("")}, history


def checkpoint(store: ObjectStore, form: str = "avro", version: int | None = None) -> None:
    """Write a checkpoint of a version in one of the `FORMATS`."""
    write_checkpoint(load_snapshot(context(store, FORMATS[form]), version))


def write_version(store: ObjectStore, version: int, *actions: AnyAction, more: str = "") -> None:
    """A version file as another writer would write it; `more` are additional lines."""
    lines = encode_actions(actions) + more.encode()
    assert store.put_if_absent(version_key(version), lines) is PutOutcome.WRITTEN


def log_keys(store: ObjectStore) -> list[str]:
    return [meta.key for meta in store.list(LOG_PREFIX)]


def copy_all(source: ObjectStore, target: ObjectStore) -> None:
    """Copy a table: the same bytes, with other file times."""
    for meta in source.list(""):
        target.put(meta.key, source.get(meta.key))


class AgeingStore(FaultStore):
    """A store whose clock follows a virtual clock, so that files age without waiting."""

    def __init__(
        self, inner: ObjectStore, clock: Clock, *, fail_call: tuple[int, Moment] | None = None
    ) -> None:
        super().__init__(inner, clock=clock, fail_call=fail_call)
        self._started_ms = clock.now_ms()

    def now_ms(self) -> int:
        return self._inner.now_ms() + self.clock.now_ms() - self._started_ms


class InterruptingStore(FaultStore):
    """A store that runs `before_commit` once, just before it writes a version file."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.before_commit: Callable[[], object] | None = None

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        if self.before_commit is not None and "/state-v" not in key and key.startswith(f"{LOG_PREFIX}0"):
            interrupt, self.before_commit = self.before_commit, None
            interrupt()
        return super().put_if_absent(key, data)


class UnreliableStore(FaultStore):
    """A store on which the calls that `fails` selects fail."""

    def __init__(self, inner: ObjectStore, fails: Callable[[str, str], Moment | None]) -> None:
        super().__init__(inner)
        self._fails = fails

    def _start(self, operation: str, key: str) -> Moment | None:
        moment = super()._start(operation, key)
        return self._fails(operation, key) or moment

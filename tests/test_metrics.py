"""The metrics: their values as an OpenTelemetry SDK receives them, and what each operation records."""

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from indextables import IndexTable, metrics
from indextables.errors import CommitConflictError, InvalidOptionError
from indextables.metrics import Instrument, all_instruments
from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.write import set_properties
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from support.clock import VirtualClock
from support.tables import (
    FORMATS,
    AgeingStore,
    append,
    checkpoint,
    context,
    do,
    memory_store,
    new_table,
    options,
    overwrite,
    remove,
)

# --- through the SDK, in a process of its own ---------------------------------------------------------

WORK = """
import sys
import pyarrow as pa
from indextables import IndexTable
# On a busy machine, `late` would be refreshed before its first try, and meet no conflict.
sys.modules["indextables.table.commit"]._STALE_AFTER_MS = 3_600_000
prefix = "spark.indextables."
options = {
    prefix + "cache.disk.path": sys.argv[2],
    prefix + "checkpoint.interval": "2",
    prefix + "purge.txLogRetentionHours": "0",
    prefix + "checkpoint.retention": "0",
    prefix + "state.compaction.afterMerge": "false",
}
schema = pa.schema([("id", pa.int64()), ("body", pa.string())])
def rows(*ids):
    return pa.table({"id": ids, "body": ["red"] * len(ids)})
table = IndexTable.create(sys.argv[1], schema, text=["body"], options=options)
table.append(rows(1, 2, 3))
late = IndexTable(sys.argv[1], options=options)
table.append(rows(4, 5))
late.append(rows(6))
late.search("red")
late.search("red")
late.count("red")
late.merge_splits(target_size="1G")
"""

WITH_SDK = f"""
import json, sys
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
{WORK}
found = [
    [metric.name, type(metric.data).__name__, metric.unit, dict(point.attributes),
     point.count if hasattr(point, "count") else point.value, getattr(point, "sum", None)]
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
    for point in metric.data.data_points
]
print(json.dumps(found))
"""

WITHOUT = f"""
{WORK}
print(any(name.startswith("opentelemetry") for name in sys.modules))
"""

# What the SDK calls the kinds of instruments.
KINDS = {"histogram": "Histogram", "counter": "Sum", "gauge": "Gauge"}


class Point(msgspec.Struct, array_like=True):
    """A measurement of the SDK: the number of observations of a histogram, or the value of another instrument."""

    name: str
    kind: str
    unit: str
    attributes: dict[str, str]
    value: float
    total: float | None


def output_of(script: str, path: Path) -> str:
    command = [sys.executable, "-c", script, str(path / "table"), str(path / "cache")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def points(tmp_path_factory) -> list[Point]:
    path = tmp_path_factory.mktemp("metrics")
    found = msgspec.json.decode(output_of(WITH_SDK, path), type=list[Point])
    assert {point.attributes.pop("table") for point in found} == {f"file://{path}/table"}
    return found


def values(points: list[Point], instrument: Instrument) -> dict[str, float]:
    """The values of an instrument by its other attributes."""
    return {
        " ".join(point.attributes[name] for name in instrument.attributes): point.value
        for point in points
        if point.name == instrument.name
    }


# Opening a small index reads all of it, so nothing remains to be fetched, and no prediction can miss.
OF_LARGE_INDEXES = {metrics.INDEX_FETCHED_BYTES, metrics.INDEX_PREDICTION_MISSES}


def test_application_with_an_sdk_receives_every_metric(points):
    found = {point.name: (point.kind, point.unit) for point in points}
    expected = [each for each in all_instruments() if each not in OF_LARGE_INDEXES]
    assert found == {each.name: (KINDS[each.kind], each.unit) for each in expected}


def test_every_measurement_has_the_attributes_of_its_instrument(points):
    declared = {each.name: set(each.attributes) for each in all_instruments()}
    assert [point for point in points if set(point.attributes) != declared[point.name]] == []


def test_commits_conflicts_rows_and_merges_of_the_sdk(points):
    assert values(points, metrics.COMMITS) == {"CREATE TABLE": 1, "WRITE": 3, "MERGE": 1}
    assert values(points, metrics.COMMIT_CONFLICTS) == {"WRITE retried": 1}
    assert values(points, metrics.INDEXED_ROWS) == {"WRITE": 6, "MERGE": 6}
    assert values(points, metrics.MERGE_DURATION_MS) == {"": 1}
    assert values(points, metrics.MERGE_SOURCE_SPLITS) == {"": 3}
    assert values(points, metrics.MERGE_NEW_SPLITS) == {"": 1}


def test_searches_and_cache_hits_of_the_sdk(points):
    assert values(points, metrics.SEARCH_DURATION_MS) == {"search": 2, "count": 1}
    assert values(points, metrics.CACHE_MISSES)["indexes"] == 3
    assert values(points, metrics.CACHE_HITS)["indexes"] == 6


def test_checkpoints_and_cleanup_of_the_sdk(points):
    """The versions 2 and 4 write a checkpoint, and clean up the versions before it."""
    assert values(points, metrics.CHECKPOINT_DURATION_MS) == {"avro-state": 2}
    assert values(points, metrics.CHECKPOINT_SIZE_BYTES) == {"avro-state": 2}
    assert values(points, metrics.STATE_WRITE_DURATION_MS) == {"": 2}
    assert values(points, metrics.CLEANUP_DELETED_FILES) == {"version": 4, "checkpoint": 0}
    # The merge left one file, so the state was compacted.
    assert values(points, metrics.STATE_TOMBSTONE_COUNT) == {"": 0}
    assert values(points, metrics.STATE_WRITE_COMPACTED) == {"": 1}


def test_opentelemetry_is_not_imported_without_an_sdk(tmp_path):
    assert output_of(WITHOUT, tmp_path).strip() == "False"


# --- what each operation records ----------------------------------------------------------------------


class Measurement(msgspec.Struct, frozen=True):
    instrument: Instrument
    value: float
    table: str
    attributes: tuple[str, ...]


@pytest.fixture
def recorded(monkeypatch) -> list[Measurement]:
    """What is recorded from now on."""
    found: list[Measurement] = []

    def record(instrument: Instrument, value: float, table: str, **attributes: str) -> None:
        assert tuple(attributes) == instrument.attributes
        # A table of an earlier test may still be maintained in the background.
        if not threading.current_thread().name.startswith(("indextables-background", "indextables-merge")):
            found.append(Measurement(instrument, value, table, tuple(attributes.values())))

    monkeypatch.setattr(Instrument, "record", record)
    return found


def of(recorded: list[Measurement], instrument: Instrument) -> list[tuple[float, ...]]:
    """The values of an instrument, each with its attributes."""
    return [(each.value, *each.attributes) for each in recorded if each.instrument is instrument]


def sums(recorded: list[Measurement], instrument: Instrument) -> dict[str, float]:
    total: Counter[str] = Counter()
    for value, *attributes in of(recorded, instrument):
        total[" ".join(attributes)] += value
    return dict(total)


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


def size_of_new_files(store: ObjectStore, before: set[str]) -> int:
    """The size of the files that a checkpoint has added, without the hint, which is no part of it."""
    return sum(
        meta.size
        for meta in store.list("")
        if meta.key not in before and not meta.key.endswith("_last_checkpoint")
    )


@pytest.mark.parametrize("form", FORMATS)
def test_a_checkpoint_records_its_time_its_size_and_its_ratio(store, recorded, form):
    do(new_table(store), append(*(f"part-{number:04}" for number in range(500))))
    before = {meta.key for meta in store.list("")}
    checkpoint(store, form)
    name = load_snapshot(context(store)).segment.base.format.value
    ((took_ms, form_of_time),) = of(recorded, metrics.CHECKPOINT_DURATION_MS)
    ((ratio, form_of_ratio),) = of(recorded, metrics.CHECKPOINT_COMPRESSION_RATIO)
    assert took_ms > 0
    assert form_of_time == form_of_ratio == name
    assert of(recorded, metrics.CHECKPOINT_SIZE_BYTES) == [(size_of_new_files(store, before), name)]
    # Parts as small as in this test have more overhead than entries.
    assert (0.5 if form == "multi-part parquet" else 1.2) < ratio < 100


@pytest.mark.parametrize("settings", [{"state.compression": "none"}, {"checkpoint.compression": "none"}])
def test_without_compression_the_ratio_is_one(store, recorded, settings):
    do(new_table(store), append("a", "b"))
    form = "avro" if "state.compression" in settings else "parquet"
    write_checkpoint(load_snapshot(context(store, {"state.format": form} | settings)))
    assert [ratio for ratio, _ in of(recorded, metrics.CHECKPOINT_COMPRESSION_RATIO)] == [1.0]


def test_a_checkpoint_that_exists_already_is_not_recorded_again(store, recorded):
    do(new_table(store), append("a"))
    checkpoint(store)
    checkpoint(store)
    assert len(of(recorded, metrics.CHECKPOINT_DURATION_MS)) == 1


def test_a_state_without_new_entries_has_no_ratio(store, recorded):
    table = do(new_table(store), append("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")).snapshot
    checkpoint(store)
    recorded.clear()
    do(table, remove("a"))
    checkpoint(store)
    assert len(of(recorded, metrics.CHECKPOINT_SIZE_BYTES)) == 1
    assert of(recorded, metrics.CHECKPOINT_COMPRESSION_RATIO) == []


@pytest.mark.parametrize(
    ("form", "name"), [("avro", "avro-state"), ("json", "json"), ("parquet", "parquet"), (None, "none")]
)
def test_the_time_to_open_a_table_is_recorded_by_format(store, recorded, form, name):
    do(new_table(store), append("a"))
    if form is not None:
        checkpoint(store, form)
    recorded.clear()
    load_snapshot(context(store))
    ((took_ms, found),) = of(recorded, metrics.LOAD_DURATION_MS)
    assert took_ms > 0
    assert found == name


def test_cleanup_records_how_many_files_of_each_kind_it_deleted(recorded):
    clock = VirtualClock()
    store = AgeingStore(memory_store(clock), clock)
    table = new_table(store)
    for number in range(5):
        table = do(table, append(f"part-{number}")).snapshot
    checkpoint(store, version=2)
    checkpoint(store, version=4)
    clock.advance(3600)
    checkpoint(store)
    settings = ("purge.txLogRetentionHours", "checkpoint.retention", "state.retention.versions")
    plan = clean_up(
        context(store, dict.fromkeys((*settings, "state.retention.hours"), "0") | {"cleanup.dryRun": "true"}),
        5,
    )
    assert of(recorded, metrics.CLEANUP_DELETED_FILES) == []
    clean_up(context(store, dict.fromkeys((*settings, "state.retention.hours"), "0")), 5)
    assert of(recorded, metrics.CLEANUP_DELETED_FILES) == [
        (len(plan.checkpoints), "checkpoint"),
        (len(plan.versions), "version"),
    ]
    assert (len(plan.checkpoints), len(plan.versions)) == (2, 5)


def test_readers_set_the_gauges_of_tombstones(store, recorded):
    paths = [f"part-{number}" for number in range(20)]
    table = do(new_table(store), append(*paths)).snapshot
    checkpoint(store)
    reader = load_snapshot(context(store))
    table = do(table, remove(paths[0])).snapshot
    checkpoint(store)
    recorded.clear()
    newest = load_snapshot(context(store))
    assert of(recorded, metrics.STATE_TOMBSTONE_COUNT) == [(1,)]
    assert of(recorded, metrics.STATE_TOMBSTONE_RATIO) == [(1 / 19,)]
    recorded.clear()
    load_snapshot(context(store), reader.version)
    assert of(recorded, metrics.STATE_TOMBSTONE_COUNT) == []  # an older version does not turn the gauge back
    assert newest.version == table.version


def test_a_reader_that_refreshes_sets_the_gauges_of_tombstones(tmp_path, recorded):
    path = str(tmp_path / "table")
    plain = options({"checkpoint.enabled": "false"})
    table = IndexTable.create(path, pa.schema([("id", pa.int64())]), options=plain)
    reader = IndexTable(path, options=plain)
    for number in range(12):
        table.append(pa.table({"id": [number]}))
    table.checkpoint()
    table.commit(removes=table.files(columns=["path"])["path"].to_pylist()[:1])
    table.checkpoint()
    recorded.clear()
    reader.refresh()
    assert of(recorded, metrics.STATE_TOMBSTONE_COUNT)[-1] == (1,)


def test_a_transaction_that_gives_up_counts_as_a_failed_conflict(store, recorded):
    table = new_table(store)
    stale = load_snapshot(context(store))
    set_properties(table, {"owner": "me"})
    with pytest.raises(CommitConflictError):
        do(stale, overwrite("a"), "OVERWRITE")
    assert of(recorded, metrics.COMMIT_CONFLICTS) == [(1, "OVERWRITE", "failed")]
    assert sums(recorded, metrics.COMMITS) == {"CREATE TABLE": 1, "SET PROPERTIES": 1}


def test_a_commit_of_nothing_is_no_commit(store, recorded):
    do(new_table(store), remove("never there"))
    assert sums(recorded, metrics.COMMITS) == {"CREATE TABLE": 1}


def test_a_restore_indexes_no_rows(tmp_path, recorded):
    table = IndexTable.create(str(tmp_path / "table"), pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2]}))
    table.commit(removes=table.files(columns=["path"])["path"].to_pylist())
    table.restore(version=1)
    assert sums(recorded, metrics.INDEXED_ROWS) == {"WRITE": 2}


def test_a_compaction_is_counted(store, recorded):
    do(new_table(store), append("a"))
    checkpoint(store)
    do(load_snapshot(context(store)), append("b"))
    compact(load_snapshot(context(store)))
    assert [value for (value,) in of(recorded, metrics.STATE_WRITE_COMPACTED)] == [0, 1]


def test_the_log_caches_count_hits_and_misses(tmp_path, recorded):
    path = str(tmp_path / "table")
    IndexTable.create(path, pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
    IndexTable(path).files()
    recorded.clear()
    IndexTable(path).files()
    assert sums(recorded, metrics.CACHE_HITS) == {"headers": 1, "file lists": 1}
    assert sums(recorded, metrics.CACHE_MISSES) == {}


# --- credentials, and the cost without a meter --------------------------------------------------------


def test_no_measurement_names_a_credential(s3_server, recorded):
    url = f"s3://{s3_server.make_bucket()}/table"
    secrets = [value for name, value in s3_server.storage_options.items() if "key" in name]
    table = IndexTable.create(url, pa.schema([("id", pa.int64())]), storage_options=s3_server.storage_options)
    table.append(pa.table({"id": [1]}))
    table.checkpoint()
    assert {each.table for each in recorded} == {url}
    texts = [each.table for each in recorded] + [text for each in recorded for text in each.attributes]
    assert secrets
    assert [text for text in texts if any(secret in text for secret in secrets)] == []


def test_a_url_with_credentials_never_becomes_an_attribute(recorded):
    with pytest.raises(InvalidOptionError, match="contains credentials"):
        IndexTable("s3://AKIAEXAMPLE:secret@bucket/table")
    assert recorded == []


def test_without_a_meter_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(metrics, "_LIBRARY", "no such library")
    monkeypatch.setattr(metrics, "_IS_PROVIDER_NAMED", False)
    instrument = Instrument("counter", "indextables.test", "a test")
    created: list[str] = []
    monkeypatch.setattr(Instrument, "_create", lambda self: created.append(self.name))
    for _ in range(3):
        instrument.record(1, "table")
    assert created == []

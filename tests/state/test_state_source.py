"""Reading the entries of a state: several manifests at a time, tombstones, and manifests of several writers."""

import pickle
import threading
from collections.abc import Sequence

import pyarrow as pa
import pytest
from msgspec.structs import replace

from indextables.errors import ManifestCorruptedError
from indextables.log.entries import Selection
from indextables.log.paths import LOG_PREFIX
from indextables.predicates import bind, parse_predicate
from indextables.pruning import Bounds, partition_bounds
from indextables.schema import TableShape
from indextables.state.manifest_writer import write_manifest
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo, StateManifest, new_manifest_path
from indextables.storage import ObjectStore
from support.faults import FaultStore
from support.manifest_samples import REQUIRED_VALUES, entries, numbered_entries
from support.tables import memory_store

SCHEMA = pa.schema([("month", pa.int32()), ("region", pa.string()), ("id", pa.int64())])
PARTITION_COLUMNS = ("month", "region")
ALL_ARRIVE_SECONDS = 30


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


def put_manifest(store: ObjectStore, table: pa.Table) -> ManifestInfo:
    path = new_manifest_path()
    store.put(LOG_PREFIX + path, write_manifest(table))
    bounds = partition_bounds(table["partitionValues"], TableShape(SCHEMA, tuple(PARTITION_COLUMNS)))
    return ManifestInfo(path, table.num_rows, 1, 1, bounds, has_typed_bounds=True)


def state_of(manifests: Sequence[ManifestInfo], tombstones: Sequence[str] = ()) -> StateManifest:
    num_files = sum(info.num_entries for info in manifests) - len(tombstones)
    return StateManifest(1, 0, num_files, 0, tuple(manifests), pa.array(tombstones, pa.string()))


def in_month(month: int, *regions: str) -> pa.Table:
    return entries(
        [
            {
                **REQUIRED_VALUES,
                "path": f"month={month}/{region}.split",
                "partitionValues": {"month": str(month), "region": region},
            }
            for region in regions
        ]
    )


def with_paths_of_its_own(table: pa.Table, place: int) -> pa.Table:
    names = pa.array([f"{place}-{number}" for number in range(table.num_rows)], pa.string())
    return table.set_column(0, table.schema.field(0), names)


def selected(source: StateSource, where: str) -> tuple[list[str], int]:
    """The paths that may match a predicate, and the number of skipped manifests."""
    selection = Selection(bind(parse_predicate(where), SCHEMA), TableShape(SCHEMA, tuple(PARTITION_COLUMNS)))
    loaded = source.load(selection, ["path"])
    return sorted(loaded.entries["path"].to_pylist()), loaded.manifests_skipped


class Meeting(FaultStore):
    """A store that responds only to several concurrent readers."""

    def __init__(self, inner: ObjectStore, readers: int) -> None:
        super().__init__(inner)
        self._barrier = threading.Barrier(readers)

    def get(self, key: str) -> bytes:
        self._barrier.wait(timeout=ALL_ARRIVE_SECONDS)
        return super().get(key)


@pytest.mark.parametrize("parallelism", [2, 4])
def test_manifests_of_a_state_are_fetched_at_the_same_time(store, parallelism):
    """Sequentially, the first fetch would wait for the second one forever."""
    manifests = [put_manifest(store, in_month(month, "eu")) for month in range(1, 9)]
    source = StateSource(Meeting(store, parallelism), state_of(manifests), parallelism)
    found = source.load(None, ["path"]).entries
    assert found["path"].to_pylist() == [f"month={month}/eu.split" for month in range(1, 9)]


@pytest.mark.parametrize("parallelism", [1, 3, 8])
def test_entries_come_in_the_order_of_the_manifests(store, parallelism):
    tables = [numbered_entries(count) for count in (3, 0, 700, 1, 40)]
    tables = [with_paths_of_its_own(table, place) for place, table in enumerate(tables)]
    source = StateSource(store, state_of([put_manifest(store, table) for table in tables]), parallelism)
    assert source.load(None, None).entries.equals(pa.concat_tables(tables))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_damaged_manifest_is_an_error_and_not_fewer_entries(store, parallelism):
    manifests = [put_manifest(store, in_month(month, "eu")) for month in range(1, 4)]
    key = LOG_PREFIX + manifests[1].path
    store.put(key, store.get(key)[:-20])
    with pytest.raises(ManifestCorruptedError):
        StateSource(store, state_of(manifests), parallelism).load(None, ["path"])


def test_many_tombstones_hide_exactly_their_files(store):
    table = numbered_entries(25_000)
    dead = table["path"].take(pa.array(range(0, 25_000, 2))).to_pylist()
    source = StateSource(store, state_of([put_manifest(store, table)], dead), parallelism=1)
    found = source.load(None, ["path"]).entries
    assert found["path"].to_pylist() == table["path"].take(pa.array(range(1, 25_000, 2))).to_pylist()
    assert source.num_files == found.num_rows == 12_500


def test_manifests_with_and_without_bounds_in_one_state(store):
    """A manifest is read unless its bounds exclude it: without bounds, or without those of the column."""
    known, other = put_manifest(store, in_month(1, "eu")), put_manifest(store, in_month(2, "eu"))
    without = replace(put_manifest(store, in_month(3, "eu")), partition_bounds=None)
    of_one_column = replace(
        put_manifest(store, in_month(4, "eu")), partition_bounds={"region": Bounds("a", "z")}
    )
    all_null = replace(put_manifest(store, in_month(5, "eu")), partition_bounds={"month": Bounds(None, None)})
    source = StateSource(store, state_of([known, other, without, of_one_column, all_null]), parallelism=1)
    found, skipped = selected(source, "month = 1")
    assert found == [f"month={month}/eu.split" for month in (1, 3, 4, 5)]
    assert skipped == 1


@pytest.mark.parametrize(
    ("where", "months"),
    [
        ("month = 1 AND region = 'eu'", [1]),
        ("month = 1 AND region = 'us'", []),
        ("month >= 1 AND month < 3", [1, 2]),
        ("month = 1 OR region = 'us'", [1, 3]),
        ("month = 1 OR month = 3", [1, 3]),
        ("month IN (1, 3, 99)", [1, 3]),
        ("month = 1 OR id = 5", [1, 2, 3]),
        ("month = 1 AND id = 5", [1]),
        ("(month = 1 OR month = 2) AND region = 'asia'", [2]),
        ("NOT (month = 1 OR month = 3)", [2]),
        ("NOT (month = 1 AND region = 'eu')", [2, 3]),
        ("id = 5", [1, 2, 3]),
    ],
)
def test_and_or_and_in_skip_the_manifests_that_cannot_match(store, where, months):
    manifests = [
        put_manifest(store, in_month(month, region)) for month, region in [(1, "eu"), (2, "asia"), (3, "us")]
    ]
    found, skipped = selected(StateSource(store, state_of(manifests), parallelism=1), where)
    assert [int(path[len("month=")]) for path in found] == months
    assert skipped == 3 - len(months)


def test_pruning_and_tombstones_hold_together(store):
    manifests = [put_manifest(store, in_month(month, "eu", "us")) for month in (1, 2)]
    state = state_of(manifests, ["month=1/us.split", "month=2/eu.split"])
    assert selected(StateSource(store, state, parallelism=1), "month = 1") == (["month=1/eu.split"], 1)


def test_state_manifests_travel_between_processes(store):
    state = state_of([put_manifest(store, in_month(1, "eu"))], ["gone.split"])
    assert pickle.loads(pickle.dumps(state)) == state

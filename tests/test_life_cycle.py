"""The life of a table on object stores: written, read, searched, followed, merged, purged, lost and repaired."""

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from indextables import IndexTable, Status, errors, repair_table
from indextables.log.paths import LOG_PREFIX
from indextables.ops.purge.operation import purge
from indextables.ops.purge.report import PurgeRequest
from indextables.ops.runner import LocalRunner
from indextables.storage import ObjectStore, open_store
from indextables.table import load_snapshot
from support.purge_tables import DAY, current_clock, splits_in
from support.row_tables import SCHEMA, ids, rows
from support.tables import AgeingStore, context

DAYS = ("2024-01-01", "2024/01/02", None)


@dataclass(frozen=True)
class Place:
    """Where tables go, and what it takes to get there."""

    root: str
    storage_options: dict[str, str] = field(repr=False)
    cache: str

    @property
    def access(self) -> dict[str, dict[str, str]]:
        return {
            "storage_options": self.storage_options,
            "options": {"spark.indextables.cache.disk.path": self.cache},
        }

    def open(self, name: str, **arguments: int) -> IndexTable:
        return IndexTable(f"{self.root}/{name}", **self.access, **arguments)

    def store(self, name: str) -> ObjectStore:
        return open_store(f"{self.root}/{name}", storage_options=self.storage_options)


@pytest.fixture(autouse=True)
def no_credentials_from_outside(monkeypatch) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


@pytest.fixture(params=["s3", "seaweedfs", "azure", "gcs", "hdfs"])
def place(request, tmp_path) -> Place:
    needed, cache = request.getfixturevalue, str(tmp_path / "cache")
    match request.param:
        case "hdfs":
            return Place(f"{needed('hdfs_server').url}/{uuid.uuid4().hex}", {}, cache)
        case "azure":
            server = needed("azurite_server")
            root = f"az://{server.make_container()}"
        case "gcs":
            server = needed("gcs_server")
            root = f"gs://{server.make_bucket()}"
        case _:
            server = needed(f"{request.param}_server")
            root = f"s3://{server.make_bucket()}"
    return Place(f"{root}/{uuid.uuid4().hex}", dict(server.storage_options), cache)


class Follower:
    """Keeps up with a table by what changed since it last looked."""

    def __init__(self, open_table: Callable[[], IndexTable]) -> None:
        self._open_table = open_table
        self.version = -1
        self.files: set[str] = set()
        self.new_rows = 0

    def catch_up(self) -> None:
        """Look at one version after the other, as a stream does."""
        table = self._open_table()
        changes = table.changes(since_version=self.version)
        self.files |= set(changes.adds["path"].to_pylist())
        self.files -= set(changes.removes["path"].to_pylist())
        # A merge moves rows, and brings none.
        is_new = changes.adds["dataChange"].to_pylist()
        counts = changes.adds["numRecords"].to_pylist()
        self.new_rows += sum(count for count, new in zip(counts, is_new, strict=True) if new)
        self.version = changes.version
        assert self.files == set(table.files(columns=["path"])["path"].to_pylist())


def test_life_of_a_table_on_an_object_store(place):
    table = IndexTable.create(
        f"{place.root}/table", SCHEMA, partition_by=["day"], text=["body"], **place.access
    )
    follower = Follower(lambda: place.open("table"))
    for number in range(2):
        for position, day in enumerate(DAYS):
            first = 100 * position + 10 * number
            table.append(rows(*range(first, first + 10), day=day))
    follower.catch_up()
    everything = [100 * position + number for position in range(3) for number in range(20)]
    _shows(place, everything)
    assert (follower.version, follower.new_rows) == (6, 60)
    assert sorted(table.search("body:115", limit=5)["id"].to_pylist()) == [115]
    assert ids(table, where="day = '2024/01/02' AND id < 103") == [100, 101, 102]

    table.checkpoint()
    table.compact()
    _shows(place, everything)

    report = table.merge_splits()
    assert (report.merged_groups, report.source_splits, report.rows) == (3, 6, 60)
    assert table.num_files == 3
    _shows(place, everything)
    assert place.open("table").count("row", where="day IS NULL") == 20

    table.drop_partitions("day = '2024-01-01'")
    follower.catch_up()
    assert follower.new_rows == 60
    left = everything[20:]
    _shows(place, left)
    assert ids(place.open("table", version=6)) == everything

    _truncate(place, table)
    _purge(place)
    _shows(place, left)
    with pytest.raises(errors.VersionNotFoundError):
        place.open("table", version=6)
    follower.catch_up()
    assert len(follower.files) == 2

    table.append(rows(7, day=DAYS[0]))
    follower.catch_up()
    assert follower.new_rows == 61
    _lose_the_log_and_repair(place, [7, *left])


def _truncate(place: Place, table: IndexTable) -> None:
    before = _keys(place.store("table"))
    dry = table.truncate_time_travel(dry_run=True)
    assert _keys(place.store("table")) == before
    table.truncate_time_travel(dry_run=False)
    gone = before - _keys(place.store("table"))
    assert gone == set(dry.files["path"].to_pylist())
    assert place.open("table").history()["version"].to_pylist() == [table.version]


def _purge(place: Place) -> None:
    """A month later, by a clock that is that far ahead: what the servers say of their files stays as it is."""
    clock = current_clock()
    store = AgeingStore(place.store("table"), clock)
    live = set(place.open("table").files(columns=["path"])["path"].to_pylist())
    preview, request = PurgeRequest("7 days", dry_run=True), PurgeRequest("7 days", dry_run=False)
    assert purge(load_snapshot(context(store)), request, LocalRunner()).num_deleted == 0
    clock.advance(30 * DAY)
    before = _keys(store)
    listed = set(purge(load_snapshot(context(store)), preview, LocalRunner()).files["path"].to_pylist())
    assert _keys(store) == before
    report = purge(load_snapshot(context(store)), request, LocalRunner())
    assert report.failures.num_rows == 0
    assert before - _keys(store) == listed
    assert len(listed) >= 7
    assert splits_in(store) == live


def _lose_the_log_and_repair(place: Place, expected: list[int]) -> None:
    store = place.store("table")
    store.delete_many([meta.key for meta in store.list(LOG_PREFIX)])
    with pytest.raises(errors.TableNotFoundError):
        place.open("table")
    source = _keys(store)
    report = repair_table(f"{place.root}/table", f"{place.root}/repaired", **place.access)
    # Nobody can tell any more whether a split had been removed, and the report says so.
    assert (report.status, report.num_rows) == (Status.PARTIAL, len(expected))
    assert report.undecided
    assert not report.missing_splits
    assert not report.unreadable_splits
    assert _keys(store) == source
    _shows(place, expected, "repaired")
    assert place.open("repaired").count("row", where="day IS NULL") == 20


def _shows(place: Place, expected: list[int], name: str = "table") -> None:
    """What somebody sees who opens the table anew; and nothing is wrong with it."""
    table = place.open(name)
    assert ids(table) == sorted(expected)
    assert table.count("row") == len(expected)
    report = table.fsck(deep=True)
    assert report.is_clean, report.findings


def _keys(store: ObjectStore) -> set[str]:
    return {meta.key for meta in store.list("")}

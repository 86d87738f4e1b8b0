"""The state on object stores: written, read, extended, compacted and cleaned up, on S3 and on Azure."""

import contextlib
import os
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from indextables import IndexTable
from indextables.errors import StorageError, VersionNotFoundError
from indextables.log.paths import SHARED_MANIFEST_PREFIX, state_manifest_key
from indextables.ops.checkpoint.cleanup import clean_up
from indextables.ops.purge.garbage import collect_garbage
from indextables.state.avro.container import Codec, Compression
from indextables.state.manifest_reader import read_manifest
from indextables.state.manifest_writer import write_manifest
from indextables.storage import KeyRange, ObjectMeta, ObjectStore, open_store
from indextables.table import load_snapshot
from support.clock import VirtualClock
from support.fault_proxy import Answer, FaultProxy
from support.faults import FaultStore
from support.manifest_samples import (
    FULL_VALUES,
    REQUIRED_VALUES,
    avro_schema,
    entries,
    fastavro_file,
    fastavro_rows,
    numbered_entries,
)
from support.row_tables import SCHEMA, ids, rows
from support.state_tables import TableBuilder, numbered, paths, split, state_of
from support.tables import AgeingStore, context, log_keys

KEY = f"{SHARED_MANIFEST_PREFIX}manifest-a1b2c3d4.avro"
# Larger than one request of the client.
LARGE_BYTES = 12_000_000
HOUR = 3600
Proxy = TypeVar("Proxy", bound=FaultProxy)


@dataclass(frozen=True)
class Cloud:
    """The location of one table, and the options that reach it."""

    url: str
    storage_options: dict[str, str] = field(repr=False)
    endpoint_option: str

    def store(self, clock: VirtualClock | None = None) -> ObjectStore:
        """A new client, which shares no state with others."""
        return open_store(self.url, storage_options=self.storage_options, clock=clock)

    def tables(self, *partition_by: str, **options: str) -> TableBuilder:
        given = {key.replace("__", "."): value for key, value in options.items()}
        return TableBuilder(self.url, partition_by, given, self.storage_options)

    @contextlib.contextmanager
    def watched(self, kind: type[Proxy], **options: str) -> Iterator[tuple[ObjectStore, Proxy]]:
        """A store that records its requests."""
        with kind(self.storage_options[self.endpoint_option], ()).running() as proxy:
            changed = {**self.storage_options, **options, self.endpoint_option: proxy.endpoint}
            yield open_store(self.url, storage_options=changed), proxy


@pytest.fixture(autouse=True)
def no_credentials_from_outside(monkeypatch) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_")):
            monkeypatch.delenv(name)


def on_s3(request: pytest.FixtureRequest) -> Cloud:
    server = request.getfixturevalue("s3_server")
    return Cloud(
        f"s3://{server.make_bucket()}/{uuid.uuid4().hex}", dict(server.storage_options), "aws_endpoint"
    )


def on_azure(request: pytest.FixtureRequest) -> Cloud:
    server = request.getfixturevalue("azurite_server")
    return Cloud(
        f"az://{server.make_container()}/{uuid.uuid4().hex}",
        dict(server.storage_options),
        "azure_storage_endpoint",
    )


@pytest.fixture(params=[on_s3, on_azure], ids=["s3", "azure"])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    return request.param(request)


@pytest.fixture
def s3(request: pytest.FixtureRequest) -> Cloud:
    return on_s3(request)


# --- manifests ----------------------------------------------------------------------------------------


def test_manifest_of_another_writer_is_read(cloud):
    schema = avro_schema(write_manifest(entries([REQUIRED_VALUES])))
    values = [
        {field["name"]: row.get(field["name"]) for field in schema["fields"]}
        for row in (FULL_VALUES, REQUIRED_VALUES)
    ]
    cloud.store().put(KEY, fastavro_file(schema, values))
    found = read_manifest(cloud.store().get(KEY), name=KEY, expected_entries=2)
    assert found["path"].to_pylist() == [FULL_VALUES["path"], REQUIRED_VALUES["path"]]
    assert dict(found["partitionValues"][0].as_py()) == FULL_VALUES["partitionValues"]


def test_manifest_is_read_by_a_foreign_reader(cloud):
    table = numbered_entries(1500)
    cloud.store().put(KEY, write_manifest(table))
    data = cloud.store().get(KEY)
    assert [row["path"] for row in fastavro_rows(data)] == table["path"].to_pylist()
    assert read_manifest(data, name=KEY, expected_entries=1500).equals(table)


def test_large_manifest_survives_a_multi_part_upload(cloud):
    """Incompressible statistics make the manifest large."""
    chance = random.Random(14)
    table = entries(
        [
            {
                **REQUIRED_VALUES,
                "path": f"{number}.split",
                "stats": chance.randbytes(LARGE_BYTES // 100).hex(),
            }
            for number in range(60)
        ]
    )
    data = write_manifest(table, Codec(Compression.NONE))
    assert len(data) > LARGE_BYTES
    with cloud.watched(FaultProxy) as (store, proxy):
        store.put(KEY, data)
        assert proxy.count("PUT") > 1
    assert read_manifest(cloud.store().get(KEY), expected_entries=60).equals(table)


# --- states -------------------------------------------------------------------------------------------


def manifests(store: ObjectStore) -> set[str]:
    return {meta.key for meta in store.list(SHARED_MANIFEST_PREFIX)}


def test_incremental_writes_add_one_manifest_each_and_reuse_the_others(cloud):
    tables = cloud.tables(state__compaction__tombstoneThreshold="0.9")
    table = tables.create()
    before: set[str] = set()
    for batch in range(3):
        table.commit(adds=[split(number) for number in range(batch * 10, batch * 10 + 10)])
        table.checkpoint()
        found = manifests(cloud.store())
        assert len(found - before) == 1
        assert before < found
        before = found
    table.commit(removes=numbered([4]))
    table.checkpoint()
    assert manifests(cloud.store()) == before
    state = state_of(tables.open())
    assert (state.state_version, state.num_files, state.tombstones.to_pylist()) == (4, 29, numbered([4]))
    assert paths(tables.open()) == numbered(set(range(30)) - {4})


def test_full_life_cycle(cloud, tmp_path):
    """Rows are written, read, searched, compacted; old states and their manifests are cleaned up."""
    options = {
        "spark.indextables.cache.disk.path": str(tmp_path / "cache"),
        "spark.indextables.checkpoint.enabled": "false",
    }
    access = {"storage_options": cloud.storage_options, "options": options}
    table = IndexTable.create(cloud.url, SCHEMA, partition_by=["day"], text=["body"], **access)
    for number, day in enumerate(("2024-01-01", None, "a/ü")):
        table.append(rows(number, number + 10, day=day))
        table.checkpoint()
    table.overwrite(rows(7, day="a/ü"), where="day = 'a/ü'")
    everything = [0, 1, 7, 10, 11]
    assert ids(IndexTable(cloud.url, **access)) == everything
    assert table.count("row") == 5

    report = table.compact()
    assert (report.version, report.num_files) == (4, 3)
    state = state_of(IndexTable(cloud.url, **access))
    assert (len(state.manifests), len(state.tombstones)) == (1, 0)
    assert ids(IndexTable(cloud.url, version=3, **access)) == [0, 1, 2, 10, 11, 12]

    clock = VirtualClock()
    ageing = AgeingStore(cloud.store(clock), clock)
    clock.advance(2 * HOUR)
    settings = {
        "purge.txLogRetentionHours": "0",
        "checkpoint.retention": "0",
        "state.retention.versions": "0",
        "state.retention.hours": "0",
    }
    assert len(clean_up(context(ageing, settings), 4).versions) == 4
    assert len(collect_garbage(load_snapshot(context(ageing, settings)), dry_run=False).paths) >= 3
    assert len(manifests(cloud.store())) == 1
    assert [key for key in log_keys(cloud.store()) if "/state-v" in key] == [state_manifest_key(4)]
    after = IndexTable(cloud.url, **access)
    assert ids(after) == everything
    assert after.search("row", where="day = 'a/ü'")["id"].to_pylist() == [7]
    with pytest.raises(VersionNotFoundError):
        IndexTable(cloud.url, version=2, **access)
    assert after.append(rows(8)) == 5


class StaleListing(FaultStore):
    """A store with stale listings and current objects."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._listed = list(inner.list(""))

    def list(
        self, prefix: str, *, start_after: str | None = None, skip: KeyRange | None = None
    ) -> Iterator[ObjectMeta]:
        return (
            meta
            for meta in self._listed
            if meta.key.startswith(prefix)
            and (start_after is None or meta.key > start_after)
            and (skip is None or meta.key not in skip)
        )


def hint_alone(table: IndexTable) -> None:
    table.commit(adds=[split(number) for number in range(10, 14)])
    table.checkpoint()


def versions_alone(table: IndexTable) -> None:
    for number in range(10, 14):
        table.commit(adds=[split(number)])


def states_and_versions(table: IndexTable) -> None:
    for number in range(10, 14):
        table.commit(adds=[split(number)])
        table.checkpoint()


@pytest.mark.parametrize("meanwhile", [hint_alone, versions_alone, states_and_versions])
def test_state_is_current_although_the_listing_is_stale(cloud, meanwhile: Callable[[IndexTable], None]):
    table = cloud.tables().create()
    table.commit(adds=[split(number) for number in range(10)])
    table.checkpoint()
    stale = StaleListing(cloud.store())
    meanwhile(table)
    found = load_snapshot(context(stale))
    assert found.version == table.version
    assert sorted(found.entries["path"].to_pylist()) == numbered(range(14))


class RegionProxy(FaultProxy):
    """An endpoint for buckets of one region: as on S3, it redirects requests that are signed for another one."""

    region = "eu-central-1"

    def forward(self, method, path, headers, body):
        # Credential=<key>/<day>/<region>/s3/aws4_request
        signed = headers["authorization"]
        if signed.split("/")[2] == self.region:
            # The server behind has its buckets in its own region, and verifies no signature.
            headers = {**headers, "authorization": signed.replace(self.region, "us-east-1")}
            return super().forward(method, path, headers, body)
        found = {"x-amz-bucket-region": self.region, "Content-Type": "application/xml"}
        message = b"<Error><Code>PermanentRedirect</Code><Message>another endpoint</Message></Error>"
        return Answer(301, found, message)


def test_table_in_another_region_is_read_by_naming_its_region(s3):
    table = s3.tables().create()
    table.commit(adds=[split(1)])
    table.checkpoint()
    with s3.watched(RegionProxy, aws_region="eu-central-1") as (store, _):
        assert load_snapshot(context(store)).entries["path"].to_pylist() == numbered([1])


def test_table_in_another_region_is_not_read_without_naming_its_region(s3):
    s3.tables().create().commit(adds=[split(1)])
    with (
        s3.watched(RegionProxy, aws_region="us-east-1") as (store, _),
        pytest.raises(StorageError, match="region"),
    ):
        load_snapshot(context(store))


def test_state_copied_to_another_store_reads_the_same(cloud, tmp_path: Path):
    """A state holds no absolute location: a table may be moved between clouds and disks."""
    table = cloud.tables("day").create()
    table.commit(adds=[split(number, day=str(number)) for number in range(12)])
    table.checkpoint()
    copy = open_store(tmp_path / "table")
    for meta in cloud.store().list(""):
        copy.put(meta.key, cloud.store().get(meta.key))
    found = IndexTable(str(tmp_path / "table"))
    assert found.files("day BETWEEN 2 AND 11").num_rows == 10
    assert found.files().equals(table.files())

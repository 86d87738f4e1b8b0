"""Real processes on one table: every commit lands exactly once, and every table is created exactly once."""

import uuid

import pytest

from indextables import IndexTable
from support.racing import race, race_of_appends
from support.servers import S3Server

CREATE = """
import pyarrow as pa
from indextables import IndexTable

ready()
table = IndexTable.create(task["path"], pa.schema([("id", pa.int64())]), storage_options=task["storage_options"])
done([table.metadata.id, table.version])
"""

Place = tuple[str, dict[str, str]]


@pytest.fixture
def local(tmp_path) -> Place:
    return str(tmp_path / "table"), {}


@pytest.fixture
def s3(s3_server: S3Server) -> Place:
    return f"s3://{s3_server.make_bucket()}/{uuid.uuid4().hex}", s3_server.storage_options


def test_16_processes_of_20_appends_each_on_local_disk(local):
    race_of_appends(*local, racers=16, commits=20)


def test_16_processes_of_5_appends_each_on_s3(s3):
    """The S3 server is single-threaded and slower than the writers. The long race is a soak test."""
    race_of_appends(*s3, racers=16, commits=5)


def test_32_processes_create_one_table_on_local_disk(local):
    assert_created_once(local, racers=32)


def test_32_processes_create_one_table_on_s3(s3):
    assert_created_once(s3, racers=32)


def test_4_processes_of_5_appends_each_on_hdfs(hdfs_server):
    race_of_appends(f"{hdfs_server.url}/{uuid.uuid4().hex}", {}, racers=4, commits=5)


def test_8_processes_create_one_table_on_hdfs(hdfs_server):
    assert_created_once((f"{hdfs_server.url}/{uuid.uuid4().hex}", {}), racers=8)


def assert_created_once(place: Place, racers: int) -> None:
    path, storage_options = place
    created = race(CREATE, racers, path=path, storage_options=storage_options)
    assert len({table_id for table_id, _ in created}) == 1
    assert {version for _, version in created} == {0}
    table = IndexTable(path, storage_options=storage_options)
    assert table.metadata.id == created[0][0]
    assert table.history().num_rows == 1

"""Real processes on one table: every commit lands exactly once, and every table is created exactly once."""

import uuid
from collections import Counter

import pyarrow as pa
import pytest

from indextables import IndexTable
from racing import race
from servers import S3Server

SCHEMA = pa.schema([("id", pa.int64())])

APPEND = """
from indextables import AddAction, IndexTable

table = IndexTable(task["path"], storage_options=task["storage_options"])

def split(commit):
    return AddAction(path=f"{task['number']}-{commit}.split", partition_values={}, size=commit + 1,
                     modification_time=0, data_change=True)

ready()
done([table.commit(adds=[split(commit)]) for commit in range(task["commits"])])
"""

CREATE = """
import pyarrow as pa
from indextables import IndexTable

ready()
table = IndexTable.create(task["path"], pa.schema([("id", pa.int64())]), storage_options=task["storage_options"])
done([table.metadata.id, table.version])
"""

Place = tuple[str, dict[str, str]]


@pytest.fixture(params=["local", "s3"])
def place(request, tmp_path) -> Place:
    if request.param == "local":
        return str(tmp_path / "table"), {}
    server: S3Server = request.getfixturevalue("s3_server")
    return f"s3://{server.make_bucket()}/{uuid.uuid4().hex}", server.storage_options


def test_16_processes_of_50_appends_each(place):
    path, storage_options = place
    racers, commits = 16, 50
    IndexTable.create(path, SCHEMA, storage_options=storage_options)
    reported = race(APPEND, racers, path=path, storage_options=storage_options, commits=commits)
    landed = {
        f"{number}-{commit}.split": version
        for number, versions in enumerate(reported)
        for commit, version in enumerate(versions)
    }
    assert sorted(landed.values()) == list(range(1, racers * commits + 1))
    table = IndexTable(path, storage_options=storage_options)
    history = table.history()
    assert history["version"].to_pylist() == list(range(racers * commits, -1, -1))
    assert set(Counter(history["commitId"].to_pylist()).values()) == {1}
    files = table.files(columns=["path", "addedAtVersion"])
    assert dict(zip(*files.to_pydict().values(), strict=True)) == landed
    assert (table.num_files, table.total_bytes) == (racers * commits, racers * sum(range(1, commits + 1)))
    assert table._snapshot.gap is None


def test_32_processes_that_create_one_table(place):
    path, storage_options = place
    created = race(CREATE, 32, path=path, storage_options=storage_options)
    assert len({table_id for table_id, _ in created}) == 1
    assert {version for _, version in created} == {0}
    table = IndexTable(path, storage_options=storage_options)
    assert table.metadata.id == created[0][0]
    assert table.history().num_rows == 1

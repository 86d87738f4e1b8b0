"""Pickled tables and snapshots: they reopen their version, in this process, in another one, and on Spark's terms."""

import os
import pickle
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import (
    InvalidOptionError,
    ReadOnlyTableError,
    TableNotFoundError,
    VersionNotFoundError,
)
from support.tables import append, do, memory_store, new_table, options

SCHEMA = pa.schema([("id", pa.int64()), ("body", pa.string())])
PLAIN = options({"checkpoint.enabled": "false"})

READ = """
import os, pickle, sys
with open(sys.argv[1], "rb") as file:
    made = pickle.load(file)
print(os.getpid())
print(made() if callable(made) else (made.version, made.num_rows))
"""


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "table")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "body": [f"row {number}" for number in ids]}, schema=SCHEMA)


@pytest.fixture
def table(path) -> IndexTable:
    table = IndexTable.create(path, SCHEMA, text=["body"], options=PLAIN)
    table.append(rows(1, 2))
    return table


def again(value):
    return pickle.loads(pickle.dumps(value))


def in_another_process(data: bytes, tmp_path) -> str:
    file = tmp_path / "pickled"
    file.write_bytes(data)
    command = [sys.executable, "-c", READ, str(file)]
    process_id, answer = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert process_id != str(os.getpid())
    return answer


def test_a_snapshot_reopens_at_its_version(table):
    older = table.snapshot
    table.append(rows(3))
    found = again(older)
    assert (found.version, found.num_rows, found.metadata) == (1, 2, older.metadata)
    assert found.entries.equals(older.entries)


def test_a_table_reopens_at_its_version_and_goes_on_from_there(table, path):
    older = pickle.dumps(table)
    table.append(rows(3))
    found = pickle.loads(older)
    assert (found.version, found.num_rows) == (1, 2)
    assert found.search("row", columns=["id"]).num_rows == 2
    assert found.append(rows(4)) == 3
    assert IndexTable(path).num_rows == 4


def test_a_table_at_an_older_version_stays_read_only(table, path):
    table.append(rows(3))
    found = again(IndexTable(path, version=1))
    with pytest.raises(ReadOnlyTableError):
        found.append(rows(4))
    assert found.refresh().version == 2


def test_options_and_properties_travel(path):
    table = IndexTable.create(path, SCHEMA, options=options({"checkpoint.interval": "7"}))
    table.set_properties(options({"checkpoint.retention": "3"}))
    settings = again(table).snapshot.context.settings
    assert settings == table.snapshot.context.settings


def test_a_snapshot_pickles_without_its_entries(table):
    _ = table.snapshot.entries
    small = len(pickle.dumps(table.snapshot))
    table.commit(removes=table.files(columns=["path"])["path"].to_pylist())
    assert abs(len(pickle.dumps(table.snapshot)) - small) < 100


def test_a_table_travels_to_another_process(table, tmp_path):
    data = pickle.dumps(table)
    table.append(rows(3))
    assert in_another_process(data, tmp_path) == "(1, 2)"
    assert in_another_process(pickle.dumps(table.snapshot), tmp_path) == "(2, 3)"


def test_a_function_over_a_table_travels_as_spark_sends_it(table, tmp_path):
    from pyspark import cloudpickle

    data = cloudpickle.dumps(lambda: (table.version, table.count("row")))
    table.append(rows(3))
    assert in_another_process(data, tmp_path) == "(1, 2)"


def test_credentials_travel_with_the_table(s3_server, tmp_path):
    url = f"s3://{s3_server.make_bucket()}/table"
    table = IndexTable.create(url, SCHEMA, storage_options=s3_server.storage_options, options=PLAIN)
    table.append(rows(1))
    data = pickle.dumps(table)
    assert in_another_process(data, tmp_path) == "(1, 1)"
    assert s3_server.secret_access_key.encode() in data
    assert s3_server.secret_access_key not in repr(pickle.loads(data))


def test_a_version_that_is_gone_is_not_replaced_by_another(table, path):
    data = pickle.dumps(table)
    table.append(rows(3))
    table.checkpoint()
    table.truncate_time_travel(dry_run=False)
    with pytest.raises(VersionNotFoundError):
        pickle.loads(data)
    shutil.rmtree(path)
    with pytest.raises(TableNotFoundError):
        pickle.loads(data)


def test_a_table_that_was_created_again_is_another_table(table, path):
    data = pickle.dumps(table)
    shutil.rmtree(path)
    IndexTable.create(path, SCHEMA, text=["body"], options=PLAIN).append(rows(9))
    with pytest.raises(VersionNotFoundError, match="dropped and created again"):
        pickle.loads(data)


def test_a_store_that_was_passed_as_an_object_does_not_travel():
    snapshot = do(new_table(memory_store()), append("a")).snapshot
    with pytest.raises(InvalidOptionError, match="open the table by its path"):
        pickle.dumps(snapshot)

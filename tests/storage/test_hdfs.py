"""What only HDFS has: nodes that die, permissions, locks that outlive their owners, Hadoop's settings."""

import contextlib
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import hdfs_native
import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import (
    IndexTablesError,
    InvalidOptionError,
    StorageError,
    TransientStorageError,
    UnsafePathError,
)
from indextables.storage import ObjectStore, PutOutcome, open_store
from indextables.storage.hdfs import HdfsStore
from indextables.storage.hdfs_settings import hdfs_settings
from indextables.storage.redaction import Secret
from support.clock import VirtualClock
from support.hdfs import HdfsServer, running_hdfs, why_no_hdfs

SCHEMA = pa.schema([("id", pa.int64()), ("body", pa.string())])

AS_ANOTHER_USER = """
import sys
from indextables.errors import AccessDeniedError
from indextables.storage import open_store

store = open_store(sys.argv[1])
assert store.get("object") == b"x"
for change in (
    lambda: store.put("object", b"y"),
    lambda: store.put_if_absent("new", b"y"),
    lambda: store.delete_many(["object"]),
):
    try:
        change()
    except AccessDeniedError as error:
        print(error)
"""


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number], "body": [f"row {number}"]}, schema=SCHEMA)


@pytest.fixture
def root(hdfs_server) -> str:
    return f"{hdfs_server.url}/{uuid.uuid4().hex}"


@pytest.fixture
def own_server(tmp_path):
    """Nodes that a test may kill."""
    reason = why_no_hdfs()
    if reason is not None:
        pytest.skip(reason)
    with running_hdfs(tmp_path) as server:
        yield server


def client_of(store: ObjectStore) -> hdfs_native.Client:
    inner = store._inner
    assert isinstance(inner, HdfsStore)
    return inner._open()


def test_a_table_survives_the_death_of_each_node(own_server: HdfsServer, tmp_path):
    options = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    path = f"{own_server.url}/table"
    table = IndexTable.create(path, SCHEMA, text=["body"], options=options)
    table.append(rows(0))

    own_server.kill("datanode.DataNode")
    with pytest.raises(TransientStorageError):
        open_store(path, clock=VirtualClock()).get("_transaction_log/00000000000000000001.json")
    own_server.start("datanode.DataNode")

    own_server.kill("namenode.NameNode")
    acknowledged = [0]
    starting = threading.Thread(target=own_server.start, args=("namenode.NameNode",))
    starting.start()
    # The writer meets a NameNode that is gone, starts, or waits for the DataNode. Each is an error or a success.
    with contextlib.suppress(IndexTablesError):
        table.append(rows(1))
        acknowledged.append(1)
    starting.join()
    own_server.wait()

    table = IndexTable(path, options=options)
    assert set(acknowledged) <= set(table.to_arrow()["id"].to_pylist()) <= {0, 1}
    table.append(rows(2))
    assert table.search("body:row", limit=5).num_rows == table.count() == table.num_rows
    assert table.fsck(deep=True).is_clean


def test_another_user_is_refused_by_name(root):
    open_store(root).put("object", b"x")
    found = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, root],
        env={**os.environ, "HADOOP_USER_NAME": "alice"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = found.stdout.splitlines()
    assert len(lines) == 3
    assert all("user=alice" in line and "HADOOP_USER_NAME" in line for line in lines)


def test_a_colon_and_a_reserved_name_are_refused(root):
    store = open_store(root)
    for key in ("a:b", "folder/a:b", ".tmp-x", "folder/.tmp-x"):
        with pytest.raises(UnsafePathError):
            store.put(key, b"")


def test_a_folder_is_not_replaced_by_an_object(root):
    store = open_store(root)
    store.put("folder/object", b"x")
    for write in (store.put, store.put_if_absent):
        with pytest.raises(StorageError):
            write("folder/object/below", b"")
    with pytest.raises(StorageError):
        store.put("folder", b"")
    assert store.get("folder/object") == b"x"


def test_a_rename_whose_answer_was_lost_counts_as_written(root):
    store = open_store(root)
    inner = store._inner
    path = inner._path("log/0")
    with inner._temporary(path, b"ours") as temporary:
        assert inner._rename_new(temporary, path)
        # The client repeats the call.
        assert inner._rename_new(temporary, path)
    with inner._temporary(path, b"theirs") as temporary:
        assert not inner._rename_new(temporary, path)
    assert store.get("log/0") == b"ours"


def test_a_lock_of_a_dead_process_is_removed_after_a_minute(root):
    clock = VirtualClock()
    store = open_store(root, clock=clock)
    store.put("hint", b"old")
    client, path = client_of(store), store._inner._path("hint")
    lock = path.replace("/hint", "/.tmp-lock-hint")
    client.create(lock).close()
    with pytest.raises(TransientStorageError, match="other writers keep replacing hint"):
        store.put_if_unchanged("hint", b"new", b"old")
    made = client.get_file_info(lock).modification_time
    client.set_times(lock, made - 120_000, made)
    assert store.put_if_unchanged("hint", b"new", b"old") is PutOutcome.WRITTEN
    assert [meta.key for meta in store.list("")] == ["hint"]
    with pytest.raises(FileNotFoundError):
        client.get_file_info(lock)


def test_a_failed_write_leaves_no_temporary_file(root):
    store = open_store(root)
    store.put("a", b"x")
    store.put_if_absent("a", b"y")
    store.put_if_unchanged("a", b"y", b"z")
    names = [status.path for status in client_of(store).list_status(store._inner._root)]
    assert [name.rpartition("/")[2] for name in names] == ["a"]


def test_the_configuration_of_a_cluster_names_its_default_file_system(hdfs_server, root):
    open_store(root).put("object", b"x")
    folder = root.removeprefix(hdfs_server.url)
    options = {"hdfs_config_dir": str(hdfs_server.folder / "conf")}
    assert open_store(f"hdfs://{folder}", storage_options=options).get("object") == b"x"


def test_a_name_service_that_no_setting_explains_is_an_error_with_a_remedy():
    with pytest.raises(InvalidOptionError, match="HADOOP_CONF_DIR"):
        open_store("hdfs://warehouse/logs").get("x")


def test_settings_come_from_options_and_storage_options():
    options = {
        "spark.hadoop.dfs.client.x": Secret("a"),
        "dfs.client.y": Secret("b"),
        "text": Secret("message"),
    }
    given = {"dfs.client.y": Secret("c"), "kerberos_principal": Secret("me@REALM"), "aws_region": Secret("x")}
    settings = hdfs_settings(given, options)
    assert settings.kerberos_principal == "me@REALM"
    assert {name: settings.config[name] for name in ("dfs.client.x", "dfs.client.y")} == {
        "dfs.client.x": "a",
        "dfs.client.y": "c",
    }
    with pytest.raises(InvalidOptionError, match="'principal' is unknown to HDFS"):
        hdfs_settings({"principal": Secret("me")}, {})


def test_roots_with_other_settings_share_no_cache(monkeypatch):
    stores = [
        open_store("hdfs://nn/x"),
        open_store("hdfs://nn/y"),
        open_store("hdfs://nn/x", storage_options={"config_dir": str(Path("/conf"))}),
    ]
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    stores.append(open_store("hdfs://nn/x"))
    assert len({store.identity for store in stores}) == len(stores)


def test_an_unreachable_name_node_is_a_passing_fault():
    store = open_store("hdfs://127.0.0.1:1/x", clock=VirtualClock())
    with pytest.raises(TransientStorageError, match="get object"):
        store._inner.get("object")

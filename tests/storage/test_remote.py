"""Foreign objects in a bucket, with names that no table uses."""

import http.client
import uuid

import pytest

from indextables.errors import StorageError
from indextables.storage import ObjectStore, open_store


@pytest.fixture
def bucket(s3_server) -> str:
    return s3_server.make_bucket()


@pytest.fixture
def store(s3_server, bucket) -> ObjectStore:
    return open_store(f"s3://{bucket}/table", storage_options=s3_server.storage_options)


@pytest.fixture
def put_raw(s3_server, bucket):
    """Write an object past the rules for keys."""

    def put(key: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", s3_server.port)
        connection.request("PUT", f"/{bucket}/{key}", body=b"")
        assert connection.getresponse().status == 200
        connection.close()

    return put


def test_marker_objects_of_folders_are_not_listed(store, put_raw):
    put_raw("table/")
    put_raw("table/log/")
    store.put("log/0", b"")
    assert [meta.key for meta in store.list("log/")] == ["log/0"]
    assert "" not in [meta.key for meta in store.list("")]


def test_neighbours_in_the_bucket_are_not_listed(store, put_raw):
    for neighbour in ("table2/x", "table-old/x", "tabl", "other/table/x"):
        put_raw(neighbour)
    store.put("x", b"")
    assert [meta.key for meta in store.list("")] == ["x"]


def test_object_that_no_path_can_name_is_a_clear_error(store, put_raw):
    store.put("a", b"")
    put_raw("table/b//c")
    with pytest.raises(StorageError, match="rename or remove it") as caught:
        list(store.list(""))
    assert type(caught.value) is StorageError


def test_table_may_fill_a_whole_bucket(s3_server, bucket):
    store = open_store(f"s3://{bucket}", storage_options=s3_server.storage_options)
    store.put("log/0", b"x")
    assert [meta.key for meta in store.list("")] == ["log/0"]
    assert [meta.key for meta in store.list("log/", start_after="log/")] == ["log/0"]


def test_stores_below_each_other_see_the_same_objects(s3_server, bucket):
    name = uuid.uuid4().hex
    outer = open_store(f"s3://{bucket}", storage_options=s3_server.storage_options)
    inner = open_store(f"s3a://{bucket}/{name}/", storage_options=s3_server.storage_options)
    inner.put("object", b"x")
    assert outer.get(f"{name}/object") == b"x"
    assert [meta.key for meta in outer.list(f"{name}/")] == [f"{name}/object"]


def test_a_listing_in_another_order_than_that_of_keys_names_the_setting(seaweedfs_server):
    url = f"s3://{seaweedfs_server.make_bucket()}/table"
    in_folders = seaweedfs_server.storage_options
    by_default = {name: value for name, value in in_folders.items() if name != "list_order"}
    store = open_store(url, storage_options=by_default)
    for key in ("a/x", "a-b"):
        store.put(key, b"")
    with pytest.raises(StorageError, match="list_order=folders"):
        list(store.list(""))
    assert [meta.key for meta in open_store(url, storage_options=in_folders).list("")] == ["a-b", "a/x"]

"""Opening stores: spellings of paths, identities, and locations for other processes."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from indextables import IndexTable
from indextables.errors import InvalidOptionError, UnsafePathError
from indextables.storage import PutOutcome, StoreLocation, open_store, parse_root
from support import PATIENCE_SECONDS

S3_OPTIONS = {"access_key_id": "id", "secret_access_key": "secret-one"}


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/x/y", "file:///x/y"),
        ("file:/x/y", "file:///x/y"),
        ("file:///x/y", "file:///x/y"),
        ("file:///x//y/", "file:///x/y"),
        ("FILE:/x/y", "file:///x/y"),
        ("/x/./z/../y/", "file:///x/y"),
        ("/with space/100%25", "file:///with%20space/100%2525"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("s3n://bucket/a//b", "s3://bucket/a/b"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("gcs://bucket/a", "gs://bucket/a"),
        ("hdfs://nn:8020/a/", "hdfs://nn:8020/a"),
        ("HDFS://warehouse//a", "hdfs://warehouse/a"),
        ("hdfs:///a", "hdfs:///a"),
        ("memory://name/a", "memory://name/a"),
        ("memory:///a", "memory:///a"),
        ("abfss://c@acc.dfs.core.windows.net/a", "abfss://c@acc.dfs.core.windows.net/a"),
        ("abfs://c@acc.dfs.core.windows.net/a", "abfss://c@acc.dfs.core.windows.net/a"),
        ("wasb://c@acc.blob.core.windows.net/a", "abfss://c@acc.dfs.core.windows.net/a"),
        ("wasbs://c@acc.blob.core.chinacloudapi.cn/a", "abfss://c@acc.dfs.core.chinacloudapi.cn/a"),
    ],
)
def test_every_spelling_has_one_canonical_url(path, url):
    store = open_store(path)
    assert store.url == url
    assert open_store(url).identity == store.identity


@pytest.mark.parametrize(
    ("spelling", "folder"),
    [
        ("file:///x/a%20b", "/x/a b"),
        ("file:/x/a b", "/x/a b"),
        ("file://localhost/x/%C3%BC", "/x/ü"),
        ("file:///x/100%25", "/x/100%"),
        ("file:///x/100%", "/x/100%"),
        ("file:///x/a%2520b", "/x/a%20b"),
        ("/x/a%20b", "/x/a%20b"),
        ("/x/a?b#c", "/x/a?b#c"),
    ],
)
def test_only_file_urls_are_percent_decoded(spelling, folder):
    location = parse_root(spelling)
    assert Path("/", location.path) == Path(folder)
    assert parse_root(str(location)) == location


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_a_local_path_survives_every_spelling_as_a_url(name):
    path = os.path.normpath(f"/x/{name}")
    assume(path != "/")
    location = parse_root(path)
    assert parse_root(Path(path).as_uri()) == location
    assert parse_root(str(location)) == location


@pytest.mark.parametrize("url", ["file:///x/a%2Fb", "file:///x/a%2fb", "file:///x/a%00b"])
def test_a_file_url_with_an_encoded_separator_is_refused(url):
    with pytest.raises(InvalidOptionError, match="must not encode"):
        parse_root(url)


def test_a_table_in_a_folder_with_unusual_characters_opens_by_path_and_by_url(tmp_path):
    folder = tmp_path / "a b%20c ü#?"
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    IndexTable.create(str(folder), schema, partition_by=["day"]).append(
        pa.table({"id": [1, 2], "day": ["a b", "100%"]}, schema=schema)
    )
    assert folder.is_dir()
    for spelling in (str(folder), folder.as_uri(), open_store(folder).url):
        assert sorted(IndexTable(spelling).to_arrow()["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("path", ["az://c/a", "azure://c/a", "abfss://c/a"])
def test_azure_url_without_account_takes_it_from_the_options(path):
    assert open_store(path, storage_options={"account_name": "acc"}).url == "az://c/a"
    with pytest.raises(InvalidOptionError, match="account_name"):
        open_store(path)


def test_relative_path_is_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_store("tables/logs").put("object", b"x")
    assert (tmp_path / "tables/logs/object").read_bytes() == b"x"
    assert open_store(Path("tables/logs")).url == f"file://{tmp_path}/tables/logs"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "file:///",
        "a\0b",
        "ftp://node/x",
        "https://account.blob.core.windows.net/c?sig=CANARY",
        "s3:///x",
        "s3://key:CANARY@bucket/x",
        "file://host/x",
        "abfss://c:CANARY@acc.dfs.core.windows.net/x",
        "abfss://c@acc/x",
        "gs:/x",
    ],
)
def test_unusable_path_is_refused_without_repeating_secrets(path):
    with pytest.raises(InvalidOptionError) as caught:
        open_store(path)
    assert "CANARY" not in str(caught.value)
    assert "CANARY" not in repr(StoreLocation.of(path))


@pytest.mark.parametrize("path", ["s3://bucket/a/../b", "s3://bucket/./a", "memory://x/.."])
def test_dots_in_the_path_of_an_object_store_are_refused(path):
    with pytest.raises(UnsafePathError):
        open_store(path)


def test_memory_store_is_shared_within_the_process():
    one, other = open_store("memory://shared/table"), open_store("memory://shared/table/")
    one.put("object", b"x")
    assert other.get("object") == b"x"
    assert open_store("memory://shared").get("table/object") == b"x"
    assert list(open_store("memory://another/table").list("")) == []
    assert list(open_store("memory://shared/tab").list("")) == []


def test_nothing_is_created_by_opening(tmp_path):
    list(open_store(tmp_path / "table").list(""))
    assert list(tmp_path.iterdir()) == []


def test_identity_tells_roots_and_credentials_apart():
    def identity(path: str, **changes: str) -> str:
        return open_store(path, storage_options=S3_OPTIONS | changes).identity

    same = identity("s3://bucket/table")
    assert same == identity("s3a://bucket/table/")
    others = {
        identity("s3://bucket/other"),
        identity("s3://bucket2/table"),
        identity("s3://bucket/table", secret_access_key="secret-two"),
        identity("s3://bucket/table", session_token="token"),
        identity("s3://bucket/table", endpoint="https://example.org"),
    }
    assert same not in others
    assert len(others) == 5


def test_identity_sees_credentials_of_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    one = open_store("s3://bucket/table").identity
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "two")
    assert open_store("s3://bucket/table").identity != one


def test_identity_means_nothing_in_another_process():
    program = "from indextables.storage import open_store; print(open_store('/x').identity)"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert len(run.stdout.strip()) == len(open_store("/x").identity)
    assert run.stdout.strip() != open_store("/x").identity


def test_location_travels_and_opens_where_it_arrives(tmp_path):
    location = StoreLocation.of(
        tmp_path / "table",
        storage_options={"a": "CANARY"},
        options={"spark.indextables.aws.secretKey": "CANARY"},
    )
    arrived = pickle.loads(pickle.dumps(location))
    assert arrived == location
    assert "CANARY" not in repr(arrived)
    assert arrived.url == f"file://{tmp_path}/table"
    assert arrived.open().put_if_absent("object", b"x") is PutOutcome.WRITTEN
    assert location.open().get("object") == b"x"


FORK = """
import os, sys
from indextables.errors import StorageError
from indextables.storage import open_store

remote = open_store("s3://bucket/table", storage_options={"endpoint": "http://127.0.0.1:1"})
local = open_store(sys.argv[1])
open_store("memory://x").put("object", b"")
child = os.fork()
if child == 0:
    local.put("from-child", b"x")
    try:
        remote.get("object")
    except StorageError as error:
        os._exit(0 if "spawn" in str(error) else 1)
    os._exit(2)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_forked_child_gets_an_error_and_does_not_hang(tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path)], timeout=PATIENCE_SECONDS, check=False
    )
    assert run.returncode == 0
    assert (tmp_path / "from-child").read_bytes() == b"x"

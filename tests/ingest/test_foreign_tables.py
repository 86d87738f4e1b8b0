"""Tables of Delta Lake, Iceberg and Hudi as inputs: refused in every store, because their files hold deleted rows."""

import io
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import indextables
from indextables import IndexTable
from indextables.errors import InvalidOptionError
from indextables.storage import ObjectStore, open_store
from support.ingestion import index, rows_of

ROWS = pa.table({"id": [1, 2, 3], "body": ["one", "two", "three"]})


def parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """Two rows; the file of all three is still there."""
    write_deltalake(tmp_path / "delta", ROWS)
    DeltaTable(tmp_path / "delta").delete("id = 2")
    assert len(list((tmp_path / "delta").glob("*.parquet"))) == 2
    return tmp_path / "delta"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The first row."""
    IndexTable.create(str(tmp_path / "t"), ROWS.schema).append(ROWS.slice(0, 1))
    return str(tmp_path / "t")


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        found.relative_to(folder).as_posix(): found.read_bytes()
        for found in folder.rglob("*")
        if found.is_file()
    }


def put_all(store: ObjectStore, files: dict[str, bytes]) -> None:
    for key, data in files.items():
        store.put(key, data)


FOREIGN = {
    "Delta Lake": "_delta_log/00000000000000000000.json",
    "Apache Iceberg": "metadata/00000-1f3c.metadata.json",
    "Apache Hudi": ".hoodie/hoodie.properties",
}


@pytest.mark.parametrize("source", ["lake/delta", "lake/delta/*.parquet", "lake/*/*.parquet", "lake"])
def test_a_delta_table_in_s3_is_no_source_of_a_merge(s3_server, tmp_path, delta, path, source):
    url = f"s3://{s3_server.make_bucket()}"
    place = f"{url}/{source}"
    put_all(open_store(f"{url}/lake/delta", storage_options=s3_server.storage_options), files_of(delta))
    statement = f"MERGE INTO '{path}' t USING '{place}' s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    with pytest.raises(
        InvalidOptionError, match=f"{url}/lake/delta is a table of Delta Lake.*read it with deltalake"
    ):
        indextables.sql(statement, storage_options=s3_server.storage_options)
    with pytest.raises(InvalidOptionError, match="is a table of Delta Lake"):
        index(tmp_path / "u", place, storage_options=s3_server.storage_options)
    assert IndexTable(path).version == 1


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("place", ["", "/sub", "/s*/data/*.parquet"])
@pytest.mark.parametrize("is_local", [True, False], ids=["local", "memory"])
def test_tables_of_other_formats_are_not_indexed(tmp_path, kind, place, is_local):
    folder = str(tmp_path / "lake") if is_local else f"memory://{uuid.uuid4().hex}/lake"
    put_all(open_store(folder), {"sub/data/a.parquet": parquet(ROWS), f"sub/{FOREIGN[kind]}": b"{}"})
    with pytest.raises(InvalidOptionError, match=f"sub is a table of {kind}.*indextables.write"):
        index(tmp_path / "t", f"{folder}{place}")


@pytest.mark.parametrize("is_local", [True, False], ids=["local", "memory"])
def test_files_beside_a_table_and_named_files_are_read(tmp_path, is_local):
    folder = str(tmp_path / "lake") if is_local else f"memory://{uuid.uuid4().hex}/lake"
    put_all(
        open_store(folder),
        {
            "delta/_delta_log/0.json": b"{}",
            "delta/a.parquet": parquet(ROWS),
            "plain/metadata/about.parquet": parquet(ROWS),
        },
    )
    for number, place in enumerate(
        (f"{folder}/plain", f"{folder}/pl*/*/*.parquet", f"{folder}/delta/a.parquet")
    ):
        assert rows_of(index(tmp_path / f"t{number}", place)) == ROWS.to_pylist()


@pytest.mark.parametrize("is_local", [True, False], ids=["local", "memory"])
def test_a_table_that_is_published_as_delta_is_a_source(tmp_path, path, is_local):
    place = str(tmp_path / "source") if is_local else f"memory://{uuid.uuid4().hex}/source"
    source = IndexTable.create(place, ROWS.schema)
    source.append(ROWS)
    source.delete(where="id = 2")
    source.publish()
    indextables.sql(f"MERGE INTO '{path}' t USING '{place}' s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    assert sorted(IndexTable(path).to_arrow()["id"].to_pylist()) == [1, 3]
    with pytest.raises(InvalidOptionError, match="is a table, not a folder of files to index"):
        index(tmp_path / "u", place)

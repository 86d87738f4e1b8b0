"""The encoding of rows: dictionaries for repeated values, no statistics of text, and independent readers."""

from datetime import UTC, datetime, timedelta

import datafusion
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables.split.rows_file import RowsFile, choose_encoding

COUNT = 3000
MOMENT = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.fixture
def rows():
    return pa.table(
        {
            "id": pa.array(range(COUNT), pa.int64()),
            "status": pa.array([200 + i % 3 for i in range(COUNT)], pa.int32()),
            "at": pa.array([MOMENT + timedelta(seconds=i) for i in range(COUNT)], pa.timestamp("us", "UTC")),
            "body": [f"message number {i}" for i in range(COUNT)],
            "maybe": pa.array([None if i % 5 else i for i in range(COUNT)], pa.int64()),
            "tags": [[f"tag{i % 4}"] for i in range(COUNT)],
        }
    )


def write(path, rows):
    file = RowsFile(path, rows, {"body"})
    file.append(rows)
    file.close()
    return pq.read_metadata(path).row_group(0)


def encodings(group):
    return {group.column(i).path_in_schema: set(group.column(i).encodings) for i in range(group.num_columns)}


def test_values_that_repeat_have_a_dictionary_and_others_do_not(tmp_path, rows):
    found = encodings(write(tmp_path / "rows", rows))
    assert "RLE_DICTIONARY" in found["status"]
    assert "DELTA_BINARY_PACKED" in found["id"] & found["at"]
    assert "RLE_DICTIONARY" not in found["id"] | found["at"] | found["body"] | found["tags.list.element"]


def test_tokenized_columns_have_no_statistics_and_all_others_have(tmp_path, rows):
    group = write(tmp_path / "rows", rows)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert [name for name, column in columns.items() if not column.is_stats_set] == ["body"]


def test_an_independent_reader_finds_the_same_rows(tmp_path, rows):
    write(tmp_path / "rows.parquet", rows)
    found = datafusion.SessionContext().read_parquet(str(tmp_path / "rows.parquet")).to_arrow_table()
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == rows.to_pylist()


def test_a_name_with_a_dot_does_not_encode_the_member_of_a_struct(tmp_path):
    rows = pa.table({"a.b": range(100), "a": [{"b": f"text {i}"} for i in range(100)]})
    assert choose_encoding(rows, ()).others == {}
    write(tmp_path / "rows", rows)
    assert pq.ParquetFile(tmp_path / "rows").read().to_pylist() == rows.to_pylist()


def test_a_file_without_rows_is_complete(tmp_path, rows):
    file = RowsFile(tmp_path / "rows", rows.schema.empty_table(), {"body"})
    file.close()
    assert pq.read_table(tmp_path / "rows").schema.equals(rows.schema)


def test_only_compressible_columns_are_compressed(tmp_path, rows):
    group = write(tmp_path / "rows", rows)
    found = {group.column(i).path_in_schema: group.column(i).compression for i in range(group.num_columns)}
    assert found["id"] == found["at"] == "UNCOMPRESSED"
    assert found["body"] == found["status"] == "ZSTD"


def test_text_is_compressed_even_if_the_first_values_are_incompressible(tmp_path):
    rows = pa.table({"body": pa.array([None] * 10, pa.string()), "flag": pa.array([None] * 10, pa.bool_())})
    assert choose_encoding(rows.slice(0, 0), {"body"}).compression == {"body": "zstd", "flag": "zstd"}
    assert choose_encoding(rows, {"body"}).compression["flag"] == "none"
    texts = pa.table({"body": [f"{i:x}" for i in range(3)]})
    assert choose_encoding(texts, {"body"}).compression == {"body": "zstd"}

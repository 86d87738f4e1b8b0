"""Deleting rows: what every reader sees afterwards, and what the log records."""

import pickle

import numpy as np
import pyarrow as pa
import pyroaring
import pytest

from indextables import IndexTable
from indextables.errors import (
    InvalidOptionError,
    InvalidPredicateError,
    InvalidQueryError,
)
from indextables.log.deletion_vectors import MAX_INLINE_BYTES, read_vector
from indextables.ops.delete import DeleteRequest, delete
from indextables.ops.read import split_refs
from indextables.predicates import parse_predicate
from support.row_tables import ids, split_files

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("body", pa.string()), ("price", pa.float64())])
REWRITE = {"spark.indextables.delete.mode": "rewrite"}


def rows(*numbers: int, day: str = "a") -> pa.Table:
    return pa.table(
        {
            "id": list(numbers),
            "day": [day] * len(numbers),
            "body": [f"row {number} is {'even' if number % 2 == 0 else 'odd'}" for number in numbers],
            "price": [number / 4 for number in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def table(tmp_path) -> IndexTable:
    """Two days of a hundred rows each: ids 0 to 99, and 100 to 199."""
    made = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"], text=["body"])
    made.append(rows(*range(100)))
    made.append(rows(*range(100, 200), day="b"))
    return made


def vectors(table: IndexTable) -> list[dict | None]:
    return table.files().sort_by("path")["deletionVector"].to_pylist()


def test_deleted_rows_are_gone_from_scans_searches_counts_and_aggregates(table):
    assert table.delete(where="id IN (3, 13, 150)") == 3
    left = sorted(set(range(200)) - {3, 13, 150})
    assert ids(table) == left
    assert ids(table, where="id < 20") == [number for number in left if number < 20]
    assert table.count() == table.num_rows == 197
    assert table.count("odd") == 98
    assert table.count(where="price < 5.0") == 18
    found = table.search("row", columns=["id"], limit=1000)["id"].to_pylist()
    assert sorted(found) == left
    assert table.aggregate(["count", "sum(id)", "min(id)"], by="day").sort_by("day").to_pylist() == [
        {"day": "a", "count": 98, "sum(id)": sum(range(100)) - 16, "min(id)": 0},
        {"day": "b", "count": 99, "sum(id)": sum(range(100, 200)) - 150, "min(id)": 100},
    ]


def test_older_versions_still_have_the_rows(table):
    table.delete(where="id < 50")
    assert ids(IndexTable(table.snapshot.context.url, version=2)) == list(range(200))
    assert IndexTable(table.snapshot.context.url, version=2).count("even") == 100


def test_a_query_and_a_predicate_must_both_be_true(table):
    table.delete(where="id < 10", query="even")
    assert ids(table) == sorted(set(range(200)) - {0, 2, 4, 6, 8})


def test_a_second_delete_adds_to_the_first(table):
    table.delete(where="id = 1")
    table.delete(where="id = 2")
    table.delete(where="id = 1 OR id = 3")
    assert ids(table)[:3] == [0, 4, 5]
    assert [vector["cardinality"] for vector in vectors(table) if vector] == [3]


def test_a_split_without_rows_is_removed(table):
    table.delete(where="id < 99")
    assert table.num_files == 2
    table.delete(where="id = 99")
    assert table.num_files == 1
    assert table.count() == 100


def test_a_partition_is_removed_without_opening_its_splits(table, tmp_path):
    for path in split_files(tmp_path / "t"):
        (tmp_path / "t" / path).write_bytes(b"damaged")
    table.delete(where="day = 'a'")
    assert table.count() == 100
    assert table.protocol.reader_features is None


def test_all_rows_are_deleted_only_on_request(table):
    with pytest.raises(InvalidOptionError, match="where='true'"):
        table.delete()
    table.delete(where="true")
    assert (table.count(), table.num_files) == (0, 0)


def test_nothing_is_committed_if_no_row_matches(table):
    assert table.delete(where="id > 1000") == 2
    assert table.delete(query="nowhere") == 2
    assert table.protocol.reader_features is None


def test_wrong_conditions_change_nothing(table):
    with pytest.raises(InvalidPredicateError):
        table.delete(where="missing = 1")
    with pytest.raises(InvalidQueryError):
        table.delete(query="body:")
    assert table.refresh().version == 2


def test_the_first_vector_adds_the_feature_for_readers_and_writers(table):
    table.delete(where="id = 1")
    protocol = table.refresh().protocol
    assert protocol.reader_features == protocol.writer_features == ("deletionVectors",)
    assert (protocol.min_reader_version, protocol.min_writer_version) == (5, 5)


def test_the_history_says_what_was_deleted(table):
    table.delete(where="id < 7", query="odd")
    newest = table.history(limit=1).to_pylist()[0]
    assert newest["operation"] == "DELETE"
    parameters, metrics = dict(newest["operation_parameters"]), dict(newest["operation_metrics"])
    assert parameters["query"] == "odd"
    assert metrics["numDeletedRows"] == 3
    assert metrics["numAddedRows"] == 0


def test_a_large_vector_is_a_file_that_pyroaring_reads(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, text=["body"])
    table.append(rows(*range(20_000)))
    gone = np.unique(np.random.default_rng(7).integers(0, 20_000, 3000)).tolist()
    table.delete(where=f"id IN ({', '.join(map(str, gone))})")
    [vector] = [each.deletion_vector for each in split_refs(table.snapshot.entries)]
    assert vector.storage_type == "p"
    assert vector.size_in_bytes > MAX_INLINE_BYTES
    data = (tmp_path / "t" / vector.path_or_inline_dv).read_bytes()
    assert data[0] == 1
    assert int.from_bytes(data[1:5], "big") == vector.size_in_bytes
    content = data[5 : 5 + vector.size_in_bytes]
    assert int.from_bytes(content[:4], "little") == 1681511377
    assert list(pyroaring.BitMap64.deserialize(content[4:])) == gone
    assert ids(table) == sorted(set(range(20_000)) - set(gone))
    assert table.count("row") == 20_000 - len(gone)


def test_pages_without_rows_are_not_read(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, text=["body"])
    table.append(rows(*range(5000)))
    table.delete(where="id < 4000 OR id = 4500")
    assert ids(table) == [*range(4000, 4500), *range(4501, 5000)]
    assert ids(table, where="id > 4490 AND id < 4510") == [*range(4491, 4500), *range(4501, 4510)]


def test_a_scan_of_partition_columns_counts_the_rows_that_are_left(table):
    table.delete(where="id < 10")
    assert table.to_arrow(columns=["day"])["day"].to_pylist().count("a") == 90


def test_a_rewrite_leaves_no_vector(tmp_path):
    table = IndexTable.create(
        str(tmp_path / "t"), SCHEMA, text=["body"], partition_by=["day"], options=REWRITE
    )
    table.append(rows(*range(100)))
    table.append(rows(*range(100, 200), day="b"))
    before = set(table.files()["path"].to_pylist())
    table.delete(where="id < 10")
    assert vectors(table) == [None, None]
    assert table.protocol.reader_features is None
    assert len(before & set(table.files()["path"].to_pylist())) == 1
    assert ids(table) == list(range(10, 200))
    assert table.count("even") == 95


def test_a_dry_run_counts_the_rows_of_each_partition(table):
    request = DeleteRequest(parse_predicate("id BETWEEN 90 AND 119"), dry_run=True)
    result = delete(table.snapshot, request)
    assert (result.deleted_rows, result.changed_files, result.removed_files) == (30, 2, 0)
    assert [(each.partition, each.rows) for each in result.partitions] == [
        ({"day": "a"}, 10),
        ({"day": "b"}, 20),
    ]
    assert table.refresh().version == 2


def test_a_restored_version_has_its_rows_again_and_can_be_undone(table):
    table.delete(where="id < 50")
    table.delete(where="id < 60")
    table.restore(version=2)
    assert ids(table) == list(range(200))
    table.restore(version=3)
    assert ids(table) == list(range(50, 200))
    assert table.count("even") == 75


def test_changes_show_the_split_that_lost_rows(table):
    table.delete(where="id < 50")
    changes = table.changes(since_version=2)
    assert changes.removes.num_rows == 0
    assert changes.adds["deletionVector"].to_pylist()[0]["cardinality"] == 50
    table.restore(version=2)
    assert table.changes(since_version=2).adds.num_rows == 0


def test_a_merge_leaves_deleted_rows_out(table):
    table.append(rows(*range(200, 300)))
    table.delete(where="id < 10 OR id = 250")
    table.merge_splits()
    assert table.num_files == 2
    assert vectors(table) == [None, None]
    assert ids(table) == sorted(set(range(10, 300)) - {250})


def test_a_merge_rewrites_a_split_with_many_deleted_rows(table):
    table.delete(where="id < 20")
    table.merge_splits()
    assert sum(vector is not None for vector in vectors(table)) == 1
    table.delete(where="id < 40")
    table.merge_splits()
    assert vectors(table) == [None, None]
    assert ids(table) == list(range(40, 200))


@pytest.mark.parametrize("state_format", ["avro", "json", "parquet"])
def test_checkpoints_keep_vectors(tmp_path, state_format):
    options = {"spark.indextables.state.format": state_format}
    table = IndexTable.create(
        str(tmp_path / "t"), SCHEMA, partition_by=["day"], text=["body"], options=options
    )
    table.append(rows(*range(100)))
    table.delete(where="id < 10")
    table.checkpoint()
    table.append(rows(*range(100, 110), day="b"))
    table.delete(where="id = 50")
    table.checkpoint()
    table.truncate_time_travel(dry_run=False)
    reopened = IndexTable(str(tmp_path / "t"))
    assert ids(reopened) == [*range(10, 50), *range(51, 110)]
    assert reopened.num_rows == 99
    assert reopened.protocol.reader_features == ("deletionVectors",)
    assert reopened.fsck(deep=True).is_clean


def test_an_unpickled_table_knows_its_deleted_rows(table):
    table.delete(where="id < 10")
    assert ids(pickle.loads(pickle.dumps(table))) == list(range(10, 200))


def test_row_numbers_of_vectors_are_those_of_the_split(table):
    table.delete(where="id IN (105, 107)")
    [ref] = [each for each in split_refs(table.snapshot.entries) if each.deletion_vector]
    assert read_vector(table.snapshot.context.store, ref.deletion_vector, "x").tolist() == [5, 7]
    assert table.snapshot.has_deletion_vectors

"""Field ids in splits: other Parquet readers see them, and the reader finds columns by them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from indextables.predicates import col
from indextables.schema import TableShape, canonical_schema, new_field_ids
from indextables.storage import open_store
from support.faults import FaultStore
from support.schema_samples import clutter, schemas
from support.split_samples import (
    EVERY_TYPE,
    null_row,
    opened,
    ordinary_row,
    read_all,
    write_splits,
)

ROWS = 6000
TABLE = pa.table(
    {
        "id": range(ROWS),
        "level": [f"l{i // 2048}" for i in range(ROWS)],
        "who": pa.array(
            [
                None if i % 7 == 0 else {"name": f"n{i}", "age": i, "tags": [{"k": "x", "v": i}]}
                for i in range(ROWS)
            ],
            pa.struct(
                [
                    ("name", pa.string()),
                    ("age", pa.int64()),
                    (
                        "tags",
                        pa.list_(pa.field("element", pa.struct([("k", pa.string()), ("v", pa.int64())]))),
                    ),
                ]
            ),
        ),
        "counts": pa.array(
            [[(f"k{i}", {"n": i})] for i in range(ROWS)],
            pa.map_(pa.string(), pa.field("value", pa.struct([("n", pa.int64())]))),
        ),
    }
)
# In the order of the fields: id 1, level 2, who 3, name 4, age 5, tags 6, its element 7, k 8, v 9, counts 10, its
# key 11, its value 12, n 13.
IDS = tuple(range(1, 14))


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    store = open_store(tmp_path_factory.mktemp("sample"))
    (file,) = write_splits(store, TABLE, field_ids=IDS)
    return store, file


class RangeCounter(FaultStore):
    """A store that counts the bytes it reads."""

    bytes_read = 0

    def get_range(self, key, start, end):
        self.bytes_read += end - start
        return super().get_range(key, start, end)


def reopened(sample, schema, ids):
    store, file = sample
    return opened(store, file, shape=TableShape(schema, (), ids), partition_values={})


def ids_of(fields) -> list[int]:
    """The ids that pyarrow finds in the fields of a file, depth first."""
    found = []
    for field in fields:
        found.append(int(field.metadata[b"PARQUET:field_id"]))
        data_type = field.type
        if pa.types.is_map(data_type):
            found += ids_of([data_type.key_field, data_type.item_field])
        else:
            found += ids_of(data_type.field(position) for position in range(data_type.num_fields))
    return found


def parquet_schema(store, file):
    """The schema that plain pyarrow finds in a split."""
    return pq.read_schema(pa.BufferReader(store.get(file.path)))


def test_pyarrow_sees_the_id_of_every_column(sample, tmp_path):
    store, file = sample
    parquet = pq.ParquetFile(pa.BufferReader(store.get(file.path)))
    assert ids_of(parquet.schema_arrow) == list(IDS)
    assert "field_id=13" in str(parquet.schema)


def test_every_type_has_ids_and_comes_back_without_them(tmp_path):
    store = open_store(tmp_path / "table")
    schema = canonical_schema(EVERY_TYPE)
    ids = new_field_ids(schema, last_id=100)
    table = pa.Table.from_pylist([ordinary_row(), null_row()], schema=schema)
    (file,) = write_splits(store, table, field_ids=ids)
    split = opened(store, file)
    assert ids_of(parquet_schema(store, file)) == list(ids)
    for rows in (read_all(split), split.take([1, 0]).take([1, 0]), split.take([])):
        assert rows.schema.equals(split.schema, check_metadata=True)
        assert [clutter(column.type) for column in rows.columns] == [[]] * len(schema)
        assert rows.to_pylist() == table.slice(0, rows.num_rows).to_pylist()


@settings(max_examples=15)
@given(schema=schemas)
def test_any_schema_is_read_back_by_id(tmp_path_factory, schema):
    directory = tmp_path_factory.mktemp("any")
    store = open_store(directory)
    ids = new_field_ids(schema)
    table = schema.empty_table()
    table = pa.table([pa.nulls(3, field.type) for field in schema], schema=schema)
    (file,) = write_splits(store, table, field_ids=ids)
    split = opened(store, file)
    assert ids_of(parquet_schema(store, file)) == list(ids)
    assert read_all(split).equals(table)
    assert not any(clutter(column.type) for column in read_all(split).columns)


def test_a_split_records_the_ids_of_partition_columns_too(tmp_path):
    store = open_store(tmp_path)
    table = pa.table({"day": ["a"], "id": [1]})
    (file,) = write_splits(store, table, partition_columns=("day",), field_ids=(4, 9))
    split = opened(store, file)
    assert split.info.field_ids == (4, 9)
    assert split.info.schema.equals(table.schema, check_metadata=True)
    assert ids_of(parquet_schema(store, file)) == [9]
    assert read_all(split).to_pylist() == [{"day": "a", "id": 1}]


def test_a_renamed_column_is_read_from_older_splits(sample):
    schema = TABLE.schema.set(1, pa.field("severity", pa.string()))
    split = reopened(sample, schema, IDS)
    assert read_all(split, ["severity"])["severity"].equals(TABLE["level"])
    assert read_all(split, ["id"], col("severity") == "l1")["id"].to_pylist() == list(range(2048, 4096))
    assert split.take([5000, 1], ["severity", "id"]).to_pylist() == [
        {"severity": "l2", "id": 5000},
        {"severity": "l0", "id": 1},
    ]


def test_row_groups_are_pruned_by_the_statistics_of_the_renamed_column(sample):
    """The statistics of the column that had the name before would skip the wrong groups."""
    store, file = sample
    schema = TABLE.schema.set(0, pa.field("level", pa.int64())).set(1, pa.field("id", pa.string()))
    counting = RangeCounter(store)
    split = opened(counting, file, shape=TableShape(schema, (), IDS), partition_values={})
    assert read_all(split)["level"].equals(TABLE["id"])
    whole = counting.bytes_read
    assert read_all(split, predicate=col("level") == 5000)["level"].to_pylist() == [5000]
    assert counting.bytes_read - whole < whole / 2
    assert read_all(split, ["level"], col("id") == "l2")["level"].to_pylist() == list(range(4096, ROWS))
    assert read_all(split, ["level"], col("id") == "l3").num_rows == 0


def test_two_columns_that_exchanged_their_names_are_not_confused(tmp_path):
    store = open_store(tmp_path)
    (file,) = write_splits(store, pa.table({"a": [1, 2], "b": [30, 40]}), field_ids=(1, 2))
    schema = pa.schema([("b", pa.int64()), ("a", pa.int64())])
    split = opened(store, file, shape=TableShape(schema, (), (1, 2)), partition_values={})
    assert read_all(split).to_pylist() == [{"b": 1, "a": 30}, {"b": 2, "a": 40}]
    assert read_all(split, ["a"], col("b") == 2).to_pylist() == [{"a": 40}]
    assert split.take([1], ["a"]).to_pylist() == [{"a": 40}]


def test_a_column_that_was_dropped_and_added_again_is_null_in_older_splits(sample):
    schema = TABLE.schema.set(1, pa.field("level", pa.list_(pa.field("element", pa.int64()))))
    split = reopened(sample, schema, (1, 14, 15, *IDS[2:]))
    assert read_all(split, ["level"])["level"].null_count == ROWS
    assert read_all(split, ["id"], col("level").is_null()).num_rows == ROWS
    assert split.take([3], ["level"]).to_pylist() == [{"level": None}]
    assert split.take([], ["level"]).num_rows == 0


def test_renamed_added_and_dropped_members_of_nested_columns(sample):
    """`name` is now `age`, `age` is gone, and in `tags`, `v` is `k` and `k` is new."""
    tag = pa.struct([("k", pa.int64()), ("new", pa.string())])
    who = pa.struct(
        [("tags", pa.list_(pa.field("element", tag))), ("age", pa.string()), ("added", pa.int32())]
    )
    counts = pa.map_(pa.string(), pa.field("value", pa.struct([("m", pa.int64())])))
    schema = pa.schema([("id", pa.int64()), ("who", who), ("counts", counts)])
    split = reopened(sample, schema, (1, 3, 6, 7, 9, 20, 4, 21, 10, 11, 12, 13))
    expected = [
        {
            "id": i,
            "who": None if i % 7 == 0 else {"tags": [{"k": i, "new": None}], "age": f"n{i}", "added": None},
            "counts": [(f"k{i}", {"m": i})],
        }
        for i in range(ROWS)
    ]
    assert read_all(split).schema.equals(schema)
    assert read_all(split).to_pylist() == expected
    assert split.take([4100, 7]).to_pylist() == [expected[4100], expected[7]]


def test_a_split_without_ids_is_read_by_names(tmp_path):
    store = open_store(tmp_path)
    (file,) = write_splits(store, TABLE.slice(0, 10))
    split = opened(store, file, shape=TableShape(TABLE.schema, (), tuple(range(50, 63))), partition_values={})
    assert split.info.field_ids == ()
    assert read_all(split).equals(TABLE.slice(0, 10))
    assert read_all(split, ["id"], col("level") == "l0").num_rows == 10


def test_a_table_without_ids_reads_a_split_that_has_them_by_names(sample):
    store, file = sample
    split = opened(store, file, shape=TableShape(TABLE.schema.set(1, pa.field("LEVEL", pa.string()))))
    assert read_all(split, ["LEVEL"])["LEVEL"].equals(TABLE["level"])


def test_files_of_a_store_that_is_not_local_are_read_by_id(sample):
    store, file = sample
    memory = open_store("memory://field-ids/table")
    memory.put(file.path, store.get(file.path))
    schema = TABLE.schema.set(1, pa.field("severity", pa.string()))
    split = opened(memory, file, shape=TableShape(schema, (), IDS), partition_values={})
    assert read_all(split, ["severity"], col("id") < 5)["severity"].to_pylist() == ["l0"] * 5
    assert split.take([5999], ["severity"]).to_pylist() == [{"severity": "l2"}]

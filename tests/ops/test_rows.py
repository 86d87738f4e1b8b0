"""Round trips of rows: all types, partitions, columns by name, overwriting and time travel."""

import json
import math
import threading
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import IndexTable
from indextables.errors import (
    InvalidOptionError,
    InvalidPredicateError,
    InvalidSchemaError,
    InvalidValueError,
    ObjectNotFoundError,
    ReadOnlyTableError,
    SplitCorruptedError,
)
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.storage import NULL_PARTITION
from support.row_tables import SCHEMA, SMALL_SPLITS, ids, rows, same, split_files
from support.split_samples import EVERY_TYPE, EVERY_TYPE_OPTIONS, null_row, ordinary_row


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table"


@pytest.fixture
def table(path):
    return IndexTable.create(path, SCHEMA, text=["body"])


@pytest.fixture
def partitioned(path):
    return IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])


# --- round trips ---------------------------------------------------------------------------------------


def test_every_type_comes_back_with_nulls_and_after_opening_anew(path):
    data = pa.Table.from_pylist([ordinary_row(), null_row(), ordinary_row()], schema=EVERY_TYPE)
    created = IndexTable.create(path, EVERY_TYPE, options=EVERY_TYPE_OPTIONS)
    created.append(data)
    assert same(created.to_arrow(), data)
    assert same(IndexTable(path).to_arrow(), data)


def test_unusual_values_come_back(path):
    texts = ["", " ", "\x00", "é\u202e\U0001f600", "null", "x" * 1_000_000, None]
    numbers = [math.nan, -0.0, 0.0, math.inf, -math.inf, 5e-324, None]
    extremes = [2**63 - 1, -(2**63), 0, None, 1, -1, None]
    data = pa.table({"text": texts, "exact": texts, "number": numbers, "long": extremes})
    table = IndexTable.create(path, data.schema, text=["text"])
    table.append(data)
    assert same(table.to_arrow(), data)
    assert table.to_arrow(where="number > 1e308")["long"].to_pylist() == [
        2**63 - 1,
        None,
    ]  # NaN sorts above all numbers
    assert table.to_arrow(where="long = -9223372036854775808")["number"].to_pylist() == [-0.0]
    assert table.count(where="exact IS NOT NULL") == 6


def test_several_appends_add_up_and_a_reader_stays_at_its_version(table, path):
    assert [table.append(rows(1, 2)), table.append(rows(3))] == [1, 2]
    reader = IndexTable(path)
    assert table.append(rows(4)) == 3
    assert ids(reader) == [1, 2, 3]
    assert ids(reader.refresh()) == ids(table) == [1, 2, 3, 4]
    assert (table.num_rows, table.num_files) == (4, 3)
    assert table.total_bytes == sum((path / split).stat().st_size for split in split_files(path))


def test_a_stream_of_batches_is_written_as_it_comes(table):
    batches = (batch for start in range(0, 30, 10) for batch in rows(*range(start, start + 10)).to_batches())
    assert table.append(pa.RecordBatchReader.from_batches(SCHEMA, batches)) == 1
    assert ids(table) == list(range(30))


def test_anything_that_gives_arrow_batches_can_be_appended(table):
    table.append(rows(1).to_batches()[0])
    table.append([{"id": 2}])
    assert ids(table) == [1, 2]
    with pytest.raises(InvalidOptionError, match="cannot be written"):
        table.append("rows")


def test_many_rows_make_several_splits_that_scan_as_one_table(path):
    table = IndexTable.create(path, SCHEMA, text=["body"], options=SMALL_SPLITS)
    count = 70_000
    data = pa.table({"id": range(count), "day": ["d"] * count, "body": [f"w{i % 97}" for i in range(count)]})
    table.append(data)
    assert table.num_files > 1
    assert table.num_rows == count
    found = IndexTable(path).to_arrow().sort_by("id")
    assert found.equals(data.cast(SCHEMA))
    assert sum(batch.num_rows for batch in table.scan(where="id < 10", columns=[])) == 10


def test_an_abandoned_scan_leaves_no_thread(table):
    table.append(rows(*range(5000)))
    table.append(rows(*range(5000)))
    before = set(threading.enumerate())
    reader = table.scan()
    assert reader.read_next_batch().num_rows
    del reader
    assert set(threading.enumerate()) == before


# --- columns -------------------------------------------------------------------------------------------


def test_columns_are_found_by_name_whatever_their_order_and_case(table):
    table.append(pa.table({"BODY": ["b"], "id": pa.array([1], pa.int32()), "day": ["d"]}))
    assert table.to_arrow().to_pylist() == [{"id": 1, "day": "d", "body": "b"}]


def test_a_missing_nullable_column_is_null(table):
    table.append(pa.table({"id": [1]}))
    assert table.to_arrow().to_pylist() == [{"id": 1, "day": None, "body": None}]


@pytest.mark.parametrize(
    ("data", "column"),
    [
        (pa.table({"id": [1], "extra": ["x"]}), "extra"),
        (pa.table({"id": ["one"]}), "id"),
        (pa.table({"id": [True]}), "id"),
        (pa.table({"id": [1], "body": [b"bytes"]}), "body"),
        (pa.table({"extra": pa.array([], pa.int64())}), "extra"),
        (pa.RecordBatchReader.from_batches(pa.schema([("extra", pa.int64())]), iter(())), "extra"),
    ],
    ids=["extra", "text for a number", "boolean for an integer", "bytes for text", "no rows", "no batches"],
)
def test_columns_that_do_not_fit_are_refused_by_name_and_nothing_is_written(table, path, data, column):
    before = sorted(path.rglob("*"))
    with pytest.raises(InvalidSchemaError, match=f"'{column}'"):
        table.append(data)
    with pytest.raises(InvalidSchemaError, match=f"'{column}'"):
        table.overwrite(data)
    assert sorted(path.rglob("*")) == before
    assert table.version == 0


def test_a_required_column_that_is_missing_or_null_is_refused(path):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("body", pa.string())])
    table = IndexTable.create(path, schema)
    with pytest.raises(InvalidSchemaError, match="'id'"):
        table.append(pa.table({"body": ["x"]}))
    with pytest.raises(InvalidValueError, match="'id'"):
        table.append(pa.table({"id": pa.array([1, None]), "body": ["x", "y"]}))
    assert (table.version, split_files(path)) == (0, [])


def test_a_value_that_does_not_fit_in_a_late_batch_leaves_no_split_behind(path):
    table = IndexTable.create(path, pa.schema([("n", pa.int8())]), options=SMALL_SPLITS)
    wide = pa.schema([("n", pa.int64())])
    good = pa.record_batch([pa.array([1, 2] * 20_000)], schema=wide)
    bad = pa.record_batch([pa.array([1000])], schema=wide)
    seen = []

    def batches():
        for _ in range(4):
            yield good
        seen.extend(split_files(path))
        yield bad

    with pytest.raises(InvalidValueError, match="'n'"):
        table.append(pa.RecordBatchReader.from_batches(wide, batches()))
    assert seen  # splits were uploaded before
    assert (table.version, split_files(path)) == (0, [])


def test_a_selection_of_columns_is_checked_and_spelled_as_the_table_does(table):
    table.append(rows(1))
    assert table.to_arrow(columns=["BODY", "id"]).to_pylist() == [{"body": "row 1", "id": 1}]
    assert table.to_arrow(columns=[]).num_rows == 1
    with pytest.raises(InvalidSchemaError, match=r"'nope'.*id, day, body"):
        table.scan(columns=["nope"])
    with pytest.raises(InvalidSchemaError, match=r"'id'.*twice"):
        table.scan(columns=["id", "ID"])
    with pytest.raises(InvalidPredicateError, match="nope"):
        table.scan(where="nope = 1")


# --- empty writes and overwriting ----------------------------------------------------------------------


def test_no_rows_commit_nothing_and_the_version_stays(table, path):
    table.append(rows(1))
    before = sorted(path.rglob("*"))
    assert table.append(SCHEMA.empty_table()) == 1
    assert table.append(pa.RecordBatchReader.from_batches(SCHEMA, iter(()))) == 1
    assert sorted(path.rglob("*")) == before


def test_an_empty_table_has_its_schema_and_no_rows(table):
    assert table.to_arrow().equals(SCHEMA.empty_table())
    assert table.to_arrow(where="id = 1", columns=["day"]).schema.names == ["day"]
    assert (table.count(), table.num_rows, table.num_files) == (0, 0, 0)


def test_overwrite_replaces_all_rows_and_older_versions_still_have_theirs(table, path):
    table.append(rows(1, 2))
    table.append(rows(3))
    assert table.overwrite(rows(9)) == 3
    assert ids(table) == ids(IndexTable(path)) == [9]
    assert [ids(IndexTable(path, version=version)) for version in range(4)] == [[], [1, 2], [1, 2, 3], [9]]
    assert table.overwrite(SCHEMA.empty_table()) == 4
    assert ids(IndexTable(path)) == []
    assert ids(IndexTable(path, version=3)) == [9]


def test_overwrite_of_a_partition_leaves_the_others_alone(partitioned):
    partitioned.append(rows(1, day="a"))
    partitioned.append(rows(2, day="b"))
    partitioned.append(rows(3, day="b"))
    assert partitioned.overwrite(rows(4, 5, day="b"), where="day = 'b'") == 4
    assert ids(partitioned) == [1, 4, 5]
    assert partitioned.overwrite(SCHEMA.empty_table(), where="day IN ('a', 'c')") == 5
    assert ids(partitioned) == [4, 5]


def test_overwrite_refuses_rows_of_partitions_that_it_does_not_replace(partitioned, path):
    partitioned.append(rows(1, day="a"))
    before = split_files(path)
    with pytest.raises(InvalidValueError, match="day = 'a'"):
        partitioned.overwrite(rows(2, day="a"), where="day = 'b'")
    with pytest.raises(InvalidValueError, match="day = None"):
        partitioned.overwrite(pa.table({"id": [2]}), where="day = 'b'")
    assert (partitioned.version, split_files(path)) == (1, before)


def test_overwrite_by_another_column_than_a_partition_is_refused_before_anything_is_written(
    partitioned, path
):
    def never():
        raise AssertionError("the data was read")
        yield

    with pytest.raises(InvalidPredicateError, match="'id' is not a partition column"):
        partitioned.overwrite(pa.RecordBatchReader.from_batches(SCHEMA, never()), where="id = 1")
    assert split_files(path) == []


def test_an_older_version_can_be_read_but_not_written(table, path):
    table.append(rows(1))
    old = IndexTable(path, version=0)
    for write in (old.append, old.overwrite):
        with pytest.raises(ReadOnlyTableError, match=r"version 0.*refresh"):
            write(rows(2))
    assert ids(IndexTable(path)) == [1]


# --- partitions ----------------------------------------------------------------------------------------

PARTITION_VALUES = [
    "A/A",
    "B B",
    "%",
    "%2F",
    "é",
    "日本/\U0001f600",
    "..",
    ".",
    "",
    "null",
    None,
    NULL_PARTITION,
    "a=b",
    "new\nline",
    "NUL\x00",
    "x" * 200,
    "y" * 5000,
    "ü" * 1000,
]


def test_partition_values_of_all_kinds_come_back_and_stay_apart(partitioned, path):
    count = len(PARTITION_VALUES)
    data = pa.table(
        {"id": range(count), "day": PARTITION_VALUES, "body": [f"b{i}" for i in range(count)]}, schema=SCHEMA
    )
    partitioned.append(data)
    partitioned.append(rows(100, day=".."))
    opened = IndexTable(path)
    assert opened.to_arrow(where="id < 100").sort_by("id").equals(data)
    assert opened.num_files == len(split_files(path)) == count + 1
    for number, value in enumerate(PARTITION_VALUES):
        where = "day IS NULL" if value is None else f"day = '{value}'"
        assert ids(opened, where=f"({where}) AND id < 100") == [number], value
        assert opened.count(where=where) == 1 + (value == ".."), value


def test_partitions_compare_by_the_type_of_their_column(path):
    schema = pa.schema([("id", pa.int64()), ("month", pa.int32()), ("on", pa.date32())])
    table = IndexTable.create(path, schema, partition_by=["month", "on"])
    days = [date(2024, 1, 9) + timedelta(days=number) for number in range(12)]
    table.append(pa.table({"id": range(12), "month": range(1, 13), "on": days}, schema=schema))
    assert ids(table, where="month BETWEEN 2 AND 11") == list(range(1, 11))
    assert ids(table, where="`on` < DATE '2024-01-11'") == [0, 1]
    assert table.select_files("month > 9").files_skipped_by_partition == 9


# --- the log -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settle", ["", "checkpoint", "compact"])
def test_splits_refer_to_mappings_that_the_log_has(partitioned, path, settle):
    partitioned.append(rows(1, day="a"))
    partitioned.append(rows(2, day="b"))
    if settle:
        getattr(partitioned, settle)()
    opened = IndexTable(path, options={"spark.indextables.transaction.cache.enabled": "false"})
    (reference,) = set(opened.files()["docMappingRef"].to_pylist())
    registry = opened._snapshot.header.doc_mappings
    assert '"body"' in registry[reference]
    opened.append(rows(3, day="a"))
    assert set(opened.files()["docMappingRef"].to_pylist()) == {reference}
    assert opened._snapshot.header.doc_mappings == registry
    assert ids(opened) == [1, 2, 3]


def test_file_entries_say_everything_about_a_split(partitioned, path):
    partitioned.append(rows(3, 1, 2, day="a"))
    files = partitioned.files()
    assert files.schema.names == FILE_ENTRY_SCHEMA.names
    (entry,) = files.to_pylist(maps_as_pydicts="strict")
    size = (path / entry["path"]).stat().st_size
    assert entry["partitionValues"] == {"day": "a"}
    assert (entry["minValues"]["id"], entry["maxValues"]["id"]) == ("1", "3")
    assert (entry["numRecords"], entry["size"], entry["footerEndOffset"]) == (3, size, size)
    assert 0 < entry["footerStartOffset"] < size
    assert entry["hasFooterOffsets"]
    description = json.loads(pq.read_metadata(path / entry["path"]).metadata[b"indextables"])
    assert description["coldData"][0] == entry["footerStartOffset"]


def test_statistics_skip_splits_and_lose_no_row(table):
    for start in range(0, 40, 10):
        table.append(rows(*range(start, start + 10)))
    selection = table.select_files("id >= 25 AND id < 28")
    assert (selection.entries.num_rows, selection.files_skipped_by_statistics) == (1, 3)
    assert ids(table, where="id >= 25 AND id < 28") == [25, 26, 27]
    assert ids(table, where="id = 9 OR id = 30") == [9, 30]


# --- splits that cannot be read ------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["missing", "cut off", "damaged footer", "damaged rows"])
def test_a_split_that_cannot_be_read_fails_the_read_with_its_name(table, path, harm):
    for number in range(3):
        table.append(rows(*range(number * 100, number * 100 + 100)))
    (victim,) = table.files(where="id = 150")["path"].to_pylist()
    data = (path / victim).read_bytes()
    footer = table.files(where="id = 150")["footerStartOffset"][0].as_py()
    match harm:
        case "missing":
            (path / victim).unlink()
        case "cut off":
            (path / victim).write_bytes(data[:-100])
        case "damaged footer":
            (path / victim).write_bytes(data[:footer] + bytes(len(data) - footer))
        case "damaged rows":
            (path / victim).write_bytes(bytes(1000) + data[1000:])
    opened = IndexTable(path)
    expected = ObjectNotFoundError if harm == "missing" else SplitCorruptedError
    for read in (opened.to_arrow, lambda: opened.search("row", limit=300)):
        with pytest.raises(expected, match=victim):
            read()
    assert ids(opened, where="id < 100") == list(range(100))  # the other splits are unaffected

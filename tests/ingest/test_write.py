"""`indextables.write`: every kind of data, into a new or an existing table."""

import datetime as dt

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import indextables
from indextables import IndexTable
from indextables.errors import InvalidOptionError, InvalidSchemaError, InvalidValueError

ROWS = [{"id": 1, "message": "the disk is full"}, {"id": 2, "message": None}]


class Capsule:
    """Data that offers nothing but the Arrow PyCapsule interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class ArrayCapsule:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


ARROW = pa.Table.from_pylist(ROWS)


@pytest.mark.parametrize(
    "data",
    [
        lambda: ROWS,
        lambda: iter(ROWS),
        lambda: {"id": [1, 2], "message": ["the disk is full", None]},
        lambda: ARROW,
        lambda: ARROW.to_reader(),
        lambda: ARROW.to_batches()[0],
        lambda: Capsule(ARROW),
        lambda: ArrayCapsule(ARROW.to_batches()[0]),
        lambda: pd.DataFrame(ROWS),
        lambda: pl.DataFrame(ROWS),
        lambda: pl.LazyFrame(ROWS),
        lambda: duckdb.sql("select 1::bigint id, 'the disk is full' message union all select 2, null order by 1"),
    ],
    ids=[
        "list of dicts", "iterator", "dict of columns", "arrow table", "reader", "batch", "stream capsule",
        "array capsule", "pandas", "polars", "lazy polars", "duckdb",
    ],
)  # fmt: skip
def test_every_kind_of_data_creates_a_table_and_is_appended_to_it(tmp_path, data):
    table = indextables.write(tmp_path / "t", data())
    assert isinstance(table, IndexTable)
    assert (table.version, table.to_arrow().to_pylist()) == (0, ROWS)
    assert table.count("disk") == 1  # message was chosen as text
    again = indextables.write(tmp_path / "t", data())
    assert (again.version, again.to_arrow().to_pylist()) == (1, [*ROWS, *ROWS])


def test_fields_of_all_dicts_are_columns(tmp_path):
    rows = [{"a": 1}, {"b": {"x": 1}}, {"a": 0.5, "b": {"y": dt.date(2026, 1, 31)}, "n": None}]
    table = indextables.write(tmp_path / "t", rows)
    assert table.to_arrow().to_pylist() == [
        {"a": 1.0, "b": None, "n": None},
        {"a": None, "b": {"x": 1, "y": None}, "n": None},
        {"a": 0.5, "b": {"x": None, "y": dt.date(2026, 1, 31)}, "n": None},
    ]


def test_one_name_or_several_for_text_and_partitions(tmp_path):
    rows = [{"day": "mon", "a": "x y", "b": "x y"}]
    table = indextables.write(tmp_path / "t", rows, text="a", partition_by="day")
    assert (table.count("a:x"), table.count("b:x"), table.partition_columns) == (1, 0, ["day"])
    table = indextables.write(tmp_path / "u", rows, text=["a", "b"], partition_by=["day"])
    assert (table.count("a:x"), table.count("b:x")) == (1, 1)
    table = indextables.write(tmp_path / "v", rows, text=[])
    assert table.count("a:x") == 0
    for choices in ({"text": "b"}, {"partition_by": "a"}):
        with pytest.raises(InvalidOptionError, match="the table exists"):
            indextables.write(tmp_path / "t", rows, **choices)


def test_an_index_of_pandas_is_a_column_unless_it_only_counts(tmp_path):
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="key"))
    assert indextables.write(tmp_path / "t", frame).to_arrow()["key"].to_pylist() == ["x", "y"]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([{"id": 1}, {"id": "x"}], InvalidValueError, "row 2 of the data: field 'id' is 'x'"),
        ([{"id": 2**53 + 1}, {"id": 0.5}], InvalidValueError, "field 'id'"),
        ([{"id": 1.5}], InvalidValueError, "the data, row 1: field 'id'"),
        ([{"id": [1]}], InvalidSchemaError, "field 'id' is list"),
        ([{"id": 1, "new": 2}], InvalidSchemaError, "column 'new' is not in the table"),
        ([1], InvalidOptionError, "row 1 of the data is of the type int"),
        ([], InvalidSchemaError, "no fields"),
        ("rows.csv", InvalidOptionError, "indextables index"),
        (5, InvalidOptionError, "type int"),
        (pd.DataFrame({"id": [1, "x"]}), InvalidValueError, "id"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), InvalidValueError, "id"),
        (pa.table([[1], [2]], names=["id", "ID"]), InvalidSchemaError, "'id' twice"),
    ],
)
def test_data_that_does_not_fit_is_an_error_and_nothing_is_committed(tmp_path, data, error, message):
    indextables.write(tmp_path / "t", [{"id": 1}])
    with pytest.raises(error, match=message):
        indextables.write(tmp_path / "t", data)
    assert IndexTable(str(tmp_path / "t")).version == 0


@pytest.mark.parametrize(
    "values",
    [
        [dt.date(2026, 1, 31), dt.datetime(2026, 1, 31, 10)],
        [dt.datetime(2026, 1, 31), dt.datetime(2026, 1, 31, tzinfo=dt.UTC)],
        ["x", b"x"],
        [[dt.date(2026, 1, 31)], [dt.datetime(2026, 1, 31, 10)]],
        [{"t": dt.date(2026, 1, 31)}, {"t": dt.datetime(2026, 1, 31, 10)}],
    ],
)
def test_values_of_two_kinds_that_arrow_would_change_are_an_error_by_row(tmp_path, values):
    with pytest.raises(InvalidValueError, match=r"row [12] of the data: field 'v'"):
        indextables.write(tmp_path / "t", [{"v": value} for value in values])
    assert not (tmp_path / "t").exists()


def test_a_failure_leaves_no_new_table(tmp_path):
    nanoseconds = pa.table({"t": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(InvalidValueError, match="the data, row 1: field 't'"):
        indextables.write(tmp_path / "t", nanoseconds)
    assert not (tmp_path / "t").exists()


def test_a_name_a_description_and_properties_are_those_of_the_new_table(tmp_path):
    table = indextables.write(
        tmp_path / "t",
        ROWS,
        name="disks",
        description="What disks say",
        properties={"spark.indextables.checkpoint.interval": "20"},
    )
    assert (table.metadata.name, table.metadata.description) == ("disks", "What disks say")
    assert table.metadata.configuration["spark.indextables.checkpoint.interval"] == "20"


def test_append_shows_its_progress_if_asked(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    table = indextables.write(tmp_path / "t", ROWS)
    assert table.append(ARROW, progress=True) == 1
    assert table.append(ARROW.to_reader(), progress=True) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "2 rows" in shown.err

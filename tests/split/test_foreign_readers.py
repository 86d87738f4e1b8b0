"""Other engines read a split as the Parquet file that it is: rows, page indexes, statistics that lose no row."""

import math
from datetime import UTC, datetime
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.storage import open_store
from support.split_samples import EVERY_TYPE, EVERY_TYPE_OPTIONS, PREFIX, null_row, ordinary_row, write_split

ROWS = 5000


@pytest.fixture(scope="module")
def every_type(tmp_path_factory):
    """The path of a split with every type that all engines know, and its rows."""
    folder = tmp_path_factory.mktemp("every")
    schema = EVERY_TYPE
    rows = [
        {
            **(ordinary_row() if number % 3 else null_row()),
            "long": number,
            "text": f"row {number} " * (number % 5),
        }
        for number in range(ROWS)
    ]
    table = pa.Table.from_pylist(rows, schema=schema)
    file = write_split(open_store(folder), table, EVERY_TYPE_OPTIONS)
    return folder / file.path, table


def test_pyarrow_reads_the_rows(every_type):
    path, table = every_type
    assert pq.ParquetFile(path).read().equals(table)


def test_duckdb_reads_the_rows(every_type):
    path, table = every_type
    found = duckdb.sql(f"SELECT * FROM read_parquet('{path}') ORDER BY long").to_arrow_table()
    plain = [name for name in table.schema.names if "map" not in name]
    for name in plain:
        assert found.column(name).to_pylist() == table.column(name).to_pylist(), name
    assert duckdb.sql(f"SELECT count(*), max(cardinality(map)) FROM read_parquet('{path}')").fetchall() == [
        (ROWS, 2)
    ]


def test_polars_reads_the_rows(every_type):
    path, table = every_type
    found = pl.read_parquet(path)
    assert found.height == ROWS
    for name in (
        "long",
        "text",
        "double",
        "small_decimal",
        "date",
        "array",
        "binary",
        "boolean",
        "timestamp",
    ):
        assert found[name].to_list() == table.column(name).to_pylist(), name


def test_every_column_has_a_page_index_with_pages_of_the_same_rows(every_type):
    path, _ = every_type
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    assert all(chunk.has_offset_index for chunk in chunks)
    without = {chunk.path_in_schema for chunk in chunks if not chunk.has_column_index}
    # No bounds of tokenized text, and none of floats inside of other values, which may be NaN.
    assert without == {"text", "struct.inner.x", "void"}


def float_rows() -> list[float | None]:
    """Floats with NaN in some row groups and pages only, infinities, both zeros and nulls."""
    special = [math.nan, math.inf, -math.inf, -0.0, 0.0, None]
    return [special[i % 6] if 2000 < i < 3000 and i % 50 == 0 else float(i % 977) for i in range(ROWS)]


@pytest.fixture(scope="module")
def tricky(tmp_path_factory):
    """The paths of a split with values that break careless statistics, and of the rows without statistics."""
    folder = tmp_path_factory.mktemp("tricky")
    table = pa.table(
        {
            "id": range(ROWS),
            "f": pa.array(float_rows(), pa.float64()),
            "all_nan": [math.nan] * ROWS,
            "s": ["é" * (i % 3) + "\U0001f600" * (i % 2) + f"{i:05}" for i in range(ROWS)],
            "long_text": [("z" * 6000 if i == 4321 else "a") + str(i) for i in range(ROWS)],
            "maybe": [None if i < 2500 else i for i in range(ROWS)],
            "d": pa.array([Decimal(i - 2500) / 100 for i in range(ROWS)], pa.decimal128(20, 2)),
            "t": pa.array([datetime(1969, 1, 1, tzinfo=UTC)] * ROWS, pa.timestamp("us", "UTC")),
            "b": [bytes([i % 256]) for i in range(ROWS)],
        }
    )
    file = write_split(open_store(folder), table, {PREFIX + "typemap.s": "string"})
    pq.write_table(table, folder / "plain.parquet", write_statistics=False)
    return folder / file.path, folder / "plain.parquet"


comparisons = st.sampled_from(["<", "<=", "=", "<>", ">=", ">"])
floats = st.sampled_from(
    ["0", "-0.0", "5.5", "976", "1e300", "'nan'::double", "'inf'::double", "'-inf'::double"]
)
conditions = st.one_of(
    st.builds("f {} {}".format, comparisons, floats),
    st.builds("all_nan {} {}".format, comparisons, floats),
    st.builds("id {} {}".format, comparisons, st.integers(-1, ROWS)),
    st.builds("maybe {} {}".format, comparisons, st.integers(2400, ROWS)),
    st.builds("d {} {}".format, comparisons, st.sampled_from(["-25", "0.01", "24.99", "100"])),
    st.builds("s {} '{}'".format, comparisons, st.sampled_from(["", "é", "éé", "\U0001f600", "00100", "~"])),
    st.builds("long_text {} '{}'".format, comparisons, st.sampled_from(["a", "a4321", "z", "zzz", "b"])),
    st.builds("b {} '\\x{:02X}'::blob".format, comparisons, st.integers(0, 255)),
    st.sampled_from(["maybe IS NULL", "f IS NULL", "isnan(f)", "t < TIMESTAMPTZ '1970-01-01 00:00:00Z'"]),
)


@settings(max_examples=120)
@given(condition=conditions)
def test_predicates_in_duckdb_lose_no_row_by_statistics(tricky, condition):
    split, plain = tricky
    counts = [
        duckdb.sql(f"SELECT count(*), sum(id) FROM read_parquet('{path}') WHERE {condition}").fetchall()
        for path in (split, plain)
    ]
    assert counts[0] == counts[1]


def test_filters_of_polars_lose_no_row_by_statistics(tricky):
    split, plain = tricky
    for expression in (
        pl.col("f") > 900,
        pl.col("f").is_nan(),
        pl.col("all_nan") > 0,
        pl.col("s") >= "é",
        pl.col("long_text") > "b",
        pl.col("maybe").is_null(),
        pl.col("d") < 0,
    ):
        found = [pl.scan_parquet(path).filter(expression).select("id").collect() for path in (split, plain)]
        assert found[0].equals(found[1])

"""Pages of rows: some of them, read alone, hold what the whole file holds in their place."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables.errors import SplitCorruptedError
from indextables.split import rows_file
from indextables.split.pages import PageReader, PageTable, find_pages
from indextables.split.parquet_footer import detach_metadata
from indextables.split.rows_file import RowsFile
from indextables.storage import open_store

ROWS = 7000


def rows() -> pa.Table:
    """Rows of plain, repeated, nested and null values; the lists have very different lengths."""
    return pa.table(
        {
            "id": range(ROWS),
            "word": [f"w{i % 9}" for i in range(ROWS)],
            "text": [f"row {i} " * (i % 40) for i in range(ROWS)],
            "maybe": pa.array([None if i % 10 else i for i in range(ROWS)], pa.int64()),
            "nothing": pa.nulls(ROWS, pa.string()),
            "tags": [[str(i)] * (i % 5) if i % 7 else None for i in range(ROWS)],
            "matrix": [[[i], [], [i, i]] if i % 3 else [] for i in range(ROWS)],
            "point": [{"x": i, "labels": [f"l{i % 3000}"] * (i % 4)} for i in range(ROWS)],
            "scores": pa.array(
                [[("k", i / 3)] * (i % 3) for i in range(ROWS)], pa.map_(pa.string(), pa.float64())
            ),
            "long": [[i] * (9000 if i % 3000 == 0 else 0) for i in range(ROWS)],
        }
    )


def reader_of(folder, table):
    """Write rows in groups of 3,000 and return a reader of their pages, and the pages."""
    path = folder / "rows"
    file = RowsFile(path, table, {"text"})
    for start in range(0, ROWS, 3000):
        file.append(table.slice(start, 3000))
    file.close()
    store = open_store(folder)
    metadata = detach_metadata(path)
    pages = find_pages(path, metadata)
    return PageReader(store, "rows", metadata, PageTable.decode(pages.encode())), pages


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A reader of pages, the pages and the rows."""
    table = rows()
    return *reader_of(tmp_path_factory.mktemp("pages"), table), table


def expected(table, pages, numbers, columns):
    """The rows of pages, cut out of the table."""
    slices = [
        table.slice(int(pages.first_rows[n]), int(pages.first_rows[n + 1] - pages.first_rows[n]))
        for n in numbers
    ]
    return pa.concat_tables(slices).select(columns)


def test_the_pages_of_all_columns_start_at_the_same_rows(sample):
    _, pages, _ = sample
    assert pages.first_rows.tolist() == [0, 1024, 2048, 3000, 4024, 5048, 6000, 7000]
    assert pages.first_pages.tolist() == [0, 3, 6, 7]


@settings(max_examples=60)
@given(
    numbers=st.sets(st.integers(0, 6), min_size=1),
    columns=st.lists(st.sampled_from(rows().column_names), min_size=1, unique=True),
)
def test_any_pages_of_any_columns_hold_their_rows(sample, numbers, columns):
    reader, pages, table = sample
    numbers = sorted(numbers)
    found = reader.read(np.array(numbers, np.int64), columns)
    assert found.equals(expected(table, pages, numbers, columns).cast(found.schema))
    assert found.to_pylist() == expected(table, pages, numbers, columns).to_pylist()


def test_a_row_group_whose_pages_start_at_different_rows_is_one_page(tmp_path, monkeypatch):
    table = rows()
    with_dictionaries = rows_file.RowsEncoding.writer

    def writer(self, sink, schema):
        """Fill the dictionaries of repeated leaves until pages are cut between the rows of the others."""
        paths = [leaf.path for leaf in rows_file._leaves(schema)]
        return with_dictionaries(pa_replace(self, dictionary=paths, others={}), sink, schema)

    monkeypatch.setattr(rows_file.RowsEncoding, "writer", writer)
    monkeypatch.setattr(rows_file, "_MAX_DICTIONARY_BYTES", 8000)
    reader, pages = reader_of(tmp_path, table)
    assert 3 in np.diff(pages.first_pages) or 1 in np.diff(pages.first_pages)
    assert pages.num_pages < 7
    for number in range(pages.num_pages):
        found = reader.read(np.array([number]), table.column_names)
        assert found.to_pylist() == expected(table, pages, [number], table.column_names).to_pylist()


def pa_replace(encoding, **changes):
    """A copy of an encoding with other fields."""
    return rows_file.msgspec.structs.replace(encoding, **changes)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_damaged_page_is_an_error_or_changes_nothing(sample, tmp_path_factory, place, bit):
    reader, pages, table = sample
    folder = tmp_path_factory.mktemp("damaged")
    store = open_store(folder)
    data = bytearray(reader._store.get("rows"))
    data[int(place * len(data))] ^= 1 << bit
    store.put("rows", bytes(data))
    damaged = PageReader(store, "rows", reader._metadata, pages)
    try:
        found = damaged.read(np.arange(7), table.column_names)
    except SplitCorruptedError:
        return
    assert found.to_pylist() == table.to_pylist()


@settings(max_examples=100)
@given(data=st.binary(max_size=100))
def test_arbitrary_bytes_are_a_page_table_or_an_error(data):
    try:
        PageTable.decode(data)
    except (ValueError, pa.ArrowException, OSError):
        return


def test_a_page_table_of_a_file_without_a_page_index_is_an_error(tmp_path):
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "x")
    metadata = detach_metadata(tmp_path / "x")
    with pytest.raises(ValueError, match="no page index"):
        find_pages(tmp_path / "x", metadata)

"""A table as pandas, Polars, DuckDB, Arrow, notebooks and tracebacks show it."""

import datetime as dt
import gc
import logging
import subprocess
import sys
import traceback
import warnings

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from IPython.core.interactiveshell import InteractiveShell

import indextables
from indextables import IndexTable, notebooks
from indextables.errors import (
    IndexTablesError,
    InvalidOptionError,
    InvalidQueryError,
    InvalidSchemaError,
    InvalidValueError,
    TableNotFoundError,
)

ROWS = [
    {"day": dt.date(2026, 1, 30), "id": 2**53 + 1, "ok": True, "message": "disk <b>full</b>"},
    {"day": dt.date(2026, 1, 31), "id": None, "ok": None, "message": "<script>alert('disk')</script>"},
]


@pytest.fixture
def table(tmp_path) -> IndexTable:
    return indextables.write(tmp_path / "logs", ROWS, text="message", partition_by="day")


# --- Other libraries ------------------------------------------------------------------------------------


def test_arrow_polars_and_duckdb_take_a_table_as_it_is_and_again_and_again(table):
    logs = table
    for _ in range(2):
        assert pa.table(logs).to_pylist() == ROWS
        assert pl.DataFrame(logs).to_dicts() == ROWS
        assert duckdb.sql("select id, message from logs order by day").fetchall() == [
            (row["id"], row["message"]) for row in ROWS
        ]
    assert pa.schema(table) == table.schema


def test_duckdb_joins_hits_with_a_table(table):
    logs, hits = table, table.search("full")
    assert duckdb.sql("select count(*) from hits join logs using (id)").fetchall() == [(1,)]
    assert len(logs) > len(hits)


def test_pandas_gets_integers_and_booleans_without_loss(table):
    frame = table.to_pandas()
    assert (frame["id"].dtype, frame["ok"].dtype) == (pd.Int64Dtype(), pd.BooleanDtype())
    assert frame["id"][0] == 2**53 + 1
    assert table.to_pandas(where="id is not null", columns=["id"])["id"].dtype == "int64"


def test_polars_gets_the_selected_rows_and_columns(table):
    frame = table.to_polars(where="id is not null", columns=["id"])
    assert frame.equals(pl.DataFrame({"id": [2**53 + 1]}))
    assert table.to_polars(where="id = 1").shape == (0, 4)


def test_without_pandas_or_polars_the_error_says_what_to_install(table):
    program = (
        "import sys, indextables\n"
        "class Missing:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == sys.argv[2]: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "try: getattr(indextables.IndexTable(sys.argv[1]), f'to_{sys.argv[2]}')()\n"
        "except indextables.errors.MissingExtraError as error: print(error)\n"
    )
    for name in ("pandas", "polars"):
        done = subprocess.run(
            [sys.executable, "-c", program, table.snapshot.context.url, name],
            check=True,
            capture_output=True,
            text=True,
        )
        assert f"pip install {name}" in done.stdout


def test_the_length_is_the_number_of_rows_and_an_empty_table_is_still_true(table):
    assert len(table) == 2
    table.delete("true")
    assert len(table) == 0
    assert table


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: rows,
        pd.DataFrame,
        pl.DataFrame,
        lambda rows: pl.DataFrame(rows).lazy(),
        pa.Table.from_pylist,
        lambda rows: pa.Table.from_pylist(rows).to_reader(),
        lambda rows: duckdb.from_arrow(pa.Table.from_pylist(rows)),
        lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    ],
    ids=["dicts", "pandas", "polars", "lazy polars", "arrow", "reader", "duckdb", "columns"],
)
def test_append_and_overwrite_take_what_write_takes(table, make):
    rows = [{"day": dt.date(2026, 1, 30), "id": 7, "ok": False, "message": "disk ok"}]
    assert table.append(make(rows)) == 1
    assert table.count("ok") == 1
    table.overwrite(make(rows))
    assert table.to_arrow().to_pylist() == rows
    table.overwrite(make(rows), where="day = '2026-01-30'")
    assert table.append(table) == 4  # a table is data, too
    assert table.num_rows == 2


def test_data_that_is_no_data_is_an_error(table):
    for append in (table.append, table.overwrite):
        with pytest.raises(InvalidOptionError, match="data of the type int"):
            append(5)
        with pytest.raises(InvalidValueError, match="row 2 of the data: field 'id' is 'x'"):
            append([{"id": 1}, {"id": "x"}])
        with pytest.raises(InvalidSchemaError, match="nope"):
            append([{"nope": 1}])
    assert table.version == 0


def test_every_path_may_be_a_path_object(table, tmp_path):
    path = tmp_path / "logs"
    assert IndexTable(path).version == 0
    assert IndexTable.create(tmp_path / "new", pa.schema([("m", pa.string())]), text="m").version == 0
    assert indextables.repair_table(path, dry_run=True).num_files == 2
    assert indextables.repair_table(path, tmp_path / "repaired").num_files == 2
    assert IndexTable(tmp_path / "repaired").repair(tmp_path / "again").num_files == 2


# --- Notebooks ------------------------------------------------------------------------------------------


def test_the_html_of_a_table_has_its_facts_and_columns_escaped(tmp_path):
    schema = pa.schema([("<i>", pa.int64()), ("message", pa.string())])
    table = IndexTable.create(tmp_path / "t", schema, text="message", name="<script>")
    table.append([{"message": "x"}])
    shown = table._repr_html_()
    assert "<strong>&lt;script&gt;</strong>" in shown
    assert "version 1 · 1 row in 1 split" in shown
    assert "<td>&lt;i&gt;</td><td>int64</td>" in shown
    assert "<td>message</td><td>string</td><td>full text" in shown


@pytest.fixture
def shell():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        InteractiveShell.clear_instance()
        yield InteractiveShell.instance(history_length=0)
        InteractiveShell.clear_instance()


def html_shown(shell, value) -> str | None:
    return shell.display_formatter.format(value)[0].get("text/html")


def test_a_notebook_shows_hits_with_marks_and_without_running_scripts(table, shell):
    hits = table.search("disk", columns=["id", "message"])
    shown = html_shown(shell, hits)
    assert "<mark>disk</mark> &lt;b&gt;full&lt;/b&gt;" in shown
    assert "&lt;script&gt;alert(&#x27;<mark>disk</mark>&#x27;)&lt;/script&gt;" in shown
    assert "<script" not in shown
    assert "2 hits" in shown
    assert "<mark>" not in html_shown(shell, table.search("message:full", columns=["id"]))
    assert html_shown(shell, pa.table({"a": [1]})) is None
    assert html_shown(shell, table) == table._repr_html_()


def test_a_notebook_forgets_hits_that_are_gone(table, shell):
    hits = table.search("disk")
    assert id(hits) in notebooks._HITS
    del hits
    gc.collect()
    assert not notebooks._HITS


def test_a_formatter_of_the_user_stays(table, shell):
    shell.display_formatter.formatters["text/html"].for_type(pa.Table, lambda _: "mine")
    assert html_shown(shell, table.search("disk")) == "mine"


def test_many_hits_and_long_texts_are_cut_off(tmp_path, shell):
    rows = [{"m": "disk " * 1000}, *({"m": "disk"} for _ in range(199))]
    table = indextables.write(tmp_path / "t", rows, text="m")
    shown = html_shown(shell, table.search("disk", limit=200))
    assert "200 hits; the first 100 are shown" in shown
    assert shown.count("<tr>") == 101
    assert max(map(len, shown.split("<td>"))) < 20_000


def test_outside_of_ipython_a_search_remembers_nothing(table):
    table.search("disk")
    assert not notebooks._HITS


# --- Tracebacks -----------------------------------------------------------------------------------------


def calls(table, tmp_path):
    yield InvalidQueryError, lambda: table.search("(")
    yield InvalidQueryError, lambda: table.count("(")
    yield TableNotFoundError, lambda: IndexTable(tmp_path / "nowhere")
    yield InvalidSchemaError, lambda: IndexTable.create(tmp_path / "new", pa.schema([]), text="m")
    yield InvalidSchemaError, lambda: table.to_pandas(columns=["nope"])
    yield IndexTablesError, lambda: indextables.sql("PURGE INDEXTABLES")
    yield IndexTablesError, lambda: indextables.repair_table(tmp_path / "nowhere")
    yield InvalidOptionError, lambda: indextables.write(tmp_path / "new", 5)


def test_our_errors_show_the_call_and_one_frame_of_ours(table, tmp_path, caplog):
    for kind, call in calls(table, tmp_path):
        with pytest.raises(kind) as raised, caplog.at_level(logging.DEBUG, "indextables"):
            call()
        own = [
            frame
            for frame in traceback.extract_tb(raised.value.__traceback__)
            if "/src/indextables/" in frame.filename
        ]
        assert len(own) == 1
        assert "direct cause" not in "".join(traceback.format_exception(raised.value))
        assert caplog.records[-1].exc_info  # with all frames
        caplog.clear()


def test_an_error_that_is_not_ours_keeps_its_frames(table):
    with pytest.raises(TypeError) as raised:
        table.append([], nonsense=True)
    assert raised.value.__suppress_context__ is False

"""The inputs that people have: compressed, from standard input, folders, globs, object stores, and every format."""

import datetime as dt
import io
import os
import sys
import threading
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables.errors import InvalidOptionError, InvalidSchemaError, InvalidValueError
from indextables.ingest import delimited, text
from indextables.ingest.formats import Format
from indextables.ingest.inputs import Input
from indextables.ingest.operation import IngestProgress, IngestRequest, ingest
from indextables.storage import open_store
from support.ingestion import COMPRESSIONS, index, json_lines, rows_of, text_file

ROWS = [{"id": 1, "message": "disk full"}, {"id": 2, "message": "disk cleaned"}]
CSV = "id,message\n1,disk full\n2,disk cleaned\n"
JSON = '{"id":1,"message":"disk full"}\n{"id":2,"message":"disk cleaned"}\n'


@pytest.mark.parametrize("compression", sorted(COMPRESSIONS))
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV),
        ("a.csv", CSV.replace(",", ";")),
        ("a.csv", CSV.replace(",", "|").replace("\n", "\r\n")),
        ("a.tsv", CSV.replace(",", "\t")),
        ("a.jsonl", JSON),
        ("a.log", JSON),
        ("a", JSON),
        ("a.json", f"[{JSON.strip().replace(chr(10), ',')}]"),
        ("a.json", '{\n"id": 1,\n"message": "disk full"\n}\n{\n"id": 2,\n"message": "disk cleaned"\n}\n'),
        ("a.json", f"\ufeff{JSON}"),
    ],
)
def test_text_formats_in_every_compression(tmp_path, name, content, compression):
    file = tmp_path / (name + compression)
    file.write_bytes(COMPRESSIONS[compression](content.encode()))
    assert rows_of(index(tmp_path / "t", file)) == ROWS


def _written(kind: str, table: pa.Table) -> bytes:
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink)
    elif kind == "avro":
        schema = {
            "type": "record",
            "name": "row",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "message", "type": ["null", "string"]},
            ],
        }
        fastavro.writer(sink, schema, table.to_pylist())
    else:
        new = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with new(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows", "avro"])
def test_formats_with_types(tmp_path, kind):
    content = _written(kind, pa.Table.from_pylist(ROWS))
    (tmp_path / f"a.{kind}").write_bytes(content)
    assert rows_of(index(tmp_path / "t", tmp_path / f"a.{kind}")) == ROWS
    (tmp_path / f"cut.{kind}").write_bytes(content[:-7])
    if kind != "arrows":  # a stream may end after any batch
        with pytest.raises((InvalidSchemaError, InvalidValueError), match=rf"cut\.{kind}"):
            index(tmp_path / "u", tmp_path / f"cut.{kind}")
        assert not (tmp_path / "u").exists()


def test_old_timestamps_of_parquet_are_right_in_every_year_and_exact(tmp_path):
    moments = [dt.datetime(1, 1, 1), dt.datetime(2026, 1, 31, 10, 0, 0, 5), dt.datetime(9999, 12, 31), None]
    rows = pa.table({"t": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert [row["t"] for row in rows_of(index(tmp_path / "t", tmp_path / "a.parquet"))] == moments
    nanoseconds = pa.table({"t": pa.array([1001], pa.timestamp("ns"))})
    pq.write_table(nanoseconds, tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(InvalidValueError, match=r"b\.parquet .*field 't' has times with nanoseconds"):
        index(tmp_path / "u", tmp_path / "b.parquet")
    assert not (tmp_path / "u").exists()


def test_extension_types_are_stored_as_what_they_extend(tmp_path):
    ids = pa.array([bytes(range(16)), None], pa.uuid())
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema([("id", pa.uuid())])) as writer:
        writer.write_table(pa.table({"id": ids}))
    assert rows_of(index(tmp_path / "t", tmp_path / "a.arrow")) == [{"id": bytes(range(16))}, {"id": None}]


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema([("a", pa.int64()), ("A", pa.int64())])) as writer:
        writer.write_table(pa.table([[1], [2]], names=["a", "A"]))
    with pytest.raises(InvalidSchemaError, match=r"a\.arrow has the column 'a' twice"):
        index(tmp_path / "t", tmp_path / "a.arrow")


def test_avro_types_are_kept(tmp_path):
    schema = {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "labels", "type": {"type": "map", "values": "int"}},
            {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
            {"name": "other", "type": ["null", "kind"]},
        ],
    }
    row = {
        "at": dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC),
        "day": dt.date(2026, 1, 31),
        "tags": ["x"],
        "labels": {"a": 1},
        "kind": "A",
        "other": "B",
    }
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, [row])
    assert rows_of(index(tmp_path / "t", tmp_path / "a.avro")) == [{**row, "labels": [("a", 1)]}]


def test_standard_input_and_pipes_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JSON.encode())))
    assert rows_of(index(tmp_path / "t", "-")) == ROWS
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(CSV,))
    writer.start()
    assert rows_of(index(tmp_path / "u", pipe, format=Format.CSV)) == ROWS
    writer.join()


def test_a_folder_is_read_with_its_partitions_and_says_what_it_leaves_out(tmp_path):
    folder = tmp_path / "in"
    for day, row in zip(("2026-01-30", "2026-01-31"), ROWS, strict=True):
        (folder / f"day={day}").mkdir(parents=True)
        json_lines(folder / f"day={day}" / "a.jsonl", [row])
    (folder / "readme.md").write_text("not data")
    (folder / "_SUCCESS").write_text("")
    result = index(tmp_path / "t", folder)
    assert [str(row["day"]) for row in rows_of(result)] == ["2026-01-30", "2026-01-31"]
    assert result.left_out == (str(folder / "readme.md"),)
    json_lines(folder / "day=2026-01-31" / "b.jsonl", [{"id": 3, "day": "2026-02-01"}])
    with pytest.raises(InvalidSchemaError, match=r"b\.jsonl, line 1: field 'day' .* a folder"):
        index(tmp_path / "t", folder)
    with pytest.raises(InvalidOptionError, match="is a table"):
        index(tmp_path / "u", tmp_path / "t")


def test_globs_are_expanded_and_places_without_files_are_refused(tmp_path):
    for number, row in enumerate(ROWS):
        json_lines(tmp_path / f"part-{number}.jsonl", [row])
    assert rows_of(index(tmp_path / "t", f"{tmp_path}/part-*.jsonl")) == ROWS
    (tmp_path / "empty").mkdir()
    for place, message in (
        (tmp_path / "no*.csv", "no file matches"),
        (tmp_path / "no.csv", "does not exist"),
        (tmp_path / "empty", "is empty"),
        (text_file(tmp_path / "a.bin", "?"), "pass --format"),
    ):
        with pytest.raises(InvalidOptionError, match=message):
            index(tmp_path / "u", place)


@pytest.mark.parametrize("url", ["memory://lake/in/a.jsonl", "memory://lake/in", "memory://lake/in/*.jsonl"])
def test_object_stores_are_read_by_object_folder_and_glob(tmp_path, url):
    store = open_store("memory://lake/in")
    store.put("a.jsonl", JSON.encode())
    assert rows_of(index(tmp_path / "t", url)) == ROWS
    with pytest.raises(InvalidOptionError, match="does not exist"):
        index(tmp_path / "u", "memory://lake/nothing.jsonl")


def test_plain_lines_keep_every_line(tmp_path):
    file = text_file(tmp_path / "a.log", "first line\r\n\n  indented\nlast without end")
    assert [row["message"] for row in rows_of(index(tmp_path / "t", file))] == [
        "first line",
        "",
        "  indented",
        "last without end",
    ]


def test_a_pattern_takes_lines_apart_and_other_lines_are_bad(tmp_path):
    pattern = r"(?P<at>\S+) (?P<level>[A-Z]+)(?: code=(?P<code>\d+))? (?P<message>.*)"
    file = text_file(
        tmp_path / "a.log",
        "2026-01-31T10:00:00Z ERROR code=7 disk is full\nTraceback:\n2026-01-31T10:00:01Z INFO all is well\n",
    )
    with pytest.raises(InvalidValueError, match=r"a\.log, line 2: the line does not match"):
        index(tmp_path / "t", file, pattern=pattern)
    result = index(tmp_path / "t", file, pattern=pattern, bad_lines=str(tmp_path / "bad.log"))
    assert [(row["level"], row["code"], row["message"]) for row in rows_of(result)] == [
        ("ERROR", 7, "disk is full"),
        ("INFO", None, "all is well"),
    ]
    assert result.table is not None
    assert pa.types.is_timestamp(result.table.schema.field("at").type)
    assert (tmp_path / "bad.log").read_text() == "Traceback:\n"


def test_csv_without_a_header_gets_names_or_those_of_the_table(tmp_path):
    file = text_file(tmp_path / "a.csv", "1,x y z\n2,y\n")
    table = index(tmp_path / "t", file, has_header=False).table
    assert table is not None
    assert table.schema.names == ["column_1", "column_2"]
    index(tmp_path / "u", text_file(tmp_path / "b.csv", "id,name\n0,w\n"))
    assert rows_of(index(tmp_path / "u", file, has_header=False))[1:] == [
        {"id": 1, "name": "x y z"},
        {"id": 2, "name": "y"},
    ]


def test_files_of_several_formats_become_one_table(tmp_path):
    pq.write_table(pa.table({"id": pa.array([3], pa.int32()), "message": ["third"]}), tmp_path / "c.parquet")
    files = [
        text_file(tmp_path / "a.csv", CSV),
        json_lines(tmp_path / "b.jsonl", [{"id": 2.5}]),
        tmp_path / "c.parquet",
    ]
    assert [row["id"] for row in rows_of(index(tmp_path / "t", *files))] == [1.0, 2.0, 2.5, 3.0]


def test_names_in_another_case_are_the_columns_of_the_table(tmp_path):
    index(tmp_path / "t", text_file(tmp_path / "a.csv", CSV))
    more = json_lines(tmp_path / "b.jsonl", [{"ID": 3, "Message": "x"}])
    assert rows_of(index(tmp_path / "t", more))[2] == {"id": 3, "message": "x"}


def test_progress_counts_rows_and_bytes_of_both_passes(tmp_path):
    shown: list[IngestProgress] = []
    file = text_file(tmp_path / "a.csv", CSV)
    ingest(IngestRequest(places=(str(file),), path=str(tmp_path / "t")), shown.append)
    assert {each.description: each.rows for each in shown} == {"reading": 2, "indexing": 2}
    assert all(each.total_bytes == len(CSV) and each.done_bytes <= len(CSV) for each in shown)


def test_a_file_that_grows_is_read_to_the_end_that_it_had(tmp_path):
    file = Path(json_lines(tmp_path / "a.jsonl", ROWS))

    def grow(_: object) -> None:
        with file.open("a") as end:
            end.write('{"id":3,"half":')

    request = IngestRequest(places=(str(file),), path=str(tmp_path / "t"))
    assert rows_of(ingest(request, planned=grow)) == ROWS


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "log"])
def test_a_large_file_is_opened_as_often_as_a_small_one(tmp_path, monkeypatch, suffix):
    opened: list[str] = []
    whole_open = Input.open

    def counting(source: Input, watch: object = None) -> object:
        opened.append(source.name)
        return whole_open(source, watch)

    monkeypatch.setattr(Input, "open", counting)
    monkeypatch.setattr(text, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1000)
    counts = []
    for number in (1, 2000):
        lines = (f"{row},the disk of host {row} is full\n" for row in range(number))
        content = "id,message\n" + "".join(lines)
        if suffix == "jsonl":
            content = "".join(f'{{"id":{row},"message":"the disk is full"}}\n' for row in range(number))
        file = text_file(tmp_path / f"{number}.{suffix}", content)
        opened.clear()
        assert index(tmp_path / f"t{number}", file).num_rows == number + (suffix == "log")
        counts.append(len(opened))
    assert counts[0] == counts[1] <= 7

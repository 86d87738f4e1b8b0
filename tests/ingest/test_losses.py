"""Nothing is lost on the way in: each loss that was seen once, with the files that showed it."""

import datetime as dt
import decimal
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import IndexTable
from indextables.errors import InvalidOptionError, InvalidSchemaError, InvalidValueError
from indextables.ingest.formats import Format
from support.ingestion import index, json_lines, rows_of, text_file


def test_a_field_that_the_first_file_does_not_have_is_kept(tmp_path):
    first = text_file(tmp_path / "a.jsonl", '{"id":1,"msg":"first"}\n')
    second = text_file(tmp_path / "b.jsonl", '{"id":2,"msg":"second","extra":"x"}\n')
    assert rows_of(index(tmp_path / "t", first, second)) == [
        {"id": 1, "msg": "first", "extra": None},
        {"id": 2, "msg": "second", "extra": "x"},
    ]


def test_a_field_that_only_the_last_of_many_rows_has_is_kept(tmp_path):
    rows = [{"id": number, "message": "x" * 100} for number in range(200_000)]
    file = json_lines(tmp_path / "a.jsonl", [*rows, {"id": -1, "late": {"deep": [1.5]}}])
    assert file.stat().st_size > 16 * 1024**2  # several blocks
    table = index(tmp_path / "t", file).table
    assert table is not None
    assert table.to_arrow(where="id = -1").to_pylist() == [
        {"id": -1, "message": None, "late": {"deep": [1.5]}}
    ]
    assert table.count() == 200_001


def test_a_type_that_widens_in_a_later_file_holds_for_all_rows(tmp_path):
    first = json_lines(tmp_path / "a.jsonl", [{"n": 3, "when": "2026-01-31"}])
    second = json_lines(tmp_path / "b.jsonl", [{"n": 0.5, "when": "2026-01-31T12:00:00"}])
    result = index(tmp_path / "t", first, second)
    assert rows_of(result) == [
        {"n": 3.0, "when": dt.datetime(2026, 1, 31)},
        {"n": 0.5, "when": dt.datetime(2026, 1, 31, 12)},
    ]


@pytest.mark.parametrize(
    ("policy", "fields"), [("add", {"a", "b"}), ("ignore", {"a"})], ids=["added", "ignored"]
)
def test_new_fields_of_a_new_table_are_dealt_with_as_asked(tmp_path, policy, fields):
    first = json_lines(tmp_path / "a.jsonl", [{"a": 1}])
    second = json_lines(tmp_path / "b.jsonl", [{"a": 2, "b": "x"}])
    table = index(tmp_path / "t", first, second, new_fields=policy).table
    assert table is not None
    assert set(table.schema.names) == fields
    assert table.count() == 2


def test_a_new_field_fails_with_file_line_field_and_remedy(tmp_path):
    first = json_lines(tmp_path / "a.jsonl", [{"a": 1}])
    second = json_lines(tmp_path / "b.jsonl", [{"a": 2}, {"a": 2, "b": "x"}])
    with pytest.raises(InvalidSchemaError, match=r"b\.jsonl, line 2: field 'b' .*--new-fields add"):
        index(tmp_path / "t", first, second, new_fields="fail")
    assert not (tmp_path / "t").exists()
    index(tmp_path / "t", first)
    for policy in (None, "fail"):
        with pytest.raises(InvalidSchemaError, match=r"b\.jsonl, line 2: field 'b' .*--new-fields add"):
            index(tmp_path / "t", second, new_fields=policy)
    assert IndexTable(str(tmp_path / "t")).version == 0
    assert rows_of(index(tmp_path / "t", second, new_fields="ignore")) == [{"a": 1}, {"a": 2}, {"a": 2}]


def test_a_new_field_inside_an_object_is_new_too(tmp_path):
    index(tmp_path / "t", json_lines(tmp_path / "a.jsonl", [{"o": {"x": 1}}]))
    more = json_lines(tmp_path / "b.jsonl", [{"o": {"x": 2, "y": 3}}])
    with pytest.raises(InvalidValueError, match=r"b\.jsonl, line 1: field 'o' .*the field 'y'"):
        index(tmp_path / "t", more)
    assert rows_of(index(tmp_path / "t", more, new_fields="ignore"))[1] == {"o": {"x": 2}}


def test_values_without_a_common_type_stop_with_file_line_field_and_remedy(tmp_path):
    first = json_lines(tmp_path / "a.jsonl", [{"price": None}, {"price": 3}])
    second = json_lines(tmp_path / "b.jsonl", [{"price": 4}, {"price": "n/a"}])
    message = (
        r"b\.jsonl, line 2: field 'price' is a string, but a whole number in .*a\.jsonl.*--type price=string"
    )
    with pytest.raises(InvalidSchemaError, match=message):
        index(tmp_path / "t", first, second)
    assert not (tmp_path / "t").exists()
    assert [
        row["price"] for row in rows_of(index(tmp_path / "t", first, second, types=("price=string",)))
    ] == [
        None,
        "3",
        "4",
        "n/a",
    ]


def test_nested_values_without_a_common_type_are_kept_as_json_if_asked(tmp_path):
    file = json_lines(tmp_path / "a.jsonl", [{"o": {"k": 1.5}}, {"o": {"k": ["x"]}}])
    with pytest.raises(InvalidSchemaError, match=r"line 2: field 'o\.k' .*--type o=json"):
        index(tmp_path / "t", file)
    table = index(tmp_path / "t", file, types=("o=json",)).table
    assert table is not None
    assert table.to_arrow()["o"].to_pylist() == ['{"k":1.5}', '{"k":["x"]}']
    assert table.count("o.k:x") == 1
    # An append needs no option: the column is what it is.
    rows = rows_of(index(tmp_path / "t", file))
    assert rows[2:] == rows[:2]


@pytest.mark.parametrize("values", [[{"k": 1}, 5], [[1, "x"]], [[1], {"k": 1}]])
def test_objects_lists_and_single_values_are_kept_as_text_if_asked(tmp_path, values):
    file = json_lines(tmp_path / "a.jsonl", [{"o": value} for value in values])
    with pytest.raises(InvalidSchemaError, match="--type o=string"):
        index(tmp_path / "t", file)
    rows = rows_of(index(tmp_path / "t", file, types=("o=string",)))
    assert [json.loads(row["o"]) for row in rows] == values


@pytest.mark.parametrize(
    ("text", "types", "stored"),
    [
        ("9007199254740993", (), 9007199254740993),
        ("9223372036854775807", (), 2**63 - 1),
        ("18446744073709551615", ("n=decimal(20,0)",), decimal.Decimal(2**64 - 1)),
        ("18446744073709551615", ("n=string",), "18446744073709551615"),
        ("1.50", ("n=string",), "1.50"),
        ("-0.0", (), -0.0),
    ],
)
def test_large_and_precise_numbers_are_exact(tmp_path, text, types, stored):
    file = text_file(tmp_path / "a.jsonl", f'{{"n":{text}}}\n')
    assert rows_of(index(tmp_path / "t", file, types=types)) == [{"n": stored}]


@pytest.mark.parametrize(
    ("kind", "text", "stored"),
    [
        ("float", "0.1", pa.scalar(0.1, pa.float32()).as_py()),
        ("float", "16777216", 16777216.0),
        ("float", "16777217", None),
        ("float", "1e300", None),
        ("long", "3.0", 3),
        ("long", "3.5", None),
        ("short", "40000", None),
        ("decimal(4,2)", "12.5", decimal.Decimal("12.50")),
        ("decimal(4,2)", "12.505", None),
        ("double", "1e300", 1e300),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_number_is_what_the_type_of_its_column_holds_or_an_error(tmp_path, suffix, kind, text, stored):
    content = f"id,n\n1,{text}\n" if suffix == "csv" else f'{{"id":1,"n":{text}}}\n'
    file = text_file(tmp_path / f"a.{suffix}", content)
    if stored is None:
        with pytest.raises(InvalidValueError, match=r"a\.\w+, line [12]: field 'n'"):
            index(tmp_path / "t", file, types=(f"n={kind}",))
    else:
        assert rows_of(index(tmp_path / "t", file, types=(f"n={kind}",))) == [{"id": 1, "n": stored}]


@pytest.mark.parametrize("text", ["99999999999999999999", "9007199254740993", "1e999"])
def test_a_number_that_a_double_would_round_is_an_error_by_name(tmp_path, text):
    file = text_file(tmp_path / "a.jsonl", f'{{"n":0.5}}\n{{"n":{text}}}\n')
    with pytest.raises(InvalidValueError, match=r"a\.jsonl, line 2: .*(not exact|too large)"):
        index(tmp_path / "t", file)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("text", ["007", "1e5x", "0x10", "+1", " 1", "1,5", "NA", "12345678901234567890"])
def test_text_that_would_lose_something_as_a_number_stays_text(tmp_path, text):
    file = text_file(tmp_path / "a.csv", f'id;code\n1;1\n2;"{text}"\n')
    assert rows_of(index(tmp_path / "t", file)) == [{"id": 1, "code": "1"}, {"id": 2, "code": text}]


def test_an_empty_value_is_null_and_a_quoted_empty_value_is_text(tmp_path):
    file = text_file(tmp_path / "a.csv", 'a,b\n1,\n,""\n')
    assert rows_of(index(tmp_path / "t", file)) == [{"a": 1, "b": None}, {"a": None, "b": ""}]


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2026-01-31T10:00:00.123456Z", dt.datetime(2026, 1, 31, 10, 0, 0, 123456, dt.UTC)),
        ("2026-01-31T10:00:00+02:00", dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC)),
        ("2026-01-31 10:00:00.5-0330", dt.datetime(2026, 1, 31, 13, 30, 0, 500000, dt.UTC)),
        ("2026-01-31T10:00:00.123456000Z", dt.datetime(2026, 1, 31, 10, 0, 0, 123456, dt.UTC)),
        ("2026-01-31T10:00:00.123", dt.datetime(2026, 1, 31, 10, 0, 0, 123000)),
        ("2026-01-31 10:00", dt.datetime(2026, 1, 31, 10)),
        ("2026-01-31", dt.date(2026, 1, 31)),
        ("2026-01-31T10:00:00.123456789Z", "2026-01-31T10:00:00.123456789Z"),
        ("2026-02-30", "2026-02-30"),
        ("2026-01-31T10:00:60Z", "2026-01-31T10:00:60Z"),
        ("20260131", "20260131"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_iso_times_are_times_in_csv_and_json_and_others_stay_text(tmp_path, suffix, text, stored):
    content = f"id,t\nx,{text}\n" if suffix == "csv" else f'{{"id":"x","t":"{text}"}}\n'
    (row,) = rows_of(index(tmp_path / "t", text_file(tmp_path / f"a.{suffix}", content)))
    if (suffix, text) == ("csv", "20260131"):
        stored = 20260131
    assert row["t"] == stored
    assert type(row["t"]) is type(stored)


def test_times_with_and_without_a_zone_stay_text_together(tmp_path):
    texts = ["2026-01-31T10:00:00Z", "2026-01-31T10:00:00"]
    file = json_lines(tmp_path / "a.jsonl", [{"t": text} for text in texts])
    assert [row["t"] for row in rows_of(index(tmp_path / "t", file))] == texts


def test_columns_of_nulls_only_are_strings(tmp_path):
    files = [
        json_lines(tmp_path / "a.jsonl", [{"id": 1, "j": None}]),
        text_file(tmp_path / "b.csv", "id,c\n2,\n"),
    ]
    pq.write_table(pa.table({"id": [3], "p": pa.nulls(1)}), tmp_path / "c.parquet")
    table = index(tmp_path / "t", *files, tmp_path / "c.parquet").table
    assert table is not None
    assert table.schema == pa.schema(
        [("id", pa.int64()), ("j", pa.string()), ("c", pa.string()), ("p", pa.string())]
    )


def test_an_append_reads_with_the_types_of_the_table(tmp_path):
    schema = pa.schema(
        [("price", pa.float64()), ("at", pa.timestamp("us")), ("day", pa.string()), ("n", pa.int32())]
    )
    IndexTable.create(str(tmp_path / "t"), schema)
    moment = dt.datetime(2026, 1, 31, 10)
    stored = {"price": 3.0, "at": moment, "day": "2026-01-31", "n": None}
    parquet = tmp_path / "a.parquet"
    columns = {
        "price": [3],
        "at": pa.array([moment], pa.timestamp("ns")),
        "day": [dt.date(2026, 1, 31)],
        "n": pa.nulls(1),
    }
    pq.write_table(pa.table(columns), parquet)
    files = [
        parquet,
        json_lines(
            tmp_path / "a.jsonl", [{"price": 3, "at": "2026-01-31 10:00:00", "day": "2026-01-31", "n": None}]
        ),
        text_file(tmp_path / "a.csv", "price,at,day,n\n3,2026-01-31T10:00:00,2026-01-31,\n"),
    ]
    for file in files:
        result = index(tmp_path / "t", file)
        assert rows_of(result)[-1] == stored
    assert result.table is not None
    assert result.table.append(pa.table(columns)) == 4
    assert result.table.to_arrow().to_pylist() == [stored] * 4


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("n", pa.array([2**40]), "not in range"),
        ("n", pa.array([1.5]), "truncated"),
        ("price", pa.array([2**53 + 1]), "not in range"),
        ("at", pa.array([1], pa.timestamp("ns")), "lose data"),
        ("f", pa.array([0.1]), "cannot be kept exactly"),
    ],
)
def test_a_value_that_would_lose_something_stops_the_append_by_row_and_field(
    tmp_path, column, values, reason
):
    schema = pa.schema(
        [("price", pa.float64()), ("at", pa.timestamp("us")), ("n", pa.int32()), ("f", pa.float32())]
    )
    table = IndexTable.create(str(tmp_path / "t"), schema)
    rows = pa.concat_tables([pa.table({column: pa.nulls(2, values.type)}), pa.table({column: values})])
    pq.write_table(rows, tmp_path / "a.parquet")
    with pytest.raises(InvalidValueError, match=rf"a\.parquet, row 3: field '{column}' .*{reason}"):
        index(tmp_path / "t", tmp_path / "a.parquet")
    with pytest.raises(InvalidValueError, match=f"column '{column}'"):
        table.append(rows)
    assert table.refresh().version == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a":1', "not JSON"),
        ('{"a":1,"a":2}', "field 'a' twice"),
        ('{"o":{"k":1,"k":2}}', "field 'k' twice"),
        ('{"a":NaN}', "NaN is not JSON"),
        ("5", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"s":"\\ud800"}', "surrogate"),
    ],
)
def test_a_line_that_is_no_json_object_is_a_bad_line(tmp_path, line, reason):
    good = '{"a":1}'
    file = text_file(tmp_path / "a.jsonl", f"{good}\n\n{line}\n{good}\n")
    with pytest.raises(InvalidValueError, match=rf"a\.jsonl, line 3: .*{reason}.*--bad-lines skip"):
        index(tmp_path / "t", file)
    assert not (tmp_path / "t").exists()
    result = index(tmp_path / "t", file, bad_lines="skip")
    assert (result.num_rows, result.num_bad_lines) == (2, 1)
    assert rows_of(result) == [{"a": 1}, {"a": 1}]


def test_bad_lines_go_to_a_file_that_can_be_corrected_and_indexed(tmp_path):
    file = text_file(tmp_path / "a.csv", 'id,note\n1,"two\nlines"\n2,x,y\n3,z\n')
    with pytest.raises(InvalidValueError, match=r"a\.csv, line 4: there are 3 values, and 2 columns"):
        index(tmp_path / "t", file)
    bad = tmp_path / "bad.csv"
    result = index(tmp_path / "t", file, bad_lines=str(bad))
    assert (result.num_rows, result.num_bad_lines) == (2, 1)
    assert bad.read_text() == "id,note\n2,x,y\n"
    with pytest.raises(InvalidOptionError, match="exists"):
        index(tmp_path / "t", file, bad_lines=str(bad))
    bad.write_text('id,note\n2,"x,y"\n')
    assert [row["note"] for row in rows_of(index(tmp_path / "t", bad))] == ["two\nlines", "z", "x,y"]


def test_a_dry_run_checks_every_value_and_writes_nothing(tmp_path):
    good = json_lines(tmp_path / "a.jsonl", [{"n": 0.5}, {"n": 1}])
    bad = json_lines(tmp_path / "b.jsonl", [{"n": 2**53 + 1}])
    result = index(tmp_path / "t", good, bad, dry_run=True, bad_lines=str(tmp_path / "bad"))
    assert (result.num_rows, result.num_bad_lines, result.table) == (2, 1, None)
    with pytest.raises(InvalidValueError, match=r"b\.jsonl, line 1"):
        index(tmp_path / "t", good, bad, dry_run=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]


def test_values_that_do_not_fit_the_table_are_bad_lines(tmp_path):
    index(tmp_path / "t", text_file(tmp_path / "a.csv", "id,price\n1,0.5\n"))
    more = text_file(tmp_path / "b.csv", "id,price\n2,n/a\n3,7\n")
    with pytest.raises(InvalidValueError, match=r"b\.csv, line 2: field 'price' is double: 'n/a'"):
        index(tmp_path / "t", more)
    lines = json_lines(tmp_path / "c.jsonl", [{"id": 4, "price": {}}, {"id": 5, "price": "1.5"}])
    result = index(tmp_path / "t", more, lines, bad_lines="skip")
    assert (result.num_rows, result.num_bad_lines) == (2, 2)
    assert [row["price"] for row in rows_of(result)] == [0.5, 7.0, 1.5]


def test_a_quote_that_is_never_closed_is_an_error(tmp_path):
    file = text_file(tmp_path / "a.csv", 'a,b\n1,"x\n2,y\n3,z\n')
    with pytest.raises(InvalidValueError, match=r"a\.csv: a quoted value is not closed"):
        index(tmp_path / "t", file, bad_lines="skip")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(("header", "reason"), [("a,A", "'a' twice"), ("a,", "column 2 .* no name")])
def test_a_header_that_does_not_name_each_column_once_is_refused(tmp_path, header, reason):
    file = text_file(tmp_path / "a.csv", f"{header}\n1,2\n")
    with pytest.raises(InvalidSchemaError, match=rf"a\.csv, line 1: .*{reason}"):
        index(tmp_path / "t", file)


def test_text_in_another_encoding_is_refused_and_read_if_it_is_named(tmp_path):
    file = text_file(tmp_path / "a.csv", "id,name\n1,Zoe\n2,Zoë\n", "latin-1")
    with pytest.raises(InvalidValueError, match=r"a\.csv, line 3: byte 0xeb is not UTF-8.*--encoding"):
        index(tmp_path / "t", file)
    with pytest.raises(InvalidValueError, match=r"a\.csv, line 3: byte 0xeb is not ascii"):
        index(tmp_path / "t", file, encoding="ascii")
    assert not (tmp_path / "t").exists()
    assert rows_of(index(tmp_path / "t", file, encoding="latin-1"))[1] == {"id": 2, "name": "Zoë"}
    result = index(tmp_path / "u", file, bad_lines="skip")
    assert (result.num_rows, result.num_bad_lines) == (1, 1)


def test_utf_16_is_recognised_and_refused_as_utf_8(tmp_path):
    file = text_file(tmp_path / "a.csv", "id,name\n1,Zoë\n", "utf-16")
    with pytest.raises(InvalidValueError, match="--encoding utf-16"):
        index(tmp_path / "t", file)
    assert rows_of(index(tmp_path / "t", file, encoding="utf-16")) == [{"id": 1, "name": "Zoë"}]
    without_mark = text_file(tmp_path / "b.csv", "id,name\n1,Zoe\n", "utf-16-le")
    with pytest.raises(InvalidValueError, match=r"b\.csv, line 1: there is a NUL byte"):
        index(tmp_path / "u", without_mark)


def test_an_input_that_breaks_in_the_middle_leaves_no_table(tmp_path):
    rows = [{"id": number, "message": f"row {number}"} for number in range(100_000)]
    whole = gzip.compress(json_lines(tmp_path / "a.jsonl", rows).read_bytes())
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidValueError, match=r"broken\.jsonl\.gz cannot be read to its end"):
        index(tmp_path / "t", tmp_path / "a.jsonl", broken)
    assert not (tmp_path / "t").exists()


def test_a_failure_while_rows_are_written_leaves_no_table_and_no_split(tmp_path):
    # Only the second pass meets the number that a double does not hold.
    first = json_lines(tmp_path / "a.jsonl", [{"d": "x", "n": number / 2} for number in range(1000)])
    second = json_lines(tmp_path / "b.jsonl", [{"d": "y", "n": 2**53 + 1}])
    with pytest.raises(InvalidValueError, match=r"b\.jsonl, line 1"):
        index(
            tmp_path / "t",
            first,
            second,
            partition_by=("d",),
            options={"spark.indextables.write.targetSplitSize": "1K"},
        )
    assert not (tmp_path / "t").exists()
    result = index(tmp_path / "t", first, partition_by=("d",))
    assert result.table is not None
    assert result.table.fsck(deep=True).num_errors == 0


def test_options_that_cannot_be_meant_are_wrong(tmp_path: Path):
    file = text_file(tmp_path / "a.csv", "a,b\n1,x\n")
    for choices, message in (
        ({"types": ("c=long",)}, "no input has"),
        ({"types": ("a=wibble",)}, "wibble"),
        ({"types": ("a",)}, "NAME=TYPE"),
        ({"exact": ("c",)}, "--exact names 'c'"),
        ({"delimiter": "||"}, "one character"),
        ({"encoding": "klingon"}, "unknown encoding"),
        ({"pattern": "("}, "not a regular expression"),
        ({"pattern": "x"}, "no named groups"),
        ({"pattern": "(?P<a>.*)", "format": Format.CSV}, "--pattern has no effect on csv"),
        ({"delimiter": ";", "format": Format.LINES}, "--delimiter has no effect on lines"),
    ):
        with pytest.raises((InvalidOptionError, InvalidSchemaError), match=message):
            index(tmp_path / "t", file, **choices)
    assert not (tmp_path / "t").exists()

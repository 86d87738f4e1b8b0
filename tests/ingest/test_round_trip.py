"""The property: indexed and scanned rows are exactly what pyarrow or json read, or nothing is committed."""

import csv
import datetime as dt
import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables import IndexTable
from indextables.errors import IndexTablesError
from support.ingestion import COMPRESSIONS, index, rows_of

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))

NAMES = ["a", "b", "c d", "é"]

times = st.builds(
    lambda moment, fraction, zone, separator: (
        f"{moment:%Y-%m-%d}{separator}{moment:%H:%M:%S}{fraction}{zone}"
    ),
    st.datetimes(min_value=dt.datetime(1900, 1, 1), max_value=dt.datetime(2200, 1, 1)),
    st.sampled_from(["", ".5", ".123456", ".123456789", ".250000000"]),
    st.sampled_from(["", "Z", "+02:00", "-0330", "+01"]),
    st.sampled_from(["T", " "]),
)
dates = st.dates(min_value=dt.date(1900, 1, 1), max_value=dt.date(2200, 1, 1)).map(str)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
integers = st.one_of(
    st.integers(-5, 5), st.sampled_from([2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30])
)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = {
    "integer": integers,
    "number": st.one_of(st.integers(-100, 100), floats, integers),
    "text": texts,
    "date": dates,
    "time": times,
    "date or time": st.one_of(dates, times),
    "boolean": st.booleans(),
    "anything": st.one_of(integers, floats, texts, st.booleans(), times),
}


@st.composite
def json_kinds(draw: Any, depth: int = 2) -> Any:
    """A strategy for the values of one field."""
    choices = [*scalars, *(["list", "object"] if depth else [])]
    kind = draw(st.sampled_from(choices))
    if kind == "list":
        return st.lists(st.none() | draw(json_kinds(depth - 1)), max_size=3)
    if kind == "object":
        fields = {name: draw(json_kinds(depth - 1)) for name in ("x", "y")}
        return st.fixed_dictionaries({}, optional=fields)
    return scalars[kind]


@st.composite
def json_files(draw: Any) -> list[list[dict[str, Any]]]:
    kinds = {
        name: draw(json_kinds()) for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    }
    row = st.fixed_dictionaries({}, optional={name: st.none() | kind for name, kind in kinds.items()})
    count = draw(st.integers(1, 3))
    files = [draw(st.lists(row, max_size=6)) for _ in range(count)]
    number = iter(range(1000))
    # Fields come in any order.
    return [
        [dict(draw(st.permutations([("row", next(number)), *each.items()]))) for each in file]
        for file in files
    ]


def same(read: Any, stored: Any) -> bool:
    """Whether a stored value is what a text file says."""
    if read is None or stored is None:
        return stored is None and (read is None or read == {} or _is_empty(read))
    if isinstance(stored, str) and isinstance(read, dict):
        return json.loads(stored) == read == {}
    if isinstance(stored, dict):
        return isinstance(read, dict) and all(
            same(read.get(name), stored.get(name)) for name in {*read, *stored}
        )
    if isinstance(stored, list):
        return isinstance(read, list) and len(read) == len(stored) and all(map(same, read, stored))
    if isinstance(stored, dt.datetime):
        # Python takes six digits; more are zeros here, or the column would be text.
        return dt.datetime.fromisoformat(read.replace("000Z", "Z") if len(read) > 26 else read) == stored
    if isinstance(stored, dt.date):
        return dt.date.fromisoformat(read) == stored
    if isinstance(stored, bool) or isinstance(read, bool):
        return read is stored
    return (
        type(stored) in (int, float, str)
        and isinstance(read, str) == isinstance(stored, str)
        and read == stored
    )


def _is_empty(read: Any) -> bool:
    return isinstance(read, dict) and all(value is None or _is_empty(value) for value in read.values())


def indexed(folder: Path, contents: list[tuple[str, bytes]], **choices: Any) -> list[dict[str, Any]] | None:
    """The rows of a new table of these files, by their number; None if it was refused, and there is no table."""
    files = []
    for name, content in contents:
        file = folder / name
        file.write_bytes(content)
        files.append(file)
    try:
        return sorted(rows_of(index(folder / "t", *files, **choices)), key=lambda row: int(row["row"]))
    except IndexTablesError as error:
        refusal = str(error)
    assert not (folder / "t").exists()
    names = [*(file.name for file in files), *(repr(name) for name in NAMES)]
    assert any(name in refusal for name in names) or refusal.startswith("the inputs have no fields"), refusal
    return None


@SETTINGS
@given(json_files(), st.sampled_from(sorted(COMPRESSIONS)), st.sampled_from(["lines", "array", "pretty"]))
def test_json_is_read_as_json_reads_it_or_refused(files, compression, layout):
    contents = []
    for number, rows in enumerate(files):
        if layout == "lines":
            text = "".join(f"{json.dumps(row, ensure_ascii=bool(number % 2))}\n" for row in rows)
        else:
            text = json.dumps(rows, indent=2 if layout == "pretty" else None)
        contents.append((f"{number}.json{compression}", COMPRESSIONS[compression](text.encode())))
    expected = [row for rows in files for row in rows]
    folder = Path(tempfile.mkdtemp())
    try:
        rows = indexed(folder, contents)
        if rows is not None:
            assert len(rows) == len(expected)
            for read, stored in zip(expected, rows, strict=True):
                assert set(read) <= set(stored)
                for name, value in stored.items():
                    assert same(read.get(name), value), (name, read.get(name), value)
    finally:
        shutil.rmtree(folder)


def csv_same(text: str, stored: Any) -> bool:
    if text == "" or stored is None:
        return text == "" and stored is None
    if isinstance(stored, bool):
        return text.lower() == str(stored).lower()
    if isinstance(stored, int):
        return text == str(stored)
    if isinstance(stored, float):
        return float(text) == stored and (not text.lstrip("-").isdigit() or int(text) == int(stored))
    return same(text, stored)


csv_texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\r"), max_size=8)
csv_kinds = {
    "integer": integers.map(str),
    "number": st.one_of(st.integers(-100, 100).map(str), floats.map(str)),
    "text": csv_texts,
    "date": dates,
    "time": times,
    "boolean": st.sampled_from(["true", "false", "True", "FALSE"]),
    "padded": st.integers(0, 20).map(lambda number: f"{number:03}"),
    "anything": st.one_of(integers.map(str), csv_texts, dates, times),
}


@SETTINGS
@given(st.data(), st.sampled_from(sorted(COMPRESSIONS)), st.sampled_from([",", ";", "\t", "|"]))
def test_csv_is_read_as_csv_reads_it_or_refused(data, compression, delimiter):
    contents, expected, number = [], [], 0
    kinds = {name: data.draw(st.sampled_from(sorted(csv_kinds))) for name in NAMES}
    for file_number in range(data.draw(st.integers(1, 3))):
        names = ["row", *data.draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=3))]
        text = io.StringIO()
        writer = csv.writer(
            text, delimiter=delimiter, lineterminator=data.draw(st.sampled_from(["\n", "\r\n"]))
        )
        writer.writerow(names)
        for _ in range(data.draw(st.integers(0, 5))):
            values = [str(number), *(data.draw(st.just("") | csv_kinds[kinds[name]]) for name in names[1:])]
            writer.writerow(values)
            expected.append(dict(zip(names, values, strict=True)))
            number += 1
        contents.append(
            (f"{file_number}.csv{compression}", COMPRESSIONS[compression](text.getvalue().encode()))
        )
    folder = Path(tempfile.mkdtemp())
    try:
        rows = indexed(folder, contents, delimiter=delimiter, types=("row=long",))
        if rows is not None:
            assert len(rows) == len(expected)
            for read, stored in zip(expected, rows, strict=True):
                for name, value in stored.items():
                    assert csv_same(read.get(name, ""), value), (name, read.get(name), value)
    finally:
        shutil.rmtree(folder)


arrow_columns = {
    "small": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.large_string(), texts),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), texts),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "micros": (pa.timestamp("us"), st.datetimes()),
    "nanos": (
        pa.timestamp("ns"),
        st.integers(-(2**50), 2**50).flatmap(lambda us: st.sampled_from([us * 1000, us * 1000 + 1])),
    ),
    "zoned": (pa.timestamp("ms", "Europe/Berlin"), st.integers(0, 2**40)),
    "decimal": (pa.decimal128(10, 2), st.decimals(-999, 999, places=2)),
    "list": (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=3)),
    "struct": (pa.struct([("x", pa.string())]), st.fixed_dictionaries({"x": texts})),
    "nothing": (pa.null(), st.none()),
}


@SETTINGS
@given(st.data())
def test_parquet_is_read_as_pyarrow_reads_it_or_refused(data):
    contents, expected, number = [], [], 0
    kinds = {
        name: data.draw(st.lists(st.sampled_from(sorted(arrow_columns)), min_size=1, max_size=2))
        for name in NAMES
    }
    for file_number in range(data.draw(st.integers(1, 3))):
        names = data.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
        length = data.draw(st.integers(0, 4))
        columns = {}
        for name in names:
            type_, values = arrow_columns[data.draw(st.sampled_from(kinds[name]))]
            columns[name] = pa.array(
                data.draw(st.lists(st.none() | values, min_size=length, max_size=length)), type_
            )
        table = pa.table({"row": pa.array(range(number, number + length), pa.int64()), **columns})
        number += length
        buffer = io.BytesIO()
        compression = data.draw(st.sampled_from(["NONE", "SNAPPY", "ZSTD", "GZIP"]))
        pq.write_table(table, buffer, compression=compression)
        contents.append((f"{file_number}.parquet", buffer.getvalue()))
        read = pq.read_table(pa.BufferReader(buffer.getvalue()))
        expected += [{name: read[name][row] for name in read.column_names} for row in range(read.num_rows)]
    folder = Path(tempfile.mkdtemp())
    try:
        rows = indexed(folder, contents)
        if rows is not None:
            assert len(rows) == len(expected)
            for read, stored in zip(expected, rows, strict=True):
                for name, value in stored.items():
                    scalar = read.get(name)
                    assert _is_text_of(_plain(scalar), value), (name, scalar, value)
    finally:
        shutil.rmtree(folder)


def _is_text_of(read: Any, stored: Any) -> bool:
    """Whether a value is stored as it is, or as its text: next to dates, times with a zone are text."""
    if isinstance(stored, str) and isinstance(read, dt.datetime):
        return dt.datetime.fromisoformat(stored) == read
    return stored == read or (isinstance(stored, str) and stored == str(read))


def _plain(scalar: Any) -> Any:
    if scalar is None or not scalar.is_valid:
        return None
    if pa.types.is_timestamp(scalar.type) and scalar.type.unit == "ns":
        # Values with nanoseconds are refused, so these have none.
        return scalar.cast(pa.timestamp("us")).as_py()
    return scalar.as_py()


@SETTINGS
@given(json_files(), st.data())
def test_bad_lines_among_json_are_left_out_and_counted_and_all_other_rows_are_kept(files, data):
    rows = [row for file in files for row in file]
    nonsense = [
        "{",
        "null",
        '{"row":1}{"row":2}',
        '{"row":1,"row":2}',
        "x",
        '{"row":NaN}',
        "[]",
        '{"row": 1} x',
    ]
    lines: list[str] = []
    bad = 0
    for row in rows:
        for line in data.draw(st.lists(st.sampled_from(nonsense), max_size=2)):
            lines.append(line)
            bad += 1
        lines.append(json.dumps(row))
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "a.jsonl").write_text("\n".join(lines))
        try:
            result = index(
                folder / "t", folder / "a.jsonl", bad_lines=str(folder / "bad"), types=("row=long",)
            )
        except IndexTablesError:
            assert not (folder / "t").exists()
            return
        stored = sorted(rows_of(result), key=lambda row: row["row"])
        # A number that a double does not hold makes its line a bad one, too.
        written = (folder / "bad").read_text().splitlines() if (folder / "bad").exists() else []
        kept = [row for row in rows if json.dumps(row) not in written]
        assert result.num_bad_lines == len(written) == bad + len(rows) - len(kept)
        assert len(stored) == len(kept)
        for read, row in zip(kept, stored, strict=True):
            assert all(same(read.get(name), value) for name, value in row.items()), (read, row)
    finally:
        shutil.rmtree(folder)


table_types = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "list": pa.list_(pa.float64()),
    "struct": pa.struct([("x", pa.string()), ("y", pa.int64())]),
    "map": pa.map_(pa.string(), pa.int64()),
}


@SETTINGS
@given(st.data())
def test_an_append_of_json_stores_the_same_values_in_the_types_of_the_table_or_nothing(data):
    names = ["a", "b"]
    types = {name: data.draw(st.sampled_from(sorted(table_types))) for name in names}
    kinds = {name: data.draw(json_kinds(1)) for name in names}
    row = st.fixed_dictionaries({}, optional={name: st.none() | kind for name, kind in kinds.items()})
    rows = [{**each, "row": number} for number, each in enumerate(data.draw(st.lists(row, max_size=5)))]
    folder = Path(tempfile.mkdtemp())
    try:
        schema = pa.schema(
            [("row", pa.int64()), *((name, table_types[kind]) for name, kind in types.items())]
        )
        table = IndexTable.create(folder / "t", schema)
        (folder / "a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
        try:
            stored = rows_of(index(folder / "t", folder / "a.jsonl"))
        except IndexTablesError as error:
            refusal = str(error)
            assert "a.jsonl, line " in refusal
            assert table.refresh().version == 0
            return
        stored.sort(key=lambda each: each["row"])
        assert len(stored) == len(rows)
        for read, kept in zip(rows, stored, strict=True):
            for name in names:
                assert converted(read.get(name), kept[name]), (types[name], read.get(name), kept[name])
    finally:
        shutil.rmtree(folder)


def converted(read: Any, stored: Any) -> bool:
    """Whether a stored value means what JSON says: numbers and times may be text, on either side."""
    if isinstance(stored, list) and isinstance(read, dict):  # a map
        return len(stored) == len(read) and all(converted(read[key], value) for key, value in stored)
    if isinstance(stored, list) and isinstance(read, list):
        return len(stored) == len(read) and all(map(converted, read, stored))
    if isinstance(stored, dict) and isinstance(read, dict):
        return all(converted(read.get(name), value) for name, value in stored.items()) and set(read) <= set(
            stored
        )
    if isinstance(stored, str) and not isinstance(read, str) and read is not None:
        return json.loads(stored) == read
    if isinstance(stored, bool) and isinstance(read, str):
        return read.lower() == str(stored).lower()
    if (
        isinstance(stored, int | float)
        and not isinstance(stored, bool)
        and isinstance(read, str | int | float)
    ):
        number = float(read) if isinstance(read, float) or not str(read).lstrip("+-").isdigit() else int(read)
        return number == stored or pa.scalar(float(number), pa.float32()).as_py() == stored
    if isinstance(stored, dt.datetime) and isinstance(read, str) and len(read) == 10:
        return dt.datetime.fromisoformat(read) == stored
    return same(read, stored)

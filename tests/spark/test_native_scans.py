"""Native scans: Spark's own Parquet reader returns what the Python source returns, or the Python source reads."""

import datetime as dt
import logging
import math
import shutil
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from indextables import IndexTable
from indextables.errors import InvalidOptionError, InvalidSchemaError, TableNotFoundError
from indextables.log import deletion_vectors
from indextables.log.actions import AddAction
from indextables.spark import deleted_rows
from indextables.spark.types import spark_schema
from support.row_tables import split_files
from support.spark_frames import TEXT, ids, load, logs
from support.split_samples import EVERY_TYPE, null_row, ordinary_row

ENGINE = "spark.indextables.read.engine"
# What Spark raises if a task fails.
FAILURES = (PySparkException, Py4JJavaError)
NATIVE, PYTHON = {ENGINE: "native"}, {ENGINE: "python"}


def relations(frame: DataFrame) -> int:
    """The number of file relations in a plan; the Python source has none."""
    plan = frame._jdf.queryExecution().analyzed().toString()
    return int(plan.count("Relation [") - plan.count("LocalRelation ["))


def rows_of(frame: DataFrame) -> list[str]:
    """All rows, as text: NaN is not equal to itself."""
    return sorted(map(repr, frame.collect()))


def create(path: str, rows: pa.Table, partition_by: Sequence[str] = ()) -> IndexTable:
    table = IndexTable.create(path, rows.schema, partition_by=list(partition_by))
    table.append(rows)
    return table


# Partition values. The log is right about them, not the folders.

PARTITION_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (
        pa.string(),
        [
            *("a", "", "01", "a/b", "x=y", "a:b", "50%", "%2F", "a b", "é漢", "{[*?\\}", "..", "~"),
            *("__HIVE_DEFAULT_PARTITION__", "a" * 300, "null", "#'\"", "\n\t", None),
        ],
    ),
    "byte": (pa.int8(), [-128, 7, None]),
    "short": (pa.int16(), [-300, 5, None]),
    "int": (pa.int32(), [-(2**31), 0, 5, None]),
    "long": (pa.int64(), [-(2**63), 5, None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31), None]),
    # The zone of the session has two half past one on this day.
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [
            dt.datetime(2024, 11, 3, 5, 30, tzinfo=dt.UTC),
            dt.datetime(2024, 11, 3, 6, 30, 0, 123456, tzinfo=dt.UTC),
            dt.datetime(1890, 1, 1, tzinfo=dt.UTC),
            None,
        ],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [dt.datetime(2024, 3, 10, 2, 30), dt.datetime(1, 1, 1, 0, 0, 1), None],
    ),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-0.01"), Decimal("12345678.90"), None]),
    "wide_decimal": (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), None]),
    "double": (pa.float64(), [1.5, 0.1, -0.0, 1e300, 1e-7, math.inf, -math.inf, math.nan, None]),
    "float": (pa.float32(), [1.5, 0.1, math.nan, None]),
}


@pytest.mark.parametrize("kind", PARTITION_VALUES)
def test_partition_values_of_every_kind_are_those_of_the_log(
    spark: SparkSession, path: str, kind: str
) -> None:
    data_type, values = PARTITION_VALUES[kind]
    rows = pa.table({"part": pa.array(values, data_type), "id": pa.array(range(len(values)), pa.int64())})
    expected = create(path, rows, ["part"]).to_arrow(columns=rows.column_names).sort_by("id")
    frame = load(spark, path, **NATIVE)
    assert frame.schema == spark_schema(rows.schema)
    assert relations(frame) == (4 if kind == "text" else 1)
    found = frame.orderBy("id").toArrow().cast(rows.schema)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    by_value = {row["id"]: row["count"] for row in frame.groupBy("part", "id").count().collect()}
    assert by_value == dict.fromkeys(range(len(values)), 1)
    assert ids(frame.where("part IS NULL")) == [len(values) - 1]


def test_text_that_looks_like_another_type_is_found_by_its_text(spark: SparkSession, path: str) -> None:
    create(path, pa.table({"id": [1, 2, 3], "day": ["01", "1", "2024-01-01"]}), ["day"])
    frame = load(spark, path, **NATIVE)
    assert ids(frame.where("day = '01'")) == [1]
    assert ids(load(spark, path, where="day = '1'", **NATIVE)) == [2]


def test_files_whose_folders_do_not_name_their_partition_get_the_values_of_the_log(
    spark: SparkSession, path: str
) -> None:
    """Splits that were committed from elsewhere: at the root of the table, and in the folder of another partition."""
    rows = pa.table({"id": [1, 2, 3], "day": pa.array([1, 2, 3], pa.int32())})
    table = create(path, rows, ["day"])
    moved = {"1": "part-1.split", "2": "day=3/part-2.split"}
    for file in table.files().to_pylist():
        values = dict(file["partitionValues"])
        if values["day"] in moved:
            Path(path, file["path"]).rename(Path(path, moved[values["day"]]))
            add = AddAction(moved[values["day"]], values, file["size"], 1, True)
            table.commit([add], [file["path"]])
    frame = load(spark, path, **NATIVE)
    assert relations(frame) == 3
    assert sorted((row.id, row.day) for row in frame.collect()) == [(1, 1), (2, 2), (3, 3)]
    assert ids(frame.where("day > 1")) == [2, 3]


def test_a_table_in_a_folder_that_looks_like_a_partition_has_no_column_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = (tmp_path / "year=2024" / "p=5 [a]").as_posix()
    create(place, pa.table({"id": [1, 2], "p": ["x", "y"]}), ["p"])
    assert sorted(load(spark, place, **NATIVE).collect()) == [(1, "x"), (2, "y")]
    create(f"{place}/plain", pa.table({"id": [1]}))
    assert load(spark, f"{place}/plain", **NATIVE).collect() == [(1,)]


# Types and columns.


def test_rows_of_every_type_are_those_of_the_python_source(spark: SparkSession, path: str) -> None:
    schema = pa.schema([field for field in EVERY_TYPE if field.name != "void"])
    create(path, pa.Table.from_pylist([ordinary_row(), null_row()], schema=schema))
    native, python = load(spark, path, **NATIVE), load(spark, path, **PYTHON)
    assert (relations(native), relations(python)) == (1, 0)
    assert native.schema == python.schema == spark_schema(schema)
    assert rows_of(native) == rows_of(python)


def test_columns_keep_their_nullability_and_comments_and_have_no_ids(spark: SparkSession, path: str) -> None:
    struct = pa.struct([pa.field("x", pa.float64(), nullable=False)])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("point", struct)])
    create(path, pa.table({"id": [1], "point": [{"x": 1.0}]}, schema=schema))
    frame = load(spark, path, **NATIVE)
    assert frame.schema == load(spark, path, **PYTHON).schema == spark_schema(schema)
    commented = spark.createDataFrame([(1,)], "id long").withMetadata("id", {"comment": "the key"})
    commented.write.format("indextables").mode("append").save(f"{path}-2")
    assert load(spark, f"{path}-2", **NATIVE).schema["id"].metadata == {"comment": "the key"}


def test_columns_with_unusual_names(spark: SparkSession, path: str) -> None:
    names = ["a.b", "c d", "e,f;(g)", "ü{h}=`i`"]
    rows = pa.table({name: [f"{name}-1", f"{name}-2"] for name in names})
    create(path, rows, names[3:])
    frame = load(spark, path, where="`a.b` = 'a.b-1'", **NATIVE)
    assert frame.collect() == [tuple(f"{name}-1" for name in names)]
    assert load(spark, path, **NATIVE).where("`c d` = 'c d-2' AND `ü{h}=``i``` = 'ü{h}=`i`-2'").count() == 1


def test_columns_that_were_added_or_renamed_later(spark: SparkSession, path: str) -> None:
    who = pa.struct([("name", pa.string()), ("age", pa.int32())])
    table = create(path, pa.table({"id": [1, 2], "who": pa.array([{"name": "a", "age": 5}, None], who)}))
    table.rename_column("who.name", "nick")
    table.add_column("who.mail", "string")
    table.rename_column("who", "person")
    table.rename_column("id", "key")
    table.add_column("note", "string")
    table.append(pa.table({"key": [3], "person": [{"nick": "c", "age": 6, "mail": "@"}], "note": ["new"]}))
    frame = load(spark, path, **NATIVE)
    assert frame.schema == spark_schema(table.schema)
    expected = [(1, ("a", 5, None), None), (2, None, None), (3, ("c", 6, "@"), "new")]
    assert frame.orderBy("key").collect() == load(spark, path, **PYTHON).orderBy("key").collect() == expected
    assert frame.where("key = 2 AND note IS NULL AND person IS NULL").count() == 1
    assert frame.where("person.nick = 'a'").select("person.age").collect() == [(5,)]
    assert load(spark, path, where="key >= 2", **NATIVE).where("note = 'new'").count() == 1
    for where, found in (("person.nick = 'a'", [1]), ("person.mail = '@' OR person.nick IS NULL", [2, 3])):
        assert ids(load(spark, path, where=where, **NATIVE).selectExpr("key AS id")) == found
    assert (
        IndexTable(path, version=1).schema.names == load(spark, path, versionAsOf=1).columns == ["id", "who"]
    )


def test_a_new_column_with_the_name_of_a_dropped_one_loses_no_row(spark: SparkSession, path: str) -> None:
    """Spark pushes conditions down by name, and would skip the files in which the dropped column has no nulls."""
    table = create(path, pa.table({"id": [1, 2], "b": [5, 6]}))
    table.drop_column("b")
    table.add_column("b", pa.int64())
    table.append(pa.table({"id": [3], "b": [5]}))
    frame = load(spark, path, **NATIVE)
    assert frame.columns == ["id", "b"]
    assert ids(frame.where("b IS NULL")) == [1, 2]
    assert ids(frame.where("b = 5")) == [3]


def test_a_name_that_passes_to_another_column_finds_its_rows(spark: SparkSession, path: str) -> None:
    table = create(path, pa.table({"a": [1, 2], "b": [10, 20]}))
    table.rename_column("a", "id")
    table.rename_column("b", "a")
    table.append(pa.table({"id": [3], "a": [1]}))
    for engine in (NATIVE, PYTHON):
        frame = load(spark, path, **engine)
        assert ids(frame.where("a < 15")) == [1, 3]
        assert ids(frame.where("id = 2")) == [2]


def test_defaults_and_wider_types_are_read_by_the_python_source(spark: SparkSession, path: str) -> None:
    table = create(path, pa.table({"id": pa.array([1, 2], pa.int32())}))
    table.alter_column("id", "double")
    table.add_column("level", "string", default="INFO")
    table.append(pa.table({"id": [2.5], "level": ["WARN"]}))
    with pytest.raises(InvalidOptionError, match="has a default or another type"):
        load(spark, path, **NATIVE)
    frame = load(spark, path)
    assert sorted(frame.where("id > 1").collect()) == [(2.0, "INFO"), (2.5, "WARN")]
    assert ids(load(spark, path, query="level:INFO AND id:<2")) == [1]


def test_columns_and_schemas_are_chosen_natively(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").partitionBy("day").options(**TEXT).save(path)
    assert load(spark, path, columns="level,ID", **NATIVE).columns == ["level", "id"]
    reader = spark.read.format("indextables").options(**NATIVE)
    frame = reader.schema("message string, ID long").load(path)
    assert frame.columns == ["message", "ID"]
    assert relations(frame) == 1
    assert frame.where("ID = 3").collect() == [("disk full", 3)]
    with pytest.raises(InvalidSchemaError, match="cannot be read as string"):
        reader.schema("id string").load(path)


# What is read.


def test_the_option_where_prunes_files_and_filters_rows(spark: SparkSession, path: str) -> None:
    for part in ((1, 2), (3, 4, 5)):
        logs(spark, *part).write.format("indextables").partitionBy("day").options(**TEXT).mode("append").save(
            path
        )
    assert len(load(spark, path, **NATIVE).inputFiles()) == 3
    frame = load(spark, path, where="day = '2026-01-02' AND level = 'ERROR'", columns="id", **NATIVE)
    assert len(frame.inputFiles()) == 1
    assert ids(frame) == [3]
    assert len(load(spark, path, where="id >= 3", **NATIVE).inputFiles()) == 2
    assert load(spark, path, where="day = 'never'", **NATIVE).collect() == []


def test_the_option_where_compares_values_inside_structs_and_maps(spark: SparkSession, path: str) -> None:
    inner = pa.struct([("x.y", pa.int64()), ("at", pa.date32())])
    who = pa.struct([("name", pa.string()), ("home", inner)])
    labels = pa.map_(pa.string(), pa.decimal128(5, 2))
    rows = [
        {
            "id": 1,
            "who": {"name": "a", "home": {"at": dt.date(2026, 1, 1)}},
            "labels": [("a.b", Decimal("1.5"))],
        },
        {"id": 2, "who": {"name": "b", "home": None}, "labels": []},
        {"id": 3, "who": None, "labels": None},
    ]
    create(
        path, pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), ("who", who), ("labels", labels)]))
    )
    for where in (
        "who.name = 'a'",
        "NOT who.name = 'a'",
        "who.home.at >= '2026-01-01' OR labels.a.b IS NULL",
        "labels.a.b IN (1.5, 2)",
        "WHO.NAME LIKE 'b%'",
        "who.home IS NULL",
    ):
        found = ids(load(spark, path, where=where, **NATIVE))
        assert found == sorted(IndexTable(path).to_arrow(where=where)["id"].to_pylist()), where


def test_a_frame_reads_the_live_splits_of_its_version(spark: SparkSession, path: str) -> None:
    for number in (1, 2, 3):
        mode = "overwrite" if number == 3 else "append"
        logs(spark, number).write.format("indextables").options(**TEXT).mode(mode).save(path)
    assert ids(load(spark, path, **NATIVE)) == [3]
    before = load(spark, path, versionAsOf=2, **NATIVE)
    assert relations(before) == 1
    assert ids(before) == [1, 2]


@pytest.mark.parametrize("most_listed", [1000, 0])
def test_deleted_rows_are_left_out_and_other_files_are_read_as_before(
    spark: SparkSession, path: str, most_listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few rows are listed in a condition, and more of them are joined. Large vectors are in files."""
    monkeypatch.setattr(deleted_rows, "_MAX_LISTED", most_listed)
    monkeypatch.setattr(deletion_vectors, "MAX_INLINE_BYTES", 0 if most_listed else 1024)
    rows = pa.table({"id": list(range(60)), "day": ["a", "b", ""] * 20, "x": [1.5] * 60})
    table = create(path, rows, ["day"])
    table.append(rows.set_column(0, "id", pa.array(range(60, 120))))
    table.delete("id IN (0, 1, 3, 4, 57, 60)")
    left = sorted({*range(120)} - {0, 1, 3, 4, 57, 60})
    frame = load(spark, path, **NATIVE)
    # Files of "a" and "b" with deleted rows, one of "b" without, and those of "", which no folder names.
    assert relations(frame) == 3
    assert frame.count() == len(left)
    assert ids(frame) == left
    assert ids(frame.where("day = 'b' AND id < 20")) == [7, 10, 13, 16, 19]
    assert ids(load(spark, path, where="day = '' AND id < 10", **NATIVE)) == [2, 5, 8]
    assert frame.alias("l").join(frame.alias("r"), "id").count() == len(left)
    assert ids(load(spark, path, versionAsOf=2, **NATIVE)) == list(range(120))


def test_a_vector_that_spark_cannot_apply_is_left_to_the_python_source(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(path, pa.table({"id": [1, 2, 3], "_metadata": ["a", "b", "c"]})).delete("id = 2")
    with pytest.raises(InvalidOptionError, match="its column '_metadata' hides"):
        load(spark, path, **NATIVE)
    assert ids(load(spark, path)) == [1, 3]
    create(f"{path}-2", pa.table({"id": [1, 2, 3]})).delete("id < 3")
    monkeypatch.setattr(deleted_rows, "_MAX_DELETED", 1)
    with pytest.raises(InvalidOptionError, match="2 of its rows are deleted, more than 1; MERGE SPLITS"):
        load(spark, f"{path}-2", **NATIVE)


@pytest.mark.parametrize("damage", ["missing", "truncated", "page"])
def test_a_damaged_split_is_an_error_whatever_the_session_ignores(
    spark: SparkSession, path: str, damage: str
) -> None:
    create(path, pa.table({"id": list(range(5000)), "x": [float(number % 7) for number in range(5000)]}))
    (name,) = split_files(Path(path))
    split = Path(path, name)
    match damage:
        case "missing":
            split.unlink()
        case "truncated":
            split.write_bytes(split.read_bytes()[:-100])
        case _:
            data = bytearray(split.read_bytes())
            data[400] ^= 1
            split.write_bytes(data)
    ignored = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    for key in ignored:
        spark.conf.set(key, "true")
    try:
        frame = load(spark, path, **NATIVE)
        with pytest.raises(FAILURES):
            frame.selectExpr("sum(id)", "sum(x)").collect()
    finally:
        for key in ignored:
            spark.conf.unset(key)


# Which engine reads.


def test_tables_of_the_jvm_are_read_by_the_python_source(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = Path(__file__).parents[3] / "shared" / "fixtures" / "04_partitioned"
    if not fixture.is_dir():
        pytest.skip("the tables of the reference implementation are not at ../shared/fixtures")
    place = shutil.copytree(fixture, tmp_path / "table").as_posix()
    with pytest.raises(InvalidOptionError, match=r"is native, but .* its splits were written on the JVM"):
        load(spark, place, **NATIVE)
    expected = IndexTable(place).to_arrow().sort_by("id").to_pylist()
    assert [row.asDict() for row in load(spark, place).orderBy("id").collect()] == expected
    # Splits of ours beside those of the JVM.
    convert = {"spark.indextables.protocol.convertJvmTables": "true"}
    load(spark, place, where="id = 1").write.format("indextables").options(**convert).mode("append").save(
        place
    )
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert load(spark, place).count() == len(expected) + 1
    assert [line for line in caplog.messages if "was written on the JVM" in line] == caplog.messages[-1:]


def test_stores_that_spark_is_not_given_are_an_error_that_says_so(spark: SparkSession) -> None:
    create("memory://native-scans/table", pa.table({"id": [1]}))
    with pytest.raises(
        InvalidOptionError, match="Spark's reader is given local files only, not those of memory: URLs"
    ):
        load(spark, "memory://native-scans/table", **NATIVE)


def test_a_table_of_many_files_is_planned_in_python(
    spark: SparkSession, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(path, pa.table({"id": [1, 2, 3], "p": ["a", "b", "c"]}), ["p"])
    few = {"spark.indextables.read.native.maxFiles": 2}
    with caplog.at_level(logging.WARNING):
        frame = load(spark, path, **few)
    assert (relations(frame), ids(frame)) == (0, [1, 2, 3])
    assert "read.native.maxFiles is 2; the option where reads fewer" in caplog.messages[-1]
    assert relations(load(spark, path, where="p = 'a'", **few)) == 1
    with pytest.raises(InvalidOptionError, match="about 3 files"):
        load(spark, path, **few, **NATIVE)


def test_sessions_that_find_columns_by_name_are_served_by_python(spark: SparkSession, path: str) -> None:
    create(path, pa.table({"id": [1]}))
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    try:
        with pytest.raises(InvalidOptionError, match="columns are found by their ids"):
            load(spark, path, **NATIVE)
        assert relations(load(spark, path)) == 0
    finally:
        spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")


def test_the_engine_is_a_setting_of_the_session_or_of_a_load(spark: SparkSession, path: str) -> None:
    create(path, pa.table({"id": [1]}))
    spark.conf.set(ENGINE, "python")
    try:
        assert relations(load(spark, path)) == 0
        assert relations(load(spark, path, **NATIVE)) == 1
    finally:
        spark.conf.unset(ENGINE)
    assert relations(load(spark, path)) == 1
    with pytest.raises(TableNotFoundError):
        load(spark, f"{path}-missing")
    with pytest.raises(InvalidOptionError, match="one table"):
        spark.read.format("indextables").load([path, path])


# Counts and plans.


def test_a_count_comes_from_the_log_if_the_log_knows_it(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").partitionBy("day").options(**TEXT).save(path)
    for name in split_files(Path(path)):
        Path(path, name).unlink()
    for engine in (NATIVE, PYTHON):
        assert load(spark, path, **engine).count() == 5
        assert load(spark, path, where="day = '2026-01-01' OR day IS NULL", **engine).count() == 3
    for counted in (
        load(spark, path).where("id > 0"),
        load(spark, path, where="id > 0"),
        load(spark, path).cache(),
    ):
        with pytest.raises(FAILURES):
            counted.count()
    spark.catalog.clearCache()


def test_plans_show_the_table_its_version_and_the_options(
    spark: SparkSession, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(spark).write.format("indextables").options(**TEXT).save(path)
    frame = load(spark, path, where="id > 3", columns="id,level")
    frame.explain()
    shown = capsys.readouterr().out
    url = Path(path).as_uri()
    assert shown.startswith(f"IndexTables {url}, version 1, where id > 3, columns id, level, engine native\n")
    frame.where("level = 'x'").explain()
    assert "table@v1" in capsys.readouterr().out
    load(spark, path, **PYTHON).explain()
    assert capsys.readouterr().out.startswith(f"IndexTables {url}, version 1, engine python\n")


def test_plans_leave_no_files_behind(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    create(path, pa.table({"id": [1]}))
    before = set(tmp_path.iterdir())
    frame = load(spark, path, **NATIVE)
    assert set(tmp_path.iterdir()) == before
    assert ids(frame) == [1]

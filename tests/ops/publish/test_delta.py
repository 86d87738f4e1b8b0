"""Tables published as Delta Lake, judged by delta-rs and DuckDB."""

import datetime as dt
import random
import shutil
import threading
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables
from indextables import IndexTable, PublishFormat, PublishRequest, Status
from indextables.errors import (
    IndexTablesError,
    InvalidOptionError,
    NotPublishableError,
    PublishedLogChangedError,
)
from indextables.ops.publish import publish
from indextables.storage import open_store
from indextables.table import load_snapshot
from support.delta_readers import DuckDbDelta, delta_ids, delta_rows
from support.faults import FaultStore, Moment
from support.row_tables import SCHEMA, ids, rows
from support.tables import context

PUBLISHED = {"spark.indextables.publish.delta.enabled": "true"}
DELTA = PublishRequest(PublishFormat.DELTA)


def published_table(path: Path, **arguments: object) -> IndexTable:
    return IndexTable.create(
        path, SCHEMA, partition_by=["day"], text=["body"], properties=PUBLISHED, **arguments
    )


def log_of(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "_delta_log").iterdir())


def add_commits(table: IndexTable, count: int) -> None:
    for number in range(count):
        table.append(rows(number))


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_are_the_same_in_delta_at_every_version(tmp_path, seed):
    chance = random.Random(seed)
    path = tmp_path / "table"
    table = published_table(path)
    next_id, days = 0, ["2024-01-01", "b/c d%", None, "é=1"]
    for _ in range(12):
        change = chance.choice(
            ["append", "append", "delete", "delete", "overwrite", "merge", "restore", "drop"]
        )
        match change:
            case "append":
                size = chance.choice([3, 40, 1500])
                for day in chance.sample(days, 2):
                    table.append(rows(*range(next_id, next_id + size), day=day))
                    next_id += size
            case "delete":
                chosen = [number for number in ids(table) if chance.random() < 0.4]
                if chosen:
                    table.delete(where=f"id IN ({', '.join(map(str, chosen))})")
            case "overwrite":
                table.overwrite(rows(next_id, day=days[0]), where=f"day = '{days[0]}'")
                next_id += 1
            case "merge":
                table.merge_splits()
            case "restore":
                text = f"RESTORE INDEXTABLES '{path}' TO VERSION {chance.randint(0, table.version)}"
                indextables.sql(text, options=PUBLISHED)
                table.refresh()
            case "drop":
                table.drop_partitions("day IS NULL")
    assert deltalake.DeltaTable(str(path)).version() == table.version
    for version in range(table.version + 1):
        assert delta_ids(path, version) == ids(IndexTable(path, version=version)), version
    assert DuckDbDelta(path).ids() == ids(table)


def test_a_partition_of_null_is_null_in_every_engine(tmp_path):
    path = tmp_path / "table"
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("hour", pa.int32())])
    table = IndexTable.create(path, schema, partition_by=["day", "hour"])
    expected = [(0, "mon", 1), (1, None, 1), (2, "tue", None), (3, None, None)]
    table.append([dict(zip(schema.names, row, strict=True)) for row in expected])
    table.truncate_time_travel(dry_run=False)
    table.append([{"id": 4}])
    table.delete(where="id = 3")
    expected[3] = (4, None, None)
    table.publish("delta")
    assert any("checkpoint" in name for name in log_of(path))
    duckdb = DuckDbDelta(path)
    assert sorted(tuple(row.values()) for row in delta_rows(path).to_pylist()) == expected
    assert sorted(duckdb.rows("SELECT id, day, hour FROM published")) == expected
    assert (duckdb.ids("day IS NULL"), duckdb.ids("hour = 1")) == ([1, 4], [0, 1])


def test_the_first_publication_starts_with_the_oldest_version_that_is_kept(tmp_path):
    table = IndexTable.create(tmp_path / "table", SCHEMA, partition_by=["day"])
    add_commits(table, 3)
    table.truncate_time_travel(dry_run=False)
    add_commits(table, 2)
    result = table.publish("delta")
    assert (result.status, result.first_version, result.version, result.num_published) == (
        Status.SUCCESS,
        3,
        5,
        3,
    )
    for version in (3, 4, 5):
        assert delta_ids(tmp_path / "table", version) == ids(IndexTable(tmp_path / "table", version=version))
    assert DuckDbDelta(tmp_path / "table").ids() == ids(table)
    again = table.publish("delta")
    assert (again.status, again.num_published) == (Status.NO_ACTION, 0)


def test_values_and_predicates_are_the_same_in_every_engine(tmp_path):
    path = tmp_path / "table"
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("p_date", pa.date32()),
            ("p_time", pa.timestamp("us", "UTC")),
            ("p_number", pa.int32()),
            ("p_flag", pa.bool_()),
            ("text \"'x", pa.string()),
            ("number", pa.float64()),
            ("small", pa.int8()),
            ("moment", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("price", pa.decimal128(20, 4)),
            ("blob", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("nested", pa.struct([("a", pa.int32())])),
        ]
    )
    by = ["p_date", "p_time", "p_number", "p_flag"]
    table = IndexTable.create(path, schema, partition_by=by)
    moment = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    values = {
        "p_date": [dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)],
        "p_time": [moment, moment, None],
        "p_number": [-5, 12, None],
        "p_flag": [True, False, None],
        "text \"'x": ['a\\b"c', "x" * 40 + "é", "line\nbreak"],
        "number": [float("nan"), -0.0, float("inf")],
        "small": [-128, 127, None],
        "moment": [moment, None, dt.datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=dt.UTC)],
        "local": [dt.datetime(2024, 1, 1, 0, 0, 0, 1), None, dt.datetime(1900, 1, 1)],
        "price": [None, 1, 2],
        "blob": [b"\0", b"", None],
        "tags": [["a", None], [], None],
        "nested": [{"a": 1}, {"a": None}, None],
    }
    everything = pa.table({"id": [0, 1, 2], **values}, schema=schema)
    table.append(everything)
    indextables.sql(f"PUBLISH INDEXTABLES '{path}' AS DELTA")
    ordered = table.to_arrow().sort_by("id")
    found = delta_rows(path).select(schema.names).sort_by("id")
    for name in schema.names:
        assert str(found[name].to_pylist()) == str(ordered[name].to_pylist()), name
    duck = DuckDbDelta(path)
    for where in (
        "p_date = DATE '1969-12-31'",
        "p_time = TIMESTAMPTZ '2024-02-29 23:59:59.999999Z'",
        "p_number > 0",
        "NOT p_flag",
        "moment >= TIMESTAMPTZ '2024-02-29 23:59:59.999999Z'",
        "moment < TIMESTAMPTZ '1970-01-01 00:00:00Z'",
        "local > TIMESTAMP '2024-01-01 00:00:00'",
        "number > 1e300",
        "small = 127",
        '"text ""\'x" > \'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\'',
        '"text ""\'x" LIKE \'line%\'',
        "nested.a IS NULL",
    ):
        unskipped = duck.rows(f"SELECT id FROM (SELECT * FROM published ORDER BY random()) WHERE {where}")
        assert duck.ids(where) == sorted(number for (number,) in unskipped), where
        assert duck.ids(where), where


def test_a_crash_at_every_call_leaves_the_published_log_older_and_never_wrong(tmp_path):
    path = tmp_path / "table"
    table = published_table(path)
    table.append(rows(*range(30)))
    behind = IndexTable(path, options={"spark.indextables.publish.delta.enabled": "false"})
    behind.delete(where="id IN (3, 4)")
    behind.append(rows(100, 101))
    counting = FaultStore(open_store(path))
    publish(load_snapshot(context(counting)), DELTA)
    everything = {version: ids(IndexTable(path, version=version)) for version in range(behind.version + 1)}
    for call in range(len(counting.calls)):
        for moment in Moment:
            for name in log_of(path):
                if int(name[:20]) > 1:
                    (path / "_delta_log" / name).unlink()
            faulty = FaultStore(open_store(path), fail_call=(call, moment))
            try:
                publish(load_snapshot(context(faulty)), DELTA)
            except IndexTablesError:
                newest = deltalake.DeltaTable(str(path)).version()
                assert 1 <= newest <= behind.version
                assert delta_ids(path) == everything[newest]
            assert behind.publish().version == behind.version
            assert delta_ids(path) == everything[behind.version]


def test_a_start_that_crashed_is_continued(tmp_path):
    """The log starts with a checkpoint, whose commit was not written any more."""
    path = tmp_path / "table"
    table = IndexTable.create(path, SCHEMA, partition_by=["day"])
    add_commits(table, 2)
    table.truncate_time_travel(dry_run=False)
    table.publish()
    (path / "_delta_log" / f"{2:020d}.json").unlink()
    table.append(rows(7))
    assert table.publish().num_published == 1
    assert delta_ids(path) == ids(table)


def test_writers_of_one_table_publish_each_version_once(tmp_path):
    path = tmp_path / "table"
    published_table(path)
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            table = IndexTable(path)
            for number in range(5):
                table.append(rows(100 * writer + number))
        except BaseException as error:  # noqa: BLE001  # a thread has no other way to say so
            failures.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    table = IndexTable(path)
    table.publish()
    assert [name for name in log_of(path) if name.endswith(".json")] == [
        f"{version:020d}.json" for version in range(21)
    ]
    for version in range(21):
        assert delta_ids(path, version) == ids(IndexTable(path, version=version))


def test_delta_writers_refuse_a_published_table(tmp_path):
    published_table(tmp_path / "table").append(rows(1))
    with pytest.raises(deltalake.exceptions.DeltaError, match="indextables"):
        deltalake.write_deltalake(str(tmp_path / "table"), rows(2), mode="append")
    with pytest.raises(deltalake.exceptions.DeltaError, match="indextables"):
        deltalake.DeltaTable(str(tmp_path / "table")).delete("id = 1")
    assert delta_ids(tmp_path / "table") == [1]


@pytest.mark.parametrize("content", ['{"commitInfo":{"operation":"WRITE"}}', "", "[]", "\xff"])
def test_a_commit_of_another_engine_stops_the_publication_and_not_the_table(tmp_path, content, caplog):
    path = tmp_path / "table"
    table = published_table(path)
    table.append(rows(1))
    foreign = path / "_delta_log" / f"{2:020d}.json"
    foreign.write_text(content, encoding="latin-1")
    table.append(rows(2))
    assert "version 2 of the published Delta log was written by another engine" in caplog.text
    assert ids(table) == [1, 2]
    with pytest.raises(PublishedLogChangedError, match="delete the folder _delta_log/ and publish again"):
        table.publish()
    shutil.rmtree(path / "_delta_log")
    table.publish()
    assert delta_ids(path) == [1, 2]


def test_a_folder_with_the_published_log_of_another_table_is_named(tmp_path):
    first, second = published_table(tmp_path / "first"), published_table(tmp_path / "second")
    for table in (first, second):
        table.append(rows(1))
    shutil.rmtree(tmp_path / "second" / "_delta_log")
    shutil.copytree(tmp_path / "first" / "_delta_log", tmp_path / "second" / "_delta_log")
    with pytest.raises(PublishedLogChangedError, match="is that of another table"):
        second.publish()
    shutil.copy(
        tmp_path / "second/_delta_log" / f"{1:020d}.json", tmp_path / "second/_delta_log" / f"{2:020d}.json"
    )
    with pytest.raises(PublishedLogChangedError, match="but the newest version of the table is 1"):
        second.publish()


def test_purge_removes_published_versions_before_their_splits(tmp_path):
    path = tmp_path / "table"
    table = published_table(path)
    add_commits(table, 3)
    table.overwrite(rows(50))
    table.truncate_time_travel(dry_run=False)
    keep = {"spark.indextables.purge.retentionCheckEnabled": "false"}
    result = IndexTable(path, options=keep).purge(older_than="0 hours", dry_run=False)
    assert result.num_deleted
    assert log_of(path) == [f"{4:020d}.checkpoint.parquet", f"{4:020d}.json", "_last_checkpoint"]
    assert delta_ids(path) == delta_ids(path, 4) == [50]
    assert DuckDbDelta(path).ids() == [50]
    table.refresh()
    table.append(rows(51))
    assert delta_ids(path) == [50, 51]


def test_a_checkpoint_is_published_now_and_then(tmp_path):
    path = tmp_path / "table"
    table = published_table(path)
    table.append(rows(0))
    for number in range(101):
        table.set_metadata(description=f"change {number}")
    table.append(rows(1))
    assert [name for name in log_of(path) if "checkpoint" in name] == [
        f"{100:020d}.checkpoint.parquet",
        "_last_checkpoint",
    ]
    assert delta_ids(path) == [0, 1]
    assert deltalake.DeltaTable(str(path)).metadata().description == "change 100"
    checkpoint = pq.read_table(path / "_delta_log" / f"{100:020d}.checkpoint.parquet")
    assert checkpoint.num_rows == 2 + 1


@pytest.mark.parametrize("count", [3, 400])
def test_publishing_a_commit_reads_and_writes_in_proportion_to_it(tmp_path, count):
    path = tmp_path / "table"
    table = IndexTable.create(path, SCHEMA, partition_by=["day"])
    table.append(pa.concat_tables([rows(number, day=f"day {number}") for number in range(count)]))
    table.checkpoint()
    table.publish()
    table.append(rows(9_999))
    store = FaultStore(open_store(path))
    publish(load_snapshot(context(store)), DELTA)
    assert (path / "_delta_log" / f"{2:020d}.json").stat().st_size < 1500
    assert not [call for call in store.calls if "/manifests/" in call.key]
    assert len(store.calls) <= 25


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ([("id", pa.int64()), ("day", pa.string())], {"id": [1], "day": [""]}, "an empty text"),
        ([("id", pa.null()), ("day", pa.string())], {"id": [None], "day": ["a"]}, "no type but null"),
    ],
)
def test_what_delta_cannot_say_is_named(tmp_path, schema, data, reason):
    table = IndexTable.create(tmp_path / "table", pa.schema(schema), partition_by=["day"])
    table.append(pa.table(data, schema=pa.schema(schema)))
    with pytest.raises(NotPublishableError, match=reason):
        table.publish()


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(InvalidOptionError, match="known formats: delta"):
        published_table(tmp_path / "table").publish("hudi")


def test_renamed_dropped_and_added_columns_are_the_same_in_every_engine(tmp_path):
    path = tmp_path / "table"
    schema = pa.schema(
        [("id", pa.int64()), ("day", pa.string()), ("a", pa.string()), ("s", pa.struct([("x", pa.int32())]))]
    )
    table = IndexTable.create(path, schema, partition_by=["day"], properties=PUBLISHED)

    def append(**columns: object) -> None:
        count = len(columns["id"])
        data = pa.table({"day": ["d"] * count, **columns})
        table.append(data.select([name for name in table.schema.names if name in data.column_names]))

    append(id=[1, 2], a=["one", "two"], s=[{"x": 1}, None])
    table.rename_column("a", "b")
    table.add_column("a", pa.int64())
    append(id=[3, 4], b=["three", None], a=[30, 40], s=[{"x": 3}, {"x": None}])
    table.rename_column("s.x", "y")
    table.drop_column("a")
    table.add_column("a", pa.string())
    append(id=[5], b=["five"], a=["fünf"], s=[{"y": 5}])
    table.delete(where="id = 3")
    table.merge_splits()
    duck = DuckDbDelta(path)
    assert duck.rows("SELECT id, b, a, s.y FROM published ORDER BY id") == [
        (1, "one", None, 1),
        (2, "two", None, None),
        (4, None, None, None),
        (5, "five", "fünf", 5),
    ]
    assert duck.ids("b > 'three'") == [2]
    assert deltalake.DeltaTable(str(path)).version() == table.version


def test_defaults_and_widened_columns_are_named_as_the_reason(tmp_path):
    for name, change in {
        "default": lambda table: table.add_column("new", pa.int64(), default=7),
        "type": lambda table: table.alter_column("id", pa.float64()),
    }.items():
        table = IndexTable.create(tmp_path / name, SCHEMA, partition_by=["day"])
        table.append(rows(1))
        change(table)
        with pytest.raises(NotPublishableError, match="'new'" if name == "default" else "'id'"):
            table.publish()

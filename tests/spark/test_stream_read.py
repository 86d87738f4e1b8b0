"""The stream reader, called as Spark calls it, without a session: offsets, batches and rows."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from indextables import IndexTable
from indextables.errors import (
    IndexTablesError,
    InvalidOptionError,
    InvalidQueryError,
    InvalidSchemaError,
    ObjectNotFoundError,
    RowsChangedError,
    VersionNotFoundError,
)
from indextables.spark.source import FailedStream, IndexTablesSource
from indextables.spark.stream_read import StreamReader
from support.row_tables import SCHEMA, rows

limits = pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="Spark before 4.2 does not ask how much a batch may take"
)
NO_LIMIT = limits.ReadAllAvailable()
LIMITED = limits.ReadMaxFiles(1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return (tmp_path / "table").as_posix()


@pytest.fixture
def table(path: str) -> IndexTable:
    """Versions 1 to 3 add one split each."""
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])
    for number in (1, 2, 3):
        table.append(rows(number))
    return table


def reader_of(path: str, **options: object) -> StreamReader:
    source = IndexTablesSource({"path": path, **{key: str(value) for key, value in options.items()}})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.streamReader(schema)
    if isinstance(reader, FailedStream):
        reader.initialOffset()
    assert isinstance(reader, StreamReader)
    return reader


def ids(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The rows of a batch, read by an unpickled copy of the reader, as in a task."""
    copy = pickle.loads(pickle.dumps(reader))
    batches = [batch for task in reader.partitions(start, end) for batch in copy.read(task)]
    return sorted(pa.Table.from_batches(batches)["id"].to_pylist()) if batches else []


def batches(reader: StreamReader, limit: object = LIMITED) -> Iterator[list[int]]:
    """All batches until the newest offset."""
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        yield ids(reader, start, end)
        start = end


def test_a_stream_reads_existing_rows_and_then_new_ones(table: IndexTable, path: str) -> None:
    reader = reader_of(path)
    start = reader.initialOffset()
    middle = reader.latestOffset(start, NO_LIMIT)
    assert ids(reader, start, middle) == [1, 2, 3]
    assert reader.latestOffset(middle, NO_LIMIT) == middle
    table.append(rows(4))
    table.append(rows(5))
    end = reader.latestOffset(middle, NO_LIMIT)
    assert ids(reader, middle, end) == [4, 5]
    assert reader.reportLatestOffset() == end


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingVersion": 0}, [1, 2, 3]),
        ({"startingVersion": 2}, [2, 3]),
        ({"startingVersion": 4}, []),
        ({"startingVersion": "latest"}, []),
        ({"startingTimestamp": "latest"}, []),
        ({"startingTimestamp": "2000-01-01"}, [1, 2, 3]),
        ({"startingTimestamp": "2100-01-01T00:00:00Z"}, []),
    ],
)
def test_the_options_set_the_start(
    table: IndexTable, path: str, options: dict[str, object], expected: list[int]
) -> None:
    reader = reader_of(path, **options)
    start = reader.initialOffset()
    assert ids(reader, start, reader.latestOffset(start, NO_LIMIT)) == expected


def test_a_starting_timestamp_selects_versions_committed_since(table: IndexTable, path: str) -> None:
    history = {row["version"]: row["timestamp"] for row in table.history().to_pylist()}
    reader = reader_of(path, startingTimestamp=history[2].isoformat())
    start = reader.initialOffset()
    expected = [version for version in (1, 2, 3) if history[version] >= history[2]]
    assert ids(reader, start, reader.latestOffset(start, NO_LIMIT)) == expected


@pytest.mark.parametrize("start", [{}, {"startingVersion": 0}])
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"maxFilesPerTrigger": 1}, [[1], [2], [3]]),
        ({"maxFilesPerTrigger": 2}, [[1, 2], [3]]),
        ({"maxBytesPerTrigger": 1}, [[1], [2], [3]]),
        ({"maxBytesPerTrigger": "1G"}, [[1, 2, 3]]),
        ({}, [[1, 2, 3]]),
    ],
)
def test_batches_respect_limits(
    table: IndexTable,
    path: str,
    start: dict[str, object],
    limits: dict[str, object],
    expected: list[list[int]],
) -> None:
    assert [batch for batch in batches(reader_of(path, **start, **limits)) if batch] == expected


def test_one_version_may_take_several_batches(path: str) -> None:
    table = IndexTable.create(path, SCHEMA, partition_by=["day"])
    table.append(pa.concat_tables([rows(number, day=f"2024-01-0{number}") for number in (1, 2, 3, 4)]))
    assert table.num_files == 4
    found = list(batches(reader_of(path, startingVersion=1, maxFilesPerTrigger=3)))
    assert [len(batch) for batch in found] == [3, 1]
    assert sorted(found[0] + found[1]) == [1, 2, 3, 4]


def test_an_unlimited_trigger_reads_everything(table: IndexTable, path: str) -> None:
    assert list(batches(reader_of(path, maxFilesPerTrigger=1), NO_LIMIT)) == [[1, 2, 3]]
    assert reader_of(path, maxFilesPerTrigger=1).getDefaultReadLimit() == limits.ReadMaxFiles(1)
    assert reader_of(path).getDefaultReadLimit() == limits.ReadMaxFiles(1000)


def test_a_batch_is_the_same_when_it_is_repeated_after_a_restart(table: IndexTable, path: str) -> None:
    first = reader_of(path, maxFilesPerTrigger=2)
    start = first.initialOffset()
    end = first.latestOffset(start, LIMITED)
    expected = ids(first, start, end)
    table.append(rows(4))
    table.merge_splits()
    assert ids(reader_of(path, maxFilesPerTrigger=2), start, end) == expected == [1, 2]


def test_available_now_stops_at_the_version_of_its_start(table: IndexTable, path: str) -> None:
    reader = reader_of(path, maxFilesPerTrigger=2)
    reader.prepareForTriggerAvailableNow()
    table.append(rows(4))
    assert list(batches(reader)) == [[1, 2], [3]]


def test_merges_are_not_new_data(table: IndexTable, path: str) -> None:
    reader = reader_of(path)
    start = reader.initialOffset()
    middle = reader.latestOffset(start, NO_LIMIT)
    table.merge_splits()
    end = reader.latestOffset(middle, NO_LIMIT)
    assert end != middle
    assert ids(reader, middle, end) == []
    table.append(rows(4))
    assert ids(reader, end, reader.latestOffset(end, NO_LIMIT)) == [4]


@pytest.mark.parametrize(
    ("option", "after_delete", "after_overwrite"),
    [
        ("ignoreDeletes", [], None),
        ("ignoreChanges", [], [9]),
        ("skipChangeCommits", [], []),
        (None, None, None),
    ],
)
def test_deletes_and_overwrites_do_what_the_options_say(
    table: IndexTable,
    path: str,
    option: str | None,
    after_delete: list[int] | None,
    after_overwrite: list[int] | None,
) -> None:
    reader = reader_of(path, startingVersion="latest", **({} if option is None else {option: "true"}))
    start = reader.initialOffset()
    table.drop_partitions("day = '2024-01-01'")
    if after_delete is None:
        with pytest.raises(RowsChangedError, match=r"version 4 removed rows.*ignoreDeletes"):
            reader.latestOffset(start, NO_LIMIT)
        return
    middle = reader.latestOffset(start, NO_LIMIT)
    assert ids(reader, start, middle) == after_delete
    table.append(rows(8))
    table.overwrite(rows(9))
    if after_overwrite is None:
        with pytest.raises(RowsChangedError, match=r"version 6 replaced rows.*ignoreChanges"):
            reader.latestOffset(middle, NO_LIMIT)
        return
    assert ids(reader, middle, reader.latestOffset(middle, NO_LIMIT)) == [8, *after_overwrite]


def test_missing_versions_are_an_error_unless_data_loss_is_allowed(table: IndexTable, path: str) -> None:
    table.checkpoint()
    table.append(rows(4))
    log = Path(path) / "_transaction_log"
    for version in (0, 1, 2):
        (log / f"{version:020d}.json").unlink()
    strict = reader_of(path, startingVersion=1)
    with pytest.raises(
        VersionNotFoundError, match=r"version 1 is no longer in the log.*failOnDataLoss=false"
    ):
        strict.latestOffset(strict.initialOffset(), NO_LIMIT)
    lenient = reader_of(path, startingVersion=1, failOnDataLoss="false")
    assert list(batches(lenient, NO_LIMIT)) == [[3, 4]]


def test_a_timestamp_before_the_oldest_version_is_an_error_unless_data_loss_is_allowed(
    table: IndexTable, path: str
) -> None:
    table.checkpoint()
    table.truncate_time_travel(dry_run=False)
    table.append(rows(4))
    with pytest.raises(VersionNotFoundError, match="failOnDataLoss"):
        reader_of(path, startingTimestamp="2000-01-01").initialOffset()


def test_a_snapshot_deleted_while_it_is_read_is_an_error_unless_data_loss_is_allowed(
    table: IndexTable, path: str
) -> None:
    reader = reader_of(path, maxFilesPerTrigger=1)
    start = reader.initialOffset()
    middle = reader.latestOffset(start, LIMITED)
    table.append(rows(4))
    table.truncate_time_travel(dry_run=False)
    with pytest.raises(VersionNotFoundError, match="failOnDataLoss"):
        reader_of(path, maxFilesPerTrigger=1).latestOffset(middle, LIMITED)


def test_a_purged_split_is_an_error_unless_data_loss_is_allowed(table: IndexTable, path: str) -> None:
    reader, lenient = reader_of(path), reader_of(path, failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, NO_LIMIT)
    (Path(path) / table.files()["path"][0].as_py()).unlink()
    with pytest.raises(ObjectNotFoundError):
        ids(reader, start, end)
    assert len(ids(lenient, start, end)) == 2


def test_a_recreated_table_stops_the_stream(table: IndexTable, path: str) -> None:
    reader = reader_of(path)
    start = reader.initialOffset()
    for file in (Path(path) / "_transaction_log").iterdir():
        file.unlink()
    IndexTable.create(path, SCHEMA)
    for each in (reader, reader_of(path)):
        with pytest.raises(RowsChangedError, match="recreated"):
            each.latestOffset(start, NO_LIMIT)


def test_options_select_rows_and_columns(table: IndexTable, path: str) -> None:
    table.append(rows(4, day="2024-02-01"))
    reader = reader_of(path, where="day = '2024-02-01'", columns="id", maxFilesPerTrigger=1)
    # Files without a matching row do not count against limits.
    assert list(batches(reader)) == [[4]]
    assert list(batches(reader_of(path, query="body:3"), NO_LIMIT)) == [[3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingVersion": 1, "startingTimestamp": "latest"}, "not both"),
        ({"startingVersion": "soon"}, "startingVersion is 'soon'"),
        ({"startingVersion": -1}, "versions start at 0"),
        ({"maxFilesPerTrigger": 0}, "at least 1"),
        ({"maxBytesPerTrigger": "many"}, "maxBytesPerTrigger is 'many'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'"),
        ({"versionAsOf": 1}, "startingVersion"),
    ],
)
def test_wrong_options_are_refused(
    table: IndexTable, path: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        reader_of(path, **options)


def test_a_future_start_and_a_foreign_offset_are_refused(table: IndexTable, path: str) -> None:
    with pytest.raises(VersionNotFoundError, match="starts at version 9"):
        reader_of(path, startingVersion=9).initialOffset()
    with pytest.raises(InvalidOptionError, match="not an offset of a table"):
        reader_of(path).latestOffset({"offset": 3}, NO_LIMIT)
    with pytest.raises(InvalidQueryError):
        reader_of(path, query="nosuch:x")
    with pytest.raises(InvalidSchemaError):
        reader_of(path, columns="nosuch")


def test_without_a_start_as_in_older_spark_the_newest_offset_is_returned(
    table: IndexTable, path: str
) -> None:
    reader = reader_of(path)
    assert ids(reader, reader.initialOffset(), reader.latestOffset()) == [1, 2, 3]


def test_states_without_version_files_are_followed(path: str) -> None:
    table = IndexTable.create(path, SCHEMA, options={"spark.indextables.checkpoint.interval": "1"})
    for number in (1, 2, 3):
        table.append(rows(number))
        table.checkpoint()
    for version in (1, 2, 3):
        (Path(path) / "_transaction_log" / f"{version:020d}.json").unlink(missing_ok=True)
    assert list(batches(reader_of(path, startingVersion=2), NO_LIMIT)) == [[2, 3]]


def test_errors_are_ours(table: IndexTable, path: str) -> None:
    reader = reader_of(path)
    with pytest.raises(IndexTablesError):
        reader.partitions({}, {})


@pytest.mark.parametrize("option", ["ignoreDeletes", "ignoreChanges", "skipChangeCommits", None])
def test_deleted_rows_do_what_the_options_say(table: IndexTable, path: str, option: str | None) -> None:
    """A split that lost rows is in the log again, but has no new rows."""
    table.append(rows(11, 12, 13))
    reader = reader_of(path, startingVersion="latest", **({} if option is None else {option: "true"}))
    start = reader.initialOffset()
    table.delete(where="id = 12")
    if option is None:
        with pytest.raises(RowsChangedError, match=r"version 5 removed rows.*ignoreDeletes"):
            reader.latestOffset(start, NO_LIMIT)
        return
    table.append(rows(14))
    assert ids(reader, start, reader.latestOffset(start, NO_LIMIT)) == [14]


def test_a_stream_begins_with_the_rows_that_are_left(table: IndexTable, path: str) -> None:
    table.append(rows(11, 12, 13))
    table.delete(where="id = 12")
    assert list(batches(reader_of(path), NO_LIMIT)) == [[1, 2, 3, 11, 13]]

"""Manifests of a large state, read and written by tasks of a runner: the same table, or the same error."""

import pickle
from collections.abc import Generator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import LogCorruptedError, StorageError
from indextables.ops.checkpoint.manifests_by_runner import ReadManifests, WriteManifests, with_manifests_by
from indextables.ops.fsck.operation import fsck
from indextables.ops.runner import Failed, LocalRunner, Succeeded, Task, TaskOutcome
from indextables.state.manifest_writer import ManifestGroup
from indextables.table import TableContext, load_snapshot
from support.row_tables import SCHEMA, rows

FEW = {
    "spark.indextables.state.entriesPerManifest": "2",
    "spark.indextables.state.manifestsPerDriver": "1",
    "spark.indextables.transaction.cache.enabled": "false",
    "spark.indextables.checkpoint.enabled": "false",
}
READING, WRITING = "reading the table's state", "writing the table's state"


class Travelling:
    """A runner whose tasks and results are pickled, as on the way to another process. It notes down what it runs."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.tasks: list[Task[Any]] = []

    def run(self, description: str, tasks: Sequence[Task[Any]]) -> Generator[TaskOutcome[Any], None, None]:
        self.ran.append(description)
        self.tasks.extend(tasks)
        travelled = [pickle.loads(pickle.dumps(task)) for task in tasks]
        assert all(isinstance(task, ReadManifests | WriteManifests) for task in travelled)
        for outcome in LocalRunner().run(description, travelled):
            yield pickle.loads(pickle.dumps(outcome))


class FailingAtLast:
    """A runner whose last task fails, after the others have done their work."""

    def run(self, description: str, tasks: Sequence[Task[Any]]) -> Generator[TaskOutcome[Any], None, None]:
        if description == READING:
            yield from LocalRunner().run(description, tasks)
            return
        yield from LocalRunner().run(description, tasks[:-1])
        yield Failed(len(tasks) - 1, StorageError("the last one failed"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return (tmp_path / "table").as_posix()


@pytest.fixture
def context(path: str) -> TableContext:
    """A table whose state has several manifests."""
    table = IndexTable.create(path, SCHEMA, options=FEW)
    for number in range(7):
        table.append(rows(number))
    IndexTable(path, options=FEW).checkpoint()
    return IndexTable(path, options=FEW)._snapshot.context


def manifests_of(path: str) -> set[str]:
    return {file.name for file in (Path(path) / "_transaction_log" / "manifests").iterdir()}


def test_a_runner_reads_the_same_entries(context: TableContext) -> None:
    expected = load_snapshot(context).entries
    runner = Travelling()
    by_runner = with_manifests_by(context, runner)
    assert load_snapshot(by_runner).entries.equals(expected)
    paths = load_snapshot(by_runner).select(columns=["path"]).entries
    assert paths.equals(expected.select(["path"]))
    assert runner.ran == [READING] * 2
    assert load_snapshot(context).entries.equals(expected)
    assert len(runner.ran) == 2


def test_other_tables_and_small_states_are_read_here(context: TableContext, tmp_path: Path) -> None:
    other = IndexTable.create(str(tmp_path / "other"), SCHEMA, options=FEW)._snapshot.context
    runner = Travelling()
    assert load_snapshot(with_manifests_by(other, runner)).entries.num_rows == 0
    assert load_snapshot(context).entries.num_rows == 7
    for limit in ("64", "0"):
        options = {**FEW, "spark.indextables.state.manifestsPerDriver": limit}
        few = IndexTable(context.url, options=options)._snapshot.context
        assert load_snapshot(with_manifests_by(few, runner)).entries.num_rows == 7
        IndexTable(context.url, options=options).compact(runner=runner)
    assert runner.ran == []


def test_a_manifest_that_a_runner_cannot_read_is_no_smaller_table(context: TableContext, path: str) -> None:
    manifest = Path(path) / "_transaction_log" / "manifests" / min(manifests_of(path))
    manifest.write_bytes(b"?")
    for version in range(8):
        (Path(path) / "_transaction_log" / f"{version:020d}.json").unlink()
    with pytest.raises(LogCorruptedError):
        _ = load_snapshot(with_manifests_by(context, Travelling())).entries


def test_a_runner_compacts_to_the_state_that_this_process_compacts_to(tmp_path: Path) -> None:
    states = {}
    for name, runner in (("here", None), ("by the runner", Travelling())):
        table = IndexTable.create(str(tmp_path / name), SCHEMA, partition_by=["day"], options=FEW)
        for number in range(9):
            table.append(rows(number, day=f"2024-01-0{number % 4 + 1}"))
        table.checkpoint()
        table.drop_partitions("day = '2024-01-04'")
        report = table.compact(runner=runner)
        assert report.num_files == table.num_files
        states[name] = _shape(IndexTable(str(tmp_path / name)))
        assert fsck(table._snapshot.context, LocalRunner(), deep=True).errors == ()
        if runner is not None:
            assert set(runner.ran) == {READING, WRITING}
    assert states["here"] == states["by the runner"]
    assert len(states["here"]["manifests"]) > 2


def _shape(table: IndexTable) -> dict[str, Any]:
    """What a state says, without what is random: the names of files."""
    state = table._snapshot.source.state
    entries = table.files()
    return {
        "files": state.num_files,
        "tombstones": state.tombstones.to_pylist(),
        "manifests": [(info.num_entries, info.bounds, info.live_entry_count) for info in state.manifests],
        "partitions": sorted(str(value) for value in entries["partitionValues"].to_pylist()),
    }


def test_what_a_runner_writes_can_be_read_by_others(context: TableContext, path: str) -> None:
    before = manifests_of(path)
    table = IndexTable(path, options=FEW)
    table.append(rows(7))
    table.compact(runner=Travelling())
    records = [
        record
        for name in manifests_of(path) - before
        for record in fastavro.reader(
            BytesIO((Path(path) / "_transaction_log/manifests" / name).read_bytes())
        )
    ]
    assert sorted(record["path"] for record in records) == sorted(table.files()["path"].to_pylist())


def test_a_runner_that_fails_publishes_nothing(context: TableContext, path: str) -> None:
    table, before = IndexTable(path, options=FEW), manifests_of(path)
    table.append(rows(7))
    with pytest.raises(StorageError, match="the last one failed"):
        table.compact(runner=FailingAtLast())
    again = IndexTable(path)
    assert sorted(again.to_arrow()["id"].to_pylist()) == list(range(8))
    assert again._snapshot.segment.base.version == 7
    assert manifests_of(path) == before


def test_a_result_that_nobody_receives_is_deleted(context: TableContext, path: str) -> None:
    runner, table = Travelling(), IndexTable(path, options=FEW)
    table.append(rows(7))
    table.compact(runner=runner)
    before = manifests_of(path)
    (outcome,) = LocalRunner().run("once more", runner.tasks[-1:])
    assert isinstance(outcome, Succeeded)
    assert len(manifests_of(path)) > len(before)
    runner.tasks[-1].discard(outcome.result)
    assert manifests_of(path) == before


def test_a_group_travels_without_the_entries_of_others(context: TableContext) -> None:
    entries = pa.concat_tables([load_snapshot(context).entries] * 1000).combine_chunks()
    group = ManifestGroup(entries.slice(3, 2), (1, 1))
    pickled = pickle.dumps(group)
    assert len(pickled) < entries.nbytes / 10
    assert pickle.loads(pickled).entries.equals(group.entries)
    assert pickle.loads(pickled).counts == (1, 1)

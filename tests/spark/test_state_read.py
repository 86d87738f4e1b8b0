"""Manifests of a large state, read by tasks of a runner: the same entries, or the same error."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from indextables import IndexTable
from indextables.errors import LogCorruptedError
from indextables.ops.runner import LocalRunner, Task, TaskOutcome
from indextables.spark.jobs.state_read import ManifestsOnExecutors, ReadManifests
from indextables.state.source import reading_manifests_by
from indextables.storage import open_store
from indextables.table import TableContext, load_snapshot
from row_tables import SCHEMA, rows

FEW = {
    "spark.indextables.state.entriesPerManifest": "2",
    "spark.indextables.state.read.manifestsPerDriver": "1",
    "spark.indextables.transaction.cache.enabled": "false",
}


class Counting:
    """A runner that notes down what it runs."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, description: str, tasks: Sequence[Task[Any]]) -> Generator[TaskOutcome[Any], None, None]:
        self.ran.append(description)
        assert all(isinstance(task, ReadManifests) for task in tasks)
        yield from LocalRunner().run(description, tasks)


@pytest.fixture
def context(path: str) -> TableContext:
    """A table whose state has several manifests."""
    table = IndexTable.create(path, SCHEMA, options=FEW)
    for number in range(7):
        table.append(rows(number))
    IndexTable(path, options=FEW).checkpoint()
    return IndexTable(path, options=FEW)._snapshot.context


def test_executors_read_the_same_entries(context: TableContext) -> None:
    expected = load_snapshot(context).entries
    runner = Counting()
    with reading_manifests_by(ManifestsOnExecutors(context, runner)):
        assert load_snapshot(context).entries.equals(expected)
        paths = load_snapshot(context).select(columns=["path"]).entries
    assert paths.equals(expected.select(["path"]))
    assert runner.ran == ["reading the table's state"] * 2
    assert load_snapshot(context).entries.equals(expected)
    assert len(runner.ran) == 2


def test_other_tables_and_small_states_are_read_here(context: TableContext, tmp_path: Path) -> None:
    other = IndexTable.create(str(tmp_path / "other"), SCHEMA)._snapshot.context
    runner = Counting()
    with reading_manifests_by(ManifestsOnExecutors(other, runner)):
        assert load_snapshot(context).entries.num_rows == 7
    few = IndexTable(context.url, options={**FEW, "spark.indextables.state.read.manifestsPerDriver": "64"})
    with reading_manifests_by(ManifestsOnExecutors(few._snapshot.context, runner)):
        assert load_snapshot(context).entries.num_rows == 7
    assert runner.ran == []


def test_a_manifest_that_an_executor_cannot_read_is_no_smaller_table(
    context: TableContext, path: str
) -> None:
    store = open_store(path)
    keys = [meta.key for meta in store.list("_transaction_log/")]
    manifest = next(key for key in keys if "manifest" in key and "_manifest" not in key)
    (Path(path) / manifest).write_bytes(b"?")
    for version in range(8):
        (Path(path) / "_transaction_log" / f"{version:020d}.json").unlink()
    with reading_manifests_by(ManifestsOnExecutors(context, Counting())), pytest.raises(LogCorruptedError):
        _ = load_snapshot(context).entries


def test_statements_on_a_session_use_the_executors(
    spark: SparkSession, context: TableContext, path: str
) -> None:
    for key, value in FEW.items():
        spark.conf.set(key, value)
    try:
        (merged,) = spark.sql(f"MERGE SPLITS '{path}'").collect()
        (purged,) = spark.sql(f"PURGE INDEXTABLE '{path}' OLDER THAN 7 DAYS DRY RUN").collect()
    finally:
        for key in FEW:
            spark.conf.unset(key)
    assert (merged.source_splits, merged.new_splits, purged.status) == (7, 1, "DRY_RUN")
    assert sorted(IndexTable(path).to_arrow()["id"].to_pylist()) == list(range(7))

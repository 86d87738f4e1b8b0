"""With purge-on-write, a purge follows every merge and never fails it."""

import logging
import os
import time

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.log.paths import version_key
from indextables.ops.merge import MergeRequest, merge_jobs, merge_splits
from indextables.ops.runner import LocalRunner
from indextables.ops.write import append as append_rows
from indextables.statements import sql
from support.purge_tables import (
    DAY,
    clocked_store,
    live_paths,
    newest,
    put_split,
    remove_split,
    splits_in,
    table_of,
)
from support.row_tables import SCHEMA, ids, rows, split_files
from support.tables import SCHEMA as DATED_SCHEMA
from support.tables import options

ON = {"purgeOnWrite.enabled": "true", "purgeOnWrite.splitRetentionHours": "24"}
MERGES = {
    "mergeOnWrite.enabled": "true",
    "mergeOnWrite.async.enabled": "false",
    "mergeOnWrite.batchCpuFraction": "0",
}
SWITCHED_OFF = [{"purgeOnWrite.enabled": "false"}, {"purgeOnWrite.triggerAfterMerge": "false"}]


@pytest.fixture
def store():
    """A table with two splits to merge, a split that only an older version has, and an old orphan."""
    store = clocked_store()
    remove_split(table_of(store, "a.split", "b.split", "old.split"), "old.split")
    put_split(store, "orphan.split")
    store.clock.advance(2 * DAY)
    put_split(store, "young.split")
    return store


def merge(store, settings):
    return merge_splits(newest(store, settings), MergeRequest(), LocalRunner(1))


def write_a_row(store, settings):
    row = pa.Table.from_pylist([{"id": 1, "date": "2024-01-02", "message": "new"}], DATED_SCHEMA)
    return append_rows(newest(store, settings), row).version


def test_a_merge_is_followed_by_a_purge_of_what_is_old(store):
    assert merge(store, ON).version == 5
    assert splits_in(store) == {*live_paths(store), "a.split", "b.split", "old.split", "young.split"}


def test_a_merge_on_write_is_followed_by_a_purge_too(store):
    assert write_a_row(store, {**ON, **MERGES}) == 5
    # The merge, and the marker version of the purge.
    assert newest(store).version == 7
    assert "orphan.split" not in splits_in(store)
    assert "young.split" in splits_in(store)


@pytest.mark.parametrize("change", SWITCHED_OFF)
def test_nothing_is_purged_when_it_is_switched_off(store, change):
    assert merge(store, {**ON, **change}).version == 5
    write_a_row(store, {**ON, **MERGES, **change})
    assert "orphan.split" in splits_in(store)


def test_a_merge_with_nothing_to_do_purges_nothing(store):
    merge(store, {})
    assert merge(store, ON).version is None
    assert "orphan.split" in splits_in(store)


def test_a_purge_that_fails_does_not_fail_the_merge(store, caplog):
    snapshot = newest(store, ON)
    # With a damaged log file, the references are unknown, so nothing may be deleted.
    store._inner.put(version_key(1), b"nonsense")
    with caplog.at_level(logging.WARNING):
        report = merge_splits(snapshot, MergeRequest(), LocalRunner(1))
    assert (report.version, report.merged_groups) == (5, 1)
    assert "the purge after version 5 failed" in caplog.text
    assert "orphan.split" in splits_in(store)


def test_a_purge_that_fails_does_not_fail_the_write_and_its_merge(store, caplog):
    store.before_call = _fail_listings_of_everything
    with caplog.at_level(logging.WARNING):
        assert write_a_row(store, {**ON, **MERGES}) == 5
    (job,) = [job for job in merge_jobs().to_pylist() if job["table_path"] == store.url]
    assert job["status"] == "done"
    assert "the purge after version 6 failed" in caplog.text
    store.before_call = None
    assert newest(store).version == 6
    assert "orphan.split" in splits_in(store)


@pytest.mark.parametrize(
    "merge_by",
    [
        lambda path: IndexTable(path).merge_splits(),
        lambda path: sql(f"MERGE SPLITS '{path}'"),
    ],
    ids=["python", "sql"],
)
def test_table_properties_enable_purge_after_merge(tmp_path, merge_by):
    path = tmp_path / "table"
    table = IndexTable.create(str(path), SCHEMA, properties=options(ON))
    for number in range(2):
        table.append(rows(number))
    month_ago = time.time() - 30 * DAY
    orphan = path / "orphan.split"
    orphan.write_bytes((path / split_files(path)[0]).read_bytes())
    os.utime(orphan, (month_ago, month_ago))
    merge_by(str(path))
    assert not orphan.exists()
    assert len(split_files(path)) == 3
    assert ids(table.refresh()) == [0, 1]


def _fail_listings_of_everything(_, operation, key):
    if (operation, key) == ("list", ""):
        raise RuntimeError("a bug")

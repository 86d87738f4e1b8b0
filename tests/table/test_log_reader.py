"""Reading a tail in batches gives the same result as reading it at once."""

import random

import pytest

from indextables.log.actions import CommitInfo, RemoveAction, SkipAction, new_commit_id
from indextables.log.decode import Tail, decode_tail
from indextables.log.entries import empty_entries
from indextables.log.paths import version_key
from indextables.log.replay import removed_paths, replay_entries
from indextables.log.segment import LogListing, list_log
from indextables.storage import ObjectStore
from indextables.table import log_reader
from indextables.table.conflict import ConcurrentCommit, concurrent_commit_of
from indextables.table.log_reader import (
    last_actions,
    read_last_actions,
    read_log_files,
    read_summaries,
    read_tail,
    summary_of,
    with_unlisted_versions,
)
from support.tables import add, busy_table, context, memory_store, new_table, write_version


@pytest.fixture
def store() -> ObjectStore:
    """Many versions on few paths, with several actions on one path in one version."""
    store, chooser = memory_store(), random.Random(7)
    new_table(store)
    for version in range(1, 60):
        actions = [CommitInfo(commit_id=new_commit_id(), timestamp=version, operation="WRITE")]
        for _ in range(chooser.randrange(5)):
            path = f"p{chooser.randrange(6)}"
            is_add = chooser.random() < 0.6
            actions.append(add(path, size=version) if is_add else RemoveAction(path=path, data_change=True))
        write_version(store, version, *actions)
    return store


def files(store: ObjectStore):
    return list(list_log(store).version_files)


def at_once(store: ObjectStore) -> Tail:
    return decode_tail(read_log_files(context(store), files(store)))


@pytest.fixture(params=[1, 3, 7, 1000])
def small_pieces(request, monkeypatch) -> None:
    monkeypatch.setattr(log_reader, "_FILES_PER_FETCH", request.param)
    monkeypatch.setattr(log_reader, "_BYTES_PER_DECODE", 400 * request.param)


def test_tail_read_in_batches_is_the_tail(store, small_pieces):
    found, expected = read_tail(context(store), files(store)), at_once(store)
    assert found.versions == expected.versions
    for mine, theirs in ((found.adds, expected.adds), (found.removes, expected.removes)):
        assert mine.drop_columns(["sequence"]).equals(theirs.drop_columns(["sequence"]))
    assert order(found) == order(expected)


def order(tail: Tail) -> list[tuple[str, str]]:
    """Adds and removes in the order of their sequence numbers."""
    actions = [
        (sequence, kind, path)
        for kind, table in (("add", tail.adds), ("remove", tail.removes))
        for sequence, path in zip(table["sequence"].to_pylist(), table["path"].to_pylist(), strict=True)
    ]
    return [action[1:] for action in sorted(actions)]


def test_last_actions_replay_to_the_same_files(store, small_pieces):
    found, expected = read_last_actions(context(store), files(store)), at_once(store)
    assert found.versions == expected.versions
    assert removed_paths(found) == removed_paths(expected)
    assert rows(replay_entries(empty_entries(), found)) == rows(replay_entries(empty_entries(), expected))


def rows(entries) -> list[dict]:
    return sorted(entries.to_pylist(), key=lambda entry: entry["path"])


def test_last_actions_contain_each_path_once(store):
    tail = last_actions(at_once(store))
    for table in (tail.adds, tail.removes):
        found = table["path"].to_pylist()
        assert len(found) == len(set(found)) <= 6


def test_summaries_of_batches(store, small_pieces):
    assert tuple(read_summaries(context(store), files(store))) == at_once(store).versions


def test_nothing_to_read(store):
    for read in (read_tail, read_last_actions):
        tail = read(context(store), [])
        assert (tail.versions, tail.adds.num_rows, tail.removes.num_rows) == ((), 0, 0)
    assert read_summaries(context(store), []) == []


# --- concurrent commits, read without decoding -------------------------------------------------------------------


def test_summary_is_the_decoded_one():
    store = memory_store()
    busy_table(store)
    write_version(store, 13, add("foreign", modified=5))
    skip = SkipAction(path="i", skip_timestamp=1, reason="r", operation="merge")
    write_version(store, 14, skip, RemoveAction(path="i", data_change=True, deletion_timestamp=9))
    for log_file in read_log_files(context(store), files(store)):
        assert summary_of(log_file) == decode_tail([log_file]).versions[0]
        assert concurrent_commit_of(log_file) == by_decoding(log_file)


def by_decoding(log_file) -> ConcurrentCommit:
    tail = decode_tail([log_file])
    return ConcurrentCommit(
        summary=tail.versions[0],
        has_adds=bool(tail.adds.num_rows),
        has_removes=bool(tail.removes.num_rows),
        changes_data=any(tail.adds["dataChange"].to_pylist()),
    )


def test_concurrent_commit_with_an_odd_spelling_is_decoded():
    store = memory_store()
    new_table(store)
    line = '{"add":[{"path":"a","partitionValues":{},"size":"7","modificationTime":1,"dataChange":true}]}\n'
    write_version(store, 1, more=line)
    (_, log_file) = read_log_files(context(store), files(store))
    assert concurrent_commit_of(log_file) == by_decoding(log_file)


# --- versions that a listing missed -----------------------------------------------------------------


def test_versions_are_requested_until_one_is_missing(store):
    listed = list_log(store)
    known = {version: meta for version, meta in listed.versions.items() if version not in (20, 40, 59)}
    store.delete_many([version_key(40)])
    found = with_unlisted_versions(context(store), LogListing(known), 10)
    assert set(listed.versions) - set(found.versions) == {40, 59}
    assert list(found.versions) == sorted(found.versions)
    found = with_unlisted_versions(context(store), LogListing(known), 41, last=58)
    assert 59 not in found.versions

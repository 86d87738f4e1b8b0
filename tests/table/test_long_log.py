"""Logs of many versions: they open in bounded memory, and readers read only the versions after a checkpoint."""

import subprocess
import sys
from pathlib import Path

import pytest

from indextables.log.actions import CommitInfo, RemoveAction, encode_actions, new_commit_id
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, version_key
from indextables.log.version_file import compress
from indextables.storage import ObjectStore, open_store
from indextables.table import load_snapshot
from indextables.table.history import read_commits
from indextables.table.load import catch_up
from support.faults import FaultStore
from support.tables import (
    FORMATS,
    add,
    after,
    append,
    checkpoint,
    context,
    live,
    memory_store,
    new_table,
    write_version,
)

VERSIONS = 10_000
FEWER = 300

# Memory for opening the table, beyond the import of the package. Without the bound it takes more than twice as much.
MEMORY_MEGABYTES = 250


def info(version: int) -> CommitInfo:
    return CommitInfo(commit_id=new_commit_id(), timestamp=1_700_000_000_000 + version, operation="WRITE")


def write_long_log(store: ObjectStore, versions: int) -> None:
    """Every version adds a file. Every third version also removes the previous file."""
    for version in range(1, versions):
        actions = [info(version), add(f"part-{version}", size=version)]
        if version % 3 == 0:
            actions.append(RemoveAction(path=f"part-{version - 1}", data_change=True))
        write_version(store, version, *actions)


def expected(version: int) -> dict[str, int]:
    return {f"part-{v}": v for v in range(1, version + 1) if v % 3 != 2 or v == version}


@pytest.fixture(scope="module")
def long_log() -> ObjectStore:
    store = memory_store()
    new_table(store)
    write_long_log(store, VERSIONS)
    return store


@pytest.fixture
def shorter_log() -> ObjectStore:
    store = memory_store()
    new_table(store)
    write_long_log(store, FEWER)
    return store


def test_log_of_10_000_versions_opens_without_a_checkpoint(long_log):
    snapshot = load_snapshot(context(long_log))
    assert snapshot.version == VERSIONS - 1
    assert live(snapshot) == expected(VERSIONS - 1)
    assert live(load_snapshot(context(long_log), 5_000)) == expected(5_000)


def test_history_of_10_000_versions(long_log):
    commits = read_commits(context(long_log), VERSIONS - 1)
    assert [commit.version for commit in commits] == list(range(VERSIONS))


@pytest.mark.parametrize("form", FORMATS)
def test_opening_from_a_checkpoint_reads_only_it_and_the_tail(shorter_log, form):
    checkpoint(shorter_log, form, FEWER - 4)
    tail = {version_key(version) for version in range(FEWER - 3, FEWER)}
    store = FaultStore(shorter_log)
    snapshot = load_snapshot(context(store))
    assert live(snapshot) == expected(FEWER - 1)
    read = {call.key for call in store.calls if call.operation in ("get", "get_range")}
    versions_read = {key for key in read if key.startswith(f"{LOG_PREFIX}0") and "checkpoint" not in key}
    assert versions_read == tail
    others = read - versions_read - {LAST_CHECKPOINT_KEY}
    assert others
    assert all("state-v" in key or "manifests/" in key or "checkpoint" in key for key in others)
    assert store.count("list") <= 2


def test_opening_from_a_state_reads_entries_lazily():
    inner = memory_store()
    table = after(new_table(inner), append("a"), append("b"))
    checkpoint(inner)
    store = FaultStore(inner)
    snapshot = load_snapshot(context(store))
    assert (snapshot.version, snapshot.num_files, snapshot.total_bytes) == (table.version, 2, 20)
    assert not any("manifests/" in call.key for call in store.calls)


def test_refreshing_reads_only_the_new_versions(shorter_log):
    store = FaultStore(shorter_log)
    snapshot = load_snapshot(context(store))
    write_version(shorter_log, FEWER, info(FEWER), add("new"))
    store.calls.clear()
    assert catch_up(snapshot).snapshot.version == FEWER
    # After this many versions it also checks for a newer checkpoint.
    read = {call.key for call in store.calls if call.operation == "get"}
    assert read - {LAST_CHECKPOINT_KEY} == {version_key(FEWER)}


def test_snapshot_that_is_far_behind_reloads_from_a_checkpoint(shorter_log):
    store = FaultStore(shorter_log)
    behind = load_snapshot(context(store), 3)
    checkpoint(shorter_log, "avro", FEWER - 2)
    store.calls.clear()
    assert live(catch_up(behind).snapshot) == expected(FEWER - 1)
    versions_read = {call.key for call in store.calls if call.operation == "get" and "0.json" not in call.key}
    assert {key for key in versions_read if key.startswith(f"{LOG_PREFIX}0")} == {version_key(FEWER - 1)}


OPEN_AND_MEASURE = """
import resource, sys
from indextables.config import Settings
from indextables.storage import open_store
from indextables.table import TableContext, load_snapshot

def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before = peak_megabytes()
snapshot = load_snapshot(TableContext(open_store(sys.argv[1]), Settings.resolve()))
print(snapshot.version, snapshot.num_files, peak_megabytes() - before)
"""


def test_log_that_rewrites_the_same_files_again_and_again_opens_in_bounded_memory(tmp_path: Path):
    """Each version replaces all 1,000 files: of more than a million actions, 1,000 remain."""
    path = tmp_path / "table"
    new_table(open_store(path))
    files, rounds = 1_000, 600
    lines = encode_actions(
        [
            action
            for n in range(files)
            for action in (RemoveAction(path=f"p{n}", data_change=True), add(f"p{n}"))
        ]
    )
    data = compress(lines)
    for version in range(1, rounds):
        (path / version_key(version)).write_bytes(data)
    output = subprocess.run(
        [sys.executable, "-c", OPEN_AND_MEASURE, str(path)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [int(output[0]), int(output[1])] == [rounds - 1, files]
    assert float(output[2]) < MEMORY_MEGABYTES

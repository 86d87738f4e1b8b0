"""On a disk, the folder of a state goes with its files, and empty folders that are left over are found and removed."""

import os
from pathlib import Path

import pytest

from indextables.log.paths import LOG_PREFIX, STATE_PREFIX, state_dir
from indextables.log.segment import list_log
from indextables.ops.checkpoint.cleanup import CleanupPlan, clean_up
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.ops.fsck.operation import fsck
from indextables.ops.purge.garbage import collect_garbage
from indextables.ops.purge.operation import purge
from indextables.ops.purge.report import PurgeRequest
from indextables.ops.runner import LocalRunner
from indextables.ops.truncate import truncate_time_travel
from indextables.storage import ObjectStore, open_store
from indextables.table import load_snapshot
from support.tables import after, append, context, live, new_table

KEEP_NOTHING = {
    "purge.txLogRetentionHours": "0",
    "checkpoint.retention": "0",
    "state.retention.versions": "0",
    "state.retention.hours": "0",
    "purge.retentionCheckEnabled": "false",
}
STATES = 4


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def store(root) -> ObjectStore:
    """A table on a disk with a state of every version."""
    store = open_store(root)
    table = new_table(store)
    for number in range(1, STATES):
        table = after(table, append(f"p{number}"))
        write_checkpoint(table)
    return store


def newest(store: ObjectStore):
    return load_snapshot(context(store, KEEP_NOTHING))


def state_folders(root: Path) -> list[str]:
    return sorted(path.name for path in (root / LOG_PREFIX).glob("state-v*"))


OPERATIONS = {
    "cleanup": lambda store: clean_up(context(store, KEEP_NOTHING), STATES - 1),
    "purge": lambda store: purge(newest(store), PurgeRequest(dry_run=False), LocalRunner()),
    "truncate": lambda store: truncate_time_travel(newest(store), LocalRunner(), dry_run=False),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_folders_of_deleted_states_go_with_their_files(store, root, name):
    assert len(state_folders(root)) == STATES - 1
    OPERATIONS[name](store)
    assert state_folders(root) == [state_dir(STATES - 1)]
    assert set(live(newest(store))) == {"p1", "p2", "p3"}


@pytest.mark.parametrize("name", [*OPERATIONS, "collect garbage"])
def test_empty_folders_that_an_older_release_left_behind_are_removed(store, root, name):
    OPERATIONS["truncate"](store)
    for version in range(100, 120):
        (root / LOG_PREFIX / state_dir(version)).mkdir()
    operations = OPERATIONS | {"collect garbage": lambda store: collect_garbage(newest(store), dry_run=False)}
    operations[name](store)
    assert state_folders(root) == [state_dir(STATES - 1)]


def test_dry_runs_and_a_cleanup_that_is_off_remove_no_folder(store, root):
    for version in range(100, 103):
        (root / LOG_PREFIX / state_dir(version)).mkdir()
    before = state_folders(root)
    purge(newest(store), PurgeRequest(dry_run=True), LocalRunner())
    truncate_time_travel(newest(store), LocalRunner(), dry_run=True)
    collect_garbage(newest(store), dry_run=True)
    clean_up(context(store, KEEP_NOTHING | {"cleanup.dryRun": "true"}), STATES - 1)
    clean_up(context(store, KEEP_NOTHING | {"cleanup.enabled": "false"}), STATES - 1)
    assert state_folders(root) == before


def test_fsck_counts_empty_folders(store, root):
    assert "empty-state-folders" not in {finding.code for finding in fsck_of(store)}
    for version in range(100, 120):
        (root / LOG_PREFIX / state_dir(version)).mkdir()
    (finding,) = [finding for finding in fsck_of(store) if finding.code == "empty-state-folders"]
    assert finding.object == f"{STATE_PREFIX}{100:020d}"
    assert finding.message.startswith("20 folders")
    assert len(state_folders(root)) == STATES - 1 + 20


def fsck_of(store: ObjectStore):
    return fsck(context(store), LocalRunner(), deep=False).findings


@pytest.fixture
def folders_read(monkeypatch) -> list[str]:
    """The names of the folders that are read from now on."""
    folders: list[str] = []
    scandir = os.scandir

    def recorded(path):
        folders.append(Path(path).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", recorded)
    return folders


def test_a_listing_from_the_hint_reads_no_folder_of_an_older_state(store, folders_read):
    """What a small commit lists does not depend on the states that are retained."""
    assert list(list_log(store, from_version=STATES - 1).bases) == [STATES - 1]
    assert folders_read == ["_transaction_log", state_dir(STATES - 1)]


def test_a_small_commit_reads_the_newest_state_folder_alone(store, folders_read):
    """And the sizes of the manifests, once for each state that it builds on."""
    after(load_snapshot(context(store)), append("p4"))
    assert set(folders_read) == {"_transaction_log", state_dir(STATES - 1), "manifests"}
    assert folders_read.count("manifests") == 1


def test_a_cleanup_of_a_young_log_reads_the_oldest_state_folder_alone(store, folders_read):
    plan = clean_up(context(store), STATES - 1)
    assert plan == CleanupPlan((), ())
    assert folders_read == ["_transaction_log", "_transaction_log", state_dir(1)]

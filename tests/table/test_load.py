"""Opening a table: a snapshot equals the full replay of the log, whatever the state of hint and checkpoints."""

import logging

import pytest

from indextables.errors import (
    CheckpointCorruptionError,
    LogCorruptedError,
    LogGapError,
    ManifestCorruptedError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.paths import (
    LAST_CHECKPOINT_KEY,
    JsonCheckpointPart,
    ManifestFile,
    parse_log_path,
    state_manifest_key,
    version_key,
)
from indextables.log.segment import read_hint
from indextables.ops.describe import describe_state
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.intent import ChangeProperties
from indextables.table.load import catch_up
from support.faults import FaultStore
from support.tables import (
    FORMATS,
    add,
    append,
    busy_table,
    checkpoint,
    context,
    copy_all,
    do,
    live,
    log_keys,
    memory_store,
    new_table,
    overwrite,
    paths,
    remove,
    write_version,
)

NEWEST = 12
OLDER, NEWER = 5, 9


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


@pytest.fixture
def history(store) -> list[dict[str, int]]:
    return busy_table(store)


def newest(store: ObjectStore) -> Snapshot:
    return load_snapshot(context(store))


def assert_every_version(store: ObjectStore, history: list[dict[str, int]]) -> None:
    assert live(newest(store)) == history[-1]
    for version, files in enumerate(history):
        assert live(load_snapshot(context(store), version)) == files, f"version {version}"


def delete_versions(store: ObjectStore, versions: range) -> None:
    store.delete_many([version_key(version) for version in versions])


def damage(store: ObjectStore, key: str, how: str) -> None:
    data = store.get(key)
    match how:
        case "truncated":
            store.put(key, data[: len(data) // 2])
        case "empty":
            store.put(key, b"")
        case "overwritten with garbage":
            store.put(key, b"\x00garbage\xff" * 20)
        case "missing":
            store.delete_many([key])


DAMAGES = ["truncated", "empty", "overwritten with garbage", "missing"]


# --- the hint -----------------------------------------------------------------------------------------

HINTS = {
    "missing": None,
    "empty": b"",
    "truncated": b'{"version": 9, "si',
    "no object": b"[9]",
    "of another type": b'{"version": "nine"}',
    "negative": b'{"version": -3}',
    "absurd": b'{"version": 99999999999999999999999999}',
    "stale": b'{"version": 5, "format": "avro-state"}',
    "pointing between checkpoints": b'{"version": 7}',
    "pointing beyond the log": b'{"version": 1000, "format": "avro-state"}',
    "at the newest version, which has no checkpoint": b'{"version": 12}',
}


@pytest.mark.parametrize("hint", HINTS)
def test_snapshot_is_the_full_replay_with_a_hint_that_is(store, history, hint):
    checkpoint(store, "avro", OLDER)
    checkpoint(store, "json", NEWER)
    store.delete_many([LAST_CHECKPOINT_KEY])
    if (content := HINTS[hint]) is not None:
        store.put(LAST_CHECKPOINT_KEY, content)
    assert_every_version(store, history)
    assert newest(store).segment.base.version == NEWER


def test_checkpoint_replaces_a_hint_that_points_at_nothing(store, history):
    store.put(LAST_CHECKPOINT_KEY, HINTS["pointing beyond the log"])
    checkpoint(store)
    assert read_hint(store).version == NEWEST


def test_checkpoint_of_an_older_version_does_not_move_the_hint_back(store, history):
    checkpoint(store, "avro", NEWER)
    checkpoint(store, "avro", OLDER)
    assert read_hint(store).version == NEWER


# --- checkpoints --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_snapshot_is_the_full_replay_with_checkpoints_in_any_format(store, history, form):
    for version in (3, 4, 6, NEWEST):
        checkpoint(store, form, version)
        assert_every_version(store, history)


@pytest.mark.parametrize("last", FORMATS)
@pytest.mark.parametrize("first", FORMATS)
def test_checkpoint_from_a_checkpoint_in_another_format(store, history, first, last):
    checkpoint(store, first, OLDER)
    delete_versions(store, range(OLDER + 1))
    checkpoint(store, last, NEWER)
    delete_versions(store, range(NEWER + 1))
    for version in range(NEWER, NEWEST + 1):
        assert live(load_snapshot(context(store), version)) == history[version]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("form", FORMATS)
def test_damaged_newest_checkpoint_falls_back_with_a_warning(store, history, caplog, form, how):
    checkpoint(store, form, OLDER)
    before = set(log_keys(store))
    checkpoint(store, form, NEWER)
    # Every file that the checkpoint consists of, in turn.
    for key in set(log_keys(store)) - before:
        copy = memory_store()
        copy_all(store, copy)
        damage(copy, key, how)
        caplog.clear()
        for version in (None, 8, NEWER, 10):
            snapshot = load_snapshot(context(copy), version)
            assert live(snapshot) == history[snapshot.version]
        if how != "missing" or isinstance(parse_log_path(key), ManifestFile | JsonCheckpointPart):
            assert copy.url in caplog.text
            assert caplog.records[0].levelno == logging.WARNING


def test_checkpoint_of_another_version_is_skipped(store, history, caplog):
    checkpoint(store, "avro", OLDER)
    store.put(state_manifest_key(NEWER), store.get(state_manifest_key(OLDER)))
    assert_every_version(store, history)
    assert f"holds the state of version {OLDER}" in caplog.text


def test_state_with_an_unreadable_manifest_is_an_error_that_names_it_when_the_versions_are_gone(
    store, history
):
    checkpoint(store, "avro", NEWER)
    delete_versions(store, range(NEWER))
    (manifest,) = [key for key in log_keys(store) if "/manifests/" in key]
    damage(store, manifest, "truncated")
    with pytest.raises(ManifestCorruptedError, match=f"{manifest}.*{version_key(0)} is gone"):
        newest(store).entries  # noqa: B018


@pytest.mark.parametrize("form", FORMATS)
def test_unreadable_checkpoint_is_rebuilt_by_the_next_checkpoint(store, history, form):
    before = set(log_keys(store))
    checkpoint(store, form)
    for key in set(log_keys(store)) - before - {LAST_CHECKPOINT_KEY}:
        damage(store, key, "truncated")
    checkpoint(store, form)
    delete_versions(store, range(NEWEST + 1))
    assert live(newest(store)) == history[NEWEST]


def test_checkpoint_that_cannot_be_rebuilt_stays(store, history):
    checkpoint(store, "avro", NEWER)
    delete_versions(store, range(NEWER + 1))
    (manifest,) = [key for key in log_keys(store) if "/manifests/" in key]
    damage(store, manifest, "missing")
    with pytest.raises(CheckpointCorruptionError, match="no other files of the log lead to version 9"):
        checkpoint(store, "avro", NEWER)
    assert state_manifest_key(NEWER) in log_keys(store)


# --- missing files ------------------------------------------------------------------------------------


def test_no_table(store):
    with pytest.raises(TableNotFoundError, match="there is no table here"):
        newest(store)


def test_unrelated_files_are_no_table(store):
    store.put("_transaction_log/notes.txt", b"hello")
    store.put("part-1.split", b"")
    with pytest.raises(TableNotFoundError):
        newest(store)


def test_version_that_needs_a_missing_file_is_an_error_that_names_it(store, history):
    checkpoint(store, "avro", OLDER)
    delete_versions(store, range(7, 8))
    with pytest.raises(VersionNotFoundError, match=version_key(7)):
        load_snapshot(context(store), 8)
    assert live(load_snapshot(context(store), 6)) == history[6]


def test_version_before_the_oldest_checkpoint_is_gone_with_version_0(store, history):
    checkpoint(store, "avro", OLDER)
    delete_versions(store, range(1))
    with pytest.raises(VersionNotFoundError, match=f"{version_key(0)} is gone"):
        load_snapshot(context(store), 3)


@pytest.mark.parametrize("version", [-1, 13, 2**40])
def test_version_that_never_existed_is_an_error(store, history, version):
    with pytest.raises(VersionNotFoundError, match=str(version)):
        load_snapshot(context(store), version)


def test_nothing_readable_is_an_error_that_names_what_is_missing(store, history, caplog):
    checkpoint(store, "avro", NEWER)
    delete_versions(store, range(NEWER))
    damage(store, state_manifest_key(NEWER), "truncated")
    with pytest.raises(
        LogCorruptedError, match=f"no checkpoint can be read, and {version_key(0)} is missing"
    ):
        newest(store)


@pytest.mark.parametrize("how", ["truncated", "empty", "overwritten with garbage"])
def test_damaged_version_file_is_an_error_that_names_it(store, history, how):
    damage(store, version_key(7), how)
    with pytest.raises(LogCorruptedError, match=version_key(7)):
        newest(store)
    assert live(load_snapshot(context(store), 6)) == history[6]


def test_listings_may_repeat_and_reorder(store, history):
    checkpoint(store, "avro", OLDER)
    for seed in range(5):
        assert_every_version(FaultStore(store, seed=seed, scramble_rate=0.5), history)


# --- gaps ---------------------------------------------------------------------------------------------


def test_gap_ends_the_readable_log_with_a_warning(store, history, caplog):
    checkpoint(store, "avro", OLDER)
    delete_versions(store, range(8, 9))
    snapshot = newest(store)
    assert (snapshot.version, live(snapshot)) == (7, history[7])
    assert "version 8 is missing or unreadable although version 12 exists" in caplog.text
    described = dict(zip(*describe_state(snapshot).to_pydict().values(), strict=True))
    assert described["gap"] == "version 8 is missing or unreadable, version 12 exists"


def test_version_that_only_the_hint_names_is_reported_as_lost(store, history, caplog):
    """States without version files, as some writers leave them; the newest state directory is lost."""
    checkpoint(store, "avro", NEWER)
    checkpoint(store, "avro", NEWEST)
    delete_versions(store, range(1, NEWEST + 1))
    assert newest(store).version == NEWEST
    assert caplog.text == ""
    store.delete_many([state_manifest_key(NEWEST)])
    snapshot = newest(store)
    assert (snapshot.version, snapshot.gap, live(snapshot)) == (NEWER, None, history[NEWER])
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"names a checkpoint of version {NEWEST}, and the newest version" in record.message
    assert "REPAIR INDEXFILES TRANSACTION LOG, before anything is committed or purged" in record.message


@pytest.mark.parametrize("hint", [b'{"version": 12}', b'{"version": 5}', b'{"version": 9000000000000000}'])
def test_hint_without_a_checkpoint_that_proves_no_newer_version_is_no_warning(store, history, caplog, hint):
    store.put(LAST_CHECKPOINT_KEY, hint)
    assert newest(store).version == NEWEST
    assert caplog.text == ""


def test_older_version_is_read_without_a_warning_about_the_hint(store, history, caplog):
    checkpoint(store, "avro", NEWEST)
    delete_versions(store, range(NEWER, NEWEST + 1))
    store.delete_many([state_manifest_key(NEWEST)])
    assert load_snapshot(context(store), 3).version == 3
    assert caplog.text == ""


@pytest.mark.parametrize(
    "intent", [append("x"), overwrite("x"), remove("g"), ChangeProperties({"owner": "x"})], ids=str
)
def test_nothing_is_committed_to_a_table_with_a_gap(store, history, intent):
    delete_versions(store, range(8, 9))
    before = log_keys(store)
    with pytest.raises(LogGapError, match=r"version 8 .* REPAIR INDEXFILES TRANSACTION LOG"):
        do(newest(store), intent)
    assert log_keys(store) == before


def test_gap_that_opens_under_a_writer_is_not_filled(store):
    """The snapshot is older than the gap: version 2 is lost after version 3 was committed."""
    start = new_table(store)
    one = do(start, append("a")).snapshot
    do(do(one, append("b")).snapshot, append("c"))
    delete_versions(store, range(2, 3))
    with pytest.raises(LogGapError):
        do(catch_up(one).snapshot, append("late"))
    assert version_key(2) not in log_keys(store)


def test_restored_file_closes_the_gap_for_a_snapshot_that_is_refreshed(store, history):
    lost = {version: store.get(version_key(version)) for version in (8, 11)}
    store.delete_many([version_key(version) for version in lost])
    snapshot = newest(store)
    store.put(version_key(8), lost[8])
    snapshot = catch_up(snapshot).snapshot
    assert (snapshot.version, snapshot.gap.first_missing) == (10, 11)
    store.put(version_key(11), lost[11])
    snapshot = catch_up(snapshot).snapshot
    assert (snapshot.version, snapshot.gap, live(snapshot)) == (NEWEST, None, history[NEWEST])


def test_checkpoint_of_a_table_with_a_gap_covers_what_is_before_it(store, history):
    delete_versions(store, range(8, 9))
    checkpoint(store)
    snapshot = newest(store)
    assert (snapshot.version, live(snapshot), snapshot.gap.first_missing) == (7, history[7], 8)


# --- tables with states and no version files ----------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_table_of_checkpoints_alone_is_readable_and_writable(store, history, form):
    for version in (OLDER, NEWER, NEWEST):
        checkpoint(store, form, version)
    delete_versions(store, range(1, NEWEST + 1))
    for version in (0, OLDER, NEWER, NEWEST):
        assert live(load_snapshot(context(store), version)) == history[version]
    snapshot = newest(store)
    assert (snapshot.version, snapshot.gap) == (NEWEST, None)
    result = do(snapshot, append("next"))
    assert result.version == NEWEST + 1
    assert live(newest(store)) == {**history[NEWEST], "next": 10}


def test_commit_to_a_table_whose_hint_is_older_than_its_states(store, history):
    checkpoint(store, "avro", OLDER)
    hint = store.get(LAST_CHECKPOINT_KEY)
    checkpoint(store)
    delete_versions(store, range(1, NEWEST + 1))
    store.put(LAST_CHECKPOINT_KEY, hint)
    assert do(newest(store), append("next")).version == NEWEST + 1


def test_unreadable_newest_state_without_version_files_falls_back_and_blocks_commits(store, history, caplog):
    for version in (OLDER, NEWER, NEWEST):
        checkpoint(store, "avro", version)
    delete_versions(store, range(1, NEWEST + 1))
    damage(store, state_manifest_key(NEWEST), "truncated")
    snapshot = newest(store)
    assert (snapshot.version, live(snapshot)) == (NEWER, history[NEWER])
    assert f"failed to read checkpoint at version {NEWEST}, falling back" in caplog.text
    with pytest.raises(LogGapError, match=f"version {NEWER + 1} .* version {NEWEST} exists"):
        do(snapshot, append("x"))
    assert version_key(NEWER + 1) not in log_keys(store)


def test_version_committed_after_the_listing_was_made_is_found(store, history):
    """Listings may be stale: the newest version files are requested by name."""

    class Lagging(FaultStore):
        def list(self, prefix, *, start_after=None):
            hidden = {version_key(11), version_key(12)}
            return (m for m in super().list(prefix, start_after=start_after) if m.key not in hidden)

    assert newest(Lagging(store)).version == NEWEST


def test_version_that_a_listing_missed_in_the_middle_is_found(store, history):
    """As in a listing of a folder in which files are being created."""

    class Incomplete(FaultStore):
        def list(self, prefix, *, start_after=None):
            return (m for m in super().list(prefix, start_after=start_after) if m.key != version_key(11))

    snapshot = newest(Incomplete(store))
    assert (snapshot.version, snapshot.gap) == (NEWEST, None)
    earlier = load_snapshot(context(Incomplete(store)), 9)
    assert catch_up(earlier).snapshot.version == NEWEST
    assert live(load_snapshot(context(Incomplete(store)), NEWEST)) == history[NEWEST]


def test_foreign_version_file_without_commit_info(store, history):
    write_version(store, NEWEST + 1, add("foreign"))
    assert paths(newest(store)) == {*history[NEWEST], "foreign"}

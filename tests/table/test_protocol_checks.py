"""Every read and write checks the protocol first. Upgrades are commits and cannot be undone."""

import pytest

from indextables.errors import InvalidOptionError, UnsupportedProtocolError
from indextables.log.actions import ProtocolAction
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.write import set_properties, upgrade_protocol
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from indextables.table.intent import UpgradeProtocol
from indextables.table.load import catch_up
from support.tables import (
    CONVERT,
    add,
    append,
    checkpoint,
    context,
    do,
    live,
    log_keys,
    memory_store,
    new_table,
    older_table,
    overwrite,
    remove,
    write_version,
)

UNREADABLE = {
    "a newer version": ProtocolAction(min_reader_version=6, min_writer_version=6),
    "an unknown feature": ProtocolAction(
        min_reader_version=4, min_writer_version=4, reader_features=("teleport",)
    ),
}
UNWRITABLE = {
    "a newer version": ProtocolAction(min_reader_version=5, min_writer_version=6),
    "an unknown feature": ProtocolAction(
        min_reader_version=4, min_writer_version=4, writer_features=("teleport",)
    ),
}
NEEDED = {"a newer version": "needs protocol version 6", "an unknown feature": "needs the features teleport"}


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


@pytest.mark.parametrize("what", UNREADABLE)
def test_unsupported_reader_version_or_feature_is_an_error_that_names_it(store, what):
    do(new_table(store), append("a"))
    write_version(store, 2, UNREADABLE[what], add("b"))
    with pytest.raises(UnsupportedProtocolError, match=f"{NEEDED[what]} to read.*upgrade indextables"):
        load_snapshot(context(store))
    assert live(load_snapshot(context(store), 1)) == {"a": 10}


@pytest.mark.parametrize("what", UNREADABLE)
def test_refresh_checks_the_reader_protocol(store, what):
    snapshot = do(new_table(store), append("a")).snapshot
    write_version(store, 2, UNREADABLE[what], add("b"))
    with pytest.raises(UnsupportedProtocolError, match=NEEDED[what]):
        catch_up(snapshot)


@pytest.mark.parametrize("what", UNREADABLE)
def test_protocol_in_a_checkpoint_is_checked(store, what):
    do(new_table(store), append("a"))
    snapshot = load_snapshot(context(store))
    checkpoint(store)
    write_version(store, 2, UNREADABLE[what])
    with pytest.raises(UnsupportedProtocolError, match=NEEDED[what]):
        load_snapshot(context(store))
    assert snapshot.version == 1


@pytest.mark.parametrize("intent", [append("x"), overwrite("x"), remove("a"), UpgradeProtocol(4, 4)], ids=str)
@pytest.mark.parametrize("what", UNWRITABLE)
def test_unsupported_writer_version_or_feature_stops_writers_but_not_readers(store, what, intent):
    do(older_table(store), append("a"))
    write_version(store, 2, UNWRITABLE[what])
    before = log_keys(store)
    snapshot = load_snapshot(context(store))
    assert live(snapshot) == {"a": 10}
    with pytest.raises(UnsupportedProtocolError, match=f"{NEEDED[what]} to write to"):
        do(snapshot, intent)
    assert log_keys(store) == before


def test_unsupported_writer_cannot_change_properties(store):
    do(new_table(store), append("a"))
    write_version(store, 2, UNWRITABLE["a newer version"])
    with pytest.raises(UnsupportedProtocolError):
        set_properties(load_snapshot(context(store)), {"owner": "me"})


@pytest.mark.parametrize("operation", [write_checkpoint, compact])
def test_unsupported_writer_cannot_write_a_checkpoint(store, operation):
    """A writer that does not support the protocol could drop content from a checkpoint."""
    do(new_table(store), append("a"))
    write_version(store, 2, UNWRITABLE["an unknown feature"])
    before = log_keys(store)
    with pytest.raises(UnsupportedProtocolError):
        operation(load_snapshot(context(store)))
    assert log_keys(store) == before


def test_known_features_and_older_versions_are_accepted(store):
    do(new_table(store), append("a"))
    features = (
        "avroState",
        "schemaDeduplication",
        "multiPartCheckpoint",
        "footerOffsets",
        "conditionalWrites",
    )
    write_version(
        store,
        2,
        ProtocolAction(
            min_reader_version=3, min_writer_version=3, reader_features=features, writer_features=features
        ),
    )
    assert do(load_snapshot(context(store, CONVERT)), append("b")).version == 3


def test_upgrade_is_a_commit(store):
    snapshot = older_table(store)
    result = upgrade_protocol(snapshot, 4, 4)
    assert (result.is_committed, result.version) == (True, 1)
    again = load_snapshot(context(store))
    assert (again.protocol.min_reader_version, again.protocol.min_writer_version) == (4, 4)
    assert load_snapshot(context(store), 0).protocol.min_reader_version == 3


@pytest.mark.parametrize(("reader", "writer"), [(1, 1), (3, 3), (0, 0)])
def test_protocol_is_never_downgraded(store, reader, writer):
    snapshot = older_table(store)
    result = upgrade_protocol(snapshot, reader, writer)
    assert (result.is_committed, result.snapshot.protocol) == (False, snapshot.protocol)


def test_upgrade_of_one_side_leaves_the_other_and_the_features(store):
    older_table(store)
    features = ProtocolAction(min_reader_version=3, min_writer_version=3, writer_features=("avroState",))
    write_version(
        store,
        1,
        features,
        more='{"protocol":{"minReaderVersion":3,"minWriterVersion":3,'
        '"writerFeatures":["avroState"],"later":1}}\n',
    )
    protocol = upgrade_protocol(load_snapshot(context(store)), 3, 4).snapshot.protocol
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 4)
    assert protocol.writer_features == ("avroState",)
    assert load_snapshot(context(store)).protocol.unknown == {"later": 1}


def test_upgrade_beyond_this_release_is_rejected(store):
    with pytest.raises(InvalidOptionError, match="supports protocol version 5"):
        upgrade_protocol(new_table(store), 6, 5)
    with pytest.raises(InvalidOptionError):
        upgrade_protocol(load_snapshot(context(store)), 5, 6)


def test_protocol_survives_the_version_that_set_it(store):
    do(upgrade_protocol(older_table(store), 4, 4).snapshot, append("a"))
    checkpoint(store)
    store.delete_many([key for key in log_keys(store) if key.endswith(".json")])
    assert load_snapshot(context(store)).protocol.min_writer_version == 5

import pytest

from indextables.errors import UnsupportedProtocolError
from indextables.log.actions import (
    CURRENT_PROTOCOL,
    DEFAULT_PROTOCOL,
    KNOWN_FEATURES,
    ProtocolAction,
    check_readable,
    check_writable,
    upgraded,
)


def protocol(reader: int = 1, writer: int = 1, **fields) -> ProtocolAction:
    return ProtocolAction(min_reader_version=reader, min_writer_version=writer, **fields)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_all_versions_up_to_the_current_one_are_read_and_written(version):
    check_readable(protocol(version, version), "a table")
    check_writable(protocol(version, version), "a table")


def test_a_table_that_needs_a_newer_reader_is_refused_with_the_needed_version():
    for check in (check_readable, check_writable):
        with pytest.raises(
            UnsupportedProtocolError, match=r"a table: needs protocol version 6 to read.*upgrade"
        ):
            check(protocol(6, 6), "a table")


def test_a_table_that_needs_a_newer_writer_can_still_be_read():
    check_readable(protocol(5, 6), "a table")
    with pytest.raises(
        UnsupportedProtocolError, match=r"a table: needs protocol version 6 to write.*upgrade"
    ):
        check_writable(protocol(5, 6), "a table")


def test_unknown_features_are_refused_by_name():
    features = ("avroState", "timeMachine", "antiGravity")
    unreadable = protocol(3, 3, reader_features=features)
    for check in (check_readable, check_writable):
        with pytest.raises(
            UnsupportedProtocolError, match="needs the features antiGravity, timeMachine to read"
        ):
            check(unreadable, "a table")
    unwritable = protocol(3, 3, reader_features=("avroState",), writer_features=features)
    check_readable(unwritable, "a table")
    with pytest.raises(
        UnsupportedProtocolError, match="needs the features antiGravity, timeMachine to write"
    ):
        check_writable(unwritable, "a table")


def test_features_of_the_specification_and_of_other_writers_are_known():
    documents = {"avroState", "multiPartCheckpoint", "schemaDeduplication", "footerOffsets", "tantivy4java",
                 "conditionalWrites", "checkpoints"}  # fmt: skip
    other_writers = {"skippedFiles", "extendedMetadata", "footerOffsets", "checkpoint", "optimizeWrite",
                     "multiPartCheckpoint", "schemaDeduplication", "avroState"}  # fmt: skip
    assert documents | other_writers <= KNOWN_FEATURES
    everything = tuple(sorted(KNOWN_FEATURES))
    check_writable(protocol(4, 4, reader_features=everything, writer_features=everything), "a table")


def test_a_protocol_is_upgraded_and_never_downgraded():
    old = protocol(1, 2, reader_features=("footerOffsets",), unknown={"future": 1})
    new = upgraded(old, 4, 4)
    assert new == protocol(4, 4, reader_features=("footerOffsets",), unknown={"future": 1})
    assert upgraded(new, 1, 1) == new
    assert upgraded(protocol(2, 4), 3, 3) == protocol(3, 4)


def test_new_tables_have_the_current_version_and_old_ones_without_the_action_the_first():
    assert (CURRENT_PROTOCOL.min_reader_version, CURRENT_PROTOCOL.min_writer_version) == (5, 5)
    assert (DEFAULT_PROTOCOL.min_reader_version, DEFAULT_PROTOCOL.min_writer_version) == (1, 1)
    check_writable(CURRENT_PROTOCOL, "a table")

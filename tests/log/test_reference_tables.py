"""Logs of the reference implementation on the JVM, where available."""

import json
from pathlib import Path

import pytest

from indextables.log.actions import check_writable
from indextables.log.decode import UnknownContent, decode_tail
from indextables.log.paths import parse_log_path, state_dir
from indextables.log.replay import EMPTY_HEADER, replay_header
from indextables.log.segment import BaseFormat, build_segment, list_log, read_hint
from indextables.log.version_file import read_version_files
from indextables.storage import open_store

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"

pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"there are no reference tables at {FIXTURES}")

TABLES = json.loads((FIXTURES / "expected.json").read_text()) if FIXTURES.is_dir() else {}


@pytest.fixture(params=TABLES)
def table(request):
    return open_store(FIXTURES / request.param), TABLES[request.param]


def test_the_hint_points_at_the_newest_state(table):
    store, expected = table
    hint = read_hint(store)
    assert hint is not None
    assert (hint.version, hint.num_files, hint.size_in_bytes) == (
        expected["version"],
        expected["numFiles"],
        expected["totalBytes"],
    )
    assert (hint.format, hint.state_dir) == (BaseFormat.AVRO_STATE.value, state_dir(expected["version"]))


def test_the_newest_state_is_the_newest_version(table):
    store, expected = table
    listing = list_log(store)
    newest = listing.bases_newest_first()[0]
    segment = build_segment(listing, newest)
    assert newest.format is BaseFormat.AVRO_STATE
    assert (newest.version, segment.version, segment.version_files, segment.gap) == (
        expected["version"],
    ) * 2 + (
        (),
        None,
    )


def test_version_zero_holds_protocol_and_metadata_and_nothing_unknown(table):
    store, expected = table
    files = read_version_files(store, list_log(store).version_files, parallelism=2)
    tail = decode_tail(files, UnknownContent.KEEP)
    header = replay_header(EMPTY_HEADER, tail.versions, {})
    assert [version.version for version in tail.versions] == [0]
    assert header.metadata is not None
    assert header.protocol is not None
    assert list(header.metadata.partition_columns) == expected["partitionColumns"]
    assert header.metadata.created_time == header.timestamp_ms
    assert (header.metadata.unknown, header.protocol.unknown, header.unknown_actions) == ({}, {}, ())
    check_writable(header.protocol, store.url)


def test_every_file_of_the_log_but_checksums_has_a_known_name(table):
    store, _ = table
    keys = [meta.key for meta in store.list("_transaction_log/")]
    assert {key for key in keys if parse_log_path(key) is None} == {
        key for key in keys if key.endswith(".crc")
    }

"""The log records that operators read: checkpoints and cleanups at INFO, load times and pruning at DEBUG."""

import logging
import re

import pytest

from indextables.ops.checkpoint.cleanup import clean_up
from indextables.predicates import bind, parse_predicate
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from support.clock import VirtualClock
from support.tables import FORMATS, AgeingStore, append, checkpoint, context, do, memory_store, new_table

AT_ONCE = {
    "purge.txLogRetentionHours": "0",
    "checkpoint.retention": "0",
    "state.retention.versions": "0",
    "state.retention.hours": "0",
}


@pytest.fixture
def store() -> ObjectStore:
    clock = VirtualClock()
    store = AgeingStore(memory_store(clock), clock)
    do(do(new_table(store), append("a", "b")).snapshot, append("c", date="2024-01-02"))
    return store


def lines(caplog, level: int, start: str) -> list[str]:
    """The messages of this level that start so, after the URL of the table and without times."""
    found = [record for record in caplog.records if record.levelno == level]
    messages = [record.getMessage().partition("/table: ")[2] for record in found]
    return [re.sub(r" in [0-9.]+ ms", " in … ms", text) for text in messages if text.startswith(start)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_checkpoint_is_logged_with_its_files_and_its_size(store, caplog, form):
    caplog.set_level(logging.INFO)
    before = {meta.key for meta in store.list("")} | {"_transaction_log/_last_checkpoint"}
    checkpoint(store, form)
    size = sum(meta.size for meta in store.list("") if meta.key not in before)
    name = load_snapshot(context(store)).segment.base.format.value
    assert lines(caplog, logging.INFO, "wrote") == [
        f"wrote the checkpoint of version 2: 3 files, {size} bytes of {name}, in … ms"
    ]


def test_a_cleanup_is_logged_with_what_it_deleted(store, caplog):
    caplog.set_level(logging.INFO)
    checkpoint(store, version=1)
    checkpoint(store)
    store.clock.advance(3600)
    clean_up(context(store, AT_ONCE), 2)
    clean_up(context(store, AT_ONCE), 2)  # nothing is left to delete
    assert lines(caplog, logging.INFO, "cleaned up") == [
        "cleaned up 1 checkpoints and 2 versions after the checkpoint of version 2"
    ]


def test_the_time_to_open_a_table_is_logged_at_debug(store, caplog):
    checkpoint(store, version=1)
    caplog.set_level(logging.DEBUG)
    load_snapshot(context(store)).entries.validate()
    assert lines(caplog, logging.DEBUG, "opened") == [
        "opened version 2 from a checkpoint of the format avro-state and 1 versions in … ms"
    ]
    assert lines(caplog, logging.DEBUG, "read") == [
        "read 2 file entries from 1 of 1 manifests of the state of version 1 in … ms"
    ]


def test_pruning_is_logged_at_debug(store, caplog):
    snapshot = load_snapshot(context(store))
    caplog.set_level(logging.DEBUG)
    snapshot.select(bind(parse_predicate("date = '2024-01-02' AND id > 5"), snapshot.schema))
    snapshot.select(bind(parse_predicate("id > 50"), snapshot.schema))
    assert lines(caplog, logging.DEBUG, "pruning") == [
        "pruning kept 1 files of version 2; it skipped 0 of 0 manifests, 2 files by partition and 0 by statistics",
        "pruning kept 0 files of version 2; it skipped 0 of 0 manifests, 0 files by partition and 3 by statistics",
    ]


def test_nothing_of_this_is_logged_at_warning(store, caplog):
    caplog.set_level(logging.WARNING)
    checkpoint(store)
    load_snapshot(context(store)).entries.validate()
    assert caplog.records == []

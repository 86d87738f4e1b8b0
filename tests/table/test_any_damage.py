"""Damage at any byte of any log file: the table opens, or raises a typed error, and no other file is touched."""

import functools
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import IndexTablesError
from indextables.log.paths import LOG_PREFIX
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from support.faults import FaultStore
from support.tables import FORMATS, busy_table, checkpoint, context, copy_all, log_keys, memory_store

PIECES = st.one_of(
    st.binary(max_size=12),
    st.just(b"\xff" * 9 + b"\x01"),
    st.sampled_from(
        [b"..", b"%2e%2e/", b"/etc/passwd", b"s3://other/x", b"\x00", b"-1", b"1e999", b"[" * 50]
    ),
)


@functools.cache
def damaged_table(form: str) -> tuple[ObjectStore, list[str]]:
    """All files of the log of a table whose newest version needs its checkpoint."""
    store = memory_store()
    busy_table(store)
    checkpoint(store, form, version=4)
    checkpoint(store, form, version=9)
    store.delete_many([f"{LOG_PREFIX}{version:020}.json" for version in range(9)])
    return store, log_keys(store)


@settings(max_examples=200)
@given(
    form=st.sampled_from(sorted(FORMATS)),
    chosen=st.integers(0, 1000),
    place=st.floats(0, 1),
    removed=st.integers(0, 20) | st.just(1 << 20),
    inserted=PIECES,
)
def test_log_with_any_damaged_file_opens_or_raises(form, chosen, place, removed, inserted):
    original, keys = damaged_table(form)
    store = memory_store()
    copy_all(original, store)
    key = keys[chosen % len(keys)]
    data = store.get(key)
    at = int(place * len(data))
    store.put(key, data[:at] + inserted + data[at + removed :])
    watched = FaultStore(store)
    with suppress(IndexTablesError):
        snapshot = load_snapshot(context(watched))
        assert snapshot.entries.num_rows == snapshot.num_files
    assert all(call.key.startswith(LOG_PREFIX) for call in watched.calls)
    assert not {call.operation for call in watched.calls} & {
        "put",
        "put_if_absent",
        "put_if_unchanged",
        "delete_many",
    }


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_log_without_damage_opens(form):
    original, keys = damaged_table(form)
    assert len(keys) > 4
    assert load_snapshot(context(original)).num_files

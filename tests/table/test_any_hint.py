"""Any content of `_last_checkpoint`: readers see the same table, and request no file outside the log."""

import functools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX
from indextables.ops.write import commit_files
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from support.faults import FaultStore
from support.tables import add, busy_table, checkpoint, context, copy_all, live, memory_store

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["../../x", "/etc/passwd", "s3://other/x", "state-v3", "avro-state", "parquet", "\x00"]),
    st.text(max_size=5),
    st.lists(st.integers(0, 3), max_size=3),
)
FIELDS = (
    "version", "size", "sizeInBytes", "numFiles", "createdTime", "parts", "checkpointId", "format", "stateDir",
    "protocolVersion",
)  # fmt: skip
HINTS = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1).map(lambda hint: json.dumps(hint).encode()),
    st.integers(-2, 40).map(lambda version: json.dumps({"version": version, "size": 1}).encode()),
)


@functools.cache
def table() -> tuple[ObjectStore, tuple[int, dict[str, int]]]:
    store = memory_store()
    busy_table(store)
    checkpoint(store, version=4)
    checkpoint(store, version=8)
    newest = load_snapshot(context(store))
    return store, (newest.version, live(newest))


@given(hint=HINTS)
@settings(max_examples=120)
def test_any_hint_leads_to_the_same_table(hint):
    original, expected = table()
    store = memory_store()
    copy_all(original, store)
    store.put(LAST_CHECKPOINT_KEY, hint)
    watched = FaultStore(store)
    newest = load_snapshot(context(watched))
    assert (newest.version, live(newest)) == expected
    assert all(call.key.startswith(LOG_PREFIX) for call in watched.calls)
    assert commit_files(newest, [add("next")], []).version == expected[0] + 1

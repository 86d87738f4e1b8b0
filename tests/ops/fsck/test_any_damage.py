"""FSCK reports any damage of the log, and never raises because of it."""

import pytest

from indextables.log.paths import version_key
from indextables.ops.fsck.operation import fsck
from indextables.ops.runner import LocalRunner
from indextables.storage import ObjectStore
from indextables.table.context import process_cache
from support.purge_tables import add_split, clocked_store, newest, remove_split, table_of
from support.tables import checkpoint, context, copy_all, log_keys, memory_store

DAMAGE = {
    "cut off": lambda data: data[: len(data) // 2],
    "changed": lambda data: bytes([data[0] ^ 0xFF]) + data[1:],
    "missing": None,
}


def table_in(form: str) -> ObjectStore:
    """Five versions, checkpoints of the versions 3 and 5 in this format, and no version files before 2."""
    store = clocked_store()
    table = table_of(store, "a.split", "b.split", "c.split")
    checkpoint(store, form)
    remove_split(table, "a.split")
    add_split(newest(store), "d.split", number=1)
    checkpoint(store, form)
    store.delete_many([version_key(version) for version in range(2)])
    return store


def damage(store: ObjectStore, key: str, name: str) -> None:
    change = DAMAGE[name]
    if change is None:
        store.delete_many([key])
    else:
        store.put(key, change(store.get(key)))


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("form", ["avro", "json", "multi-part parquet"])
def test_every_damaged_file_of_the_log_is_reported(form, name):
    original = table_in(form)
    assert fsck(context(original), LocalRunner(1), deep=False).is_clean
    for key in log_keys(original):
        store = memory_store()
        copy_all(original, store)
        damage(store, key, name)
        process_cache().invalidate()
        found = fsck(context(store), LocalRunner(1), deep=False).findings
        assert found or name == "missing", key

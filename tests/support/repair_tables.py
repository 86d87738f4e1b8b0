"""Tables with real splits, built once, and every kind of damage that REPAIR must handle."""

import functools
import gzip
from collections.abc import Callable, Mapping

import orjson
import pyarrow as pa

from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, json_checkpoint_key, version_key
from indextables.ops.merge import MergeRequest, merge_splits
from indextables.ops.read import scan
from indextables.ops.runner import LocalRunner
from indextables.ops.write import append
from indextables.storage import ObjectStore
from indextables.table import Snapshot, create_table, load_snapshot
from support.row_tables import SCHEMA, counted, rows
from support.tables import checkpoint, context, log_keys, memory_store

DAYS = ("2024-01-01", None, "A/A", "%", "é")
PROPERTIES = {"spark.indextables.indexing.typemap.body": "text", "owner": "me"}

# The versions of the merge, of the newest checkpoint, and of the head.
MERGED, STATE, NEWEST = 7, 8, 10


def contents(store: ObjectStore) -> dict[str, bytes]:
    """The bytes of every object."""
    return {meta.key: store.get(meta.key) for meta in store.list("")}


def filled(objects: Mapping[str, bytes]) -> ObjectStore:
    store = memory_store()
    for key, data in objects.items():
        store.put(key, data)
    return store


def newest(store: ObjectStore) -> Snapshot:
    return load_snapshot(context(store))


def table_rows(store: ObjectStore) -> list[str]:
    return counted(scan(newest(store), None, None).read_all())


def whole_table(form: str = "avro") -> ObjectStore:
    """A table with unusual partition values, a merge whose sources still exist, and a checkpoint before the head."""
    return filled(_whole_table(form))


@functools.cache
def _whole_table(form: str) -> dict[str, bytes]:
    store = memory_store()
    table = create_table(context(store), SCHEMA, ["day"], PROPERTIES)
    for number, day in enumerate((*DAYS, DAYS[0])):
        table = append(table, rows(number * 10, number * 10 + 1, day=day)).snapshot
    merged = merge_splits(table, MergeRequest(target_size="1G"), LocalRunner(1)).snapshot
    assert merged.version == MERGED
    table = append(merged, rows(100, day=None)).snapshot
    assert table.version == STATE
    checkpoint(store, form)
    for number in (200, 300):
        table = append(table, rows(number, number + 1, day="A/A")).snapshot
    assert table.version == NEWEST
    return contents(store)


def all_rows() -> list[str]:
    return table_rows(whole_table())


def halve(store: ObjectStore, key: str) -> None:
    data = store.get(key)
    store.put(key, data[: len(data) // 2])


def delete_log(store: ObjectStore) -> None:
    store.delete_many(log_keys(store))


def clean_up(store: ObjectStore) -> None:
    """Delete the version files that the newest checkpoint covers."""
    store.delete_many([version_key(version) for version in range(STATE + 1)])


def state_key(store: ObjectStore) -> str:
    return next(key for key in log_keys(store) if key.endswith("/_manifest.avro"))


def manifest_key(store: ObjectStore) -> str:
    return next(key for key in log_keys(store) if "/manifests/" in key)


def truncate_version(store: ObjectStore) -> None:
    halve(store, version_key(NEWEST - 1))


def scribble_version(store: ObjectStore) -> None:
    store.put(version_key(NEWEST - 1), b"\x00\xff not a log file \n" * 9)


def lose_version(store: ObjectStore) -> None:
    store.delete_many([version_key(NEWEST - 1)])


def corrupt_state(store: ObjectStore) -> None:
    clean_up(store)
    halve(store, state_key(store))


def lose_state(store: ObjectStore) -> None:
    clean_up(store)
    store.delete_many([state_key(store)])


def lose_manifest(store: ObjectStore) -> None:
    clean_up(store)
    store.delete_many([manifest_key(store)])


def truncate_manifest(store: ObjectStore) -> None:
    clean_up(store)
    halve(store, manifest_key(store))


def corrupt_hint(store: ObjectStore) -> None:
    store.put(LAST_CHECKPOINT_KEY, b'{"version": "soon"')


def lose_hint(store: ObjectStore) -> None:
    store.delete_many([LAST_CHECKPOINT_KEY])


def lose_part(store: ObjectStore) -> None:
    clean_up(store)
    parts = [key for key in log_keys(store) if ".checkpoint." in key and key != json_checkpoint_key(STATE)]
    assert len(parts) > 1
    store.delete_many(parts[:1])


def lose_list_of_parts(store: ObjectStore) -> None:
    clean_up(store)
    store.delete_many([json_checkpoint_key(STATE)])


def lose_metadata(store: ObjectStore) -> None:
    """Delete all checkpoints, and all metaData actions from the version files."""
    store.delete_many([key for key in log_keys(store) if not key.removeprefix(LOG_PREFIX).startswith("0")])
    for version in range(NEWEST + 1):
        lines = gzip.decompress(store.get(version_key(version))[2:]).splitlines()
        kept = [line for line in lines if "metaData" not in orjson.loads(line)]
        store.put(version_key(version), b"\n".join(kept))


def several(store: ObjectStore) -> None:
    clean_up(store)
    lose_manifest(store)
    truncate_version(store)
    corrupt_hint(store)


def empty_everything(store: ObjectStore) -> None:
    for key in log_keys(store):
        store.put(key, b"")


def truncate_the_merge(store: ObjectStore) -> None:
    """Truncate the version of the merge after its removes; no other file has its adds."""
    store.delete_many([state_key(store), manifest_key(store), LAST_CHECKPOINT_KEY])
    lines = gzip.decompress(store.get(version_key(MERGED))[2:])
    assert lines.index(b'{"remove"') < lines.index(b'{"add"')
    store.put(version_key(MERGED), lines[: lines.index(b'{"add"') + 30])


def lose_the_merge(store: ObjectStore) -> None:
    store.delete_many([state_key(store), version_key(MERGED)])


# Each kind of damage, and the checkpoint format that it applies to.
DAMAGE: Mapping[str, tuple[Callable[[ObjectStore], None], str]] = {
    "log deleted": (delete_log, "avro"),
    "version file truncated": (truncate_version, "avro"),
    "version file garbage": (scribble_version, "avro"),
    "version file missing": (lose_version, "avro"),
    "state corrupt": (corrupt_state, "avro"),
    "state missing": (lose_state, "avro"),
    "manifest missing": (lose_manifest, "avro"),
    "manifest truncated": (truncate_manifest, "avro"),
    "hint corrupt": (corrupt_hint, "avro"),
    "hint missing": (lose_hint, "avro"),
    "checkpoint part missing": (lose_part, "multi-part json"),
    "list of checkpoint parts missing": (lose_list_of_parts, "multi-part json"),
    "parquet checkpoint missing": (clean_up, "parquet"),
    "metadata lost": (lose_metadata, "avro"),
    "several at once": (several, "avro"),
    "everything empty": (empty_everything, "avro"),
    "merge truncated": (truncate_the_merge, "avro"),
    "merge lost": (lose_the_merge, "avro"),
}


def damaged_table(name: str) -> ObjectStore:
    damage, form = DAMAGE[name]
    store = whole_table(form)
    if form == "parquet":
        store.delete_many([key for key in log_keys(store) if key.endswith(".parquet")])
    damage(store)
    return store


def more_rows() -> pa.Table:
    return rows(999, day=None)

"""States and entries of other writers on top of ours: their differences must not corrupt the table."""

import itertools
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from indextables.log.paths import LOG_PREFIX, state_manifest_key, version_key
from support.manifest_samples import avro_schema, fastavro_file, fastavro_rows
from support.state_tables import TableBuilder, numbered, paths, split, state_of

OUR_FIELDS = {
    "protocol",
    "skips",
    "transactions",
    "unknownActions",
    "timestamp",
    "recentCommits",
    "protocolNotInLog",
}


OUR_FIELDS_OF_MANIFESTS = {"hasTypedBounds", "typedBounds", "firstPath", "lastPath", "sizeBytes"}


def write_as_on_the_jvm(tables: TableBuilder, **changes: object) -> None:
    """The next state as the writer on the JVM derives it from ours: without the fields that it does not know."""
    older = Path(tables.path, state_manifest_key(1)).read_bytes()
    schema: Any = json.loads(json.dumps(avro_schema(older)))
    schema["fields"] = [field for field in schema["fields"] if field["name"] not in OUR_FIELDS]
    manifests = next(field for field in schema["fields"] if field["name"] == "manifests")["type"]["items"]
    manifests["fields"] = [
        field for field in manifests["fields"] if field["name"] not in OUR_FIELDS_OF_MANIFESTS
    ]
    (state,) = fastavro_rows(older)
    target = Path(tables.path, state_manifest_key(2))
    target.parent.mkdir()
    target.write_bytes(fastavro_file(schema, [{**state, "stateVersion": 2, **changes}]))


def remove_as_on_the_jvm(tables: TableBuilder, path: str) -> None:
    """Adds a tombstone, and leaves all counts but one unchanged."""
    num_files = state_of(tables.open()).num_files
    write_as_on_the_jvm(tables, tombstones=[path], numFiles=num_files - 1)


def add_again_as_on_the_jvm(tables: TableBuilder) -> None:
    """Adds a manifest with all paths of the first one, and counts that ignore the repetition."""
    older = state_of(tables.open())
    (first,) = fastavro_rows(Path(tables.path, state_manifest_key(1)).read_bytes())[0]["manifests"]
    again = Path(first["path"]).with_name("manifest-again.avro").as_posix()
    Path(tables.path, LOG_PREFIX, again).write_bytes(
        Path(tables.path, LOG_PREFIX, first["path"]).read_bytes()
    )
    write_as_on_the_jvm(
        tables,
        manifests=[first, {**first, "path": again}],
        numFiles=2 * older.num_files,
        totalBytes=2 * older.total_bytes,
    )


@pytest.mark.parametrize("then", ["checkpoint", "compact"])
@pytest.mark.parametrize("removed_by_us", [[], numbered([1])])
def test_a_file_that_another_writer_removed_stays_removed(builder, then, removed_by_us):
    tables = builder("day", state__compaction__tombstoneThreshold="0.99")
    tables.create().commit(adds=[split(n, day=str(n)) for n in range(20)])
    tables.open().checkpoint()
    remove_as_on_the_jvm(tables, "part-00000.split")
    assert paths(tables.open()) == numbered(range(1, 20))
    tables.open().commit(adds=[split(20, day="20")], removes=removed_by_us)
    getattr(tables.open(), then)()
    found = tables.open()
    assert found.num_files == 20 - len(removed_by_us)
    assert paths(found) == sorted(set(numbered(range(1, 21))) - set(removed_by_us))


def test_the_bytes_of_files_removed_by_another_writer_do_not_count(builder):
    tables = builder("day")
    tables.create().commit(adds=[split(n, day=str(n)) for n in range(20)])
    tables.open().checkpoint()
    remove_as_on_the_jvm(tables, "part-00000.split")
    assert tables.open().total_bytes == sum(100 + n for n in range(1, 20))
    tables.open().commit(adds=[split(20, day="20")])
    tables.open().checkpoint()
    found = tables.open()
    assert found.total_bytes == pc.sum(found.files()["size"]).as_py() == sum(100 + n for n in range(1, 21))


def test_files_added_twice_by_another_writer_count_once(builder):
    tables = builder("day")
    tables.create().commit(adds=[split(n, day=str(n)) for n in range(20)])
    tables.open().checkpoint()
    add_again_as_on_the_jvm(tables)
    found = tables.open()
    assert (found.num_files, found.total_bytes) == (20, sum(100 + n for n in range(20)))
    found.commit(adds=[split(20, day="20")])
    found.checkpoint()
    state = state_of(tables.open())
    assert (state.num_files, state.total_bytes) == (21, sum(100 + n for n in range(21)))


@pytest.mark.parametrize("how", ["checkpoint", "compact"])
def test_compaction_keeps_the_columns_of_other_writers(builder, how):
    tables = builder("day")
    tables.create().commit(adds=[split(n, day=str(n)) for n in range(20)])
    tables.open().checkpoint()
    manifest = Path(tables.path, LOG_PREFIX, state_of(tables.open()).manifests[0].path)
    schema: Any = json.loads(json.dumps(avro_schema(manifest.read_bytes())))
    weight = {"type": "map", "values": "double"}
    schema["fields"].append({"name": "weights", "type": ["null", weight], "default": None, "field-id": 199})
    money = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    schema["fields"].append({"name": "price", "type": money})
    schema["fields"].append({"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]})
    theirs = {"weights": {"a": 0.5}, "price": Decimal("1.25"), "day": date(2024, 2, 29)}
    rows = [{**row, **theirs} for row in fastavro_rows(manifest.read_bytes())]
    manifest.write_bytes(fastavro_file(schema, rows))
    tables.open().commit(removes=numbered(range(5)))
    getattr(tables.open(), how)()
    (info,) = state_of(tables.open()).manifests
    written = Path(tables.path, LOG_PREFIX, info.path).read_bytes()
    assert {field["name"]: field.get("field-id") for field in avro_schema(written)["fields"]}[
        "weights"
    ] == 199
    assert [{name: row[name] for name in theirs} for row in fastavro_rows(written)] == [theirs] * 15


def commit_in_six_spellings(tables: TableBuilder, version: int) -> None:
    """A version of a writer that hashes doc mappings without normalizing them."""
    metadata = tables.open()._snapshot.metadata
    columns = [{"name": "a", "type": "i64"}, {"name": "b", "type": "text"}, {"name": "c", "type": "f64"}]
    mappings = {f"spelling-{n}": json.dumps(order) for n, order in enumerate(itertools.permutations(columns))}
    registry = {f"docMappingSchema.{hash_}": mapping for hash_, mapping in mappings.items()}
    schema = {"schemaString": metadata.schema_string, "partitionColumns": list(metadata.partition_columns)}
    actions: list[dict[str, Any]] = [
        {
            "metaData": {
                "id": metadata.id,
                "format": {"provider": "indextables", "options": {}},
                "configuration": registry,
                **schema,
            }
        }
    ]
    for number, hash_ in enumerate(mappings):
        entry = {
            "path": f"{hash_}.split",
            "partitionValues": {"day": "1"},
            "size": number,
            "modificationTime": 1,
        }
        actions.append({"add": {**entry, "dataChange": True, "docMappingRef": hash_}})
    Path(tables.path, version_key(version)).write_text(
        "".join(json.dumps(action) + "\n" for action in actions)
    )


def test_a_checkpoint_unifies_the_spellings_of_a_mapping(builder):
    tables = builder("day")
    tables.create().commit(adds=[split(1, day="1")])
    tables.open().checkpoint()
    commit_in_six_spellings(tables, 2)
    assert len(set(tables.open().files()["docMappingRef"].drop_null().to_pylist())) == 6
    tables.open().checkpoint()
    (reference,) = set(tables.open().files()["docMappingRef"].drop_null().to_pylist())
    assert json.loads(state_of(tables.open()).doc_mappings[reference])
    # Later entries in another spelling get the same reference, and no old entry is rewritten.
    before = {info.path for info in state_of(tables.open()).manifests}
    late = Path(tables.path, version_key(3))
    entry = {"path": "late.split", "partitionValues": {"day": "1"}, "size": 1, "modificationTime": 1}
    late.write_text(json.dumps({"add": {**entry, "dataChange": True, "docMappingRef": "spelling-5"}}) + "\n")
    tables.open().checkpoint()
    assert set(tables.open().files()["docMappingRef"].drop_null().to_pylist()) == {reference}
    assert before < {info.path for info in state_of(tables.open()).manifests}

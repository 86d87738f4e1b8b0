"""Fields of a state manifest that a newer or another writer defined survive the states that we write after it."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from indextables.log.paths import state_manifest_key
from support.manifest_samples import avro_schema, fastavro_file, fastavro_rows
from support.state_tables import TableBuilder, numbered, paths, split

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
SHARD = {"type": "record", "name": "Shard", "fields": [{"name": "host", "type": "string"}]}
FIELDS = (
    {"name": "generation", "type": "long", "field-id": 77},
    {"name": "owner", "type": ["null", "string"], "default": None},
    {"name": "price", "type": MONEY},
    {"name": "since", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    {"name": "shards", "type": {"type": "array", "items": SHARD}},
    # Refers to a type that another unknown field defines.
    {"name": "first", "type": ["null", "Shard"], "default": None},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["HOT", "COLD"]}},
    {"name": "weights", "type": {"type": "map", "values": "double"}, "default": {}},
)
VALUES = {
    "generation": 12,
    "owner": "me",
    "price": Decimal("1.25"),
    "since": date(2024, 2, 29),
    "shards": [{"host": "a"}, {"host": "ü"}],
    "first": {"host": "a"},
    "kind": "COLD",
    "weights": {"a": 0.5},
}
MANIFEST_FIELDS = (
    {"name": "checksum", "type": ["null", "string"], "default": None},
    {"name": "level", "type": "int", "default": 7},
)


@pytest.fixture
def tables(builder) -> TableBuilder:
    """The state of version 1, as a newer writer would have written it."""
    tables = builder("day", state__compaction__tombstoneThreshold="0.99")
    tables.create().commit(adds=[split(n, day=str(n)) for n in range(4)])
    tables.open().checkpoint()
    rewrite(tables, FIELDS, VALUES, MANIFEST_FIELDS, {"checksum": "c", "level": 1})
    return tables


def rewrite(tables: TableBuilder, fields, values, manifest_fields=(), manifest_values=None) -> None:
    file = Path(tables.path, state_manifest_key(1))
    schema: Any = json.loads(json.dumps(avro_schema(file.read_bytes())))
    schema["fields"] += fields
    manifests = next(field for field in schema["fields"] if field["name"] == "manifests")["type"]["items"]
    manifests["fields"] += manifest_fields
    (row,) = fastavro_rows(file.read_bytes())
    infos = [{**info, **(manifest_values or {})} for info in row["manifests"]]
    file.write_bytes(fastavro_file(schema, [{**row, **values, "manifests": infos}]))


def stored(tables: TableBuilder, version: int) -> dict[str, Any]:
    (row,) = fastavro_rows(Path(tables.path, state_manifest_key(version)).read_bytes())
    return row


def foreign(tables: TableBuilder, version: int) -> dict[str, Any]:
    return {name: stored(tables, version).get(name) for name in VALUES}


def test_a_reader_is_not_disturbed(tables):
    assert paths(tables.open()) == numbered(range(4))


def test_unknown_fields_survive_every_later_state(tables):
    for version in (2, 3):
        tables.open().commit(adds=[split(version * 10, day="1")], removes=numbered([version]))
        tables.open().checkpoint()
        assert foreign(tables, version) == VALUES
    assert paths(tables.open()) == numbered([0, 1, 20, 30])


def test_unknown_fields_survive_a_compaction(tables):
    tables.open().commit(adds=[split(9, day="9")])
    tables.open().checkpoint()
    assert tables.open().compact().version == 3
    assert foreign(tables, 3) == VALUES
    assert paths(tables.open()) == numbered([0, 1, 2, 3, 9])


def test_definitions_survive_as_far_as_readers_need_them(tables):
    tables.open().commit(adds=[split(9, day="9")])
    tables.open().checkpoint()
    fields = {
        field["name"]: field
        for field in avro_schema(Path(tables.path, state_manifest_key(2)).read_bytes())["fields"]
    }
    assert fields["generation"]["field-id"] == 77
    assert fields["price"]["type"]["logicalType"] == "decimal"
    assert fields["since"]["default"] is None
    assert fields["weights"]["default"] == {}


def test_unknown_fields_of_a_manifest_stay_with_the_manifest(tables):
    tables.open().commit(adds=[split(9, day="9")])
    tables.open().checkpoint()
    old, new = stored(tables, 2)["manifests"]
    assert (old["checksum"], old["level"]) == ("c", 1)
    assert (new["checksum"], new["level"]) == (None, 7)


def test_an_unknown_field_of_manifests_that_new_ones_cannot_have_ends_with_the_first_of_them(builder):
    tables = builder("day")
    tables.create().commit(adds=[split(1, day="1")])
    tables.open().checkpoint()
    rewrite(tables, (), {}, ({"name": "needed", "type": "long"},), {"needed": 5})
    tables.open().set_properties({"owner": "me"})
    tables.open().checkpoint()
    assert [info["needed"] for info in stored(tables, 2)["manifests"]] == [5]
    tables.open().commit(adds=[split(2, day="2")])
    tables.open().checkpoint()
    assert ["needed" in info for info in stored(tables, 3)["manifests"]] == [False, False]

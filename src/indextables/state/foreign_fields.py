"""Fields of state manifests that newer or other writers define: the next state carries them on.

A field of the state keeps its value. A field of the records of manifests keeps its values for the manifests that the
next state still refers to; a new manifest gets the default that the field's definition gives. A field of these records
without a default, and of a type that excludes null, cannot be carried on once there is a new manifest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from indextables.state.avro.types import NULL, Array, Record, RecordField, Union, fields_json
from indextables.state.schemas import MANIFEST_INFO_FIELDS, STATE_MANIFEST_FIELDS, STATE_MANIFEST_SCHEMA

_KNOWN = frozenset(field.name for field in STATE_MANIFEST_FIELDS)
_KNOWN_OF_MANIFESTS = frozenset(field.name for field in MANIFEST_INFO_FIELDS)


class ForeignFields(msgspec.Struct, frozen=True):
    """The definitions and values of foreign fields. `values_by_manifest` is by the path of the manifest."""

    fields: tuple[RecordField, ...] = ()
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)
    manifest_fields: tuple[RecordField, ...] = ()
    values_by_manifest: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)

    @property
    def are_any(self) -> bool:
        return bool(self.fields or self.manifest_fields)


NO_FOREIGN_FIELDS = ForeignFields()


def find_foreign_fields(schema: Record, row: Mapping[str, Any]) -> ForeignFields:
    """The foreign fields of a state manifest, given the schema that it was written with."""
    fields = tuple(field for field in schema.fields if field.name not in _KNOWN)
    manifest_fields = _foreign_manifest_fields(schema)
    if not fields and not manifest_fields:
        return NO_FOREIGN_FIELDS
    return ForeignFields(
        fields,
        {field.name: row[field.name] for field in fields},
        manifest_fields,
        {
            info["path"]: {field.name: info[field.name] for field in manifest_fields}
            for info in row["manifests"]
        }
        if manifest_fields
        else {},
    )


def _foreign_manifest_fields(schema: Record) -> tuple[RecordField, ...]:
    manifests = next((field.type for field in schema.fields if field.name == "manifests"), None)
    if not isinstance(manifests, Array) or not isinstance(manifests.items, Record):
        return ()
    return tuple(field for field in manifests.items.fields if field.name not in _KNOWN_OF_MANIFESTS)


def usable_for(foreign: ForeignFields, paths: Sequence[str]) -> ForeignFields:
    """The foreign fields for a state with these manifests, with values for all of them."""
    is_complete = all(path in foreign.values_by_manifest for path in paths)
    usable = [field for field in foreign.manifest_fields if is_complete or _has_default(field)]
    return ForeignFields(
        foreign.fields,
        foreign.values,
        tuple(usable),
        {
            path: {
                field.name: foreign.values_by_manifest[path][field.name]
                if path in foreign.values_by_manifest
                else _default(field)
                for field in usable
            }
            for path in paths
        },
    )


def schema_with(foreign: ForeignFields, *, is_annotated: bool) -> dict[str, Any]:
    """The schema of a state manifest with these fields. Values are encoded by the one without annotations."""
    rendered = fields_json((*foreign.fields, *foreign.manifest_fields), is_annotated=is_annotated)
    own, of_manifests = rendered[: len(foreign.fields)], rendered[len(foreign.fields) :]
    known = [
        _with_items(field, of_manifests) if field["name"] == "manifests" else field
        for field in STATE_MANIFEST_SCHEMA["fields"]
    ]
    return {**STATE_MANIFEST_SCHEMA, "fields": [*known, *own]}


def _with_items(manifests: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    items = manifests["type"]["items"]
    return {
        **manifests,
        "type": {**manifests["type"], "items": {**items, "fields": [*items["fields"], *fields]}},
    }


def _has_default(field: RecordField) -> bool:
    return field.default is not None or _allows_null(field)


def _default(field: RecordField) -> Any:
    return None if field.default is None else orjson.loads(field.default)


def _allows_null(field: RecordField) -> bool:
    return field.type == NULL or (isinstance(field.type, Union) and NULL in field.type.branches)

"""Field ids: the stable numbers of a table's columns, and of the members, elements, keys and values nested in them.

A sequence of ids follows the fields of its schema depth first. The log records ids in the metadata of Spark's
StructFields, under the keys that Spark and Delta use for Parquet; a Parquet file has them in its own schema.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa

from indextables._caching import shared_memo
from indextables.errors import InvalidSchemaError
from indextables.schema.spark_json import FIELD_ID_KEY, NESTED_IDS_KEY, spark_fields

FieldIds: TypeAlias = tuple[int, ...]
# The names and kinds on the way to a field: a list that becomes a struct is another field.
FieldPath: TypeAlias = tuple[tuple[str, str], ...]

_PARQUET_KEY: Final = b"PARQUET:field_id"
# Parquet stores 32 bits.
_MAX_ID: Final = 2**31 - 1

# The nested types of Spark without names of their own: the steps to the fields in them, and their types in JSON.
_STEPS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "array": (("element", "elementType"),),
    "map": (("key", "keyType"), ("value", "valueType")),
}


def new_field_ids(
    schema: pa.Schema, known: Mapping[FieldPath, int] | None = None, last_id: int = 0
) -> FieldIds:
    """Return ids for a schema: those of `known` fields, and new ones above `last_id`, in order, for the others.

    `last_id` is the highest id that the table ever had, so that no id is used twice.
    """
    remaining = dict(known or {})
    used: set[int] = set()
    last_id = max([last_id, *remaining.values()])
    ids = []
    for path in _paths(schema):
        field_id = remaining.get(path)
        if field_id is None or field_id in used:
            last_id += 1
            field_id = last_id
        used.add(field_id)
        ids.append(field_id)
    return tuple(ids)


def ids_by_path(schema: pa.Schema, ids: FieldIds) -> dict[FieldPath, int]:
    """Return the id of each field by its path, as `new_field_ids` takes them."""
    return dict(zip(_paths(schema), ids, strict=True)) if ids else {}


def record_field_ids(schema_string: str, ids: FieldIds) -> str:
    """Return a valid Spark schema in JSON with these ids; the rest stays as it is."""
    document = orjson.loads(schema_string)
    for field in spark_fields(document):
        metadata = field.get("metadata") or {}
        field["metadata"] = {key: value for key, value in metadata.items() if key not in _KEYS}
    for (metadata, key), field_id in zip(_places(document), ids, strict=True):
        metadata[key] = field_id
    return orjson.dumps(document).decode()


def assign_field_ids(document: Mapping[str, Any], last_id: int) -> int:
    """Give ids above `last_id`, in order, to the fields of a Spark schema that have none; return the last one."""
    for metadata, key in _places(document):
        if key not in metadata:
            last_id += 1
            metadata[key] = last_id
    return last_id


@shared_memo("schema.field_ids.recorded", "field ids by the JSON of their schema", max_entries=64)
def recorded_field_ids(schema_string: str) -> FieldIds:
    """Return the ids that a valid Spark schema in JSON records; none if it has none at all.

    Raises InvalidSchemaError if a field has no valid id of its own.
    """
    found: list[tuple[str, Any]] = [
        (key, metadata.get(key)) for metadata, key in _places(orjson.loads(schema_string))
    ]
    ids = [field_id for _, field_id in found]
    if all(field_id is None for field_id in ids):
        return ()
    for key, field_id in found:
        if type(field_id) is not int or not 1 <= field_id <= _MAX_ID:
            raise InvalidSchemaError(
                f"the schema has the field id {field_id!r} under {key!r}; every field needs a number of its own"
            )
    if len(set(ids)) != len(ids):
        twice = next(field_id for field_id in ids if ids.count(field_id) > 1)
        raise InvalidSchemaError(f"the schema has the field id {twice} twice; every field needs its own")
    return tuple(ids)


def with_field_ids(schema: pa.Schema, ids: FieldIds) -> pa.Schema:
    """Return the schema with ids in the metadata of its fields, where Arrow's Parquet reader and writer have them."""
    if not ids:
        return schema
    remaining = iter(ids)
    return pa.schema([_with_id(field, remaining) for field in schema], schema.metadata)


def names_in_file(stored: pa.Schema, wanted: Iterable[pa.Field]) -> dict[str, str]:
    """Return, for each wanted column that a file has, its name in the file: the only way to find a column.

    The column with the same id counts, whatever its name. Only if the file or the table has no ids, names count,
    ignoring case.
    """
    return _counterparts(list(stored), list(wanted))


def ids_by_field(schema: pa.Schema) -> dict[int, pa.Field]:
    """Return every field of a schema with ids, at any depth, by its id."""
    found: dict[int, pa.Field] = {}
    waiting = list(schema)
    while waiting:
        field = waiting.pop()
        field_id = _id_of(field)
        if field_id is not None:
            found[field_id] = field
        waiting += _children(field.type)
    return found


def type_in_table(stored: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return a nested type of a file, which may have ids, with the names that the table gives to its members.

    The result has no ids. Members that the table lacks get names that no member of the table has.
    """
    if _kind(stored) != _kind(wanted):
        return _mapped_type(stored, _without_id)
    if not isinstance(stored, pa.StructType):
        counterparts = iter(_children(wanted))
        return _mapped_type(stored, lambda child: _in_table(child, child.name, next(counterparts)))
    members = {field.name: field for field in _children(wanted)}
    names = {in_file: name for name, in_file in _counterparts(_children(stored), _children(wanted)).items()}
    longest = max(map(len, members), default=0)
    fields = []
    for position, child in enumerate(_children(stored)):
        name = names.get(child.name)
        if name is None:
            fields.append(_without_id(child).with_name("-" * (longest + 1 + position)))
        else:
            fields.append(_in_table(child, name, members[name]))
    return pa.struct(fields)


def _in_table(stored: pa.Field, name: str, wanted: pa.Field) -> pa.Field:
    return pa.field(name, type_in_table(stored.type, wanted.type), stored.nullable)


def _counterparts(stored: Sequence[pa.Field], wanted: Sequence[pa.Field]) -> dict[str, str]:
    by_id = {field_id: field.name for field in stored if (field_id := _id_of(field)) is not None}
    if by_id:
        ids = {field.name: _id_of(field) for field in wanted}
        if any(field_id is not None for field_id in ids.values()):
            return {name: by_id[field_id] for name, field_id in ids.items() if field_id in by_id}
    exact = {field.name for field in stored}
    lowered = {field.name.lower(): field.name for field in reversed(stored)}
    return {
        field.name: field.name if field.name in exact else lowered[field.name.lower()]
        for field in wanted
        if field.name.lower() in lowered
    }


def _id_of(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_PARQUET_KEY)
    return None if text is None else int(text)


def _with_id(field: pa.Field, ids: Iterator[int]) -> pa.Field:
    metadata = {**(field.metadata or {}), _PARQUET_KEY: str(next(ids)).encode()}
    data_type = _mapped_type(field.type, lambda child: _with_id(child, ids))
    return pa.field(field.name, data_type, field.nullable, metadata)


def _without_id(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _mapped_type(field.type, _without_id), field.nullable)


def _paths(schema: pa.Schema) -> Iterator[FieldPath]:
    return _paths_of(list(schema), ())


def _paths_of(fields: Sequence[pa.Field], parent: FieldPath) -> Iterator[FieldPath]:
    for field in fields:
        path = (*parent, (field.name.lower(), _kind(field.type)))
        yield path
        yield from _paths_of(_children(field.type), path)


def _kind(data_type: pa.DataType) -> str:
    if isinstance(data_type, pa.StructType):
        return "struct"
    if isinstance(data_type, pa.MapType):
        return "map"
    return "array" if isinstance(data_type, pa.ListType) else "value"


def _children(data_type: pa.DataType) -> list[pa.Field]:
    """Return the fields of a table's type; Arrow has one more between a map and its keys."""
    if isinstance(data_type, pa.MapType):
        return [data_type.key_field, data_type.item_field]
    return [data_type.field(position) for position in range(data_type.num_fields)]


def _mapped_type(data_type: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return the type with changed children, which are visited in order."""
    children = [change(child) for child in _children(data_type)]
    if isinstance(data_type, pa.StructType):
        return pa.struct(children)
    if isinstance(data_type, pa.MapType):
        return pa.map_(*children, keys_sorted=data_type.keys_sorted)
    return pa.list_(*children) if isinstance(data_type, pa.ListType) else data_type


# A place is an object in a Spark schema, and the key in it, where the id of a field is recorded. The ids of elements,
# keys and values, which are no StructFields, are recorded in the nearest StructField.

_KEYS: Final = (FIELD_ID_KEY, NESTED_IDS_KEY)
_Place: TypeAlias = tuple[dict[str, Any], str]


def _places(struct: Mapping[str, Any]) -> Iterator[_Place]:
    for field in struct["fields"]:
        field["metadata"] = metadata = field.get("metadata") or {}
        yield metadata, FIELD_ID_KEY
        yield from _nested_places(field["type"], metadata, field["name"])


def _nested_places(spark_type: Any, metadata: dict[str, Any], path: str) -> Iterator[_Place]:
    kind = spark_type["type"] if isinstance(spark_type, dict) else None
    if kind == "struct":
        yield from _places(spark_type)
    elif kind == "udt":
        yield from _nested_places(spark_type["sqlType"], metadata, path)
    for step, type_key in _STEPS.get(kind or "", ()):
        nested = metadata.setdefault(NESTED_IDS_KEY, {})
        if not isinstance(nested, dict):
            raise InvalidSchemaError(f"{NESTED_IDS_KEY} of {path!r} is not an object")
        yield nested, f"{path}.{step}"
        yield from _nested_places(spark_type[type_key], metadata, f"{path}.{step}")

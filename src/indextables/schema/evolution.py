"""Changes of a schema: columns and members of structs are added, dropped, renamed and altered.

A change is applied to the schema in JSON that the log has, so everything else in it stays as it is. A field is named by
its path: the names from the column on, with `element`, `key` and `value` as the steps into arrays and maps.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

import msgspec
import orjson
import pyarrow as pa

from indextables.errors import InvalidSchemaError
from indextables.schema.field_ids import assign_field_ids
from indextables.schema.spark_json import (
    ATOMIC_TYPES,
    DEFAULT_KEY,
    FIELD_ID_KEY,
    NESTED_IDS_KEY,
    STORED_NAME_KEY,
    WIDENED_KEY,
    from_spark_json,
    to_spark_json,
)

Path: TypeAlias = tuple[str, ...]

FIRST: Final = "first"
AFTER: Final = "after "
_START_OF_DAY: Final = "T00:00:00Z"
_COMMENT_KEY: Final = "comment"
_MAX_SHOWN: Final = 10

_Document: TypeAlias = dict[str, Any]

# The steps from a type without members of its own to the type inside it.
_STEPS: Final[Mapping[tuple[str, str], str]] = {
    ("array", "element"): "elementType",
    ("map", "key"): "keyType",
    ("map", "value"): "valueType",
}

# The digits in front of the point that a decimal needs for every value of an integer type.
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_INTEGERS: Final = tuple(_DIGITS)


class AddColumn(msgspec.Struct, frozen=True):
    """Add a nullable column, the last of `path`. `default` is the text of its value in the rows before, if not null."""

    path: Path
    data_type: pa.DataType
    default: str | None = None
    comment: str | None = None
    position: str | None = None


class DropColumn(msgspec.Struct, frozen=True):
    """Drop a column."""

    path: Path


class RenameColumn(msgspec.Struct, frozen=True):
    """Give a column another name."""

    path: Path
    name: str


class AlterColumn(msgspec.Struct, frozen=True):
    """Change what is given of a column: a wider type, null values allowed, a comment ("" removes it), a position."""

    path: Path
    data_type: pa.DataType | None = None
    is_nullable: bool = False
    comment: str | None = None
    position: str | None = None


SchemaChange = AddColumn | DropColumn | RenameColumn | AlterColumn


class EvolvedSchema(msgspec.Struct, frozen=True):
    """A changed schema in JSON, and the highest field id that was assigned."""

    schema_string: str
    last_id: int


def parse_path(schema_string: str, column: str | Sequence[str]) -> Path:
    """Return the path of a column that is named with dots; a name that itself has dots wins.

    The path need not exist.
    """
    if not isinstance(column, str):
        return tuple(column)
    parts = column.split(".")
    names = {field["name"].lower() for field in orjson.loads(schema_string)["fields"]}
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]).lower() in names:
            return (".".join(parts[:length]), *parts[length:])
    return tuple(parts)


def change_schema(
    schema_string: str,
    change: SchemaChange,
    *,
    last_id: int,
    retired: frozenset[str],
    fixed: Sequence[str],
) -> EvolvedSchema:
    """Apply a change to a valid schema whose fields have ids.

    Ids above `last_id` are free. `retired` are the stored paths of former columns, in lower case, which no column gets
    again. `fixed` are the partition columns. Raises InvalidSchemaError for a change that the schema does not allow.
    """
    document: _Document = orjson.loads(schema_string)
    if len(change.path) == 1 and not isinstance(change, AddColumn):
        _check_partition_column(change, fixed)
    match change:
        case AddColumn():
            last_id = _add(document, change, last_id, retired)
        case DropColumn(path=path):
            _drop(document, path, fixed)
        case RenameColumn(path=path, name=name):
            _rename(document, path, name)
        case AlterColumn():
            _alter(document, change)
    changed = orjson.dumps(document).decode()
    from_spark_json(changed)  # raises for names that clash
    return EvolvedSchema(changed, last_id)


def new_columns(table: pa.Schema, given: pa.Schema) -> list[AddColumn]:
    """Return the changes that add what a table lacks of the columns, and the members of structs, of some data."""
    return list(_new_fields(list(table), list(given), ()))


def _new_fields(known: Sequence[pa.Field], given: Sequence[pa.Field], parent: Path) -> Iterator[AddColumn]:
    names = {field.name.lower(): field for field in known}
    for field in given:
        found = names.get(field.name.lower())
        if found is None:
            yield AddColumn((*parent, field.name), field.type)
        else:
            yield from _new_members(found.type, field.type, (*parent, found.name))


def _new_members(known: pa.DataType, given: pa.DataType, path: Path) -> Iterator[AddColumn]:
    if pa.types.is_struct(known) and pa.types.is_struct(given):
        yield from _new_fields(list(known), list(given), path)
    elif pa.types.is_list(known) and (pa.types.is_list(given) or pa.types.is_large_list(given)):
        yield from _new_members(known.value_type, given.value_type, (*path, "element"))
    elif pa.types.is_map(known) and pa.types.is_map(given):
        yield from _new_members(known.item_type, given.item_type, (*path, "value"))


def find_field(schema_string: str, path: Path) -> Mapping[str, Any] | None:
    """Return the field at a path, as its JSON object; None if there is none."""
    try:
        siblings = _siblings(orjson.loads(schema_string), path)
    except InvalidSchemaError:
        return None
    return next((field for field in siblings if field["name"].lower() == path[-1].lower()), None)


def field_of_id(schema_string: str, field_id: int) -> Mapping[str, Any] | None:
    """Return the field with an id, as its JSON object; None if there is none."""
    return _with_id(orjson.loads(schema_string), field_id)


def stored_paths(schema_string: str) -> frozenset[str]:
    """Return the paths of all fields, in their stored names and in lower case."""
    return frozenset(_stored_paths(orjson.loads(schema_string), ""))


# --- the changes --------------------------------------------------------------------------------------


def _add(document: _Document, change: AddColumn, last_id: int, retired: frozenset[str]) -> int:
    siblings, name, shown = _siblings(document, change.path), change.path[-1], ".".join(change.path)
    if any(field["name"].lower() == name.lower() for field in siblings):
        raise InvalidSchemaError(f"there is a column {shown!r} already; choose another name")
    if change.default is not None and len(change.path) > 1:
        raise InvalidSchemaError(
            f"{shown!r} is a member of a struct, which cannot have a default; leave it out"
        )
    field = orjson.loads(to_spark_json(pa.schema([pa.field(name, change.data_type)])))["fields"][0]
    new_last_id = assign_field_ids({"fields": [field]}, last_id)
    parent = _stored_parent(document, change.path)
    taken = {_stored_name(sibling).lower() for sibling in siblings}
    stored = name
    while stored.lower() in taken or f"{parent}{stored}".lower() in retired:
        stored = f"{stored}~{last_id + 1}"
    if stored != name:
        field["metadata"][STORED_NAME_KEY] = stored
    if change.default is not None:
        field["metadata"][DEFAULT_KEY] = change.default
    if change.comment:
        field["metadata"][_COMMENT_KEY] = change.comment
    siblings.append(field)
    _move(siblings, field, change.position)
    return new_last_id


def _drop(document: _Document, path: Path, fixed: Sequence[str]) -> None:
    siblings, field = _existing(document, path)
    siblings.remove(field)
    if not siblings:
        raise InvalidSchemaError(f"{'.'.join(path)!r} is the last member of its struct; drop the struct")
    left = {each["name"].lower() for each in document["fields"]}
    if len(path) == 1 and left <= {name.lower() for name in fixed}:
        raise InvalidSchemaError(
            f"{path[0]!r} is the last column that is no partition column; add one before"
        )


def _rename(document: _Document, path: Path, name: str) -> None:
    _, field = _existing(document, path)
    before = field["name"]
    metadata = field["metadata"] = dict(field.get("metadata") or {})
    metadata.setdefault(STORED_NAME_KEY, before)
    if metadata[STORED_NAME_KEY] == name:
        del metadata[STORED_NAME_KEY]
    field["name"] = name
    # Elements, keys and values have their ids in the nearest field, by paths that start with its name.
    nested = metadata.get(NESTED_IDS_KEY)
    if nested:
        metadata[NESTED_IDS_KEY] = {
            name + key.removeprefix(before): field_id for key, field_id in nested.items()
        }


def _alter(document: _Document, change: AlterColumn) -> None:
    siblings, field = _existing(document, change.path)
    metadata = field["metadata"] = dict(field.get("metadata") or {})
    if change.data_type is not None:
        _widen(document, change, field)
    if change.is_nullable:
        field["nullable"] = True
    if change.comment is not None:
        metadata.pop(_COMMENT_KEY, None)
        if change.comment:
            metadata[_COMMENT_KEY] = change.comment
    _move(siblings, field, change.position)


def _widen(document: _Document, change: AlterColumn, field: _Document) -> None:
    wanted = orjson.loads(to_spark_json(pa.schema([pa.field("column", change.data_type)])))["fields"][0][
        "type"
    ]
    old = field["type"]
    if old == wanted:
        return
    shown = ".".join(change.path)
    if not isinstance(old, str) or not isinstance(wanted, str) or not is_wider(old, wanted):
        raise InvalidSchemaError(
            f"column {shown!r} has the type {_shown_type(old)} and cannot become {_shown_type(wanted)}; an integer can "
            f"become a wider one, a double or a decimal with as many digits, a float a double, a decimal one with more "
            f"digits, a date a timestamp. For any other type, add a column and fill it with an update"
        )
    _, column = _existing(document, change.path[:1])
    first = orjson.loads(orjson.dumps(column["type"]))
    field["type"] = wanted
    metadata = column["metadata"] = {WIDENED_KEY: first, **(column.get("metadata") or {})}
    if wanted == "timestamp" and DEFAULT_KEY in metadata:
        # The text of a date is not one of an instant. All other texts are those of the wider type as well.
        metadata[DEFAULT_KEY] += _START_OF_DAY


def is_wider(old: str, new: str) -> bool:
    """Return whether every value of a Spark type has an equal one in another type."""
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(new) > _INTEGERS.index(old)
    if new == "double":
        return old == "float" or old in _INTEGERS
    whole, scale = _decimal_digits(new)
    if new.startswith("decimal"):
        if old in _INTEGERS:
            return whole >= _DIGITS[old]
        old_whole, old_scale = _decimal_digits(old)
        return old.startswith("decimal") and whole >= old_whole and scale >= old_scale
    return old == "date" and new in ("timestamp", "timestamp_ntz")


def _decimal_digits(name: str) -> tuple[int, int]:
    """Return the digits before and after the point; zeros for other types."""
    if not name.startswith("decimal"):
        return 0, 0
    data_type = (
        ATOMIC_TYPES.get(name)
        or from_spark_json(orjson.dumps({"type": "struct", "fields": [{"name": "column", "type": name}]}))
        .field(0)
        .type
    )
    return data_type.precision - data_type.scale, data_type.scale


def _check_partition_column(change: DropColumn | RenameColumn | AlterColumn, fixed: Sequence[str]) -> None:
    if change.path[0].lower() not in {name.lower() for name in fixed}:
        return
    verbs = {DropColumn: "dropped", RenameColumn: "renamed"}
    verb = verbs.get(type(change))
    if isinstance(change, AlterColumn) and change.data_type is not None:
        verb = "given another type"
    if verb is not None:
        raise InvalidSchemaError(
            f"column {change.path[0]!r} is a partition column, which cannot be {verb}; write the rows to a new table"
        )


def _move(siblings: list[_Document], field: _Document, position: str | None) -> None:
    if position is None:
        return
    before = position.strip()
    if before.lower() == FIRST:
        siblings.remove(field)
        siblings.insert(0, field)
        return
    if not before.lower().startswith(AFTER):
        raise InvalidSchemaError(f"the position {position!r} is neither 'first' nor 'after' and a column")
    name = before[len(AFTER) :].strip()
    other = next((each for each in siblings if each["name"].lower() == name.lower()), None)
    if other is None or other is field:
        raise InvalidSchemaError(f"the position {position!r} names no other column beside {field['name']!r}")
    siblings.remove(field)
    siblings.insert(siblings.index(other) + 1, field)


# --- paths --------------------------------------------------------------------------------------------


def _existing(document: _Document, path: Path) -> tuple[list[_Document], _Document]:
    siblings = _siblings(document, path)
    found = next((field for field in siblings if field["name"].lower() == path[-1].lower()), None)
    if found is None:
        raise _unknown(path, len(path) - 1, siblings)
    return siblings, found


def _siblings(document: _Document, path: Path) -> list[_Document]:
    """Return the fields among which the last name of a path is, or would be."""
    if not path or not all(path):
        raise InvalidSchemaError("a column needs a name")
    struct: Any = document
    position = 0
    while position < len(path) - 1:
        field = next(
            (each for each in struct["fields"] if each["name"].lower() == path[position].lower()), None
        )
        if field is None:
            raise _unknown(path, position, struct["fields"])
        position += 1
        struct = field["type"]
        while isinstance(struct, dict) and "fields" not in struct:
            step = path[position].lower() if position < len(path) - 1 else ""
            key = _STEPS.get((struct.get("type", ""), step))
            if key is None:
                break
            struct = struct[key]
            position += 1
        if not isinstance(struct, dict) or "fields" not in struct:
            shown = ".".join(path[:position])
            raise InvalidSchemaError(f"column {shown!r} is not a struct, so it has no {path[position]!r}")
    fields: list[_Document] = struct["fields"]
    return fields


def _unknown(path: Path, position: int, siblings: Sequence[_Document]) -> InvalidSchemaError:
    names = [field["name"] for field in siblings]
    near = get_close_matches(path[position], names, n=1)
    more = ", …" if len(names) > _MAX_SHOWN else ""
    remedy = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names[:_MAX_SHOWN])}{more}"
    return InvalidSchemaError(f"there is no column {'.'.join(path[: position + 1])!r}; {remedy}")


def _stored_name(field: Mapping[str, Any]) -> str:
    name: str = (field.get("metadata") or {}).get(STORED_NAME_KEY, field["name"])
    return name


def _stored_parent(document: _Document, path: Path) -> str:
    """Return the stored path of the struct that has the last name of a path, with a dot; "" for the table."""
    siblings = _siblings(document, path)
    return next((parent for parent, fields in _structs(document, "") if fields is siblings), "")


def _structs(spark_type: Any, parent: str) -> list[tuple[str, list[_Document]]]:
    """Return the fields of every struct, with the stored path of the struct."""
    if not isinstance(spark_type, dict):
        return []
    found = []
    if "fields" in spark_type:
        found.append((parent, spark_type["fields"]))
        for field in spark_type["fields"]:
            found += _structs(field["type"], f"{parent}{_stored_name(field)}.")
    for (kind, step), key in _STEPS.items():
        if spark_type.get("type") == kind:
            found += _structs(spark_type[key], f"{parent}{step}.")
    return found


def _stored_paths(document: _Document, parent: str) -> list[str]:
    return [
        f"{path}{_stored_name(field)}".lower()
        for path, fields in _structs(document, parent)
        for field in fields
    ]


def _with_id(document: _Document, field_id: int) -> Mapping[str, Any] | None:
    for _, fields in _structs(document, ""):
        for field in fields:
            if (field.get("metadata") or {}).get(FIELD_ID_KEY) == field_id:
                return field
    return None


def _shown_type(spark_type: Any) -> str:
    return spark_type if isinstance(spark_type, str) else str(spark_type.get("type"))

"""The columns of all inputs: their types as far as they were read, and the fields that a reader may meet."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from indextables.errors import InvalidSchemaError
from indextables.ingest.lattice import NOTHING_SEEN, Seen, conflict_path, final_type, unify
from indextables.schema import find_column

ADD: Final = "add"
IGNORE: Final = "ignore"
FAIL: Final = "fail"


class TypeConflictError(Exception):
    """Two values of a field have no common type."""

    def __init__(self, name: str, one: Seen, other: Seen) -> None:
        super().__init__(name)
        self.name, self.one, self.other = name, one, other


class Columns:
    """Collects the columns of all inputs, in the order of their first appearance.

    The types of `declared` columns are given; what is read does not change them. New fields are those that the first
    input does not have.
    """

    def __init__(self, declared: Mapping[str, pa.DataType], new_fields: str = ADD) -> None:
        self._declared = declared
        self._new_fields = new_fields
        self._seen: dict[str, Seen] = {}
        self._places: dict[str, str] = {}
        self._is_first_input = True

    def seen(self, name: str) -> Seen:
        """What was seen of a column so far."""
        return self._seen.get(name, NOTHING_SEEN)

    def is_declared(self, name: str) -> bool:
        return name in self._declared

    def add(self, name: str, seen: Seen, place: object) -> None:
        """Add what was seen at a place. Raises TypeConflictError, and InvalidSchemaError for a new field."""
        before = self._seen.get(name)
        if before is None:
            if not self._is_first_input and self._new_fields == IGNORE:
                return
            if not self._is_first_input and self._new_fields == FAIL:
                raise new_field_error(place, name, "the first input")
            before = NOTHING_SEEN
        if before == seen and name in self._seen:
            return
        common = Seen(self._declared[name]) if name in self._declared else unify(before, seen)
        if common is None:
            raise TypeConflictError(name, before, seen)
        if pa.types.is_null(before.type) and not pa.types.is_null(seen.type):
            self._places[name] = str(place)
        self._seen[name] = common

    def end_input(self) -> None:
        """Note that an input was read to its end."""
        self._is_first_input = False

    def schema(self) -> pa.Schema:
        """The columns of a table that holds all inputs. Raises InvalidSchemaError for declared columns not seen."""
        missing = [name for name in self._declared if name not in self._seen]
        if missing:
            raise InvalidSchemaError(
                f"--type names the column {missing[0]!r}, which no input has; the columns are {', '.join(self._seen)}"
            )
        if not self._seen:
            raise InvalidSchemaError("the inputs have no fields, so there is no table to create")
        return pa.schema([(name, final_type(seen.type)) for name, seen in self._seen.items()])

    def conflict(self, place: object, error: TypeConflictError) -> InvalidSchemaError:
        """The error for a conflict that was found at a place."""
        path = conflict_path(error.one.type, error.other.type, error.name)
        name = error.name
        # The index of JSON takes objects only.
        are_objects = pa.types.is_struct(error.one.type) and pa.types.is_struct(error.other.type)
        remedy = (
            f"pass --type {name}=json to keep the objects as JSON"
            if are_objects
            else f"pass --type {name}=string to keep both as text"
        )
        return InvalidSchemaError(
            f"{place}: field {path!r} is {_described(error.other.type)}, but {_described(error.one.type)} in "
            f"{self._places.get(name, 'another place')}; {remedy}, or correct the input. Nothing was committed"
        )


def new_field_error(place: object, name: str, owner: str) -> InvalidSchemaError:
    """The error for a field that the table, or the first input, does not have."""
    return InvalidSchemaError(
        f"{place}: field {name!r} is not in {owner}; pass --new-fields add to make columns of such fields, or "
        f"--new-fields ignore to leave them out. Nothing was committed"
    )


def _described(data_type: pa.DataType) -> str:
    if pa.types.is_struct(data_type):
        return "an object"
    if pa.types.is_list(data_type):
        return "a list"
    names: dict[pa.DataType, str] = {
        pa.string(): "a string",
        pa.bool_(): "a boolean",
        pa.int64(): "a whole number",
        pa.float64(): "a number",
        pa.date32(): "a date",
    }
    return names.get(data_type, str(data_type))


class Target(msgspec.Struct, frozen=True):
    """The schema that readers return, and whether fields that it does not have are ignored or refused.

    The values of `folder_columns` are in the path of the input, so they are not in the schema.
    """

    schema: pa.Schema
    new_fields: str = FAIL
    folder_columns: frozenset[str] = frozenset()

    def unknown(self, name: str) -> bool:
        """Whether a field is not in the schema. Names are compared without regard to case."""
        return find_column(self.schema, name) is None

    def check(self, names: Sequence[str], place: object) -> None:
        """Raise InvalidSchemaError for a new field, unless new fields are ignored."""
        if self.new_fields == IGNORE:
            return
        new = next((name for name in names if self.unknown(name)), None)
        if new in self.folder_columns:
            raise InvalidSchemaError(
                f"{place}: field {new!r} is in the file, and a folder of its path has the same name; rename the "
                f"folder, or pass --new-fields ignore to take the value of the folder. Nothing was committed"
            )
        if new is not None:
            raise new_field_error(place, new, f"the table, whose columns are {', '.join(self.schema.names)}")

    def without(self, names: Sequence[str]) -> "Target":
        """The same without the columns whose values are in the path."""
        kept = [field for field in self.schema if field.name not in names]
        return Target(pa.schema(kept), self.new_fields, frozenset(names))

"""What a query is asked of: the fields of a split, the defaults among them, and the split's partition values."""

from datetime import UTC, tzinfo
from difflib import get_close_matches

import msgspec
import pyarrow as pa

from indextables.errors import InvalidQueryError
from indextables.schema import find_column
from indextables.search.nodes import FieldPath
from indextables.search.parser import split_path
from indextables.split.doc_mapping import ARRAY_KEY, DocMapping, FieldKind, FieldMapping

DEFAULT_KINDS = (FieldKind.TEXT, FieldKind.STRING)

SHOWN_NAMES = 10

NO_COLUMNS = pa.schema([])


def _no_partition() -> pa.Table:
    return pa.table({})


class Target(msgspec.Struct, frozen=True):
    """A field of the index; for JSON, with a path inside the values."""

    field: FieldMapping
    path: tuple[str, ...] = ()

    @property
    def index_path(self) -> str:
        """The name of the field, and the path, as Tantivy reads them."""
        escaped = (part.replace("\\", "\\\\").replace(".", "\\.") for part in self.path)
        return ".".join((self.field.index_name, *escaped))


class PartitionValue(msgspec.Struct, frozen=True):
    """A partition column, whose one value holds for the whole split: a table of one row and one column."""

    row: pa.Table


class AbsentColumn(msgspec.Struct, frozen=True):
    """A column that was added to the table after the split was written: null in all its rows."""

    name: str


class SearchScope(msgspec.Struct, frozen=True):
    """The fields that a query may name.

    `schema` is the table's, which may have columns that the split does not have. `partition` is a table of one
    row with the split's partition values, typed. `default_fields` are those that words without a field are
    looked for in; if there are none, all text and string fields. Timestamps without a zone are read in
    `time_zone`.
    """

    mapping: DocMapping
    schema: pa.Schema = NO_COLUMNS
    partition: pa.Table = msgspec.field(default_factory=_no_partition)
    default_fields: tuple[str, ...] = ()
    time_zone: tzinfo = UTC

    def resolve(self, path: FieldPath) -> Target | PartitionValue | AbsentColumn:
        """The field that a query names. Raises InvalidQueryError with the nearest names if there is none.

        A column whose own name has dots in it comes before a path into a JSON column.
        """
        found = self._find(path.parts)
        if found is None:
            raise self._unknown(path)
        if isinstance(found, Target):
            _check_searchable(found, path)
        return found

    def find_column(self, name: str) -> Target | PartitionValue | AbsentColumn | None:
        """What the split has of a column."""
        field = self.mapping.find(name)
        if field is not None:
            return Target(field)
        column = find_column(self.partition.schema, name)
        if column is not None:
            return PartitionValue(self.partition.select([column.name]))
        column = find_column(self.schema, name)
        return None if column is None else AbsentColumn(column.name)

    def defaults(self) -> tuple[Target, ...]:
        """The fields for words without a field. Raises InvalidQueryError for a default field that is none."""
        if not self.default_fields:
            return tuple(Target(field) for field in self.mapping if field.kind in DEFAULT_KINDS)
        found = map(self._default, self.default_fields)
        return tuple(target for target in found if isinstance(target, Target))

    @property
    def has_absent_defaults(self) -> bool:
        """Whether words without a field may be in columns that only other splits have."""
        return bool(self.default_fields) or any(pa.types.is_string(column.type) for column in self.schema)

    def _default(self, name: str) -> Target | AbsentColumn:
        found = self._find(split_path(name))
        if isinstance(found, AbsentColumn) or (isinstance(found, Target) and found.field.is_indexed):
            return found
        raise InvalidQueryError(f"there is no field {name!r} to search by default: {self._remedy(name)}")

    def _find(self, parts: tuple[str, ...]) -> Target | PartitionValue | AbsentColumn | None:
        for length in range(len(parts), 0, -1):
            found = self.find_column(".".join(parts[:length]))
            is_whole = length == len(parts)
            if isinstance(found, Target) and (is_whole or found.field.kind is FieldKind.JSON):
                return Target(found.field, _inside(found.field, parts[length:]))
            if isinstance(found, AbsentColumn) or (is_whole and found is not None):
                return found
        return None

    def _unknown(self, path: FieldPath) -> InvalidQueryError:
        written = path.place.written
        return path.place.error(
            f"there is no field {written!r}: {self._remedy('.'.join(path.parts))} "
            f"(if the colon belongs to the text, put the text in quotes)"
        )

    def _remedy(self, name: str) -> str:
        fields = [field.name for field in self.mapping if field.is_indexed]
        names = list(dict.fromkeys([*fields, *self.partition.column_names, *self.schema.names]))
        by_lower = {known.lower(): known for known in names}
        near = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
        if near:
            return f"did you mean {' or '.join(by_lower[each] for each in near)}?"
        more = ", …" if len(names) > SHOWN_NAMES else ""
        return (
            f"the fields are {', '.join(names[:SHOWN_NAMES])}{more}" if names else "the table has no fields"
        )


def _inside(field: FieldMapping, path: tuple[str, ...]) -> tuple[str, ...]:
    return (ARRAY_KEY, *path) if field.is_array and path[:1] != (ARRAY_KEY,) else path


def _check_searchable(target: Target, path: FieldPath) -> None:
    field = target.field
    if not field.is_indexed:
        raise path.place.error(
            f"column {field.name!r} is stored only and cannot be searched; filter it with where"
        )
    if field.kind is FieldKind.BYTES:
        raise path.place.error(f"column {field.name!r} holds bytes, which have no text; compare it in where")
    if "" in target.path:
        raise path.place.error(
            "a key is missing between two dots, or after the last one; escape a literal \\."
        )
    if field.kind is FieldKind.JSON and not target.path:
        raise path.place.error(
            f"column {field.name!r} holds JSON; name a key inside it, as in {field.name}.key:value"
        )

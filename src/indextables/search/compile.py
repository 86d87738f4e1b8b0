"""Compiles queries for one split: field names are resolved in its scope, and nodes become Tantivy queries.

Queries are built as objects; text from a user never reaches Tantivy's own parser.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from difflib import get_close_matches
from typing import Final

import msgspec
import pyarrow as pa

from indextables._caching import lazy_property
from indextables.errors import InvalidQueryError, SearchFailedError
from indextables.predicates import BoundPredicate
from indextables.schema import find_column
from indextables.schema.stored_names import stored_path
from indextables.search.hits import matching_rows
from indextables.search.index_query import IndexField, IndexQuery, all_rows, any_query, boolean, no_rows
from indextables.search.parser import Boolean, Boost, Everything, FieldPath, Leaf, QueryNode, split_path
from indextables.search.predicate_query import PredicateQueries, partition_predicate
from indextables.search.text_query import TextQueries
from indextables.search.typed_query import address_query, arrow_type, is_narrow, matches_value, typed_query
from indextables.split.doc_mapping import ARRAY_KEY, DocMapping, FieldKind, FieldMapping
from indextables.split.index_builder import row_index
from indextables.split.index_files import translating

DEFAULT_KINDS: Final = (FieldKind.TEXT, FieldKind.STRING)

_TEXT_KINDS: Final = frozenset({FieldKind.TEXT, FieldKind.STRING, FieldKind.JSON})
_SHOWN_NAMES: Final = 10

# As the only default field: all columns.
ALL_FIELDS: Final = "*"
_NO_COLUMNS: Final = pa.schema([])


class CompiledQuery(msgspec.Struct, frozen=True):
    """A query compiled for one split; `rest` is the part of the predicate that only the rows can answer."""

    query: IndexQuery
    scope: "SearchScope"
    rest: BoundPredicate | None


def compile_with_predicate(
    scope: "SearchScope", query: QueryNode | None, where: BoundPredicate | None
) -> CompiledQuery:
    """Compile a query and a predicate for the fields of a split; see `QueryCompiler.with_predicate`."""
    return QueryCompiler(scope).with_predicate(query, where)


def compile_query(node: QueryNode, scope: "SearchScope") -> IndexQuery:
    """Compile a query for the fields of a split; see `QueryCompiler.query`."""
    return QueryCompiler(scope).query(node)


# The scope of a query: the fields of a split, the default fields, and the split's partition values.


class Target(msgspec.Struct, frozen=True):
    """A field of the index, with the path inside the values for JSON."""

    field: FieldMapping
    path: tuple[str, ...] = ()


class PartitionValue(msgspec.Struct, frozen=True):
    """A partition column and its value in the split, as a table of one row and one column."""

    row: pa.Table


class ConstantColumn(PartitionValue, frozen=True):
    """A column that the split lacks, with the default that all its rows have, and how new splits index it."""

    field: FieldMapping


class AbsentColumn(msgspec.Struct, frozen=True):
    """A column, or a member of one, that the split lacks, because it was added to the table later; null in all rows."""

    name: str


def _no_partition() -> pa.Table:
    return pa.table({})


class SearchScope(msgspec.Struct, frozen=True):
    """The fields that a query of a split may name.

    `schema` is the table's, which may have columns that the split lacks; `constants` are those of them that are not
    null. `stored_schema` has the names of the members of structs in the index. `partition` is a table of one row with
    the split's typed partition values. Words without a field are searched in `default_fields`, or in all text and
    string fields if there are none; ALL_FIELDS stands for every column. Timestamps without a zone are in `time_zone`.
    """

    mapping: DocMapping
    schema: pa.Schema = _NO_COLUMNS
    partition: pa.Table = msgspec.field(default_factory=_no_partition)
    default_fields: tuple[str, ...] = ()
    time_zone: tzinfo = UTC
    stored_schema: pa.Schema | None = None
    constants: Mapping[str, ConstantColumn] = {}

    def resolve(self, path: FieldPath) -> Target | PartitionValue | AbsentColumn:
        """Resolve a field name. Raises InvalidQueryError, with similar names, for an unknown one.

        A column whose name contains dots wins over a path into a JSON column.
        """
        found = self._find(path.parts)
        if found is None:
            raise self._unknown(path)
        if isinstance(found, Target):
            _check_searchable(found, path)
        if isinstance(found, ConstantColumn):
            _check_searchable(Target(found.field), path)
        return found

    def find_column(self, name: str) -> Target | PartitionValue | AbsentColumn | None:
        """Return what the split has of a column."""
        field = self.mapping.find(name)
        if field is not None:
            return Target(field)
        column = find_column(self.partition.schema, name)
        if column is not None:
            return PartitionValue(self.partition.select([column.name]))
        column = find_column(self.schema, name)
        if column is None:
            return None
        return self.constants.get(column.name) or AbsentColumn(column.name)

    def type_of(self, field: FieldMapping) -> pa.DataType:
        """Return the type that a typed field has in the table, which may be wider than its type in the split."""
        column = find_column(self.schema, field.name)
        return arrow_type(field) if column is None else column.type

    @property
    def narrow_schema(self) -> pa.Schema | None:
        """The table's schema with the types that the split has, if it has narrower ones."""
        narrow = {
            column.name: column.with_type(arrow_type(field))
            for field in self.mapping
            if (column := find_column(self.schema, field.name)) is not None and is_narrow(field, column)
        }
        return pa.schema([narrow.get(column.name, column) for column in self.schema]) if narrow else None

    def defaults(self) -> "tuple[Target | PartitionValue, ...]":
        """Return the fields for words without a field. Raises InvalidQueryError for an unknown default field."""
        if not self.default_fields:
            fields = [Target(field) for field in self.mapping if field.kind in DEFAULT_KINDS]
            constants = [each for each in self.constants.values() if each.field.kind in DEFAULT_KINDS]
            return (*fields, *(each for each in constants if self.mapping.find(each.field.name) is None))
        if self.searches_all_fields:
            return self._everywhere()
        found = map(self._default, self.default_fields)
        return tuple(target for target in found if not isinstance(target, AbsentColumn))

    @property
    def searches_all_fields(self) -> bool:
        """Whether words without a field are searched in every column."""
        return ALL_FIELDS in self.default_fields

    def _everywhere(self) -> "tuple[Target | PartitionValue, ...]":
        """All columns that can be searched without more words: not bytes, and of JSON the members of structs."""
        targets: list[Target | PartitionValue] = []
        for field in self.mapping:
            if field.kind is FieldKind.JSON:
                column = find_column(self.schema, field.name)
                paths = [] if column is None else _paths_to_values(column.type)
                in_index = (self._path_in_index(field, path) for path in dict.fromkeys(paths))
                targets += [Target(field, _json_path(field, path)) for path in in_index if path is not None]
            elif field.is_indexed and field.kind is not FieldKind.BYTES:
                targets.append(Target(field))
        constants = (each for each in self.constants.values() if self.mapping.find(each.field.name) is None)
        return (
            *targets,
            *(each for each in constants if each.field.is_indexed),
            *(PartitionValue(self.partition.select([name])) for name in self.partition.schema.names),
        )

    @property
    def has_absent_defaults(self) -> bool:
        """Whether other splits may have default fields that this one lacks."""
        return bool(self.default_fields) or any(pa.types.is_string(column.type) for column in self.schema)

    def _default(self, name: str) -> Target | PartitionValue | AbsentColumn:
        found = self._find(split_path(name))
        if isinstance(found, AbsentColumn | PartitionValue) or (found is not None and found.field.is_indexed):
            return found
        raise InvalidQueryError(f"there is no field {name!r} to search by default: {self._remedy(name)}")

    def _find(self, parts: tuple[str, ...]) -> Target | PartitionValue | AbsentColumn | None:
        for length in range(len(parts), 0, -1):
            found = self.find_column(".".join(parts[:length]))
            is_whole = length == len(parts)
            if isinstance(found, Target) and (is_whole or found.field.kind is FieldKind.JSON):
                path = self._path_in_index(found.field, parts[length:])
                if path is None:
                    return AbsentColumn(".".join(parts))
                return Target(found.field, _json_path(found.field, path))
            if isinstance(found, AbsentColumn) or (is_whole and found is not None):
                return found
        return None

    def _path_in_index(self, field: FieldMapping, path: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return a path into the values of a JSON field as the index has it; None if no value can have it."""
        column = find_column(self.schema, field.name)
        if column is None or self.stored_schema is None or "" in path:
            return path
        stored = self.stored_schema.field(self.schema.get_field_index(column.name)).type
        return stored_path(column.type, stored, path)

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
        more = ", …" if len(names) > _SHOWN_NAMES else ""
        return (
            f"the fields are {', '.join(names[:_SHOWN_NAMES])}{more}" if names else "the table has no fields"
        )


def _paths_to_values(data_type: pa.DataType) -> Iterator[tuple[str, ...]]:
    """Yield the keys that lead to the values of a type; maps and JSON text have keys that only their values know."""
    if pa.types.is_struct(data_type):
        for member in data_type:
            yield from ((member.name, *path) for path in _paths_to_values(member.type))
    elif pa.types.is_list(data_type):
        yield from _paths_to_values(data_type.value_type)
    elif not pa.types.is_map(data_type):
        yield ()


def _json_path(field: FieldMapping, path: tuple[str, ...]) -> tuple[str, ...]:
    return (ARRAY_KEY, *path) if field.is_array and path[:1] != (ARRAY_KEY,) else path


def _check_searchable(target: Target, path: FieldPath) -> None:
    field = target.field
    if not field.is_indexed:
        raise path.place.error(
            f"column {field.name!r} is stored only and cannot be searched; filter it with where"
        )
    if field.kind is FieldKind.BYTES:
        raise path.place.error(f"column {field.name!r} holds bytes, not text; filter it with where")
    if "" in target.path:
        raise path.place.error(
            "a key is missing between two dots, or after the last one; escape a literal \\."
        )
    if field.kind is FieldKind.JSON and not target.path:
        raise path.place.error(
            f"column {field.name!r} holds JSON; name a key inside it, as in {field.name}.key:value"
        )


# Nodes → Tantivy queries.


class QueryCompiler:
    """Compiles any number of queries for the fields of one split. Threads may share it."""

    def __init__(self, scope: SearchScope) -> None:
        self.scope = scope
        self.schema = scope.mapping.tantivy_schema()
        self._text: dict[str, TextQueries] = {}

    def with_predicate(self, query: QueryNode | None, where: BoundPredicate | None) -> CompiledQuery:
        """Compile a query (None: all rows) and a bound predicate. Raises InvalidQueryError."""
        wanted = all_rows() if query is None else self.query(query)
        if where is None:
            return CompiledQuery(wanted, self.scope, None)
        condition, rest = partition_predicate(where, self.scope.mapping, self.narrow_schema)
        return CompiledQuery(wanted.filtered(condition), self.scope, rest)

    def query(self, node: QueryNode) -> IndexQuery:
        """Compile a query.

        Text passes through the analyzers of its fields. A clause without tokens in any of its fields, such as
        punctuation, is ignored; if no clause is left, nothing matches. Raises InvalidQueryError, with the position, for
        unknown fields, for values that a field cannot have, and for queries that its index cannot answer.
        """
        # Wrong default fields are an error, even if all clauses have fields.
        _ = self.defaults
        with translating("cannot build the query", SearchFailedError):
            found = self.compile(node)
        return no_rows() if found is None else found

    @lazy_property
    def narrow_schema(self) -> pa.Schema | None:
        return self.scope.narrow_schema

    @lazy_property
    def defaults(self) -> tuple[Target | PartitionValue, ...]:
        return self.scope.defaults()

    def compile(self, node: QueryNode) -> IndexQuery | None:
        match node:
            case Everything():
                return all_rows()
            case Boost(operand=operand, factor=factor):
                found = self.compile(operand)
                return None if found is None else found.boosted(factor)
            case Boolean():
                return self.boolean(node)
            case Leaf(field=None):
                return self.anywhere(node)
            case Leaf(field=path):
                assert path is not None
                return self.leaf(node, self.scope.resolve(path))
        raise TypeError(f"{node!r} is not a query; use parse_query")

    def boolean(self, node: Boolean) -> IndexQuery | None:
        must, should, must_not = map(self.compile_all, (node.must, node.should, node.must_not))
        if not must and not should:
            # The required clauses have no tokens; an exclusion alone does not ask for all other rows then.
            if node.must or node.should or not must_not:
                return None
            must = [all_rows()]
        return boolean(must, should, must_not)

    def compile_all(self, nodes: Sequence[QueryNode]) -> list[IndexQuery]:
        return [query for query in map(self.compile, nodes) if query is not None]

    def anywhere(self, leaf: Leaf) -> IndexQuery | None:
        """Compile a leaf without a field: any of the default fields may match."""
        if not self.defaults and self.scope.has_absent_defaults:
            return no_rows()
        if not self.defaults:
            raise leaf.place.error("the table has no text column to search; name a field, as in status:404")
        found: list[IndexQuery | None] = []
        errors: list[InvalidQueryError] = []
        for target in self.defaults:
            try:
                found.append(self.leaf(leaf, target))
            except InvalidQueryError as error:
                # A word that is not a number cannot match a numeric field; the other fields decide.
                if self.is_certain_to_be_meant(target):
                    raise
                errors.append(error)
        if errors and not found:
            raise errors[0]
        queries = [query for query in found if query is not None]
        return any_query(queries) if queries else None

    def is_certain_to_be_meant(self, target: Target | PartitionValue) -> bool:
        """Whether a word that does not fit a default field is an error."""
        is_text = isinstance(target, Target) and target.field.kind in _TEXT_KINDS
        return is_text and not self.scope.searches_all_fields

    def leaf(self, leaf: Leaf, target: Target | PartitionValue | AbsentColumn) -> IndexQuery | None:
        if isinstance(target, AbsentColumn):
            return no_rows()
        if isinstance(target, ConstantColumn):
            return self.constant(leaf, target)
        if isinstance(target, PartitionValue):
            is_match = matches_value(leaf, target.row, self.scope.time_zone)
            return all_rows() if is_match else no_rows()
        if target.field.kind in _TEXT_KINDS:
            return self.text_queries(target).query(leaf)
        if target.field.kind is FieldKind.IP:
            return address_query(leaf, IndexField(self.schema, target.field))
        predicates = PredicateQueries(self.scope.mapping)
        data_type = self.scope.type_of(target.field)
        return typed_query(leaf, target.field, data_type, predicates, self.scope.time_zone)

    def constant(self, leaf: Leaf, target: ConstantColumn) -> IndexQuery:
        """Compile a leaf over a column with one value in all rows, by searching an index of that value."""
        mapping = DocMapping((target.field,))
        scope = SearchScope(mapping, target.row.schema, time_zone=self.scope.time_zone)
        query = QueryCompiler(scope).leaf(leaf, Target(target.field))
        is_match = query is not None and len(matching_rows(row_index(target.row, mapping), query))
        return all_rows() if is_match else no_rows()

    def text_queries(self, target: Target) -> TextQueries:
        if target.path:
            return TextQueries(IndexField(self.schema, target.field, target.path))
        found = self._text.get(target.field.name)
        if found is None:
            found = self._text[target.field.name] = TextQueries(IndexField(self.schema, target.field))
        return found

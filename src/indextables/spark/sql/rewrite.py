"""Rewrites the SQL of enabled sessions: what Spark sees is the user's text, apart from searches and tables of ours."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlglot
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from indextables.errors import InvalidStatementError
from indextables.search.conditions import TextCondition, columns_searched
from indextables.spark.catalog import CatalogTable
from indextables.spark.loaded import answered, origin_of
from indextables.spark.options import PATH, TIMESTAMP_AS_OF, VERSION_AS_OF
from indextables.spark.source import FORMATS
from indextables.spark.sql.aggregates import plain_aggregates
from indextables.spark.sql.ddl import (
    CreateTable,
    Insert,
    ViewOfTable,
    read_create_table,
    read_insert,
    read_view_of_table,
)
from indextables.spark.sql.matching import register_matcher, row_matcher
from indextables.spark.sql.names import location_of, our_table
from indextables.spark.sql.operators import (
    MARKER,
    Edit,
    Operator,
    SearchCall,
    find_searches,
    splice,
    sql_error,
    tokenize,
)
from indextables.spark.sql.scopes import BoundSearch, Found, ScopeError, Scopes, TableRef, marker_number
from indextables.spark.sql.tables import (
    FORMAT,
    Definition,
    SearchableTable,
    definition_of,
    forget_view,
    options_of_view,
    remember_definition,
    remember_options_of_view,
)
from indextables.spark.sql.views import TABLE_NAME, NewView, created_view, new_table_name
from indextables.spark.types import quote_name
from indextables.split.doc_mapping import FieldKind

_EXPLAIN: Final = re.compile(r"(?is)\s*EXPLAIN(\s+(EXTENDED|CODEGEN|COST|FORMATTED))?\s")
_RELATION: Final = "__indextables_relation_"
_MARKERS: Final = re.compile(rf"{MARKER}(\d+)\(\)")
_MAX_SHOWN: Final = 10

RunSql = Callable[..., DataFrame]


class SqlCall(msgspec.Struct, frozen=True):
    """A call of `spark.sql`."""

    text: str
    args: Mapping[str, Any] | Sequence[Any] | None
    frames: Mapping[str, Any]

    def run(self, sql: RunSql) -> DataFrame:
        """Let Spark execute it."""
        return sql(self.text, self.args, **self.frames)


class Rewriter:
    """Rewrites one call of `spark.sql`; `sql` is Spark's own."""

    def __init__(self, spark: SparkSession, sql: RunSql, call: SqlCall) -> None:
        self._spark = spark
        self._sql = sql
        self._call = call
        self._start = _query_start(call.text)

    def rewrite(self) -> "SqlCall | DataFrame | None":
        """The call that Spark can execute, or the result if it is executed; None if there is nothing to rewrite.

        Raises InvalidStatementError, with the place, for searches that do not work where they are.
        """
        text = self._call.text
        blank = " " * self._start + text[self._start :]
        try:
            tokens = tokenize(blank)
        except SqlglotError:
            return None  # Spark's error is better
        using = read_view_of_table(text, tokens, self._read_literal)
        if using is not None:
            return self._create_view_of_table(using)
        created = read_create_table(text, tokens, self._read_literal)
        if created is not None:
            return self._create_table(created)
        insert = read_insert(text, tokens, lambda parts: self._named(parts) is not None)
        if insert is not None:
            return self._insert(insert)
        calls = find_searches(text, tokens)
        marked = _Marked.of(blank, calls)
        tree = self._parse(marked.text, calls)
        if tree is None:
            return None
        expanded = self._expand_views(marked, tree)
        if expanded is not None:
            return Rewriter(self._spark, self._sql, expanded).rewrite()
        _check_statement(text, tree, calls)
        scopes = Scopes(tree, self._table_of, self._columns_of)
        for ref in scopes.refs:
            self._check_read(ref)
        bound = self._bind(scopes, tree, calls)
        if isinstance(tree, exp.Create) and tree.args["kind"] == "VIEW" and scopes.refs:
            return self._create_view(NewView.of(text, tokens, tree), marked, scopes)
        changed = created_view(tokens)
        if changed is not None:
            forget_view(self._spark, changed)
        truths = scopes.drive(bound)
        edits = [
            Edit(start, end, truths.get(number) or self._match_call(calls[number], bound[number]))
            for number, (start, end) in marked.places.items()
        ]
        frames = dict(self._call.frames)
        for ref in scopes.refs:
            if ref.conditions or not self._is_readable(ref):
                edits += self._replace_table(marked, ref, frames)
        if not edits and frames == self._call.frames:
            return None
        # With arguments by name, Spark formats the text.
        keep = str if self._call.frames or not frames else _escape_braces
        rewritten = splice(marked.text, edits, keep)
        prefix = text[: self._start] if keep is str else _escape_braces(text[: self._start])
        call = SqlCall(prefix + rewritten[self._start :], self._remaining_args(tokens, calls), frames)
        aggregates = None if self._start else plain_aggregates(tree)
        if aggregates is None or list(frames) != [f"{_RELATION}0"]:
            return call
        return answered(frames[f"{_RELATION}0"], aggregates, call.run(self._sql))

    # Tables with names.

    def _create_table(self, created: CreateTable) -> DataFrame:
        text, table = self._call.text, created.table
        if created.query is None:
            statement = text
            if table.columns is not None:
                statement = (
                    text[: created.name_end] + table.listed(table.columns) + text[created.columns_end :]
                )
            table.create(self._spark, statement, self._sql)
            return self._nothing()
        as_start, query_start = created.query
        frame = self._run(text[query_start:])
        statement = text[: created.name_end] + table.listed(frame.schema) + text[created.name_end : as_start]
        table.create_and_fill(self._spark, statement, self._sql, frame)
        return self._nothing()

    def _insert(self, insert: Insert) -> DataFrame:
        table = self._named(insert.insertion.parts)
        assert table is not None
        insert.insertion.insert(self._spark, table, self._run(self._call.text[insert.query_start :]))
        return self._nothing()

    def _run(self, query: str) -> DataFrame:
        """The rows of a query that is part of this statement."""
        call = SqlCall(query.rstrip().rstrip(";"), self._call.args, self._call.frames)
        rewritten = Rewriter(self._spark, self._sql, call).rewrite()
        return rewritten if isinstance(rewritten, DataFrame) else (rewritten or call).run(self._sql)

    def _named(self, parts: Sequence[str]) -> CatalogTable | None:
        """The table of ours that a name, or a path such as indextables.`logs`, means."""
        if len(parts) == 2 and parts[0].lower() in FORMATS:
            return CatalogTable(FORMAT, parts[1])
        return our_table(self._spark, parts)

    # Views.

    def _expand_views(self, marked: "_Marked", tree: exp.Expr) -> SqlCall | None:
        """The call with the text of views in place of their names, if there are any."""
        edits: list[Edit] = []
        target = tree.find(exp.Table) if isinstance(tree, exp.Create | exp.Insert) else None
        for node in tree.find_all(exp.Table):
            definition = definition_of(self._spark, ".".join(_parts(node)))
            if definition is None or node is target or node.args.get("version") is not None:
                continue
            if self._columns_of(node) != list(definition.columns):
                continue  # the view was dropped, or is another one
            start, end = _range_of(marked.tokens, node)
            alias = "" if node.alias else f" AS {quote_name(node.name)}"
            edits.append(Edit(marked.original(start), marked.original(end), f"({definition.text}\n){alias}"))
        if not edits:
            return None
        return SqlCall(splice(self._call.text, edits), self._call.args, self._call.frames)

    def _create_view(self, view: NewView, marked: "_Marked", scopes: Scopes) -> DataFrame:
        if self._call.args or self._call.frames:
            raise sql_error(
                self._call.text, 0, 6, "a view takes no arguments; write the values into the text"
            )
        query = self._call.text[view.start :]
        edits: list[Edit] = []
        for ref in scopes.refs:
            start, end = _range_of(marked.tokens, ref.node)
            if marked.original(start) < view.start:
                continue  # the view itself, if it replaces one that shows a table of ours
            name = new_table_name()
            remember_options_of_view(self._spark, name, ref.table.options)
            alias = "" if ref.node.alias else f" AS {quote_name(ref.node.name)}"
            place = Edit(marked.original(start) - view.start, marked.original(end) - view.start, name + alias)
            edits.append(place)
        definition = splice(query, edits).rstrip().rstrip(";")
        rewritten = Rewriter(self._spark, self._sql, SqlCall(definition, None, {})).rewrite()
        assert rewritten is not None  # the names of the tables are none that Spark knows
        frame = rewritten if isinstance(rewritten, DataFrame) else rewritten.run(self._sql)
        view.create(frame)
        columns = view.columns or tuple(frame.columns)
        listed = ", ".join(quote_name(column) for column in view.columns)
        text = f"SELECT * FROM ({definition}\n) AS t ({listed})" if listed else definition  # noqa: S608  # quoted
        remember_definition(self._spark, view.key, Definition(text, columns))
        return self._nothing()

    def _create_view_of_table(self, using: ViewOfTable) -> DataFrame:
        using.view.create(self._spark.read.format(FORMAT).options(**using.options).load())
        return self._nothing()

    def _nothing(self) -> DataFrame:
        """The result of a command."""
        return self._sql("SELECT 1 WHERE FALSE").select()

    def _read_literal(self, written: str) -> Any:
        """The value of a literal. Spark itself reads those that are not plain."""
        if written[0] in "'\"" and "\\" not in written and written.count(written[0]) == 2:
            return written[1:-1]
        (value,) = self._sql(f"SELECT {written}").first() or (None,)
        return value

    def _parse(self, marked: str, calls: Sequence[SearchCall]) -> exp.Expr | None:
        try:
            (tree,) = [each for each in sqlglot.parse(marked, read="spark") if each is not None]
        except (SqlglotError, ValueError) as error:
            if not calls:
                return None
            raise calls[0].error(
                self._call.text,
                f"the statement around this search cannot be read ({_first_line(error)}); check it, or search in a "
                f"view of its own",
            ) from error
        return tree

    # Searches.

    def _bind(self, scopes: Scopes, tree: exp.Expr, calls: Sequence[SearchCall]) -> dict[int, BoundSearch]:
        bound: dict[int, BoundSearch] = {}
        for node in tree.find_all(exp.Anonymous):
            number = marker_number(node)
            if number is None:
                continue
            call = calls[number]
            try:
                bound[number] = self._bind_one(scopes, node, call)
            except ScopeError as error:
                raise call.error(self._call.text, str(error)) from error
        missing = set(range(len(calls))) - bound.keys()
        if missing:
            raise calls[min(missing)].error(self._call.text, "a search does not work in this place")
        return bound

    def _bind_one(self, scopes: Scopes, node: exp.Expr, call: SearchCall) -> BoundSearch:
        if call.is_whole_row:
            found = scopes.find_relation(node, call.target)
            fields = _whole_row_fields(found.ref.table, call.operator)
        else:
            found, path = scopes.find_column(node, call.target)
            name = next(part for part in call.target if _origin_of(found, part) is not None)
            column = _origin_of(found, name)
            assert column is not None
            _check_kind(found.ref.table, column, call.operator)
            fields = (_field_name(column, path),)
        condition = TextCondition(self._value(call), fields)
        columns_searched(condition, found.ref.table.scope)
        return BoundSearch(found, condition)

    def _value(self, call: SearchCall) -> str:
        """What a search is for."""
        written, text = call.value, self._call.text
        if written.startswith("{"):
            value = self._call.frames.get(written[1:-1].strip())
        elif written.startswith(":"):
            named = self._call.args if isinstance(self._call.args, Mapping) else {}
            value = named.get(written[1:].strip())
        elif written == "?":
            position = _placeholders(tokenize(text)).index(text.index("?", call.end - 1))
            given = self._call.args if isinstance(self._call.args, list | tuple) else ()
            value = given[position] if position < len(given) else None
        else:
            value = self._read_literal(written)
        if not isinstance(value, str):
            raise call.error(text, f"the value of {written} is {value!r}; a search needs a string")
        return value

    def _match_call(self, call: SearchCall, bound: BoundSearch) -> str:
        """The call of a function that computes the search for each row."""
        matcher = row_matcher(bound.found.ref.table, bound.condition)
        visible = {
            output.origin.column: output.name for output in bound.found.columns if output.origin is not None
        }
        hidden = [name for name in matcher.schema.names if name not in visible]
        if hidden:
            raise call.error(
                self._call.text,
                f"this search reads column {hidden[0]!r}, which {bound.found.source.alias or 'the subquery'} does not "
                f"return; add the column, or search inside of it",
            )
        alias = quote_name(bound.found.source.alias)
        values = [f"{_literal(name)}, {alias}.{quote_name(visible[name])}" for name in matcher.schema.names]
        function = register_matcher(self._spark, matcher)
        return f"{function}(named_struct({', '.join(values)}))"

    def _remaining_args(
        self, tokens: Sequence[Token], calls: Sequence[SearchCall]
    ) -> Mapping[str, Any] | Sequence[Any] | None:
        """The arguments without those of searches, if they are given by position."""
        if not isinstance(self._call.args, list | tuple):
            return self._call.args
        searched = [(call.start, call.end) for call in calls]
        places = _placeholders(tokens)
        left = [
            value
            for place, value in zip(places, self._call.args, strict=False)
            if not any(start <= place < end for start, end in searched)
        ]
        return [*left, *self._call.args[len(places) :]]

    # Tables.

    def _table_of(self, node: exp.Table) -> SearchableTable | None:
        """The table of ours that a FROM clause reads."""
        if isinstance(node.this, exp.Placeholder):
            frame = self._call.frames.get(node.this.name)
            options = None if frame is None else origin_of(frame).options
            return None if options is None else SearchableTable.of(self._spark, options)
        parts = _parts(node)
        options = options_of_view(self._spark, ".".join(parts))
        if options is not None and (_is_table_name(parts) or self._columns_of(node) is not None):
            return SearchableTable.of(self._spark, options)
        table = self._named(parts)
        if table is None:
            return None
        return SearchableTable.of(self._spark, {PATH: location_of(table, parts), **self._travel(node)})

    def _check_read(self, ref: TableRef) -> None:
        """Raise InvalidStatementError if the statement changes a table of ours by its path or name."""
        node: exp.Expr = ref.node.parent if isinstance(ref.node.parent, exp.Schema) else ref.node
        changes = isinstance(node.parent, exp.Insert | exp.Merge | exp.Update | exp.Delete)
        if changes and node.arg_key == "this" and not self._is_readable(ref):
            raise self._table_error(
                ref.node,
                "this statement cannot change an IndexTables table; add rows by INSERT INTO t SELECT …, and write WITH "
                "after INTO t",
            )

    def _is_readable(self, ref: TableRef) -> bool:
        """Whether Spark can read the table by the name in the text."""
        parts = _parts(ref.node)
        is_view = options_of_view(self._spark, ".".join(parts)) is not None
        return not parts or (is_view and not _is_table_name(parts))

    def _columns_of(self, node: exp.Table) -> Sequence[str] | None:
        parts = _parts(node)
        if not parts:
            return None
        try:
            return self._spark.table(".".join(map(quote_name, parts))).columns
        except AnalysisException:
            return None

    def _travel(self, node: exp.Table) -> dict[str, str]:
        """The options of `VERSION AS OF 3` and `TIMESTAMP AS OF '…'`."""
        version = node.args.get("version")
        if version is None:
            return {}
        value = version.args.get("expression")
        if not isinstance(value, exp.Literal):
            raise self._table_error(node, f"{version.name} AS OF takes a literal, such as 3 or '2026-01-31'")
        return {VERSION_AS_OF if version.name.upper() == "VERSION" else TIMESTAMP_AS_OF: str(value.name)}

    def _replace_table(self, marked: "_Marked", ref: TableRef, frames: dict[str, Any]) -> list[Edit]:
        """Add the relation of a table to the frames, and put its name in place of the table's."""
        loaded = ref.table.load(self._spark, ref.conditions)
        if isinstance(ref.node.this, exp.Placeholder):
            name = ref.node.this.name
            if len(re.findall(rf"{{\s*{re.escape(name)}\s*}}", self._call.text)) > 1:
                raise self._table_error(
                    ref.node,
                    "a DataFrame that is searched is read once; give it a second name for the other place",
                )
            frames[name] = loaded
            return []
        name = f"{_RELATION}{len(frames)}"
        frames[name] = loaded
        start, end = _range_of(marked.tokens, ref.node)
        if ref.node.alias:
            return [Edit(start, end, f"{{{name}}}")]
        if ref.node.args.get("sample"):
            raise self._table_error(ref.node, "a sampled table needs an alias next to a search")
        return [Edit(start, end, f"{{{name}}} AS {quote_name(ref.node.name)}")]

    def _table_error(self, node: exp.Table, reason: str) -> InvalidStatementError:
        # Searches in front of the table have another length in the marked text; the name is found again instead.
        name = node.name
        start = max(self._call.text.find(name), 0)
        return sql_error(self._call.text, start, start + len(name), reason)


class _Marked(msgspec.Struct, frozen=True):
    """A text with calls in place of its searches; `places` are their ranges, by number."""

    text: str
    places: dict[int, tuple[int, int]]
    marks: list[Edit]
    tokens: list[Token]

    @classmethod
    def of(cls, text: str, calls: Sequence[SearchCall]) -> "_Marked":
        marks = [Edit(call.start, call.end, f"{MARKER}{number}()") for number, call in enumerate(calls)]
        marked = splice(text, marks)
        places = {int(found[1]): found.span() for found in _MARKERS.finditer(marked)}
        return cls(marked, places, marks, tokenize(marked))

    def original(self, position: int) -> int:
        """The position in the text without marks."""
        moved = 0
        for mark in self.marks:
            if mark.start + moved >= position:
                break
            moved += len(mark.replacement) - (mark.end - mark.start)
        return position - moved


def _check_statement(text: str, tree: exp.Expr, calls: Sequence[SearchCall]) -> None:
    if not calls:
        return
    if isinstance(tree, exp.Command):
        raise calls[0].error(text, "a search does not work in this statement; search in a SELECT")
    if isinstance(tree, exp.Delete | exp.Update):
        raise calls[0].error(text, "a search does not select rows to delete or update; use it in a SELECT")
    if isinstance(tree, exp.Cache):
        raise calls[0].error(
            text,
            "CACHE TABLE … AS does not work with a search; create a temporary view first, and cache the view",
        )
    if "|>" in text and any(token.token_type is TokenType.PIPE_GT for token in tokenize(text)):
        raise calls[0].error(text, "a search does not work in a query with |>; write WHERE")


def _check_kind(table: SearchableTable, column: str, operator: Operator) -> None:
    """Raise ScopeError if a column is not indexed as the operator demands."""
    field = table.mapping.find(column)
    is_text = field is not None and field.kind is FieldKind.TEXT
    if operator is Operator.TEXTSEARCH and not is_text:
        kind = "a partition column" if field is None else f"indexed as {field.kind.value}"
        raise ScopeError(
            f"TEXTSEARCH searches text; column {column!r} is {kind}, not tokenized; use {column} FIELDMATCH '…', or "
            f"write the table with the option spark.indextables.indexing.typemap.{column} = text"
        )
    if operator is Operator.FIELDMATCH and is_text:
        raise ScopeError(
            f"FIELDMATCH matches whole values, and column {column!r} is tokenized text; use {column} TEXTSEARCH '…'"
        )


def _whole_row_fields(table: SearchableTable, operator: Operator) -> tuple[str, ...]:
    """The columns that a search of all columns means: all text and string columns if none are named."""
    if operator is Operator.INDEXQUERY:
        return ()
    kind = FieldKind.TEXT if operator is Operator.TEXTSEARCH else FieldKind.STRING
    names = tuple(_field_name(field.name, ()) for field in table.mapping if field.kind is kind)
    if not names:
        what = "tokenized text" if kind is FieldKind.TEXT else "a string that is not tokenized"
        raise ScopeError(
            f"* {operator.name} searches all columns that are {what}, and the table has none; its columns are "
            f"{', '.join(table.columns[:_MAX_SHOWN])}"
        )
    return names


def _origin_of(found: Found, name: str) -> str | None:
    """The column of the table that a relation shows under this name."""
    return next(
        (
            output.origin.column
            for output in found.columns
            if output.origin is not None and output.name.lower() == name.lower()
        ),
        None,
    )


def _field_name(column: str, path: Sequence[str]) -> str:
    """The name of a column, or of a path inside a JSON column, for the option `queryFields`."""
    return ".".join(part.replace("\\", "\\\\") for part in (column, *path))


def _is_table_name(parts: Sequence[str]) -> bool:
    return len(parts) == 1 and parts[0].startswith(TABLE_NAME)


def _parts(node: exp.Table) -> list[str]:
    parts = node.parts
    return [part.name for part in parts] if all(isinstance(part, exp.Identifier) for part in parts) else []


def _range_of(tokens: Sequence[Token], node: exp.Table) -> tuple[int, int]:
    """Where a table stands in the text, with its time travel."""
    start, last = node.parts[0].meta["start"], node.parts[-1].meta["end"]
    if node.args.get("version") is None:
        return start, last + 1
    index = next(position for position, token in enumerate(tokens) if token.end == last)
    # VERSION AS OF 3: the literal is the first one that follows.
    literal = next(
        token for token in tokens[index:] if token.token_type in (TokenType.NUMBER, TokenType.STRING)
    )
    return start, literal.end + 1


def _placeholders(tokens: Sequence[Token]) -> list[int]:
    return [token.start for token in tokens if token.token_type is TokenType.PLACEHOLDER]


def _query_start(text: str) -> int:
    found = _EXPLAIN.match(text)
    return found.end() if found else 0


def _escape_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{_escape_braces(escaped)}'"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")

"""The scopes of a query: which table a search means, and whether it may select the table's rows.

A search that the WHERE of a query demands of every row, directly or through plain subqueries, drives: the index
selects the rows of the table, and the search itself is true. Everywhere else (next to OR with other conditions, in
SELECT lists, on the nullable side of an outer join) the search is computed from the values of each row.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from sqlglot import exp

from indextables.search.conditions import AllOf, AnyOf, Condition, NoneOf, TextCondition
from indextables.spark.sql.operators import MARKER
from indextables.spark.sql.tables import SearchableTable


class TableRef(msgspec.Struct, frozen=True, eq=False):
    """A table of ours in a FROM clause. `conditions` are the searches that select its rows."""

    node: exp.Table
    table: SearchableTable
    conditions: list[Condition]


class Origin(msgspec.Struct, frozen=True, eq=False):
    """The table and the column that a column of a subquery shows."""

    ref: TableRef
    column: str


class Output(msgspec.Struct, frozen=True, eq=False):
    """A column of a relation; `origin` is None if it is computed, or is not of a table of ours."""

    name: str
    origin: Origin | None


class Source(msgspec.Struct, frozen=True, eq=False):
    """A relation of a FROM clause. `outputs` are None if they are unknown. `join` is None for the first relation."""

    node: exp.Expr
    alias: str
    outputs: tuple[Output, ...] | None
    join: exp.Join | None


class Found(msgspec.Struct, frozen=True, eq=False):
    """What a search means: the SELECT and the relation whose columns it names, and the table behind it."""

    select: exp.Select
    source: Source
    ref: TableRef
    columns: tuple[Output, ...]


class ScopeError(Exception):
    """A search that cannot be resolved; the text says why, and what to write instead."""


# The names of a table that is not ours have no origin; None if its columns are unknown.
ColumnsOf: TypeAlias = Callable[[exp.Table], Sequence[str] | None]
TableOf: TypeAlias = Callable[[exp.Table], SearchableTable | None]


class Scopes:
    """The scopes of one parsed statement."""

    def __init__(self, tree: exp.Expr, table_of: TableOf, columns_of: ColumnsOf) -> None:
        self._tree = tree
        self._columns_of = columns_of
        self._outputs: dict[int, tuple[Output, ...] | None] = {}
        self._sources: dict[int, list[Source]] = {}
        self.refs: list[TableRef] = []
        by_node: dict[int, TableRef] = {}
        for node in tree.find_all(exp.Table):
            if self.cte_of(node) is None and (table := table_of(node)) is not None:
                by_node[id(node)] = TableRef(node, table, [])
                self.refs.append(by_node[id(node)])
        self._refs = by_node
        self._cte_uses = self._count_cte_uses()

    # Resolution.

    def find_column(self, node: exp.Expr, parts: Sequence[str]) -> tuple[Found, tuple[str, ...]]:
        """Resolve the name of a column, and return what is left of it: the path inside a JSON column."""
        for select in _selects_around(node):
            sources = self.sources(select)
            for qualifier, name, path in _readings(parts):
                named = [each for each in sources if qualifier is None or _is(each.alias, qualifier)]
                hits = [(each, output) for each in named for output in _named(each, name)]
                if not hits:
                    continue
                if len({id(source) for source, _ in hits}) > 1 or len(hits) > 1:
                    places = " and ".join(dict.fromkeys(each.alias for each, _ in hits))
                    raise ScopeError(
                        f"column {name!r} is ambiguous: it is in {places}; write the table's alias in front of it"
                    )
                ((source, output),) = hits
                if output.origin is None:
                    raise ScopeError(
                        f"column {name!r} of {source.alias or 'the subquery'} is not a column of an IndexTables table, "
                        f"so it has no index; search the column of the table itself, in the query that reads it"
                    )
                return self._found(select, source, output.origin.ref), path
        raise ScopeError(self._unknown(parts))

    def find_relation(self, node: exp.Expr, parts: Sequence[str]) -> Found:
        """Resolve a search of all columns: the only table of ours in its query, or the one with this name."""
        for select in _selects_around(node):
            sources = [each for each in self.sources(select) if not parts or _is(each.alias, parts[-1])]
            tables = [(each, ref) for each in sources for ref in _tables_of(each)]
            if len(tables) == 1:
                ((source, ref),) = tables
                return self._found(select, source, ref)
            if tables:
                names = " and ".join(dict.fromkeys(source.alias for source, _ in tables))
                raise ScopeError(
                    f"the query reads several tables ({names}); write the name of the one to search in front, as in "
                    f"{tables[0][0].alias}._indexall indexquery '…'"
                )
        raise ScopeError(self._unknown(parts))

    def sources(self, select: exp.Select) -> list[Source]:
        """The relations of a SELECT's FROM clause."""
        key = id(select)
        if key not in self._sources:
            self._sources[key] = list(self._find_sources(select))
        return self._sources[key]

    def cte_of(self, node: exp.Table) -> exp.CTE | None:
        """The common table expression that a name refers to, if any."""
        if node.args.get("db") is not None or not isinstance(node.this, exp.Identifier):
            return None
        child: exp.Expr = node
        while child.parent is not None:
            parent = child.parent
            with_ = parent if isinstance(parent, exp.With) else parent.args.get("with_")
            if isinstance(with_, exp.With) and with_ is not child:
                for cte in reversed(_visible(with_, child)):
                    if _is(cte.alias, node.name):
                        return cte
            child = parent
        return None

    def _found(self, select: exp.Select, source: Source, ref: TableRef) -> Found:
        columns = [
            each for each in source.outputs or () if each.origin is not None and each.origin.ref is ref
        ]
        return Found(select, source, ref, tuple(columns))

    def _unknown(self, parts: Sequence[str]) -> str:
        name = ".".join(parts)
        if self.refs:
            tables = {ref.node.alias_or_name: ref.table.columns for ref in self.refs}
            known = "; ".join(f"{table} has {', '.join(columns[:10])}" for table, columns in tables.items())
            return f"there is no column {name!r} of an IndexTables table here; {known}" if name else known
        read = ", ".join(dict.fromkeys(each.sql("spark") for each in self._tree.find_all(exp.Table)))
        return (
            f"no IndexTables table is read here ({read or 'no table at all'}); search a path, as in FROM "
            f"indextables.`path`, or a view that shows what spark.read.format('indextables').load(path) returned"
        )

    def _find_sources(self, select: exp.Select) -> Iterator[Source]:
        from_ = select.args.get("from_")
        if from_ is None:
            return
        yield from self._source(from_.this, None)
        for join in select.args.get("joins") or ():
            yield from self._source(join.this, join)
        for lateral in select.args.get("laterals") or ():
            columns = lateral.args["alias"].columns if lateral.args.get("alias") else []
            yield Source(lateral, lateral.alias, tuple(Output(each.name, None) for each in columns), None)

    def _source(self, node: exp.Expr, join: exp.Join | None) -> Iterator[Source]:
        if isinstance(node, exp.Table):
            yield Source(node, node.alias_or_name, _renamed(self._table_outputs(node), node), join)
            for inner in node.args.get("joins") or ():
                yield from self._source(inner.this, inner)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
            raise ScopeError(
                "a parenthesized join is not supported next to a search; write the joins in a row"
            )
        elif isinstance(node, exp.Subquery):
            outputs = self._query_outputs(node.this)
            if node.args.get("pivots"):
                outputs = None
            yield Source(node, node.alias, _renamed(outputs, node), join)
        else:
            yield Source(node, node.alias_or_name, None, join)

    def _table_outputs(self, node: exp.Table) -> tuple[Output, ...] | None:
        if node.args.get("pivots"):
            return None
        ref = self._refs.get(id(node))
        if ref is not None:
            return tuple(Output(name, Origin(ref, name)) for name in ref.table.columns)
        cte = self.cte_of(node)
        if cte is not None:
            return _renamed(self._query_outputs(cte.this), cte)
        columns = self._columns_of(node)
        return None if columns is None else tuple(Output(name, None) for name in columns)

    def _query_outputs(self, query: exp.Expr) -> tuple[Output, ...] | None:
        key = id(query)
        if key not in self._outputs:
            self._outputs[key] = None  # a recursive query has no known outputs while they are computed
            self._outputs[key] = self._compute_outputs(query)
        return self._outputs[key]

    def _compute_outputs(self, query: exp.Expr) -> tuple[Output, ...] | None:
        if isinstance(query, exp.Subquery):
            return self._query_outputs(query.this)
        if isinstance(query, exp.SetOperation):
            left = self._query_outputs(query.left)
            return None if left is None else tuple(Output(each.name, None) for each in left)
        if not isinstance(query, exp.Select):
            return None
        outputs: list[Output] = []
        for projection in query.expressions:
            found = self._projected(query, projection)
            if found is None:
                return None
            outputs += found
        return tuple(outputs)

    def _projected(self, select: exp.Select, projection: exp.Expr) -> list[Output] | None:
        inner = projection.this if isinstance(projection, exp.Alias) else projection
        if isinstance(inner, exp.Star) or (
            isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)
        ):
            star = inner if isinstance(inner, exp.Star) else inner.this
            qualifier = "" if isinstance(inner, exp.Star) else inner.table
            if star.args.get("replace") or star.args.get("rename"):
                return None
            hidden = {each.name.lower() for each in star.args.get("except_") or ()}
            outputs: list[Output] = []
            for source in self.sources(select):
                if qualifier and not _is(source.alias, qualifier):
                    continue
                if source.outputs is None:
                    return None
                outputs += [each for each in source.outputs if each.name.lower() not in hidden]
            return outputs
        if not isinstance(inner, exp.Column):
            return [Output(projection.alias_or_name, None)]
        named = [each for each in self.sources(select) if not inner.table or _is(each.alias, inner.table)]
        hits = [output for each in named for output in _named(each, inner.name)]
        origin = hits[0].origin if len(hits) == 1 else None
        return [Output(projection.alias_or_name, origin)]

    # Searches that select the rows of their table.

    def drive(self, searches: "dict[int, BoundSearch]") -> dict[int, str]:
        """Give searches to the tables whose rows they select; returns what becomes of each: TRUE or FALSE."""
        replaced: dict[int, str] = {}
        for select in self._tree.find_all(exp.Select):
            where = select.args.get("where")
            conjuncts = [] if where is None else list(_conjuncts(where.this))
            for conjunct in conjuncts:
                self._drive(select, conjunct, None, searches, replaced)
            for join in select.args.get("joins") or ():
                on = join.args.get("on")
                for conjunct in [] if on is None else _conjuncts(on):
                    self._drive(select, conjunct, join, searches, replaced)
        return replaced

    def _drive(
        self,
        select: exp.Select,
        conjunct: exp.Expr,
        join: exp.Join | None,
        searches: "dict[int, BoundSearch]",
        replaced: dict[int, str],
    ) -> None:
        numbers = list(_markers(conjunct))
        found = [searches[number].found for number in numbers]
        if not found or any(each.select is not select or each.ref is not found[0].ref for each in found):
            return
        condition = _condition(conjunct, searches)
        if condition is None or not self._selects_rows(select, found[0].source, found[0].ref, join):
            return
        found[0].ref.conditions.append(condition)
        replaced |= dict(_truths(conjunct, is_true=True))

    def _selects_rows(self, select: exp.Select, source: Source, ref: TableRef, join: exp.Join | None) -> bool:
        """Whether a condition of this SELECT may be applied to the rows of the table instead."""
        if not self._is_applied(select, source, join):
            return False
        node = source.node
        while node is not ref.node:
            if isinstance(node, exp.Table):
                cte = self.cte_of(node)
                if cte is None or self._cte_uses[id(cte)] != 1 or _is_recursive(cte) or _is_sampled(node):
                    return False
                query = cte.this
            else:
                query = node.this
                if _is_sampled(node):
                    return False
            if not isinstance(query, exp.Select) or not _is_transparent(query):
                return False
            inner = [each for each in self.sources(query) if ref in _tables_of(each)]
            if len(inner) != 1 or not self._is_applied(query, inner[0], None):
                return False
            node = inner[0].node
        return not _is_sampled(node)

    def _is_applied(self, select: exp.Select, source: Source, on: exp.Join | None) -> bool:
        """Whether a row of this relation that does not satisfy a condition (of `on`, or of WHERE) leaves no trace."""
        if on is not None and on is source.join and (on.side == "LEFT" or on.kind in ("SEMI", "ANTI")):
            return True
        if on is not None and (on.side or on.kind in ("SEMI", "ANTI")):
            return False
        if source.join is not None and source.join.side in ("LEFT", "FULL"):
            return False
        joins = list(select.args.get("joins") or ())
        later = joins if source.join is None else joins[_index(joins, source.join) + 1 :]
        return not any(join.side in ("RIGHT", "FULL") for join in later)

    def _count_cte_uses(self) -> dict[int, int]:
        uses: dict[int, int] = {}
        for node in self._tree.find_all(exp.Table):
            cte = self.cte_of(node)
            if cte is not None:
                uses[id(cte)] = uses.get(id(cte), 0) + 1
        return uses


class BoundSearch(msgspec.Struct, frozen=True, eq=False):
    """A search of a statement, and what it means."""

    found: Found
    condition: TextCondition


# Expressions.


def marker_number(node: exp.Expr) -> int | None:
    """The number of the search that this call stands for."""
    if isinstance(node, exp.Anonymous) and node.name.startswith(MARKER):
        return int(node.name.removeprefix(MARKER))
    return None


def _markers(node: exp.Expr) -> Iterator[int]:
    for each in node.find_all(exp.Anonymous):
        number = marker_number(each)
        if number is not None:
            yield number


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Paren):
        yield from _conjuncts(node.this)
    elif isinstance(node, exp.And):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    else:
        yield node


def _condition(node: exp.Expr, searches: dict[int, BoundSearch]) -> Condition | None:
    """The condition that an expression of searches, AND, OR and NOT is; None for any other expression."""
    number = marker_number(node)
    if number is not None:
        return searches[number].condition
    if isinstance(node, exp.Paren):
        return _condition(node.this, searches)
    if isinstance(node, exp.Not):
        part = _condition(node.this, searches)
        return None if part is None else NoneOf(part)
    if isinstance(node, exp.And | exp.Or):
        left, right = _condition(node.left, searches), _condition(node.right, searches)
        if left is None or right is None:
            return None
        return (AllOf if isinstance(node, exp.And) else AnyOf)((left, right))
    return None


def _truths(node: exp.Expr, *, is_true: bool) -> Iterator[tuple[int, str]]:
    """What to write for each search of a `_condition` so that the whole expression is (or is not) true."""
    number = marker_number(node)
    if number is not None:
        yield number, "TRUE" if is_true else "FALSE"
    elif isinstance(node, exp.Not):
        yield from _truths(node.this, is_true=not is_true)
    elif isinstance(node, exp.Paren):
        yield from _truths(node.this, is_true=is_true)
    else:
        yield from _truths(node.args["this"], is_true=is_true)
        yield from _truths(node.args["expression"], is_true=is_true)


_OPAQUE_CLAUSES: Final = (
    "group",
    "having",
    "qualify",
    "limit",
    "offset",
    "sample",
    "distribute",
    "match",
    "pivots",
)


def _is_transparent(select: exp.Select) -> bool:
    """Whether a condition on columns of a SELECT's result may be applied to the rows that it reads."""
    if any(select.args.get(clause) for clause in _OPAQUE_CLAUSES) or select.args.get("operation_modifiers"):
        return False
    return not any(_is_opaque(each) for projection in select.expressions for each in projection.walk())


def _is_opaque(node: exp.Expr) -> bool:
    return isinstance(node, exp.Window | exp.AggFunc)


def _is_sampled(node: exp.Expr) -> bool:
    return bool(node.args.get("sample"))


def _is_recursive(cte: exp.CTE) -> bool:
    return bool(cte.parent is not None and cte.parent.args.get("recursive"))


def _selects_around(node: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs whose columns an expression may name, the innermost first."""
    child, parent = node, node.parent
    while parent is not None:
        # A query inside FROM does not see the other relations there, unless it is LATERAL.
        if isinstance(parent, exp.Select) and child.arg_key not in ("from_", "with_"):
            yield parent
        child, parent = parent, parent.parent


def _readings(parts: Sequence[str]) -> Iterator[tuple[str | None, str, tuple[str, ...]]]:
    """How a name may be read: as a table and a column, or as a column; the rest is a path inside the column."""
    if len(parts) > 1:
        yield parts[0], parts[1], tuple(parts[2:])
    if len(parts) > 2:
        yield parts[1], parts[2], tuple(parts[3:])
    yield None, parts[0], tuple(parts[1:])


def _named(source: Source, name: str) -> list[Output]:
    return [output for output in source.outputs or () if _is(output.name, name)]


def _tables_of(source: Source) -> list[TableRef]:
    refs = [output.origin.ref for output in source.outputs or () if output.origin is not None]
    return list({id(ref): ref for ref in refs}.values())


def _renamed(outputs: tuple[Output, ...] | None, node: exp.Expr) -> tuple[Output, ...] | None:
    """The outputs under the names of a column list, as in `AS t (a, b)`."""
    alias = node.args.get("alias")
    columns: list[Any] = alias.columns if isinstance(alias, exp.TableAlias) else []
    if not columns or outputs is None:
        return outputs
    if len(columns) != len(outputs):
        return None
    return tuple(Output(column.name, output.origin) for column, output in zip(columns, outputs, strict=True))


def _visible(with_: exp.With, child: exp.Expr) -> list[exp.CTE]:
    """The common table expressions that are visible from a child of a WITH clause, or of its query."""
    ctes: list[exp.CTE] = with_.expressions
    inside = [position for position, cte in enumerate(ctes) if cte is child]
    if not inside:
        return ctes
    return ctes if with_.args.get("recursive") else ctes[: inside[0]]


def _index(joins: Sequence[exp.Join], join: exp.Join) -> int:
    return next(position for position, each in enumerate(joins) if each is join)


def _is(name: str, other: str) -> bool:
    return name.lower() == other.lower()

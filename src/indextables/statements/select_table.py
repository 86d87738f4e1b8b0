"""The tables of a SELECT, as DataFusion sees them: PyArrow datasets that pass columns, filters and searches down.

DataFusion gives a scan the columns it needs and a PyArrow expression. PyArrow expressions cannot be taken apart, but
their text has one form: `((a > 1) and (_query == "x"))`. Searches are found by the text of their own expression. What
is read from the other conditions only skips files and rows earlier: the whole expression is applied to the rows.

PyArrow answers some conditions otherwise than SQL: no comparison with NaN is true, and `x NOT IN (…)` of a null is.
The columns of such a condition are hidden behind a function in a second plan, so that DataFusion keeps the condition.
"""

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from datafusion import SessionContext, col, udf
from datafusion.catalog import Table

from indextables.errors import InvalidStatementError, ObjectNotFoundError
from indextables.ops.matching import scan_matching
from indextables.ops.read import scan
from indextables.ops.search import SearchRequest, count
from indextables.predicates import And, Comparison, Operator, Or, Predicate
from indextables.schema import find_column
from indextables.table import Snapshot

QUERY_COLUMN: Final = "_query"

_COUNT_BATCH: Final = 1 << 20
_COMPARISON: Final = re.compile(r'(\w+) (==|>=|<=|>|<) ("[^"\\]*"|-?\d+|\d{4}-\d\d-\d\d)')
_SAME: Final = "same"
_STRINGS: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_OPERATORS: Final = {
    "==": Operator.EQ,
    ">=": Operator.GE,
    "<=": Operator.LE,
    ">": Operator.GT,
    "<": Operator.LT,
}


class Selection:
    """What happened to the tables of one query: the scans of its plan, and the errors behind those of DataFusion."""

    def __init__(self) -> None:
        self.tables: list[Scan] = []
        self.failures: list[Exception] = []
        self.missing: list[Exception] = []
        # By the name of the table, the columns whose conditions DataFusion has to keep.
        self.hidden: dict[str, set[str]] = {}
        self._num_hidden = 0

    def hide(self, name: str, conditions: Iterable[str], schema: pa.Schema) -> None:
        """Hide the columns of a table for which PyArrow may answer a condition otherwise than SQL."""
        found = self.hidden.setdefault(name, set())
        for each in conditions:
            found.update(_misread(each, schema))

    def is_plan_outdated(self) -> bool:
        """Whether a plan has shown more columns to hide; then it is forgotten, for the next one."""
        before, self._num_hidden = self._num_hidden, sum(map(len, self.hidden.values()))
        if self._num_hidden > before:
            self.tables.clear()
            self.failures.clear()
            self.missing.clear()
        return self._num_hidden > before


class Scan(msgspec.Struct, frozen=True):
    """One scan of a table: the columns that DataFusion wants, the search, and the other conditions."""

    columns: tuple[str, ...]
    query: str | None
    where: Predicate | None
    filter: Any
    is_filter_needed: bool
    is_never: bool


class ParquetFile(ds.Dataset):  # type: ignore[misc]  # PyArrow has no types
    """A Parquet file on local disk beside the tables of a query. Raises ObjectNotFoundError."""

    def __init__(self, path: str, selection: Selection) -> None:
        if not Path(path).exists():
            raise ObjectNotFoundError(
                f"{path}: there is no such Parquet file; a query reads those of local disks"
            )
        self._path, self._selection = path, selection
        self._rows = ds.dataset(path, format="parquet")

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def get_fragments(self, filter: Any = None) -> Iterator["_Fragment"]:  # noqa: A002, ARG002  # PyArrow's name
        """The file as one fragment."""
        return iter([_Fragment(self)])

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> ds.Scanner:  # noqa: A002  # PyArrow's name
        """A scan, as PyArrow executes it."""
        if isinstance(filter, ds.Expression):
            self._selection.hide(self._path, _conjuncts(str(filter)), self.schema)
        return self._rows.scanner(columns=columns, filter=filter)


def with_hidden_columns(session: SessionContext, table: Table, schema: pa.Schema, hidden: set[str]) -> Table:
    """A table whose hidden columns are results of a function, so that no condition over them is pushed down."""
    columns = []
    for field in schema:
        column = col(quoted(field.name))
        if field.name in hidden:
            same = udf(_same, [field.type], field.type, "stable", _SAME)
            column = same(column).alias(field.name)
        columns.append(column)
    return session.read_table(table).select(*columns).into_view()


def quoted(name: str) -> str:
    """The name of a column as an identifier of SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _same(values: pa.Array) -> pa.Array:
    return values


class SelectedTable(ds.Dataset):  # type: ignore[misc]  # PyArrow has no types
    """A snapshot as a dataset. A column `_query` is added if the query mentions one."""

    def __init__(
        self, name: str, snapshot: Snapshot, selection: Selection, searches: frozenset[str], has_query: bool
    ) -> None:
        # Not the constructor of PyArrow's class, which refuses: DataFusion calls only the methods below.
        self._name = name
        self._snapshot = snapshot
        self._selection = selection
        self._searches = searches
        self._schema = snapshot.schema
        if has_query:
            self._schema = self._schema.append(pa.field(QUERY_COLUMN, pa.string()))

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def get_fragments(self, filter: Any = None) -> Iterator["_Fragment"]:  # noqa: A002, ARG002  # PyArrow's name
        """The table as one fragment: several splits are read at once inside of it."""
        return iter([_Fragment(self)])

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002  # PyArrow's name
        **_: Any,
    ) -> "_Scanner":
        """A scan. DataFusion asks for it when it plans, and again when it executes."""
        try:
            asked = self._scan(self._schema.names if columns is None else columns, filter)
        except Exception as error:
            self._selection.failures.append(error)
            raise
        self._selection.tables.append(asked)
        return _Scanner(self._snapshot, asked, self._schema, self._selection)

    def _scan(self, columns: Sequence[str], condition: Any) -> Scan:
        if not isinstance(condition, ds.Expression):
            is_never = condition is not None and not condition.as_py()
            return Scan(tuple(columns), None, None, None, False, is_never)
        texts = {str(ds.field(QUERY_COLUMN) == query): query for query in self._searches}
        conditions = list(_conjuncts(str(condition)))
        query = next((texts[each] for each in conditions if each in texts), None)
        others = [each for each in conditions if each not in texts]
        if any(re.search(rf"\b{QUERY_COLUMN}\b", _STRINGS.sub('""', each)) for each in others):
            raise InvalidStatementError(
                "_query stands under OR or NOT, or in an expression, where no search can answer it; write it as a "
                "condition that every row must satisfy: WHERE _query = '…' AND (…). For alternatives, say "
                "_query = '(first) OR (second)'"
            )
        self._selection.hide(self._name, others, self._snapshot.schema)
        pushed = [found for each in others if (found := _predicate(each, self._snapshot.schema)) is not None]
        where = None if not pushed else pushed[0] if len(pushed) == 1 else And(*pushed)
        return Scan(tuple(columns), query, where, condition, bool(others), False)


class _Fragment(msgspec.Struct, frozen=True):
    """All rows of a table, as DataFusion executes a scan of them."""

    table: SelectedTable | ParquetFile

    def scanner(self, _schema: pa.Schema, **asked: Any) -> Any:
        return self.table.scanner(**asked)


class _Scanner:
    """What DataFusion takes for a PyArrow scanner."""

    def __init__(self, snapshot: Snapshot, asked: Scan, schema: pa.Schema, selection: Selection) -> None:
        self._snapshot, self._asked, self._schema, self._selection = snapshot, asked, schema, selection
        self.projected_schema = pa.schema([schema.field(name) for name in asked.columns])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except Exception as error:
            self._selection.failures.append(error)
            raise

    def _batches(self) -> Iterator[pa.RecordBatch]:
        asked, snapshot = self._asked, self._snapshot
        if asked.is_never:
            return
        request = SearchRequest.of(snapshot, asked.query, asked.where)
        if not asked.columns and not asked.is_filter_needed:
            yield from _rows_without_columns(count(snapshot, request))
            return
        names = [name for name in snapshot.schema.names if name in asked.columns or self._is_in_filter(name)]
        names = names or snapshot.schema.names[:1]
        if asked.query is not None:
            rows = scan_matching(snapshot, request, names)
        else:
            rows = scan(snapshot, asked.where, names)
        yield from self._filtered(rows)

    def _is_in_filter(self, name: str) -> bool:
        return self._asked.is_filter_needed and name in str(self._asked.filter)

    def _filtered(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        asked = self._asked
        needs_query = asked.query is not None or QUERY_COLUMN in asked.columns
        schema = rows.schema.append(self._schema.field(QUERY_COLUMN)) if needs_query else rows.schema

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                if not needs_query:
                    yield batch
                    continue
                constant = pa.repeat(pa.scalar(asked.query, pa.string()), batch.num_rows)
                yield pa.RecordBatch.from_arrays([*batch.columns, constant], schema=schema)

        condition = asked.filter if asked.is_filter_needed else None
        scanner = ds.Scanner.from_batches(
            pa.RecordBatchReader.from_batches(schema, batches()),
            columns=list(asked.columns),
            filter=condition,
        )
        yield from scanner.to_batches()


def _rows_without_columns(number: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, number, _COUNT_BATCH):
        yield pa.record_batch([pa.nulls(min(_COUNT_BATCH, number - start))], names=[""]).select([])


# --- The text of PyArrow's expressions ----------------------------------------------------------------


def _conjuncts(text: str) -> Iterator[str]:
    """The conditions that are joined by `and`, each as PyArrow writes it."""
    parts = _operands(text, "and")
    if parts is None:
        yield text
        return
    for part in parts:
        yield from _conjuncts(part)


def _operands(text: str, operator: str) -> tuple[str, str] | None:
    """The two sides of `(left operator right)`; None if the text is something else."""
    if not text.startswith("("):
        return None
    depth, place, word = 0, 0, f" {operator} "
    while place < len(text):
        quoted = _STRINGS.match(text, place)
        if quoted is not None:
            place = quoted.end()
            continue
        if depth == 1 and text.startswith(word, place) and text.endswith(")"):
            return text[1:place], text[place + len(word) : -1]
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if not depth and place < len(text) - 1:
            return None
        place += 1
    return None


def _misread(text: str, schema: pa.Schema) -> Iterator[str]:
    """The columns of a condition that PyArrow may answer otherwise than SQL; some others, if their names are short."""
    plain = _STRINGS.sub('""', text)
    is_misread = not _has_lists_at_top(text)
    for field in schema:
        if field.name in plain and (is_misread or pa.types.is_floating(field.type)):
            yield field.name


def _has_lists_at_top(text: str) -> bool:
    """Whether a list that does not have a null may be said not to have it: what is not true selects nothing anyway."""
    for operator in ("and", "or"):
        parts = _operands(text, operator)
        if parts is not None:
            return all(map(_has_lists_at_top, parts))
    return "is_in(" not in _STRINGS.sub('""', text.removeprefix("is_in("))


def _predicate(text: str, schema: pa.Schema) -> Predicate | None:
    """A predicate that is true for every row for which a condition is true; None if none is known."""
    for operator, combine in (("and", And), ("or", Or)):
        parts = _operands(text, operator)
        if parts is not None:
            left, right = (_predicate(part, schema) for part in parts)
            if left is None or right is None:
                return (left or right) if combine is And else None
            return combine(left, right)
    found = _COMPARISON.fullmatch(text.removeprefix("(").removesuffix(")"))
    field = None if found is None else find_column(schema, found[1])
    if found is None or field is None:
        return None
    value = _literal(found[3], field.type)
    return None if value is None else Comparison(field.name, _OPERATORS[found[2]], value)


def _literal(text: str, data_type: pa.DataType) -> str | int | dt.date | None:
    """A literal, if its text and the type of its column leave no doubt about its value."""
    if pa.types.is_string(data_type):
        return text[1:-1] if text.startswith('"') else None
    if pa.types.is_integer(data_type):
        return int(text) if text.lstrip("-").isdigit() else None
    if pa.types.is_date32(data_type):
        return dt.date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else None
    return None

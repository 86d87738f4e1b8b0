"""SELECT over tables and Parquet files, on DataFusion: recognition, names of tables, and what `_query` may do.

DataFusion parses, plans and executes. It asks for each table by the name that the query gives it, a path in quotes, and
gets a `SelectedTable`, which takes column lists and filters. Two things are read from the text before that: time
travel, which DataFusion does not know, and the mentions of `_query`. A search can only be pushed down as a condition
that every row must satisfy, so under OR or NOT, in a CASE or in the list of columns, `_query` is refused. As optimizers
change conditions, the plan must have the searches of the text, and may do nothing else with the column.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
from datafusion import DataFrame, SessionContext, SQLOptions
from datafusion.catalog import CatalogProvider, SchemaProvider, Table

from indextables.errors import IndexTablesError, InvalidStatementError, TableNotFoundError
from indextables.predicates.literals import timestamp_ms
from indextables.statements.caller import Caller
from indextables.statements.forms import leading_words
from indextables.statements.nodes import TablePath
from indextables.statements.select_table import (
    QUERY_COLUMN,
    ParquetFile,
    SelectedTable,
    Selection,
    with_hidden_columns,
)
from indextables.table import Snapshot, load_snapshot
from indextables.table.history import version_at

_TOKEN: Final = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:''|[^'])*'|"(?:""|[^"])*"|\w+|\s+|.""", re.DOTALL)
_SEARCH_FUNCTIONS: Final = frozenset({"TEXTSEARCH", "FIELDMATCH", "INDEXQUERY", "INDEXQUERYALL"})
# A column of a plan as it is, and not in an expression.
_COLUMN: Final = re.compile(rf"([^()=<>|]*\.)?{QUERY_COLUMN}")

_HOW_TO_SEARCH: Final = (
    "write the search as a condition that every row must satisfy: WHERE _query = 'timeout AND level:ERROR', or, with "
    "several tables, ON or WHERE alias._query = '…'"
)


class TableVersion(msgspec.Struct, frozen=True):
    """A table in a query: its path, and the version or the moment to read."""

    path: str
    version: int | None = None
    timestamp: str | None = None


class _Reading(msgspec.Struct, frozen=True):
    """What is read from the text of a query: the text for DataFusion, the versions by name, and the searches."""

    text: str
    versions: Mapping[str, TableVersion]
    searches: frozenset[str]
    mentions_query: bool


def run_select(text: str, caller: Caller) -> pa.RecordBatchReader:
    """The rows of a query, as they come.

    Raises InvalidStatementError for a query that cannot be planned, and what opening and searching the tables raises.
    """
    reading = _read(text)
    selection = Selection()
    tables = _Tables(reading, caller, selection)
    try:
        frame = _plan(reading, tables)
        while selection.is_plan_outdated():
            frame = _plan(reading, tables)
        if reading.mentions_query:
            _check_plan(frame.optimized_logical_plan().display_indent())
            _check_searches(reading.searches, selection)
        rows = pa.RecordBatchReader.from_stream(frame)
    except Exception as error:  # DataFusion raises bare exceptions
        raise _translated(error, selection, text) from error
    schema = pa.schema([_plain(field) for field in rows.schema if field.name != QUERY_COLUMN])
    kept = [index for index, name in enumerate(rows.schema.names) if name != QUERY_COLUMN]

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in rows:
                columns = [
                    batch.column(index).cast(field.type) for index, field in zip(kept, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        except Exception as error:
            raise _translated(error, selection, text) from error

    return pa.RecordBatchReader.from_batches(schema, batches())


def _plan(reading: _Reading, tables: "_Tables") -> DataFrame:
    session = SessionContext()
    session.register_catalog_provider("datafusion", tables)
    options = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
    frame = session.sql_with_options(reading.text, options)
    frame.execution_plan()  # which tells every table what it is asked for
    return frame


def _plain(field: pa.Field) -> pa.Field:
    """A column with a type that all readers of Arrow know."""
    return pa.field(field.name, pa.string()) if pa.types.is_string_view(field.type) else field


def _check_plan(plan: str) -> None:
    """Raise InvalidStatementError if a plan computes with `_query` instead of searching for it."""
    for line in map(str.strip, plan.splitlines()):
        if QUERY_COLUMN not in line or line.startswith("TableScan:"):
            continue
        kind, _, columns = line.partition(": ")
        mentions = [each for each in columns.split(", ") if QUERY_COLUMN in each]
        if kind != "Projection" or not all(map(_COLUMN.fullmatch, mentions)):
            raise InvalidStatementError(
                f"_query takes part in {kind.lower()}, where no search can answer it; {_HOW_TO_SEARCH}, and name the "
                f"columns you want instead of * in a DISTINCT, a UNION or a NATURAL JOIN"
            )


def _check_searches(searches: frozenset[str], selection: Selection) -> None:
    """Raise InvalidStatementError if the plan does not have the searches of the text. An empty plan has none."""
    found = {table.query for table in selection.tables} - {None}
    if found != searches and (selection.tables or len(searches) > 1):
        raise InvalidStatementError(
            f"_query is used here in a way that no search can answer; {_HOW_TO_SEARCH}. Two searches of one table are "
            f"one condition: _query = '(first) AND (second)'"
        )


def _translated(error: Exception, selection: Selection, text: str) -> Exception:
    if selection.failures:
        return selection.failures[0]
    if isinstance(error, IndexTablesError):
        return error
    words = {word.text for word in leading_words(text)}
    functions = sorted(words & _SEARCH_FUNCTIONS)
    message = str(error).strip()
    if functions:
        return InvalidStatementError(f"{functions[0]} works in Spark only; here, {_HOW_TO_SEARCH}")
    if selection.missing and "not found" in message:
        return selection.missing[0]
    if "_score" in message:
        message = f"{message}; scores are in the results of IndexTable.search and `indextables search`"
    return InvalidStatementError(f"cannot execute the query: {message}")


# --- The text -----------------------------------------------------------------------------------------


def _read(text: str) -> _Reading:
    """Read time travel and searches from a query. Raises InvalidStatementError for other mentions of `_query`."""
    tokens = [token for token in _TOKEN.findall(text) if not token.startswith(("--", "/*"))]
    places = [place for place, token in enumerate(tokens) if not token.isspace()]
    words = [tokens[place] for place in places]
    versions: dict[str, TableVersion] = {}
    searches: set[str] = set()
    mentions = 0
    for number, word in enumerate(words):
        if word.lower() == QUERY_COLUMN or word == f'"{QUERY_COLUMN}"':
            mentions += 1
            if words[number + 1 : number + 2] != ["="] or not _is_text(words, number + 2):
                raise InvalidStatementError(f"_query can only be compared with a text; {_HOW_TO_SEARCH}")
            searches.add(_value(words[number + 2]))
        kind = word.upper()
        is_travel = [each.upper() for each in words[number + 1 : number + 3]] == ["AS", "OF"]
        if kind in ("VERSION", "TIMESTAMP") and is_travel and number and _is_text(words, number - 1):
            given = words[number + 3] if number + 3 < len(words) else ""
            found = _version(_value(words[number - 1]), kind, given)
            name = f"{found.path} {kind} AS OF {given}"
            versions[name] = found
            escaped = name.replace("'", "''")
            tokens[places[number - 1]] = f"'{escaped}'"
            for place in places[number : number + 4]:
                tokens[place] = ""
    return _Reading("".join(tokens), versions, frozenset(searches), mentions > 0)


def _version(path: str, kind: str, given: str) -> TableVersion:
    if kind == "VERSION" and given.isascii() and given.isdigit():
        return TableVersion(path, version=int(given))
    if kind == "TIMESTAMP" and given.startswith("'"):
        return TableVersion(path, timestamp=_value(given))
    raise InvalidStatementError(
        f"{kind} AS OF {given} is not a version of {path!r}; write VERSION AS OF 3, or TIMESTAMP AS OF "
        f"'2026-01-31T12:00:00Z'"
    )


def _is_text(words: list[str], number: int) -> bool:
    return number < len(words) and words[number].startswith("'")


def _value(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


# --- Tables by name -----------------------------------------------------------------------------------


class _Tables(CatalogProvider, SchemaProvider):
    """The only schema of a session: a table for every name that is the path of one."""

    def __init__(self, reading: _Reading, caller: Caller, selection: Selection) -> None:
        self._reading, self._caller, self._selection = reading, caller, selection
        # All mentions of a table see the same version.
        self._snapshots: dict[str, Snapshot] = {}
        # Views are made here, and planned with the query.
        self._session = SessionContext()

    def schema_names(self) -> set[str]:
        return {"public"}

    def schema(self, name: str) -> Any:
        return self if name == "public" else None

    def table_names(self) -> set[str]:
        return set()

    def table_exist(self, name: str) -> bool:  # noqa: ARG002  # `table` says what is missing
        return True

    def table(self, name: str) -> Table | None:
        try:
            return self._found(name)
        except TableNotFoundError as error:
            # DataFusion asks for the names of table functions, too.
            self._selection.missing.append(error)
            return None
        except Exception as error:
            self._selection.failures.append(error)
            raise

    def _found(self, name: str) -> Table:
        dataset = self._dataset(name)
        hidden = self._selection.hidden.get(name)
        if not hidden:
            return Table(dataset)
        return with_hidden_columns(self._session, Table(dataset), dataset.schema, hidden)

    def _dataset(self, name: str) -> ParquetFile | SelectedTable:
        if name.lower().endswith(".parquet"):
            return ParquetFile(name, self._selection)
        snapshot = self._snapshots.get(name)
        if snapshot is None:
            snapshot = self._snapshots[name] = self._open(
                self._reading.versions.get(name, TableVersion(name))
            )
        return SelectedTable(
            name, snapshot, self._selection, self._reading.searches, has_query=self._reading.mentions_query
        )

    def _open(self, wanted: TableVersion) -> Snapshot:
        context = self._caller.context(TablePath(wanted.path))
        if wanted.timestamp is None:
            return load_snapshot(context, wanted.version)
        newest = load_snapshot(context)
        return load_snapshot(context, version_at(context, newest.version, timestamp_ms(wanted.timestamp)))

"""SQL expressions over the columns of rows, which UPDATE and MERGE compute new values with. DataFusion evaluates them.

    rows of `target` ──┐
                       ├──▶ SELECT expression, … ──▶ a column per expression
    rows of `source` ──┘

Every relation has rows that belong together by their position. Names of columns are case-insensitive, and may be
qualified by the relation. An expression sees one row at a time: aggregates, window functions and subqueries over the
rows are errors, because rows are evaluated in batches.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa

from indextables._arrow import arrow_from_numpy
from indextables.errors import (
    InvalidExpressionError,
    InvalidOptionError,
    InvalidSchemaError,
    InvalidValueError,
)
from indextables.schema import find_column
from indextables.schema.conversion import LossyConversionError, convert, converts, family_of, loss_of
from indextables.table import Snapshot

if TYPE_CHECKING:
    from datafusion import DataFrame
    from datafusion.plan import LogicalPlan

# The number of a row among those that are evaluated together. No column of a table has this name.
_ROW: Final = "~row"
# The nodes of a plan that computes every row from that row alone.
_ROW_BY_ROW: Final = frozenset(
    {"Projection", "SubqueryAlias", "TableScan", "Inner Join", "Join", "Filter", "EmptyRelation"}
)
# Literals and comments, which stay as they are, and names in backticks.
_QUOTED: Final = re.compile(
    r"'(?:''|\\.|[^'\\])*'|\"(?:\"\"|\\.|[^\"\\])*\"|--[^\n]*|/\*.*?\*/|`(?:``|[^`])*`", re.DOTALL
)
_NOT_ROW_BY_ROW: Final = (
    "it needs more than one row at a time; aggregates, window functions and unnest are not supported"
)
_CONFIG: Final = {
    "datafusion.execution.target_partitions": "1",
    "datafusion.sql_parser.dialect": "Databricks",
}


class Expression(msgspec.Struct, frozen=True):
    """A SQL expression over the columns of a row; `expr` makes one."""

    sql: str

    def __str__(self) -> str:
        return self.sql


def expr(sql: str) -> Expression:
    """Return a value that is computed for each row, for `IndexTable.update` and `IndexTable.merge`.

    Args:
        sql: A SQL expression over the columns of the row, such as "price * 1.1" or "upper(name)". Names are
            case-insensitive, and quoted with backticks. In a merge, columns are qualified: "target.n + source.n".

    Returns:
        The expression. It is checked when the operation begins.

    Raises:
        InvalidExpressionError: The expression is not a text, or empty.

    Example:
        >>> from indextables import expr
        >>> table.update({"message": expr("upper(message)")}, where="level = 'INFO'")
        3
    """
    if not isinstance(cast("object", sql), str) or not sql.strip():
        raise InvalidExpressionError(f"an expression is a text such as 'price * 1.1', not {sql!r}")
    return Expression(sql)


class Evaluator:
    """Evaluates expressions, each with a name for messages, over relations.

    Planning checks names and types, so that most errors come before anything is read.
    """

    def __init__(self, relations: Mapping[str, pa.Schema], expressions: Mapping[str, Expression]) -> None:
        self._relations = dict(relations)
        self._expressions = dict(expressions)
        self._types = {name: self._type_of(name) for name in self._expressions}

    def type_of(self, name: str) -> pa.DataType:
        """The type of the values of an expression."""
        return self._types[name]

    def evaluate(self, rows: Mapping[str, pa.Table]) -> dict[str, pa.ChunkedArray]:
        """The values of every expression. Raises InvalidExpressionError, with the cause."""
        if not self._expressions:
            return {}
        try:
            found = self._select(self._expressions, rows).to_arrow_table()
        except Exception as error:
            raise self._culprit(rows, error) from error
        order = found[_ROW].to_numpy()
        if len(order) > 1 and not bool(np.all(order[:-1] < order[1:])):
            found = found.take(arrow_from_numpy(np.argsort(order)))
        return {name: found.column(place) for place, name in enumerate(self._expressions)}

    def _type_of(self, name: str) -> pa.DataType:
        empty = {relation: schema.empty_table() for relation, schema in self._relations.items()}
        try:
            selected = self._select({name: self._expressions[name]}, empty)
            _check_plan(selected)
            return selected.schema().field(0).type
        except Exception as error:
            raise self._error(name, error) from error

    def _select(self, expressions: Mapping[str, Expression], rows: Mapping[str, pa.Table]) -> "DataFrame":
        """The query. The names of its tables differ from those of the relations, so that no subquery reads them."""
        # Imported here, because few operations evaluate expressions, and the import is slow.
        from datafusion import SessionConfig, SessionContext

        context = SessionContext(SessionConfig(_CONFIG))
        sources = []
        for place, (relation, table) in enumerate(rows.items()):
            context.register_record_batches(f"rows~{place}", [[_numbered(table)]])
            sources.append(f"`rows~{place}` AS {_quoted(relation)}")
        names = [_quoted(relation) for relation in rows]
        joined = sources[0]
        for name, source in zip(names[1:], sources[1:], strict=True):
            joined += f" JOIN {source} ON {name}.`{_ROW}` = {names[0]}.`{_ROW}`"
        # On lines of their own, so that a comment ends with its expression.
        texts = [_lowered_names(each.sql) for each in expressions.values()]
        selected = "".join(f"(\n{text}\n) AS `{place}~`,\n" for place, text in enumerate(texts))
        row = f"{names[0]}.`{_ROW}` AS `{_ROW}`"
        # The caller's own expressions over the caller's own rows: there is nothing else to read.
        return context.sql(f"SELECT {selected} {row} FROM {joined}")  # noqa: S608

    def _culprit(self, rows: Mapping[str, pa.Table], error: Exception) -> InvalidExpressionError:
        """The error of the first expression that fails by itself."""
        for name, expression in self._expressions.items():
            try:
                self._select({name: expression}, rows).to_arrow_table()
            except Exception as cause:  # noqa: BLE001  # DataFusion raises plain exceptions
                return self._error(name, cause)
        return self._error(", ".join(self._expressions), error)

    def _error(self, name: str, error: Exception) -> InvalidExpressionError:
        text = self._expressions[name].sql if name in self._expressions else name
        return InvalidExpressionError(f"{name}: the expression {text!r} fails: {_reason(error)}")


class Assignments:
    """The new values of columns: constants, and expressions over relations."""

    def __init__(
        self, snapshot: Snapshot, values: Mapping[str, Any], relations: Mapping[str, pa.Schema]
    ) -> None:
        """Check names and types.

        Raises InvalidOptionError without values or for a column that is set twice, InvalidSchemaError for a column that
        does not exist, InvalidValueError for a constant that does not fit, and InvalidExpressionError.
        """
        url = snapshot.context.url
        if not values:
            raise InvalidOptionError(f"{url}: name at least one column to set")
        self._fields: dict[str, pa.Field] = {}
        self._constants: dict[str, pa.Scalar] = {}
        expressions: dict[str, Expression] = {}
        for name, value in values.items():
            field = find_column(snapshot.schema, name)
            if field is None:
                raise InvalidSchemaError(
                    f"{url}: there is no column {name!r}; the columns are {', '.join(snapshot.schema.names)}"
                )
            if field.name in self._fields:
                raise InvalidOptionError(f"{url}: column {field.name!r} is set twice; name it once")
            self._fields[field.name] = field
            if isinstance(value, Expression):
                expressions[field.name] = value
            else:
                self._constants[field.name] = _constant(url, field, value)
        self._expressions = expressions
        self._evaluator = Evaluator(relations, expressions)
        for name, expression in expressions.items():
            _check_assignable(self._evaluator.type_of(name), self._fields[name], expression)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that get new values, as the table spells them."""
        return frozenset(self._fields)

    def values(self, num_rows: int, rows: Mapping[str, pa.Table]) -> dict[str, pa.ChunkedArray]:
        """The new values of each column. Raises InvalidExpressionError and InvalidValueError."""
        found = {
            name: pa.chunked_array([pa.repeat(value, num_rows)]) for name, value in self._constants.items()
        }
        for name, values in self._evaluator.evaluate(rows).items():
            found[name] = _assigned(values, self._fields[name], self._expressions[name])
        return found


def _constant(url: str, field: pa.Field, value: Any) -> pa.Scalar:
    if value is None and not field.nullable:
        raise InvalidValueError(f"{url}: column {field.name!r} cannot be null")
    loss = loss_of(value, field.type)
    if loss is not None:
        raise InvalidValueError(
            f"{url}: column {field.name!r} is {field.type} and cannot be {value!r}: {loss}"
        )
    try:
        return pa.scalar(value, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidValueError(
            f"{url}: column {field.name!r} is {field.type} and cannot be {value!r}: {error}"
        ) from error


def _assigned(values: pa.ChunkedArray, field: pa.Field, expression: Expression) -> pa.ChunkedArray:
    """The values of an expression in the type of a column."""
    try:
        converted = convert(values, field.type)
    except LossyConversionError as error:
        raise InvalidValueError(
            f"column {field.name!r} is {field.type} and cannot hold a value of {expression.sql!r}: {error}"
        ) from error
    if converted.null_count and not field.nullable:
        raise InvalidValueError(f"column {field.name!r} cannot be null, as {expression.sql!r} is for a row")
    return converted


def _check_assignable(given: pa.DataType, field: pa.Field, expression: Expression) -> None:
    """Nothing but a string becomes a string: a number in a text column is more often a slip than meant."""
    is_slip = family_of(field.type) == "string" and family_of(given) not in ("string", None)
    if is_slip or not converts(given, field.type):
        raise InvalidExpressionError(
            f"column {field.name!r} is {field.type}, and {expression.sql!r} is {given}; convert it, as in "
            f"CAST({expression.sql} AS …)"
        )


def _numbered(table: pa.Table) -> pa.RecordBatch:
    """The rows as one batch, with names in lower case, and their positions."""
    rows = table.combine_chunks()
    columns = [
        _lowered(column.chunk(0) if column.num_chunks else pa.array([], column.type))
        for column in rows.columns
    ]
    names = [name.lower() for name in rows.column_names]
    numbers = arrow_from_numpy(np.arange(rows.num_rows))
    return pa.RecordBatch.from_arrays([*columns, numbers], [*names, _ROW])


def _lowered(array: Any) -> pa.Array:
    """A column with the members of structs in lower case. They are null where their struct is null.

    DataFusion reads a member of a null struct as whatever is stored there.
    """
    if isinstance(array.type, pa.StructType):
        members = [_lowered(member) for member in array.flatten()]
        names = [field.name.lower() for field in array.type]
        return pa.StructArray.from_arrays(members, names, mask=array.is_null())
    return array


def _lowered_names(sql: str) -> str:
    """The expression with names in backticks in lower case, as others are read."""
    return _QUOTED.sub(lambda found: found[0].lower() if found[0].startswith("`") else found[0], sql)


def _check_plan(selected: "DataFrame") -> None:
    """Raise InvalidExpressionError unless the query has one value for each row, computed from that row alone."""
    if len(selected.schema().names) != 2:
        raise InvalidExpressionError("it has several values; give one expression for each column")
    for node in _nodes(selected.logical_plan()):
        kind = node.display().partition(":")[0]
        if kind not in _ROW_BY_ROW:
            raise InvalidExpressionError(_NOT_ROW_BY_ROW)


def _nodes(plan: "LogicalPlan") -> "Sequence[LogicalPlan]":
    return [plan, *(node for each in plan.inputs() for node in _nodes(each))]


def _quoted(name: str) -> str:
    return "`" + name.lower().replace("`", "``") + "`"


def _reason(error: Exception) -> str:
    """The first line of a message of DataFusion, without what it says about itself, and our names of tables."""
    text = str(error).strip()
    if "must be in GROUP BY" in text:
        return _NOT_ROW_BY_ROW
    for prefix in ("DataFusion error: ", "Schema error: ", "Error during planning: ", "SQL error: "):
        text = text.removeprefix(prefix)
    lines = [line for line in text.splitlines() if _ROW not in line and line.strip() != "caused by"]
    return lines[-1] if lines and "Optimizer rule" in lines[0] else (lines or [text])[0]

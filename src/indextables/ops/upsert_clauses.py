"""The clauses of a MERGE: what callers say, and the same after it was checked against the table and the source."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import InvalidExpressionError, InvalidOptionError, InvalidValueError
from indextables.ops.expressions import Assignments, Evaluator, Expression, expr
from indextables.table import Snapshot

_CONDITION: Final = "the condition"

# What expressions see, by name.
Relations: TypeAlias = Mapping[str, pa.Schema]


class WhenMatched(msgspec.Struct, frozen=True):
    """What happens to a row of the table with the key of a row of the source.

    Attributes:
        values: The new value of each column, or an `Expression` for it; None sets all columns of the source.
        condition: The clause applies only where this is true; None is always true.
        is_delete: Whether the row is deleted instead.
    """

    values: Mapping[str, Any] | None = None
    condition: Expression | None = None
    is_delete: bool = False


class WhenNotMatched(msgspec.Struct, frozen=True):
    """What is inserted for a row of the source whose key no row of the table has.

    Attributes:
        values: The value of each column, or an `Expression` for it, others are null; None takes the source's row.
        condition: The clause applies only where this is true; None is always true.
    """

    values: Mapping[str, Any] | None = None
    condition: Expression | None = None


def key_columns(on: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The key columns of the table, and those of the source. Raises InvalidOptionError for one that is named twice."""
    if isinstance(on, Mapping):
        return dict(on)
    names = [on] if isinstance(on, str) else list(on)
    if len(set(names)) != len(names):
        raise InvalidOptionError(f"a key column is named twice: {', '.join(names)}")
    return {name: name for name in names}


def when_matched(
    update: bool | Mapping[str, Any] | None, delete: bool | str | Expression
) -> tuple[WhenMatched, ...]:
    """The clauses for matched rows. Raises InvalidOptionError if all of them would be both deleted and updated."""
    if delete is True:
        if update:
            raise InvalidOptionError(
                "when_matched_delete=True leaves no row to update; give it a condition, or leave out "
                "when_matched_update"
            )
        return (WhenMatched(is_delete=True),)
    clauses = () if delete is False else (WhenMatched(condition=_as_expression(delete), is_delete=True),)
    if update is False:
        return clauses
    return (*clauses, WhenMatched(update if isinstance(update, Mapping) else None))


def when_not_matched(insert: bool | str | Expression | Mapping[str, Any]) -> tuple[WhenNotMatched, ...]:
    """The clauses for rows of the source that match no row."""
    if isinstance(insert, bool):
        return (WhenNotMatched(),) if insert else ()
    if isinstance(insert, Mapping):
        return (WhenNotMatched(insert),)
    return (WhenNotMatched(condition=_as_expression(insert)),)


def _as_expression(condition: str | Expression) -> Expression:
    return condition if isinstance(condition, Expression) else expr(condition)


class Clause(msgspec.Struct, frozen=True, eq=False):
    """A clause that fits the table. `values` is None for a delete, and for a clause that takes the source's values."""

    is_delete: bool
    condition: Evaluator | None
    values: Assignments | None

    @classmethod
    def of_matched(cls, snapshot: Snapshot, clause: WhenMatched, relations: Relations) -> "Clause":
        """Check a clause for matched rows. Raises what `Assignments` raises."""
        return cls(
            clause.is_delete,
            _condition(snapshot.context.url, clause.condition, relations),
            None
            if clause.is_delete or clause.values is None
            else Assignments(snapshot, clause.values, relations),
        )

    @classmethod
    def of_not_matched(cls, snapshot: Snapshot, clause: WhenNotMatched, relations: Relations) -> "Clause":
        """Check a clause for rows to insert. Raises what `Assignments` raises."""
        return cls(
            False,
            _condition(snapshot.context.url, clause.condition, relations),
            None if clause.values is None else _insertion(snapshot, clause.values, relations),
        )

    @property
    def takes_source(self) -> bool:
        """Whether rows get the values of the source's columns."""
        return self.values is None and not self.is_delete

    def holds(self, num_rows: int, rows: Mapping[str, pa.Table]) -> npt.NDArray[np.bool_]:
        """For which rows the condition is true."""
        if self.condition is None:
            return np.ones(num_rows, np.bool_)
        truth = pc.fill_null(self.condition.evaluate(rows)[_CONDITION], False)
        return np.asarray(truth.to_numpy(), np.bool_)


def _condition(url: str, condition: Expression | None, relations: Relations) -> Evaluator | None:
    if condition is None:
        return None
    evaluator = Evaluator(relations, {_CONDITION: condition})
    if not pa.types.is_boolean(evaluator.type_of(_CONDITION)):
        raise InvalidExpressionError(
            f"{url}: {condition.sql!r} is {evaluator.type_of(_CONDITION)}, and no condition; compare it with something"
        )
    return evaluator


def _insertion(snapshot: Snapshot, values: Mapping[str, Any], relations: Relations) -> Assignments:
    assignments = Assignments(snapshot, values, relations)
    missing = [
        field.name
        for field in snapshot.schema
        if not field.nullable and field.name not in assignments.columns
    ]
    if missing:
        raise InvalidValueError(
            f"{snapshot.context.url}: column {missing[0]!r} cannot be null; give it a value for inserted rows"
        )
    return assignments

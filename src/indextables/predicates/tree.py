"""The predicate tree: frozen, hashable, picklable, and with SQL's three truth values.

A predicate is true, false or unknown for a row. A comparison with null, on either side, is unknown, and so is its
negation. Only rows for which a predicate is true match it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import NewType, TypeAlias, overload

import msgspec
import pyarrow as pa

from indextables.errors import InvalidPredicateError

# A bool is also an int, and a datetime is also a date; binding distinguishes them.
Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime

# Functions walk the tree recursively. The limit is far above hand-written predicates, and far below Python's own.
MAX_DEPTH = 100


class Operator(Enum):
    """The operator of a comparison."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def mirrored(self) -> "Operator":
        """The equivalent operator with its sides exchanged: 5 < x is x > 5."""
        return MIRRORED.get(self, self)


MIRRORED = {
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
}


class Predicate:
    """The base class of all nodes; combine with `&`, `|` and `~`."""

    __slots__ = ()

    def __and__(self, other: object) -> "Predicate":
        return And(self, other) if isinstance(other, Predicate) else NotImplemented

    def __or__(self, other: object) -> "Predicate":
        return Or(self, other) if isinstance(other, Predicate) else NotImplemented

    def __invert__(self) -> "Predicate":
        return Not(self)

    def __bool__(self) -> bool:
        # Otherwise `a and b`, and `1 < col("x") < 5`, would silently drop one operand.
        raise InvalidPredicateError("a predicate has no truth value of its own; combine with &, | and ~")


BoundPredicate = NewType("BoundPredicate", Predicate)
"""A predicate after `bind`: columns as the schema spells them, literals of the columns' types.

It has the same nodes, so it is hashable and picklable, too. The type keeps callers from binding it twice.
"""


class AlwaysTrue(Predicate, msgspec.Struct, frozen=True):
    """True for every row."""


class AlwaysFalse(Predicate, msgspec.Struct, frozen=True):
    """False for every row."""


class Comparison(Predicate, msgspec.Struct, frozen=True):
    """A comparison of a column with a value; unknown if either is null (None)."""

    column: str
    operator: Operator
    value: Value | None


class In(Predicate, msgspec.Struct, frozen=True):
    """The column's value is one of these.

    Unknown for null, and, if None is among `values`, for every value that is not found. Without values, it is false for
    every value and unknown for null: this is the bound form of a comparison that no value of the column's type
    satisfies.
    """

    column: str
    values: tuple[Value | None, ...]


class IsNull(Predicate, msgspec.Struct, frozen=True):
    """The column is null; never unknown."""

    column: str


class IsNotNull(Predicate, msgspec.Struct, frozen=True):
    """The column is not null; never unknown."""

    column: str


class StartsWith(Predicate, msgspec.Struct, frozen=True):
    """The column's text begins with the prefix; unknown for null."""

    column: str
    prefix: str


class Like(Predicate, msgspec.Struct, frozen=True):
    """The column's text matches a pattern of % (any text), _ (one character) and backslash escapes."""

    column: str
    pattern: str


class Not(Predicate, msgspec.Struct, frozen=True):
    """True where the operand is false, false where it is true, unknown where it is unknown."""

    operand: Predicate


# A dataclass, because a Struct cannot take any number of arguments.
@dataclass(frozen=True, slots=True, init=False)
class And(Predicate):
    """False where an operand is false, else unknown where one is unknown, else true."""

    operands: tuple[Predicate, ...]

    def __init__(self, *operands: Predicate) -> None:
        object.__setattr__(self, "operands", _flattened(And, operands))


@dataclass(frozen=True, slots=True, init=False)
class Or(Predicate):
    """True where an operand is true, else unknown where one is unknown, else false."""

    operands: tuple[Predicate, ...]

    def __init__(self, *operands: Predicate) -> None:
        object.__setattr__(self, "operands", _flattened(Or, operands))


@overload
def all_of(predicates: Iterable[BoundPredicate]) -> BoundPredicate: ...
@overload
def all_of(predicates: Iterable[Predicate]) -> Predicate: ...
def all_of(predicates: Iterable[Predicate]) -> Predicate:
    """Return the conjunction of predicates; without any, AlwaysTrue. It is bound if all of them are."""
    operands = tuple(predicates)
    if len(operands) == 1:
        return operands[0]
    return And(*operands) if operands else AlwaysTrue()


@overload
def any_of(predicates: Iterable[BoundPredicate]) -> BoundPredicate: ...
@overload
def any_of(predicates: Iterable[Predicate]) -> Predicate: ...
def any_of(predicates: Iterable[Predicate]) -> Predicate:
    """Return the disjunction of predicates; without any, AlwaysFalse. It is bound if all of them are."""
    operands = tuple(predicates)
    if len(operands) == 1:
        return operands[0]
    return Or(*operands) if operands else AlwaysFalse()


def conjuncts_of(predicate: BoundPredicate) -> tuple[BoundPredicate, ...]:
    """Return the operands of an AND, or the predicate itself if it is not an AND."""
    operands = _operands(predicate) if isinstance(predicate, And) else (predicate,)
    return tuple(map(BoundPredicate, operands))


class NestedColumn(str):
    """The name of a value inside a column of a bound predicate, such as `user.name`.

    `path` has the column and the members of structs; `key` is that of a map at the end of the path. No column of the
    schema has this name: binding prefers a column to a path.
    """

    path: tuple[str, ...]
    key: str | None

    def __new__(cls, path: tuple[str, ...], key: str | None = None) -> "NestedColumn":
        found = super().__new__(cls, ".".join(path if key is None else (*path, key)))
        found.path, found.key = path, key
        return found

    def __reduce__(self) -> tuple[type["NestedColumn"], tuple[tuple[str, ...], str | None]]:
        return NestedColumn, (self.path, self.key)


def type_inside(schema: pa.Schema, column: str) -> pa.DataType:
    """Return the type of a column of a bound predicate, or of a value inside a column."""
    if not isinstance(column, NestedColumn):
        return schema.field(column).type
    first, *members = column.path
    data_type = schema.field(first).type
    for member in members:
        data_type = data_type.field(member).type
    return data_type if column.key is None else data_type.item_type


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the names of the columns in a predicate; of a value inside a column, the column's."""
    return frozenset(name.path[0] if isinstance(name, NestedColumn) else name for name in _columns(predicate))


def check_depth(predicate: Predicate) -> None:
    """Raise InvalidPredicateError for a tree that is nested deeper than MAX_DEPTH."""
    level: list[Predicate] = [predicate]
    for _ in range(MAX_DEPTH):
        level = [operand for node in level for operand in _operands(node)]
        if not level:
            return
    raise InvalidPredicateError(f"the predicate is nested more than {MAX_DEPTH} levels deep; simplify it")


def _columns(predicate: Predicate) -> Iterator[str]:
    pending = [predicate]
    while pending:
        node = pending.pop()
        if isinstance(node, Comparison | In | IsNull | IsNotNull | StartsWith | Like):
            yield node.column
        pending.extend(_operands(node))


def _operands(predicate: Predicate) -> tuple[Predicate, ...]:
    if isinstance(predicate, And | Or):
        return predicate.operands
    return (predicate.operand,) if isinstance(predicate, Not) else ()


def _flattened(kind: type[And] | type[Or], operands: tuple[Predicate, ...]) -> tuple[Predicate, ...]:
    # (a AND b) AND c is one node, so a chain of ten thousand conditions is wide, not deep.
    if len(operands) < 2:
        raise InvalidPredicateError(f"{kind.__name__} takes two operands or more; got {len(operands)}")
    flat: list[Predicate] = []
    for operand in operands:
        flat.extend(operand.operands if isinstance(operand, kind) else (operand,))
    return tuple(flat)


# LIKE patterns: % is any text, _ is one character, and a backslash escapes the next character.


ESCAPE = "\\"
WILDCARDS = "%_"

# Patterns become regular expressions, and the regular expression library limits their compiled size.
MAX_PATTERN_LENGTH = 4096


def like(column: str, pattern: str) -> Predicate:
    """Return the simplest predicate that is equivalent to `column LIKE pattern`.

    A pattern without wildcards becomes an equality, and text followed by % becomes a prefix: a minimum and a maximum
    can answer both. Raises InvalidPredicateError for a pattern that is too long, or that Spark rejects.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidPredicateError(
            f"the LIKE pattern for column {column!r} has {len(pattern)} characters; "
            f"{MAX_PATTERN_LENGTH} are allowed"
        )
    check_pattern(column, pattern)
    prefix, rest = _split(pattern)
    if not rest:
        return Comparison(column, Operator.EQ, prefix)
    return StartsWith(column, prefix) if not rest.strip("%") else Like(column, pattern)


def check_pattern(column: str, pattern: str) -> None:
    """Raise InvalidPredicateError if a backslash precedes anything but %, _ or a backslash."""
    index = pattern.find(ESCAPE)
    while index >= 0:
        escaped = pattern[index + 1 : index + 2]
        if not escaped or escaped not in WILDCARDS + ESCAPE:
            raise InvalidPredicateError(
                f"the LIKE pattern {pattern!r} for column {column!r} has a backslash before "
                f"{escaped or 'its end'!r}; only %, _ and the backslash itself are escaped"
            )
        index = pattern.find(ESCAPE, index + 2)


def literal_prefix(pattern: str) -> str:
    """Return the prefix of every text that matches the pattern; it may be empty."""
    return _split(pattern)[0]


def _split(pattern: str) -> tuple[str, str]:
    """Return the literal text before the first wildcard, and the pattern from there on."""
    prefix: list[str] = []
    index = 0
    while index < len(pattern) and pattern[index] not in WILDCARDS:
        index += pattern[index] == ESCAPE
        prefix.append(pattern[index : index + 1])
        index += 1
    return "".join(prefix), pattern[index:]

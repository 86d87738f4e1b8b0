"""Random tables and random questions, answered by a table of ours and by DuckDB, which has the rows in memory.

A table has columns of all types, several appends, and merges in between. Every question is a function of its seed.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa

from indextables import IndexTable, Terms
from indextables.predicates import (
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
)

MAX_ROWS = 250
# More than any table has groups or rows.
ALL = 1_000

FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 3.0, 1e300]
MOMENTS = [datetime(2024, 1, 1, 12) + timedelta(microseconds=n) for n in (-1, 0, 1, 999, 1000, 500_000)]
MOMENTS += [datetime(1, 1, 3), datetime(9999, 12, 29)]
DAYS = [date(1, 1, 1), date(2023, 12, 31), date(2024, 1, 1), date(2024, 1, 9), date(9999, 12, 31)]
TEXTS = ["", "a", "ab", "a b", "a_b", "é", "a\ue000", "a\U00010000", "nul\0nul", "nul\0", "A"]
# More digits than Python's default context keeps, and neighbours in the last of them.
WIDE_DECIMALS = [f"1234567890123456789012345678.012345678{digit}" for digit in (8, 9)]
WORDS = ["error", "err", "disk", "full", "timeout", "time", "out", "node"]

COLUMNS: Mapping[str, tuple[pa.DataType, Sequence[object]]] = {
    "i": (pa.int64(), [-9, 0, 1, 2, 9, 10, 100, -(2**63), 2**63 - 1]),
    "n": (pa.int32(), [-9, 0, 1, 2, 9, 10, 100]),
    "short": (pa.int16(), [-9, 0, 1, 2, 300]),
    "byte": (pa.int8(), [-128, 0, 1, 127]),
    "f": (pa.float64(), FLOATS),
    "g": (pa.float32(), [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 3.0, 0.10000000149011612]),
    "d": (pa.decimal128(6, 2), [Decimal(text) for text in ("-9.50", "0.00", "9.50", "9.51", "9999.99")]),
    "wide": (
        pa.decimal128(38, 10),
        [Decimal(text) for text in ("1E-10", "-1E-10", "1234567890123.4567890123", *WIDE_DECIMALS)],
    ),
    "b": (pa.bool_(), [False, True]),
    "s": (pa.string(), TEXTS),
    "raw": (pa.binary(), [b"", b"a", b"a\0", b"\0", b"\xff", b"\x80a"]),
    "tags": (pa.list_(pa.string()), [[], ["a"], ["a", None], ["b", "a b"]]),
    "pair": (
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
        [{"x": 1, "y": "a"}, {"x": None, "y": None}, {"x": -1, "y": ""}],
    ),
    "day": (pa.date32(), DAYS),
    "ts": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "local": (pa.timestamp("us"), MOMENTS),
}
PARTITIONS: Mapping[str, tuple[pa.DataType, Sequence[object]]] = {
    "p_int": (pa.int32(), [-9, 0, 9, 10, 100]),
    "p_text": (pa.string(), ["100", "25", "9", "a b", "a%20b", "é/="]),
    "p_day": (pa.date32(), DAYS),
}
TEXT = "message"
ID = "id"
# The index refuses to add numbers wider than its own, and to compare text and them within groups.
ADDABLE = ("n", "short", "byte", "f", "g", "d")
# The index has no values of these to aggregate.
ROWS_ONLY = ("raw", "tags", "pair")
GROUPS = ("n", "short", "byte", "b", "s", "day", "d", "p_int", "p_text")

_POOLS = {name: values for name, (_, values) in {**COLUMNS, **PARTITIONS}.items()}
_TYPES = {name: data_type for name, (data_type, _) in {**COLUMNS, **PARTITIONS}.items()}


class World(msgspec.Struct, frozen=True):
    """A table of ours, and the same rows in DuckDB, as the view `rows`."""

    table: IndexTable
    duck: duckdb.DuckDBPyConnection
    columns: tuple[str, ...]


class Question(msgspec.Struct, frozen=True):
    """A question, and how each side answers it. The answers must be equal."""

    text: str
    ours: Callable[[], object]
    theirs: Callable[[], object]

    def difference(self) -> str | None:
        """What the two sides disagree about; None if they agree."""
        ours, theirs = self.ours(), self.theirs()
        return None if ours == theirs else f"{self.text}: ours {ours!r}, DuckDB {theirs!r}"


class Condition(msgspec.Struct, frozen=True):
    """A predicate, and the same one in DuckDB's SQL with the values of its parameters."""

    predicate: Predicate | None = None
    sql: str = "TRUE"
    values: tuple[object, ...] = ()


def build_world(folder: Path, seed: int) -> World:
    """Build a random table in an empty folder."""
    dice = random.Random(seed)
    partitions = dice.choice([[], ["p_int"], ["p_text"], ["p_day", "p_int"]])
    names = [*COLUMNS, *partitions]
    schema = pa.schema(
        [pa.field(ID, pa.int64()), pa.field(TEXT, pa.string())]
        + [pa.field(name, _TYPES[name]) for name in names]
    )
    options = {
        "spark.indextables.checkpoint.interval": str(dice.choice([2, 10])),
        "spark.indextables.stats.truncation.maxLength": str(dice.choice([2, 32])),
    }
    table = IndexTable.create(str(folder), schema, partition_by=partitions, text=[TEXT], options=options)
    appended = [schema.empty_table()]
    for _ in range(dice.randint(1, 5)):
        start = sum(rows.num_rows for rows in appended)
        rows = _rows(dice, schema, start, dice.choice([0, 1, 7, MAX_ROWS // 5]))
        table.append(rows)
        appended.append(rows)
        if dice.random() < 0.4:
            table.merge_splits()
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.register("rows", pa.concat_tables(appended))
    return World(table.refresh(), duck, tuple(names))


def predicates(world: World, seed: int) -> Iterator[Question]:
    """Questions for the rows for which a random predicate is true, and for their number."""
    dice = random.Random(seed)
    while True:
        where = random_condition(dice, world.columns, depth=2)
        read = partial(world.table.to_arrow, where=where.predicate, columns=[ID])
        yield Question(f"{where}", partial(_ids, read), partial(_duck_ids, world, where))
        count = partial(world.table.count, where=where.predicate)
        yield Question(f"count {where}", count, partial(_duck_count, world, where))


def searches(world: World, seed: int) -> Iterator[Question]:
    """Questions for the rows that match a random query, alone or together with a predicate."""
    dice = random.Random(seed)
    while True:
        query, matches = random_query(dice, depth=2)
        where = random_condition(dice, world.columns, depth=1) if dice.random() < 0.5 else Condition()
        both = Condition(where.predicate, f"coalesce({matches}, FALSE) AND ({where.sql})", where.values)
        ask = {"where": where.predicate, "fields": [TEXT]}
        search = partial(world.table.search, query, columns=[ID], limit=ALL, **ask)
        yield Question(f"{query!r} {where}", partial(_ids, search), partial(_duck_ids, world, both))
        count = partial(world.table.count, query, **ask)
        yield Question(f"count {query!r} {where}", count, partial(_duck_count, world, both))


def aggregates(world: World, seed: int) -> Iterator[Question]:
    """Questions for random metrics, over all matching rows or over groups of them."""
    dice = random.Random(seed)
    groups = [name for name in GROUPS if name in world.columns]
    while True:
        by = dice.choice([None, None, *groups])
        metrics = [
            "count",
            *dict.fromkeys(_metric(dice, world.columns, by) for _ in range(dice.randint(1, 3))),
        ]
        where = random_condition(dice, world.columns, depth=1) if dice.random() < 0.5 else Condition()
        terms = None if by is None else Terms(by, ALL)
        aggregate = partial(world.table.aggregate, metrics, by=terms, where=where.predicate)
        text = f"{metrics} by {by} {where}"
        yield Question(text, partial(_groups, aggregate), partial(_duck_groups, world, metrics, by, where))


def _rows(dice: random.Random, schema: pa.Schema, start: int, count: int) -> pa.Table:
    def value(name: str, row: int) -> object:
        if name == ID:
            return start + row
        if dice.random() < 0.15:
            return None
        return (
            " ".join(dice.choices(WORDS, k=dice.randint(0, 6))) if name == TEXT else dice.choice(_POOLS[name])
        )

    columns = [[value(name, row) for row in range(count)] for name in schema.names]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _ids(read: Callable[[], pa.Table]) -> list[int]:
    return sorted(read()[ID].to_pylist())


def _duck_ids(world: World, where: Condition) -> list[int]:
    sql = f"SELECT {ID} FROM rows WHERE {where.sql} ORDER BY {ID}"
    return [number for (number,) in world.duck.execute(sql, list(where.values)).fetchall()]


def _duck_count(world: World, where: Condition) -> int:
    return len(_duck_ids(world, where))


def random_condition(dice: random.Random, columns: Sequence[str], depth: int) -> Condition:
    """A random condition on some of the columns."""
    if not depth or dice.random() < 0.4:
        return _leaf(dice, dice.choice(columns))
    if dice.random() < 0.3:
        inner = random_condition(dice, columns, depth - 1)
        return Condition(Not(_predicate(inner)), f"NOT ({inner.sql})", inner.values)
    operands = [random_condition(dice, columns, depth - 1) for _ in range(dice.randint(2, 3))]
    combine, word = dice.choice([(And, " AND "), (Or, " OR ")])
    return Condition(
        combine(*map(_predicate, operands)),
        word.join(f"({operand.sql})" for operand in operands),
        tuple(value for operand in operands for value in operand.values),
    )


def _predicate(condition: Condition) -> Predicate:
    assert condition.predicate is not None
    return condition.predicate


def _leaf(dice: random.Random, name: str) -> Condition:
    pool = _POOLS[name]
    kind = dice.random() * (0.2 if pa.types.is_nested(_TYPES[name]) else 1)
    if kind < 0.1:
        return Condition(IsNull(name), f"{name} IS NULL")
    if kind < 0.2:
        return Condition(IsNotNull(name), f"{name} IS NOT NULL")
    parameter = f"CAST(? AS {_SQL_TYPES[str(_TYPES[name])]})"
    if kind < 0.35:
        values = tuple(dice.sample(list(pool), dice.randint(1, min(3, len(pool)))))
        return Condition(In(name, values), f"{name} IN ({', '.join([parameter] * len(values))})", values)
    if kind < 0.5 and _TYPES[name] == pa.string():
        text = str(dice.choice([*pool, "a", "n"]))
        if dice.random() < 0.5:
            return Condition(StartsWith(name, text), f"starts_with({name}, ?)", (text,))
        pattern = text + dice.choice(["%", "_", "%b", "%a%"])
        return Condition(Like(name, pattern), f"{name} LIKE ?", (pattern,))
    how, value = dice.choice(list(Operator)), dice.choice(pool)
    return Condition(Comparison(name, how, value), f"{name} {how.value} {parameter}", (value,))


_SQL_TYPES = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int16": "SMALLINT",
    "int8": "TINYINT",
    "double": "DOUBLE",
    "float": "DOUBLE",
    "decimal128(6, 2)": "DECIMAL(6, 2)",
    "decimal128(38, 10)": "DECIMAL(38, 10)",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date32[day]": "DATE",
    "timestamp[us, tz=UTC]": "TIMESTAMPTZ",
    "timestamp[us]": "TIMESTAMP",
}


def random_query(dice: random.Random, depth: int) -> tuple[str, str]:
    """A query, and the condition in SQL."""
    if depth and dice.random() < 0.5:
        one, two = random_query(dice, depth - 1), random_query(dice, depth - 1)
        word, sql = dice.choice([("AND", "AND"), ("OR", "OR"), ("AND NOT", "AND NOT")])
        return f"({one[0]}) {word} ({two[0]})", f"({one[1]}) {sql} ({two[1]})"
    word, other = dice.choice([*WORDS, "absent"]), dice.choice(WORDS)
    match dice.randrange(4):
        case 0:
            return f'"{word} {other}"', f"' ' || {TEXT} || ' ' LIKE '% {word} {other} %'"
        case 1:
            start = word[: dice.randint(1, len(word))]
            return f"{start}*", f"' ' || {TEXT} LIKE '% {start}%'"
        case 2:
            return f"{TEXT}:{word.upper()}", f"' ' || {TEXT} || ' ' LIKE '% {word} %'"
    return word, f"' ' || {TEXT} || ' ' LIKE '% {word} %'"


def _metric(dice: random.Random, columns: Sequence[str], by: str | None) -> str:
    function = dice.choice(["count", "min", "max", "sum", "avg"])
    indexed = [name for name in columns if name not in ROWS_ONLY]
    comparable = indexed if by is None else ADDABLE
    pool = {"count": indexed, "min": comparable, "max": comparable}.get(function, ADDABLE)
    return f"{function}({dice.choice(pool)})"


def _groups(aggregate: Callable[[], pa.Table]) -> list[tuple[object, ...]]:
    return _comparable(zip(*(column.to_pylist() for column in aggregate().columns), strict=True))


def _duck_groups(
    world: World, metrics: Sequence[str], by: str | None, where: Condition
) -> list[tuple[object, ...]]:
    selected = ", ".join("count(*)" if metric == "count" else metric for metric in metrics)
    if by is None:
        sql = f"SELECT {selected} FROM rows WHERE {where.sql}"
    else:
        sql = f"SELECT {by}, {selected} FROM rows WHERE ({where.sql}) AND {by} IS NOT NULL GROUP BY {by}"
    return _comparable(world.duck.execute(sql, list(where.values)).fetchall())


def _comparable(rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Rows in the order of their groups, with numbers that compare equal if they are close."""
    return [tuple(map(_plain, row)) for row in sorted(rows, key=lambda row: _sort_key(row[0]))]


def _sort_key(key: object) -> str:
    return repr(float(key)) if isinstance(key, int | float | Decimal) else repr(key)


def _plain(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return Number(float(value))


class Number(msgspec.Struct, frozen=True, eq=False):
    """A number of an aggregate. DuckDB's averages of decimals are doubles; sums of doubles depend on their order."""

    value: float

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Number):
            return NotImplemented
        if math.isnan(self.value) or math.isnan(other.value):
            return math.isnan(self.value) and math.isnan(other.value)
        return math.isclose(self.value, other.value, rel_tol=1e-6, abs_tol=1e-6)

    def __hash__(self) -> int:
        return 0

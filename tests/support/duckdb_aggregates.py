"""Random aggregations by several groupings, with all metrics, answered by a table of ours and by DuckDB."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial

import pyarrow as pa

from indextables import DateHistogram, Histogram, Range, Ranges, Terms
from indextables.search import Grouping
from support.duckdb_oracle import (
    ADDABLE,
    GROUPS,
    ROWS_ONLY,
    TEXT,
    Condition,
    Number,
    Question,
    World,
    random_condition,
    random_query,
)

# DuckDB tells 0.0 from -0.0.
_WITHOUT_DOUBLES = ("f", "g")
_PERCENTS = (0, 12.5, 50, 99, 100)

# Groupings, and their keys in SQL.
_INTERVALS: Mapping[str, Sequence[tuple[Grouping, str]]] = {
    "n": [
        (Histogram("n", 7), "CAST(floor(n / 7) * 7 AS BIGINT)"),
        (Histogram("n", 5, 2), "CAST(floor((n - 2) / 5) * 5 + 2 AS BIGINT)"),
        (
            Ranges("n", [0, 10]),
            "CASE WHEN n < 0 THEN '*-0' WHEN n < 10 THEN '0-10' WHEN n >= 10 THEN '10-*' END",
        ),
        (
            Ranges("n", [Range(9, 11, "some"), Range(None, 0, "none")]),
            "CASE WHEN n < 0 THEN 'none' WHEN n >= 9 AND n < 11 THEN 'some' END",
        ),
    ],
    "d": [(Histogram("d", 4), "CAST(floor(d / 4) * 4 AS DECIMAL(38, 2))")],
    "day": [
        (DateHistogram("day", "1M"), "CAST(date_trunc('month', day) AS DATE)"),
        (DateHistogram("day", "week"), "CAST(date_trunc('week', day) AS DATE)"),
        (DateHistogram("day", "1y"), "CAST(date_trunc('year', day) AS DATE)"),
    ],
    "local": [
        (DateHistogram("local", "1d"), "date_trunc('day', local)"),
        (DateHistogram("local", timedelta(hours=1)), "date_trunc('hour', local)"),
        (DateHistogram("local", "quarter"), "date_trunc('quarter', local)"),
        (
            DateHistogram("local", "1M", offset="12h"),
            "date_trunc('month', local - INTERVAL 12 HOUR) + INTERVAL 12 HOUR",
        ),
    ],
    "ts": [
        (DateHistogram("ts", "1d"), "date_trunc('day', ts)"),
        (DateHistogram("ts", "1M"), "date_trunc('month', ts)"),
        (
            DateHistogram("ts", "1d", time_zone="Asia/Kolkata"),
            "date_trunc('day', ts AT TIME ZONE 'Asia/Kolkata') AT TIME ZONE 'Asia/Kolkata'",
        ),
    ],
}
_MEMBERS = ("pair.x", "pair.y")


def groupings(world: World, seed: int) -> Iterator[Question]:
    """Questions for random metrics of up to three groupings, of the rows that a query and a predicate find."""
    dice = random.Random(seed)
    columns = [name for name in GROUPS if name in world.columns]
    while True:
        by: dict[str, tuple[Grouping, str]] = {}
        for _ in range(dice.choice([0, 1, 1, 2, 2, 3])):
            name = dice.choice([*columns, *_INTERVALS, *_MEMBERS])
            by[name] = dice.choice([(Terms(name, None), name), *_INTERVALS.get(name, [])])
        metrics = dict(_metric(dice, world.columns) for _ in range(dice.randint(1, 3)))
        where = random_condition(dice, world.columns, depth=1) if dice.random() < 0.5 else Condition()
        query, matches = random_query(dice, depth=1) if dice.random() < 0.3 else (None, "TRUE")
        aggregate = partial(
            world.table.aggregate,
            list(metrics),
            by=[grouping for grouping, _ in by.values()],
            where=where.predicate,
            query=query,
            fields=[TEXT],
        )
        keys = [key for _, key in by.values()]
        both = Condition(where.predicate, f"coalesce({matches}, FALSE) AND ({where.sql})", where.values)
        yield Question(
            f"{list(metrics)} by {keys} {query!r} {where}",
            partial(_ours, aggregate, len(keys)),
            partial(_theirs, world, keys, list(metrics.values()), both),
        )


def _metric(dice: random.Random, columns: Sequence[str]) -> tuple[str, str]:
    """A metric, and the same in SQL, where several numbers are a list."""
    function = dice.choice(
        ["count", "cardinality", "percentiles", "stats", "value_count", "min", "max", "avg"]
    )
    addable = [name for name in ADDABLE if name not in _WITHOUT_DOUBLES]
    plain = [name for name in columns if name not in (*ROWS_ONLY, *_WITHOUT_DOUBLES)]
    name = dice.choice(addable if function in ("percentiles", "stats", "avg") else [*plain, "pair.x"])
    match function:
        case "count":
            return "count", "count(*)"
        case "value_count":
            return f"value_count({name})", f"count({name})"
        case "cardinality":
            return f"cardinality({name})", f"count(DISTINCT {name})"
        case "percentiles":
            shares = [f"quantile_cont(CAST({name} AS DOUBLE), {percent / 100})" for percent in _PERCENTS]
            listed = ", ".join(map(str, _PERCENTS))
            return f"percentiles({name}, {listed})", f"list_value({', '.join(shares)})"
        case "stats":
            parts = ["count", "min", "max", "sum", "avg"]
            return (
                f"stats({name})",
                f"list_value({', '.join(f'CAST({part}({name}) AS DOUBLE)' for part in parts)})",
            )
    return f"{function}({name})", f"{function}({name})"


def _ours(aggregate: Callable[[], pa.Table], width: int) -> dict[str, list[object]]:
    return _by_key(aggregate().to_pylist(), width)


def _by_key(rows: Sequence[Mapping[str, object]], width: int) -> dict[str, list[object]]:
    values = (list(row.values()) for row in rows)
    return {repr(row[:width]): [_plain(value) for value in row[width:]] for row in values}


def _theirs(
    world: World, keys: Sequence[str], metrics: Sequence[str], where: Condition
) -> dict[str, list[object]]:
    present = " AND ".join(["TRUE", *(f"({key}) IS NOT NULL" for key in keys)])
    columns = ", ".join(f"{sql} AS c{number}" for number, sql in enumerate((*keys, *metrics)))
    grouped = f"GROUP BY {', '.join(f'c{number}' for number in range(len(keys)))}" if keys else ""
    sql = f"SELECT {columns} FROM rows WHERE ({where.sql}) AND {present} {grouped}"
    found = world.duck.sql(sql, params=list(where.values)).to_arrow_table().to_pylist()
    return _by_key(found, len(keys))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return Number(float(value)) if isinstance(value, int | float | Decimal) else value

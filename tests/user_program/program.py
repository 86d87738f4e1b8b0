"""A program of a user, with pandas, Polars, DuckDB and types: it runs, and mypy and pyright accept it strictly."""

import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl

import indextables
from indextables import CheckpointResult, Histogram, IndexTable, Metric, Terms, errors


def load(path: Path) -> IndexTable:
    """Create a table from pandas, and append Polars and dicts."""
    rows = pd.DataFrame(
        {"day": ["2026-01-30", "2026-01-31"], "ms": [30, 40], "message": ["timeout", "disk full"]}
    )
    table = indextables.write(path, rows, text="message", partition_by=["day"])
    table.append(pl.DataFrame({"day": ["2026-01-31"], "ms": [50], "message": ["disk replaced"]}))
    version: int = table.append([{"day": "2026-02-01", "ms": None, "message": "timeout again"}])
    assert version == table.version
    return table


def messages(table: IndexTable, query: str, limit: int = 10) -> Iterator[str]:
    """The texts of the best hits."""
    yield from table.search(query, columns=["message"], limit=limit)["message"].to_pylist()


def slowest(table: IndexTable) -> pd.DataFrame:
    """A frame of pandas for further work."""
    frame: pd.DataFrame = table.to_pandas(where="ms is not null", columns=["day", "ms"])
    return frame.sort_values("ms", ascending=False)


def report(logs: IndexTable) -> pl.DataFrame:
    """A frame of Polars, from DuckDB's answer over the table itself."""
    assert logs.num_files
    return pl.DataFrame(duckdb.sql("select day, count(*) as n from logs group by day order by day"))


def main(folder: Path) -> None:
    """Load, search, query and maintain a table."""
    table = load(folder / "logs")
    size: int = len(table)
    found: int = table.count("disk", where="day = '2026-01-31'")
    print(size, found, sorted(messages(table, "timeout")))
    print(slowest(table)["ms"].tolist(), report(table)["n"].to_list())
    by_day = table.aggregate(["count", Metric.parse("max(ms)")], by=Terms("day"))
    steps = table.aggregate(["count"], by=Histogram("ms", 20))
    print(by_day.num_rows, steps.num_rows)
    answer = indextables.sql(f"SELECT count(*) AS n FROM '{folder / 'logs'}' WHERE _query = 'disk'")
    print(answer["n"].to_pylist())
    checkpoint: CheckpointResult = table.checkpoint()
    print(checkpoint.num_files, IndexTable(folder / "logs", version=0).num_rows)
    try:
        table.search("(")
    except errors.InvalidQueryError as error:
        print("refused at", error.position)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

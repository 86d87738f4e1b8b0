"""`indextables histogram`: how many rows are in each interval of time or of numbers."""

import time
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from indextables._arrow import arrow_from_numpy
from indextables.cli.bars import print_counts
from indextables.cli.command import examples
from indextables.cli.formatting import count, duration
from indextables.cli.options import (
    AsJson,
    Fields,
    OptionalQuery,
    SettingPairs,
    StoragePairs,
    TablePath,
    Timestamp,
    Version,
    Where,
    open_table,
    split_names,
)
from indextables.cli.output import print_summary
from indextables.cli.progress import working
from indextables.cli.row_formats import value_texts
from indextables.cli.row_output import OutputFile, OutputFormat, RowOutput
from indextables.errors import InvalidAggregationError
from indextables.index_table import IndexTable
from indextables.search import DateHistogram, Histogram
from indextables.search.aggregation import column_of
from indextables.search.groupings import is_number, thousand_units

EXAMPLES = examples(
    "indextables histogram ./logs",
    "indextables histogram ./logs 'timeout' --by time --interval 1h",
    "indextables histogram ./logs --by status --interval 100 --json",
)

# The most intervals that are chosen, and that are shown without rows.
_CHOSEN: Final = 30
_FILLED: Final = 500
_INTERVALS: Final = {
    "1s": 1,
    "5s": 5,
    "15s": 15,
    "1m": 60,
    "5m": 300,
    "15m": 900,
    "1h": 3_600,
    "3h": 10_800,
    "6h": 21_600,
    "12h": 43_200,
    "1d": 86_400,
    "1w": 604_800,
    "1M": 2_678_400,
    "1q": 7_948_800,
}


def histogram(
    path: TablePath,
    query: OptionalQuery = None,
    where: Where = None,
    fields: Fields = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column; by default the only one of dates or timestamps."),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            metavar="STEP",
            help="Such as 15m, 1h, 1d, 1w, 1M, 1y, or a number; by default what fits a screen.",
        ),
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="Whose days, months and years, such as Europe/Berlin; default: UTC."
        ),
    ] = None,
    as_json: AsJson = False,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Show how many rows are in each interval, among the rows that match.

    Intervals without rows between the first and the last one are shown, too, if all have one length and there are few.
    """
    output = RowOutput.of(as_json, output_format, output_file)
    table = open_table(path, option, storage_option, version=version, timestamp=timestamp)
    started = time.perf_counter()
    column = column_of(table.schema, by or _default_column(table))
    asked: dict[str, Any] = {"query": query, "where": where, "fields": split_names(fields) or ()}
    with working("counting"):
        if interval is None:
            interval = _fitting_interval(table, column, asked)
        grouping = _grouping(column, interval, time_zone)
        answer = _filled(table.aggregate("count", by=grouping, **asked), grouping)
    if output.is_own_layout:
        texts = _labels(answer.column(0), time_zone)
        print_counts(column.name, list(zip(texts, answer.column(1).to_pylist(), strict=True)))
    else:
        output.write(answer)
    if not as_json:
        rows = pc.sum(answer.column(1)).as_py() or 0
        took = duration(time.perf_counter() - started)
        print_summary(
            f"{count(rows, 'row')} in {count(answer.num_rows, 'interval')} of {interval}, in {took}"
        )


def _default_column(table: IndexTable) -> str:
    names = [field.name for field in table.schema if thousand_units(field.type) is not None]
    if len(names) == 1:
        return str(names[0])
    found = f"several columns of dates or timestamps: {', '.join(names)}" if names else "no such column"
    raise InvalidAggregationError(f"name the column with --by; the table has {found}")


def _grouping(column: pa.Field, interval: str, time_zone: str | None) -> Histogram | DateHistogram:
    if not is_number(column.type):
        return DateHistogram(column.name, interval, time_zone=time_zone)
    try:
        step = Decimal(interval)
    except ArithmeticError as error:
        raise InvalidAggregationError(
            f"column {column.name!r} holds numbers, and the interval {interval!r} is none"
        ) from error
    return Histogram(column.name, float(step) if pa.types.is_floating(column.type) else step)


def _fitting_interval(table: IndexTable, column: pa.Field, asked: dict[str, Any]) -> str:
    """An interval with which the values fit a screen. Raises InvalidAggregationError for a column without intervals."""
    if not is_number(column.type):
        DateHistogram(column.name, "1d").check(column.type)
    (extremes,) = table.aggregate([f"min({column.name})", f"max({column.name})"], **asked).to_pylist()
    low, high = extremes.values()
    if low is None:
        return "1" if is_number(column.type) else "1d"
    if is_number(column.type):
        return _fitting_step(float(high) - float(low), is_whole=pa.types.is_integer(column.type))
    span = (high - low) / timedelta(seconds=1)
    least = 86_400 if pa.types.is_date(column.type) else 1
    fitting = (text for text, seconds in _INTERVALS.items() if seconds >= max(span / _CHOSEN, least))
    return next(fitting, "1y")


def _fitting_step(span: float, *, is_whole: bool) -> str:
    """1, 2 or 5, times a power of ten."""
    if not 0 < span < float("inf"):
        return "1"
    power = Decimal(10) ** Decimal(span / _CHOSEN).adjusted()
    steps = (power * factor for factor in (1, 2, 5, 10))
    step = next(step for step in steps if step * _CHOSEN >= Decimal(span))
    return f"{max(step, Decimal(1)) if is_whole else step:f}"


def _filled(answer: pa.Table, grouping: Histogram | DateHistogram) -> pa.Table:
    """The answer with the intervals in between that have no rows, if they have one length and are not many."""
    fixed = grouping if isinstance(grouping, Histogram) else grouping.fixed()
    keys = answer.column(0)
    is_counted = pa.types.is_integer(keys.type) or thousand_units(keys.type) is not None
    if fixed is None or not is_counted or answer.num_rows < 2:
        return answer
    step = int(fixed.steps(keys.type)[0])
    number_type = pa.int32() if pa.types.is_date32(keys.type) else pa.int64()
    numbers = np.asarray(keys.cast(number_type)).astype(np.int64)
    if (int(numbers[-1]) - int(numbers[0])) // step >= _FILLED:
        return answer
    every = np.arange(numbers[0], numbers[-1] + 1, step)
    counts = np.zeros(len(every), np.int64)
    counts[(numbers - numbers[0]) // step] = np.asarray(answer.column(1))
    filled = arrow_from_numpy(every).cast(number_type).cast(keys.type)
    return pa.table([filled, arrow_from_numpy(counts)], names=answer.column_names)


def _labels(keys: pa.ChunkedArray, time_zone: str | None) -> list[str]:
    """The starts of the intervals, in their zone; of timestamps only as much as tells them apart."""
    if not pa.types.is_timestamp(keys.type):
        texts: list[str] = value_texts(keys).to_pylist()
        return texts
    if time_zone is not None:
        keys = keys.cast(pa.timestamp(keys.type.unit, time_zone))
    moments: list[datetime] = keys.to_pylist()
    times = {f"{moment:%H:%M:%S}" for moment in moments}
    if times <= {"00:00:00"}:
        pattern = "%Y-%m-%d"
    elif all(text.endswith(":00") for text in times):
        pattern = "%Y-%m-%d %H:%M"
    else:
        pattern = "%Y-%m-%d %H:%M:%S"
    return [moment.strftime(pattern) for moment in moments]

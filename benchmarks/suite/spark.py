"""Spark: scans, writes and searches of rows, and planning one partition of a huge table."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks import delta, our_spark, ours, raw_tantivy
from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, Goal, MostTimes, Unit
from benchmarks.files import PARTITION_COLUMN, partition_date
from benchmarks.measure import Action, Preparation, Samples, WrongResultError, always, measure_times
from benchmarks.our_spark import CORES, count_tasks, materialize
from benchmarks.rows import TEXT_COLUMN, generate_rows, word_found_in
from benchmarks.workshop import Workshop
from indextables.errors import SparkUnavailableError

_PARQUET = "Parquet on Spark"
_EVERY_CORE = "tantivy on every core"
# At least 0.4 times the documents per second.
_WRITING_GOAL = MostTimes(1 / 0.4)
_SCAN_GOAL = MostTimes(1.1)
_FEW_COLUMNS = ("id", "level")
_PARTITION = "level"
# The goals apply to selective searches, warm and with nothing cached; the other shows how the advantage shrinks with
# more hits.
_ROWS_PER_HIT: dict[int, tuple[Goal | None, Goal | None]] = {
    50_000: (MostTimes(0.2), MostTimes(0.3)),
    5_000: (None, None),
}
_FEWEST_HITS = 5
# The same amount of work for every core.
_FILES = 2 * CORES

_NOTE_ON_READING = (
    "Both sides compute all rows and discard them (`noop`). The Parquet files and our splits have the same rows. "
    "Spark's own Parquet reader reads both; our splits also hold an index, and every page's checksum is verified."
)
_NOTE_ON_PARTITIONS = (
    "Both tables have the same rows and partitions. Spark answers from the footers of the files."
)
_NOTE_ON_COUNTING = "The number of rows of a loaded table comes from the log."
_NOTE_ON_SEARCHING = (
    "Both sides compute all rows of the answer and discard them (`noop`). The Parquet files and our splits have the "
    "same rows."
)
_NOTE_ON_WRITING = (
    "Ours is a complete append of a DataFrame: rows, statistics, index, checksums and the commit, flushed to disk. "
    "The peer is computed: the time that tantivy takes for the index alone on one thread, divided by the number of "
    "cores."
)
_NOTE_ON_PLANNING = (
    "Planning is everything before tasks run: opening the table, pruning by the option `where`, and Spark's own plan. "
    "The peers list the partition's files in one Python process."
)


def _measure(workshop: Workshop) -> Iterator[Figure]:
    try:
        with our_spark.running_spark() as spark:
            yield _writing(workshop, spark)
            yield from _scans(workshop, spark)
            yield from _aggregates(workshop, spark)
            yield from _searches(workshop, spark)
            yield from _planning(workshop, spark)
    except SparkUnavailableError as error:
        workshop.say(f"skipped: {error}")


def _writing(workshop: Workshop, spark: SparkSession) -> Figure:
    count = workshop.sizes.rows
    rows = workshop.rows(count)
    source = workshop.new_path()
    our_spark.write_parquet(source, rows, CORES)
    frame = spark.read.parquet(str(source))
    times = measure_times(
        {
            "ours": lambda: partial(our_spark.append, frame, workshop.new_path()),
            "tantivy": lambda: partial(raw_tantivy.build_index, workshop.new_path(), rows),
        },
        runs=workshop.sizes.slow_runs,
    )
    on_every_core = Samples(tuple(seconds / CORES for seconds in times["tantivy"].values))
    return _figure(
        f"index {count:,} rows on Spark",
        times["ours"],
        _EVERY_CORE,
        on_every_core,
        _WRITING_GOAL,
        _NOTE_ON_WRITING,
    )


def _scans(workshop: Workshop, spark: SparkSession) -> Iterator[Figure]:
    count, runs = workshop.sizes.spark_rows, workshop.sizes.slow_runs
    our_path, parquet_path = _our_rows(workshop, spark), _parquet_rows(workshop)

    def scan_ours() -> DataFrame:
        return our_spark.read_table(spark, our_path)

    def scan_parquet() -> DataFrame:
        return spark.read.parquet(str(parquet_path))

    _check_same_count("scan", scan_ours(), scan_parquet())
    variants: dict[str, tuple[str, ...]] = {
        "all columns": ("*",),
        f"{len(_FEW_COLUMNS)} columns": _FEW_COLUMNS,
    }
    for name, columns in variants.items():
        times = measure_times(
            {
                "ours": _computing(lambda columns=columns: scan_ours().select(*columns)),
                _PARQUET: _computing(lambda columns=columns: scan_parquet().select(*columns)),
            },
            runs=runs,
        )
        yield _figure(
            f"scan {count:,} rows on Spark, {name}",
            times["ours"],
            _PARQUET,
            times[_PARQUET],
            _SCAN_GOAL,
            _NOTE_ON_READING,
        )


def _aggregates(workshop: Workshop, spark: SparkSession) -> Iterator[Figure]:
    count, source = workshop.sizes.spark_rows, _parquet_rows(workshop)
    our_path = workshop.built(
        f"ours-{count}-rows-by-{_PARTITION}",
        f"ours with {count:,} rows by Spark, partitioned by {_PARTITION}",
        lambda path: our_spark.append(spark.read.parquet(str(source)), path, _PARTITION),
    )
    parquet_path = workshop.built(
        f"parquet-{count}-rows-by-{_PARTITION}",
        f"Parquet with {count:,} rows, partitioned by {_PARTITION}",
        lambda path: spark.read.parquet(str(source)).write.partitionBy(_PARTITION).parquet(str(path)),
    )

    def ours_() -> DataFrame:
        return our_spark.read_table(spark, our_path)

    def parquet() -> DataFrame:
        return spark.read.parquet(str(parquet_path))

    _check_same_count("count", ours_(), parquet())
    variants: dict[str, tuple[Callable[[DataFrame], object], str]] = {
        "count()": (lambda frame: frame.count(), _NOTE_ON_COUNTING),
        "count(*) in a query": (lambda frame: frame.groupBy().count().collect(), _NOTE_ON_PARTITIONS),
        f"group by {_PARTITION}": (
            lambda frame: frame.groupBy(_PARTITION).count().collect(),
            _NOTE_ON_PARTITIONS,
        ),
    }
    for name, (ask, note) in variants.items():
        times = measure_times(
            {
                "ours": always(lambda ask=ask: ask(ours_())),
                _PARQUET: always(lambda ask=ask: ask(parquet())),
            },
            runs=workshop.sizes.runs,
        )
        yield _figure(
            f"{name} of {count:,} rows on Spark",
            times["ours"],
            _PARQUET,
            times[_PARQUET],
            MostTimes(1),
            note,
        )


def _searches(workshop: Workshop, spark: SparkSession) -> Iterator[Figure]:
    for rows_per_hit, goals in _ROWS_PER_HIT.items():
        yield from _search(workshop, spark, rows_per_hit, *goals)


def _search(
    workshop: Workshop, spark: SparkSession, rows_per_hit: int, goal: Goal | None, cold_goal: Goal | None
) -> Iterator[Figure]:
    count, runs = workshop.sizes.spark_rows, workshop.sizes.slow_runs
    our_path, parquet_path = _our_rows(workshop, spark), _parquet_rows(workshop)
    word, cache = word_found_in(max(count // rows_per_hit, _FEWEST_HITS), count), workshop.new_path()

    def search(cache: Path = cache) -> DataFrame:
        return our_spark.search_table(spark, our_path, cache, word)

    def filter_parquet() -> DataFrame:
        return spark.read.parquet(str(parquet_path)).where(f"{TEXT_COLUMN} LIKE '%{word}%'")

    found = _check_same_count("search", search(), filter_parquet())
    peer = f"LIKE on {_PARQUET}"
    times = measure_times(
        {
            "ours": _computing(search),
            # A new folder each time, so that indexes are fetched from the splits.
            "first": lambda: _computing(partial(search, workshop.new_path()))(),
            peer: _computing(filter_parquet),
        },
        runs=runs,
    )
    name = f"the {found:,} of {count:,} rows with a word, on Spark"
    yield _figure(name, times["ours"], peer, times[peer], goal, _NOTE_ON_SEARCHING)
    yield _figure(f"{name}: nothing cached", times["first"], peer, times[peer], cold_goal, _NOTE_ON_SEARCHING)


def _planning(workshop: Workshop, spark: SparkSession) -> Iterator[Figure]:
    sizes, files = workshop.sizes, workshop.sizes.large_table_files
    our_path, delta_path = workshop.our_table(files), workshop.delta_table(files)
    middle = partition_date(files // sizes.partition_files // 2).isoformat()

    def plan() -> None:
        tasks = count_tasks(our_spark.read_table(spark, our_path, where=f"{PARTITION_COLUMN} = '{middle}'"))
        if not 0 < tasks <= sizes.partition_files:
            raise WrongResultError(f"{tasks} tasks are planned for {sizes.partition_files} files")

    peers: dict[str, Action] = {
        "deltalake": partial(delta.list_partition, delta_path, middle),
        "our files() in Python": partial(ours.list_partition, our_path, middle),
    }
    times = measure_times(
        {"ours": always(plan)} | {name: always(action) for name, action in peers.items()},
        runs=sizes.slow_runs,
    )
    for peer in peers:
        yield _figure(
            f"plan one partition of {sizes.partition_files:,} files in {files:,} on Spark",
            times["ours"],
            peer,
            times[peer],
            AtMost(0.2),
            _NOTE_ON_PLANNING,
        )


def _parquet_rows(workshop: Workshop) -> Path:
    count = workshop.sizes.spark_rows
    return workshop.built(
        f"parquet-{count}-rows-in-{_FILES}",
        f"Parquet with {count:,} rows",
        # Too many rows to keep in memory until the end.
        lambda path: our_spark.write_parquet(path, generate_rows(count), _FILES),
    )


def _our_rows(workshop: Workshop, spark: SparkSession) -> Path:
    count, source = workshop.sizes.spark_rows, _parquet_rows(workshop)
    return workshop.built(
        f"ours-{count}-rows-in-{_FILES}",
        f"ours with {count:,} rows by Spark",
        lambda path: our_spark.append(spark.read.parquet(str(source)), path),
    )


def _computing(frame: Callable[[], DataFrame]) -> Preparation:
    """Create the DataFrame in each run: it is planned only once, and planning is part of the time."""
    return always(lambda: materialize(frame()))


def _check_same_count(what: str, our_frame: DataFrame, peer_frame: DataFrame) -> int:
    found, expected = our_frame.count(), peer_frame.count()
    if not expected or found != expected:
        raise WrongResultError(f"the {what} of ours finds {found} rows, and that of Parquet {expected}")
    return found


def _figure(name: str, ours_: Samples, peer_name: str, peer: Samples, goal: Goal | None, note: str) -> Figure:
    return Figure(
        name=name,
        unit=Unit.SECONDS,
        ours=ours_.median,
        peer_name=peer_name,
        peer=peer.median,
        goal=goal,
        note=note,
        samples={"ours": ours_.values, "peer": peer.values},
    )


SPARK = Benchmark("spark", "scans, writes, searches and plans on Spark", _measure)

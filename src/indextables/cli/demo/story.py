"""The text that the demo indexes, which every machine has: the source of Python's standard library."""

import contextlib
import json
import logging
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables import spark as indextables_spark
from indextables.cli.demo.place import DEMO_MARK, DEMO_PROPERTY
from indextables.cli.formatting import count, duration, size
from indextables.errors import StorageError
from indextables.index_table import IndexTable
from indextables.spark.jobs import translate_spark_errors

SCHEMA: Final = pa.schema(
    [("package", pa.string()), ("path", pa.string()), ("line", pa.int32()), ("text", pa.string())]
)

# Modules that are a single file have no package.
SINGLE_FILES: Final = "modules"

_SKIPPED: Final = frozenset({"site-packages", "dist-packages", "__pycache__", "lib2to3", "idlelib"})


def read_corpus() -> pa.Table:
    """Every line of the standard library that is not blank. Raises StorageError if its source is not there."""
    root = Path(sysconfig.get_paths()["stdlib"])
    tables = [_lines(path, root) for path in _source_files(root)]
    if not tables:
        raise StorageError(
            f"{root}: the source of the standard library is not here; install it, and try again"
        )
    # One chunk: Spark makes a task of each.
    return pa.concat_tables(tables).combine_chunks()


def _source_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        if not _SKIPPED.intersection(path.relative_to(root).parts):
            yield path


def _lines(path: Path, root: Path) -> pa.Table:
    # A few files of the tests are in other encodings, or in none.
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    relative = path.relative_to(root)
    package = relative.parts[0] if len(relative.parts) > 1 else SINGLE_FILES
    columns = [
        pa.repeat(package, len(kept)),
        pa.repeat(relative.as_posix(), len(kept)),
        pa.array([number for number, _ in kept], pa.int32()),
        pa.array([line for _, line in kept], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


# The story that the demo tells, step by step, through the same API that everybody uses.


# What people would look for, and lines that are nowhere in the library before the demo streams them in.
QUERY: Final = 'text:"connection reset" OR text:timeout*'
PARTITION: Final = "json"
STREAMED_QUERY: Final = "lazy AND database"

_SEARCH: Final = (
    f"SELECT path, line, text, _score FROM lines WHERE _query = '{QUERY}' "  # noqa: S608  # our own words
    "ORDER BY _score DESC LIMIT 3"
)
_FORMAT: Final = "indextables"
_SPARK_SETTINGS: Final = {"spark.sql.shuffle.partitions": 4, "spark.ui.showConsoleProgress": False}
_STREAMED_LINES: Final = 1_000
_RUNS: Final = 20

# What the bridge to Spark's JVM logs, with a trace and not only to its own logger, when somebody presses Ctrl-C.
_INTERRUPTED: Final = "KeyboardInterrupt while sending command"


class Hit(msgspec.Struct, frozen=True):
    """A row that was found: by which query, where it is, its score, and its text."""

    query: str
    place: str
    score: float
    text: str


class Told(msgspec.Struct, frozen=True):
    """What there is to say about a step, the rows that it found, and a figure for the table at the end."""

    lines: tuple[str, ...]
    hits: tuple[Hit, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()


class Step(msgspec.Struct, frozen=True):
    """One thing that the demo did, and how long it took."""

    name: str
    told: Told
    seconds: float
    version: int | None


class Demo(msgspec.Struct):
    """A demo in a directory that has room for a table."""

    path: str
    spark: Any = None  # a session, once it runs
    corpus: pa.Table = msgspec.field(default_factory=SCHEMA.empty_table)

    def steps(self) -> list[tuple[str, str, Callable[[], Told]]]:
        """The name of each step, what people read while it runs, and the step."""
        return [
            ("start Spark", "starting a local Spark session", self._start),
            ("read a corpus", "reading the source of the standard library", self._read),
            ("index it", "writing a DataFrame as a partitioned table", self._index),
            ("search with SQL", "searching on Spark", self._search_with_sql),
            ("search without Spark", "searching", self._search),
            ("stream new lines in", "running a stream", self._stream),
            ("overwrite one partition", "overwriting a partition", self._overwrite),
            ("travel back", "opening an older version", self._travel),
            ("merge small splits", "merging on Spark", self._merge),
            ("write a checkpoint", "writing a checkpoint", self._checkpoint),
            ("describe the state", "reading the state", self._describe),
            ("purge, as a dry run", "listing what could go", self._purge),
        ]

    def run(self, waiting: Callable[[str], contextlib.AbstractContextManager[None]]) -> Iterator[Step]:
        """Do the steps one by one, each within `waiting`. Raises what the API raises."""
        try:
            for name, doing, step in self.steps():
                started = time.perf_counter()
                with waiting(doing), translate_spark_errors(f"do this: {name}"):
                    told = step()
                seconds = time.perf_counter() - started
                has_table = Path(self.path, "_transaction_log").exists()
                yield Step(name, told, seconds, self._table().version if has_table else None)
        finally:
            if self.spark is not None:
                self.spark.stop()

    def _start(self) -> Told:
        logging.getLogger().addFilter(_is_news)
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        self.spark = indextables_spark.session(**_SPARK_SETTINGS)
        cores = self.spark.sparkContext.defaultParallelism
        return Told((f"Spark {self.spark.version}, local, {count(cores, 'core')}, nothing to download",))

    def _read(self) -> Told:
        self.corpus = read_corpus()
        packages = len(self.corpus["package"].unique())
        files = len(self.corpus["path"].unique())
        return Told(
            (
                f"{count(self.corpus.num_rows, 'line')} of {count(files, 'file')} in {count(packages, 'package')}",
            ),
            figures=(("rows in the corpus", f"{self.corpus.num_rows:,}"),),
        )

    def _index(self) -> Told:
        # Spark makes a small task of every ten thousand rows; larger ones make larger splits.
        frame = self.spark.createDataFrame(self.corpus).coalesce(
            2 * self.spark.sparkContext.defaultParallelism
        )
        started = time.perf_counter()
        (
            frame.write.format(_FORMAT)
            .partitionBy("package")
            .option("spark.indextables.indexing.typemap.text", "text")
            .mode("append")
            .save(self.path)
        )
        seconds = time.perf_counter() - started
        table = self._table()
        table.set_properties({DEMO_PROPERTY: DEMO_MARK})
        rate = f"{self.corpus.num_rows / seconds:,.0f} rows/s"
        text_bytes = pc.sum(pc.binary_length(self.corpus["text"])).as_py()
        return Told(
            (
                'df.write.format("indextables").partitionBy("package").save(path)',
                f"{count(table.num_files, 'split')}, {size(table.total_bytes)} with index and rows, {rate}",
            ),
            figures=(
                ("text", size(text_bytes)),
                ("table, index included", size(table.total_bytes)),
                ("indexing on Spark", rate),
            ),
        )

    def _search_with_sql(self) -> Told:
        frame = self.spark.read.format(_FORMAT).option("search", "true").load(self.path)
        frame.createOrReplaceTempView("lines")
        started = time.perf_counter()
        rows = self.spark.sql(_SEARCH).collect()
        seconds = time.perf_counter() - started
        hits = tuple(Hit(QUERY, f"{row.path}:{row.line}", row["_score"], row.text) for row in rows)
        return Told((_SEARCH,), hits, (("the best lines with SQL on Spark", duration(seconds)),))

    def _search(self) -> Told:
        table = self._table()
        first, seconds = _timed(lambda: table.search(QUERY, limit=3))
        again = min(_timed(lambda: table.search(QUERY, limit=3))[1] for _ in range(_RUNS))
        matching, counting = _timed(lambda: table.count(QUERY))
        hits = _hits(QUERY, first)
        return Told(
            (
                f"IndexTable(path).search({QUERY!r}, limit=3): {duration(seconds)}, and {duration(again)} when warm",
                f"{count(matching, 'line')} match, counted in {duration(counting)}",
            ),
            hits,
            (("the first search without Spark", duration(seconds)), ("the same when warm", duration(again))),
        )

    def _stream(self) -> Told:
        before = self._table().version
        with tempfile.TemporaryDirectory(prefix="indextables-demo-") as folder:
            inbox = Path(folder, "inbox")
            inbox.mkdir()
            rows = [
                {
                    "package": "streamed",
                    "path": "inbox.txt",
                    "line": number,
                    "text": f"line {number} of the inbox",
                }
                for number in range(1, _STREAMED_LINES)
            ]
            last = "the quick brown fox jumps over the lazy database"
            rows.append({"package": "streamed", "path": "inbox.txt", "line": _STREAMED_LINES, "text": last})
            (inbox / "lines.json").write_text("\n".join(map(json.dumps, rows)))
            source = self.spark.readStream.schema("package string, path string, line int, text string")
            query = (
                source.json(str(inbox))
                .writeStream.format(_FORMAT)
                .option("checkpointLocation", str(Path(folder, "progress")))
                .trigger(availableNow=True)
                .start(self.path)
            )
            query.awaitTermination()
            failure = query.exception()
            if failure is not None:
                raise failure
        table = self._table()
        found, seconds = _timed(lambda: table.search(STREAMED_QUERY, limit=1))
        hits = _hits(STREAMED_QUERY, found)
        return Told(
            (
                f"version {before} → {table.version}: {count(_STREAMED_LINES, 'line')} in, exactly once",
                f"found in {duration(seconds)}",
            ),
            hits,
        )

    def _overwrite(self) -> Told:
        of_partition = self.corpus.filter(pc.field("package") == PARTITION)
        shouted = of_partition.set_column(3, "text", pc.utf8_upper(of_partition["text"]))
        (
            self.spark.createDataFrame(shouted.combine_chunks())
            .write.format(_FORMAT)
            .option("replaceWhere", f"package = '{PARTITION}'")
            .mode("overwrite")
            .save(self.path)
        )
        version = self._table().version
        return Told((f"version {version} has package '{PARTITION}' in upper case, and all others as before",))

    def _travel(self) -> Told:
        newest = self._table()
        older = IndexTable(self.path, version=newest.version - 1)
        where = f"package = '{PARTITION}'"
        then, now = (
            table.search("JSONDecodeError", where=where, columns=["text"], limit=1)["text"].to_pylist()
            for table in (older, newest)
        )
        return Told(
            (
                f"version {older.version}: {_shown(then)}",
                f"version {newest.version}: {_shown(now)}",
            )
        )

    def _merge(self) -> Told:
        before = self._table().num_files
        (row,) = self.spark.sql(f"MERGE SPLITS '{self.path}' TARGET SIZE 100M").collect()
        after = self._table().num_files
        return Told(
            (
                f"MERGE SPLITS '{self.path}' TARGET SIZE 100M",
                f"{count(before, 'split')} became {after:,}: {row['status']}",
            ),
            figures=(("splits before and after the merge", f"{before:,} and {after:,}"),),
        )

    def _checkpoint(self) -> Told:
        (row,) = self.spark.sql(f"CHECKPOINT INDEXTABLES '{self.path}'").collect()
        return Told((f"CHECKPOINT INDEXTABLES '{self.path}'", f"status {row['status']}"))

    def _describe(self) -> Told:
        rows = self.spark.sql(f"DESCRIBE INDEXTABLES STATE '{self.path}'").collect()
        shown = {"format", "version", "numFiles", "totalBytes", "numManifests", "tombstoneRatio"}
        facts = [f"{row['property']}: {row['value']}" for row in rows if row["property"] in shown]
        return Told((f"DESCRIBE INDEXTABLES STATE '{self.path}'", *facts))

    def _purge(self) -> Told:
        report = self._table().purge(older_than="7 days", dry_run=True)
        return Told(
            (
                f"PURGE INDEXTABLE '{self.path}' OLDER THAN 7 DAYS DRY RUN",
                f"{count(report.num_files, 'file')} would go: what was replaced today is kept for time travel",
            )
        )

    def _table(self) -> IndexTable:
        return IndexTable(self.path)


def _hits(query: str, rows: pa.Table) -> tuple[Hit, ...]:
    return tuple(
        Hit(query, f"{row['path']}:{row['line']}", row["_score"], row["text"]) for row in rows.to_pylist()
    )


def _timed(action: Callable[[], "pa.Table | int"]) -> tuple["pa.Table", float]:
    started = time.perf_counter()
    result = action()
    return result, time.perf_counter() - started


def _shown(texts: list[str]) -> str:
    return texts[0].strip() if texts else "nothing"


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_INTERRUPTED)

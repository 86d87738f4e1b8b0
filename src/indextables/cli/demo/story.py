"""The steps of the demo, through the public API, on the source code of Python's standard library."""

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

# Realistic queries; the second matches nothing until the demo streams new lines in.
QUERY: Final = 'text:"connection reset" OR text:timeout*'
PARTITION: Final = "json"
STREAMED_QUERY: Final = "lazy AND database"

_SEARCH: Final = "SELECT path, line, text, _score FROM hits ORDER BY _score DESC LIMIT 3"
_FORMAT: Final = "indextables"
_SPARK_SETTINGS: Final = {"spark.sql.shuffle.partitions": 4, "spark.ui.showConsoleProgress": False}
_STREAMED_LINES: Final = 1_000
_RUNS: Final = 20

# Py4J logs this, with a traceback and also to the root logger, on Ctrl-C.
_INTERRUPTED: Final = "KeyboardInterrupt while sending command"


class Hit(msgspec.Struct, frozen=True):
    """A search hit: the query that found it, its file and line, score and text."""

    query: str
    place: str
    score: float
    text: str


class Outcome(msgspec.Struct, frozen=True):
    """What a step prints, the hits it found, and figures for the table at the end."""

    lines: tuple[str, ...]
    hits: tuple[Hit, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()


class Step(msgspec.Struct, frozen=True):
    """A finished step, and how long it took."""

    name: str
    outcome: Outcome
    seconds: float
    version: int | None


class Demo(msgspec.Struct):
    """A demo in an empty or new directory."""

    path: str
    spark: Any = None  # the session, once it is started
    corpus: pa.Table = msgspec.field(default_factory=SCHEMA.empty_table)

    def steps(self) -> list[tuple[str, str, Callable[[], Outcome]]]:
        """Each step's name, progress message and function."""
        return [
            ("start Spark", "starting a local Spark session", self._start),
            ("read the text", "reading the source of the standard library", self._read),
            ("index the text", "writing a DataFrame as a partitioned table", self._index),
            ("search with SQL", "searching on Spark", self._search_with_sql),
            ("search without Spark", "searching", self._search),
            ("stream new lines in", "running a stream", self._stream),
            ("overwrite one partition", "overwriting a partition", self._overwrite),
            ("time travel", "opening an older version", self._travel),
            ("merge small splits", "merging on Spark", self._merge),
            ("write a checkpoint", "writing a checkpoint", self._checkpoint),
            ("describe the state", "reading the state", self._describe),
            ("purge (dry run)", "listing files to delete", self._purge),
        ]

    def run(self, waiting: Callable[[str], contextlib.AbstractContextManager[None]]) -> Iterator[Step]:
        """Run the steps one by one, each within `waiting`. Raises what the API raises."""
        try:
            for name, doing, step in self.steps():
                started = time.perf_counter()
                with waiting(doing), translate_spark_errors(f"complete the step {name!r}"):
                    outcome = step()
                seconds = time.perf_counter() - started
                has_table = Path(self.path, "_transaction_log").exists()
                yield Step(name, outcome, seconds, self._table().version if has_table else None)
        finally:
            if self.spark is not None:
                self.spark.stop()

    def _start(self) -> Outcome:
        logging.getLogger().addFilter(_is_not_interrupt)
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        self.spark = indextables_spark.session(**_SPARK_SETTINGS)
        cores = self.spark.sparkContext.defaultParallelism
        return Outcome((f"Spark {self.spark.version}, local, {count(cores, 'core')}, no downloads",))

    def _read(self) -> Outcome:
        self.corpus = read_corpus()
        packages = len(self.corpus["package"].unique())
        files = len(self.corpus["path"].unique())
        return Outcome(
            (
                f"{count(self.corpus.num_rows, 'line')} of {count(files, 'file')} in {count(packages, 'package')}",
            ),
            figures=(("rows indexed", f"{self.corpus.num_rows:,}"),),
        )

    def _index(self) -> Outcome:
        # Spark makes a task for every ten thousand rows; larger tasks make larger splits.
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
        return Outcome(
            (
                'df.write.format("indextables").partitionBy("package").save(path)',
                f"{count(table.num_files, 'split')}, {size(table.total_bytes)} with index and rows, {rate}",
            ),
            figures=(
                ("text", size(text_bytes)),
                ("table including index", size(table.total_bytes)),
                ("indexing on Spark", rate),
            ),
        )

    def _search_with_sql(self) -> Outcome:
        options = {"query": QUERY, "search": "true"}
        started = time.perf_counter()
        frame = self.spark.read.format(_FORMAT).options(**options).load(self.path)
        frame.createOrReplaceTempView("hits")
        rows = self.spark.sql(_SEARCH).collect()
        seconds = time.perf_counter() - started
        hits = tuple(Hit(QUERY, f"{row.path}:{row.line}", row["_score"], row.text) for row in rows)
        load = f'hits: spark.read.format("{_FORMAT}").options(query={QUERY!r}, search="true").load(path)'
        return Outcome((load, _SEARCH), hits, (("search with SQL on Spark", duration(seconds)),))

    def _search(self) -> Outcome:
        table = self._table()
        first, seconds = _timed(lambda: table.search(QUERY, limit=3))
        again = min(_timed(lambda: table.search(QUERY, limit=3))[1] for _ in range(_RUNS))
        matching, counting = _timed(lambda: table.count(QUERY))
        hits = _hits(QUERY, first)
        return Outcome(
            (
                f"IndexTable(path).search({QUERY!r}, limit=3): {duration(seconds)}, {duration(again)} when warm",
                f"{count(matching, 'line')} match, counted in {duration(counting)}",
            ),
            hits,
            (("first search without Spark", duration(seconds)), ("the same search, warm", duration(again))),
        )

    def _stream(self) -> Outcome:
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
        return Outcome(
            (
                f"version {before} → {table.version}: {count(_STREAMED_LINES, 'line')} streamed, exactly once",
                f"found in {duration(seconds)}",
            ),
            hits,
        )

    def _overwrite(self) -> Outcome:
        partition = self.corpus.filter(pc.field("package") == PARTITION)
        in_upper_case = partition.set_column(3, "text", pc.utf8_upper(partition["text"]))
        (
            self.spark.createDataFrame(in_upper_case.combine_chunks())
            .write.format(_FORMAT)
            .option("replaceWhere", f"package = '{PARTITION}'")
            .mode("overwrite")
            .save(self.path)
        )
        version = self._table().version
        return Outcome(
            (f"version {version} has package '{PARTITION}' in upper case; the others are unchanged",)
        )

    def _travel(self) -> Outcome:
        newest = self._table()
        older = IndexTable(self.path, version=newest.version - 1)
        where = f"package = '{PARTITION}'"
        then, now = (
            table.search("JSONDecodeError", where=where, columns=["text"], limit=1)["text"].to_pylist()
            for table in (older, newest)
        )
        return Outcome(
            (
                f"version {older.version}: {_first_line(then)}",
                f"version {newest.version}: {_first_line(now)}",
            )
        )

    def _merge(self) -> Outcome:
        before = self._table().num_files
        (row,) = self.spark.sql(f"MERGE SPLITS '{self.path}' TARGET SIZE 100M").collect()
        after = self._table().num_files
        return Outcome(
            (
                f"MERGE SPLITS '{self.path}' TARGET SIZE 100M",
                f"{count(before, 'split')} became {after:,}: {row['status']}",
            ),
            figures=(("splits before and after the merge", f"{before:,} → {after:,}"),),
        )

    def _checkpoint(self) -> Outcome:
        (row,) = self.spark.sql(f"CHECKPOINT INDEXTABLES '{self.path}'").collect()
        return Outcome((f"CHECKPOINT INDEXTABLES '{self.path}'", f"status {row['status']}"))

    def _describe(self) -> Outcome:
        rows = self.spark.sql(f"DESCRIBE INDEXTABLES STATE '{self.path}'").collect()
        shown = {"format", "version", "numFiles", "totalBytes", "numManifests", "tombstoneRatio"}
        facts = [f"{row['property']}: {row['value']}" for row in rows if row["property"] in shown]
        return Outcome((f"DESCRIBE INDEXTABLES STATE '{self.path}'", *facts))

    def _purge(self) -> Outcome:
        report = self._table().purge(older_than="7 days", dry_run=True)
        return Outcome(
            (
                f"PURGE INDEXTABLE '{self.path}' OLDER THAN 7 DAYS DRY RUN",
                f"{count(report.num_files, 'file')} would be deleted: recently replaced files are kept for time travel",
            )
        )

    def _table(self) -> IndexTable:
        return IndexTable(self.path)


def read_corpus() -> pa.Table:
    """All lines of the standard library that are not blank. Raises StorageError if its source is missing."""
    root = Path(sysconfig.get_paths()["stdlib"])
    tables = [_lines(path, root) for path in _source_files(root)]
    if not tables:
        raise StorageError(f"{root} has no source code of the standard library; install it and try again")
    # Spark makes one task per chunk.
    return pa.concat_tables(tables).combine_chunks()


def _source_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        if not _SKIPPED.intersection(path.relative_to(root).parts):
            yield path


def _lines(path: Path, root: Path) -> pa.Table:
    # A few test files have other encodings, or are not valid text.
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


def _hits(query: str, rows: pa.Table) -> tuple[Hit, ...]:
    return tuple(
        Hit(query, f"{row['path']}:{row['line']}", row["_score"], row["text"]) for row in rows.to_pylist()
    )


def _timed(action: Callable[[], "pa.Table | int"]) -> tuple["pa.Table", float]:
    started = time.perf_counter()
    result = action()
    return result, time.perf_counter() - started


def _first_line(texts: list[str]) -> str:
    return texts[0].strip() if texts else "nothing"


def _is_not_interrupt(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_INTERRUPTED)

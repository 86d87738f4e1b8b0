"""All queries of a DataFrame or view get their own rows, on both engines.

For a Python data source, Spark uses one plan for several queries (docs/decisions/0024): plans depend on what was loaded
alone. In a native scan, every query has its own plan.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip(
    "pyspark.sql.datasource", minversion=None, reason="Spark before 4.0 has no Python data sources"
)

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

from indextables.errors import InvalidOptionError
from indextables.spark.source import IndexTablesSource
from support import spark_gate
from support.spark_frames import ids, load
from support.spark_gate import Gate, GatedSource, plan

# Spark's workers cannot import the modules of tests.
for module in (sys.modules[__name__], spark_gate):
    cloudpickle.register_pickle_by_value(module)

ENGINE = "spark.indextables.read.engine"
PYTHON = {ENGINE: "python"}
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
GROUPS = ("g0", "g1", "g2", "g3")
WORDS = ("apple", "pear", "plum", "fig")
TEXT = {"spark.indextables.indexing.typemap.message": "text"}


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that pushes filters to Python data sources, as users may set it up for other sources."""
    spark.conf.set(PUSH_DOWN, "true")
    yield spark
    spark.conf.unset(PUSH_DOWN)


@pytest.fixture
def gated(pushing: SparkSession) -> Iterator[SparkSession]:
    pushing.dataSource.register(GatedSource)
    yield pushing
    pushing.dataSource.register(IndexTablesSource)


@pytest.fixture(scope="module")
def places(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Forty rows in four groups, as an IndexTables table partitioned by group, and as Parquet."""
    rows = [(number, GROUPS[number % 4], f"a {WORDS[number % 4]} a day") for number in range(40)]
    frame = spark.createDataFrame(rows, "id long, g string, message string").coalesce(1)
    folder = tmp_path_factory.mktemp("groups")
    ours, parquet = (folder / "ours").as_posix(), (folder / "parquet").as_posix()
    frame.write.format("indextables").partitionBy("g").options(**TEXT).mode("append").save(ours)
    frame.write.parquet(parquet)
    return ours, parquet


class Numbers(DataSource):
    """The numbers below ten."""

    @classmethod
    def name(cls) -> str:
        return "numbers-below-ten"

    def schema(self) -> str:
        return "n long"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return NumbersReader()


class NumbersReader(DataSourceReader):
    """Reads only what n = … selects, as push-down intends."""

    def __init__(self) -> None:
        self._wanted = range(10)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # the name is Spark's
        for each in filters:
            if isinstance(each, EqualTo):
                self._wanted = range(each.value, each.value + 1)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        del partition
        return ((number,) for number in self._wanted)


def test_all_scans_of_a_frame_read_what_the_last_one_requested(pushing: SparkSession) -> None:
    """Why the source takes no filters. If a Spark release fails here, it plans each scan on its own."""
    pushing.dataSource.register(Numbers)
    numbers = pushing.read.format(Numbers.name()).load()
    both = numbers.where("n = 3").union(numbers.where("n = 7"))
    assert sorted(row.n for row in both.collect()) != [3, 7]
    assert numbers.where("n = 5").count() == 1
    assert numbers.count() != 10


def test_a_plan_that_another_query_replaced_has_the_rows_of_both(
    gated: SparkSession, places: tuple[str, str]
) -> None:
    with Gate() as gate, ThreadPoolExecutor(1) as thread:
        frame = load(gated, places[0], **gate.options, **PYTHON)
        first, second = frame.where("g = 'g0'"), frame.where("g = 'g1'")
        planning = thread.submit(plan, first)
        gate.wait_for_a_plan()
        plan(second)
        gate.open()
        planning.result()
    # Spark now has the plan of the first query for both.
    assert sorted(row.id % 4 for row in second.collect()) == [1] * 10
    assert sorted(row.id % 4 for row in first.collect()) == [0] * 10
    assert frame.count() == 40


def test_a_plan_that_another_query_replaced_is_of_the_same_version(gated: SparkSession, path: str) -> None:
    rows = gated.createDataFrame([(1, "a"), (2, "b")], "id long, name string").coalesce(1)
    rows.write.format("indextables").mode("append").save(path)
    with Gate() as gate, ThreadPoolExecutor(1) as thread:
        frame = load(gated, path, **gate.options, **PYTHON)
        planning = thread.submit(plan, frame.where("id >= 0"))
        gate.wait_for_a_plan()
        rows.write.format("indextables").mode("append").save(path)
        newer = load(gated, path, **gate.options, **PYTHON)
        for each in (frame.where("id > 0"), newer.where("id > 0")):
            plan(each)
        gate.open()
        planning.result()
    assert ids(frame) == ids(frame.where("id > 0")) == [1, 2]
    assert ids(newer) == ids(newer.where("id > 0")) == [1, 1, 2, 2]


@pytest.mark.parametrize(("engine", "is_pushing"), [("python", True), ("python", False), ("native", False)])
def test_threads_that_ask_one_view_get_their_own_rows(
    spark: SparkSession, places: tuple[str, str], engine: str, is_pushing: bool
) -> None:
    spark.conf.set(PUSH_DOWN, str(is_pushing).lower())
    load(spark, places[0], **{ENGINE: engine}).createOrReplaceTempView("shared")
    start = threading.Barrier(len(GROUPS))

    def count(group: str) -> int:
        start.wait()
        return int(spark.sql(f"SELECT count(*) AS n FROM shared WHERE g = '{group}'").first().n)

    try:
        with ThreadPoolExecutor(len(GROUPS)) as threads:
            counted = [list(threads.map(count, GROUPS)) for _ in range(2)]
    finally:
        spark.conf.unset(PUSH_DOWN)
    assert counted == [[10] * 4] * 2


def test_threads_that_search_get_the_rows_of_their_query(
    pushing: SparkSession, places: tuple[str, str]
) -> None:
    start = threading.Barrier(len(WORDS))

    def search(word: str) -> set[int]:
        start.wait()
        view = f"hits_{word}"
        options = f"path '{places[0]}', query 'message:{word}', search 'true'"
        pushing.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING indextables OPTIONS ({options})")
        rows = pushing.sql(f"SELECT id FROM {view} WHERE _score > 0").collect()
        assert len(rows) == 10
        return {row.id % 4 for row in rows}

    with ThreadPoolExecutor(len(WORDS)) as threads:
        assert list(threads.map(search, WORDS)) == [{0}, {1}, {2}, {3}]


def test_a_search_without_its_query_in_the_options_is_refused(
    spark: SparkSession, places: tuple[str, str]
) -> None:
    with pytest.raises(InvalidOptionError, match=r"option search needs the option query.*for each search"):
        load(spark, places[0], search="true")


def _self_join(frame: DataFrame) -> DataFrame:
    left, right = frame.where("g = 'g0'").alias("l"), frame.where("g = 'g1'").alias("r")
    return left.join(right, expr("l.id + 1 = r.id")).selectExpr("l.id AS id", "r.g AS g")


def _broadcast_join(frame: DataFrame) -> DataFrame:
    few = frame.where("id < 4").hint("broadcast").selectExpr("id AS few", "g")
    return frame.where("id > 20").join(few, "g").select("id", "g", "few")


def _sort_merge_join(frame: DataFrame) -> DataFrame:
    few = frame.where("id < 4").hint("merge").selectExpr("id AS few", "g")
    return frame.where("id > 20").join(few, "g").select("id", "g", "few")


def _union(frame: DataFrame) -> DataFrame:
    return frame.where("g = 'g2'").union(frame.where("id = 3")).union(frame)


def _subqueries(frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView("subqueried")
    return frame.sparkSession.sql(
        "SELECT id FROM subqueried WHERE g IN (SELECT g FROM subqueried WHERE id = 5) "
        "AND id > (SELECT min(id) FROM subqueried WHERE g = 'g3')"
    )


@pytest.mark.parametrize(("engine", "is_adaptive"), [("python", True), ("python", False), ("native", True)])
@pytest.mark.parametrize("query", [_self_join, _broadcast_join, _sort_merge_join, _union, _subqueries])
def test_queries_with_several_scans_of_a_frame_give_the_same_rows_as_on_parquet(
    pushing: SparkSession,
    places: tuple[str, str],
    query: Callable[[DataFrame], DataFrame],
    engine: str,
    is_adaptive: bool,
) -> None:
    ours, parquet = load(pushing, places[0], **{ENGINE: engine}), pushing.read.parquet(places[1])
    adaptive = "spark.sql.adaptive.enabled"
    pushing.conf.set(adaptive, str(is_adaptive).lower())
    try:
        found, expected = sorted(query(ours).collect()), sorted(query(parquet).collect())
    finally:
        pushing.conf.unset(adaptive)
    assert found == expected
    assert found


def test_cached_rows_do_not_narrow_other_queries(pushing: SparkSession, places: tuple[str, str]) -> None:
    frame = load(pushing, places[0], **PYTHON)
    cached = frame.where("g = 'g1'").cache()
    try:
        assert cached.count() == 10
        assert frame.where("g = 'g2'").count() == 10
        assert frame.count() == 40
    finally:
        cached.unpersist()

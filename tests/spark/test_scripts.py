"""A PySpark script written for IndexTables on the JVM runs unchanged."""

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql.functions import avg, col, count, row_number

from indextables import IndexTable

PROVIDER = "io.indextables.provider.IndexTablesProvider"
TABLE_PROVIDER = "io.indextables.spark.core.IndexTables4SparkTableProvider"


def test_a_script_with_the_names_and_options_of_the_jvm_runs_unchanged(
    spark: SparkSession, path: str
) -> None:
    people = spark.createDataFrame(
        [
            (1, "Ann", "engineering", "spark and search", 120.0),
            (2, "Bob", "engineering", "storage engines", 100.0),
            (3, "Cid", "sales", "spark for customers", 80.0),
        ],
        "id long, name string, department string, about string, salary double",
    )
    (
        people.write.format(PROVIDER)
        .mode("overwrite")
        .option("spark.indextables.indexing.typemap.about", "text")
        .option("spark.indextables.indexing.fastfields", "salary")
        .option("spark.indextables.indexWriter.heapSize", "64M")
        .partitionBy("department")
        .save(path)
    )
    df = spark.read.format(TABLE_PROVIDER).load(path)
    assert (
        df.filter(col("department") == "engineering").filter(col("salary") > 110).collect()[0].name == "Ann"
    )

    teams = spark.createDataFrame(
        [("engineering", "Eve"), ("sales", "Flo")], "department string, lead string"
    )
    joined = df.join(teams, "department").select("name", "lead").collect()
    assert sorted(map(tuple, joined)) == [("Ann", "Eve"), ("Bob", "Eve"), ("Cid", "Flo")]

    totals = df.groupBy("department").agg(count("*").alias("n"), avg("salary").alias("mean"))
    assert sorted(map(tuple, totals.collect())) == [("engineering", 2, 110.0), ("sales", 1, 80.0)]

    ranked = df.withColumn(
        "rank", row_number().over(Window.partitionBy("department").orderBy(col("salary").desc()))
    )
    assert sorted(row.name for row in ranked.where("rank = 1").collect()) == ["Ann", "Cid"]

    df.createOrReplaceTempView("people")
    top = spark.sql("SELECT name FROM people WHERE about LIKE '%spark%' ORDER BY salary DESC LIMIT 1")
    assert top.first().name == "Ann"
    table = IndexTable(path)
    assert table.partition_columns == ["department"]
    assert table.count("about:spark") == 2


def test_the_sql_of_the_jvms_documentation_runs_unchanged(spark: SparkSession, path: str) -> None:
    logs = spark.createDataFrame(
        [
            (1, "2026-01-30 10:05:00", "api", "ERROR", "OutOfMemory in worker", 10.0, 1),
            (2, "2026-01-30 10:20:00", "api", "INFO", "critical infrastructure is up", 60.0, 2),
            (3, "2026-01-30 11:00:00", "web", "ERROR", "request failed: timeout", 120.0, 3),
            (4, "2026-01-31 09:00:00", "web", "WARN", "retry", 75.0, 4),
        ],
        "id int, at string, service string, level string, message string, price double, quantity int",
    ).selectExpr(
        "id", "CAST(at AS TIMESTAMP) AS event_time", "service", "level", "message", "price", "quantity"
    )
    (
        logs.write.format(PROVIDER)
        .mode("append")
        .option("spark.indextables.indexing.typemap.message", "text")
        .option("spark.indextables.indexing.fastfields", "price,event_time,quantity")
        .save(path)
    )
    df = spark.read.format(PROVIDER).load(path)
    df.createOrReplaceTempView("my_table")
    spark.createDataFrame(
        [("api", "Eve"), ("web", "Flo")], "service string, owner string"
    ).createOrReplaceTempView("owners")

    def ask(text: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in spark.sql(text).collect()]

    critical = (
        "SELECT * FROM my_table WHERE id > 0 and message indexquery 'critical AND infrastructure' LIMIT 10"
    )
    assert [row[0] for row in ask(critical)] == [2]
    assert ask("SELECT id FROM my_table WHERE _indexall indexquery 'timeout'") == [(3,)]
    assert ask("SELECT id FROM my_table WHERE level FIELDMATCH 'ERROR' AND message TEXTSEARCH 'timeout'") == [
        (3,)
    ]
    security = """
        SELECT id, service, message
        FROM my_table
        WHERE level IN ('ERROR', 'WARN')
          AND event_time > timestamp'2026-01-30'
          AND (service IN ('nobody')  -- suspicious
               OR _indexall indexquery 'failed OR unauthorized OR denied')
    """
    assert [row[0] for row in ask(security)] == [3]
    documents = """
        SELECT id FROM my_table WHERE message indexquery '
          (OutOfMemory OR StackOverflow) AND
          NOT deprecated
        '
    """
    assert ask(documents) == [(1,)]
    errors = """
        SELECT service, COUNT(*) as error_count
        FROM my_table
        WHERE level = 'ERROR'
          AND message indexquery 'OutOfMemory OR failed OR timeout'
        GROUP BY service
        ORDER BY service
    """
    assert ask(errors) == [("api", 1), ("web", 1)]
    joined = "SELECT owner FROM my_table m JOIN owners o ON m.service = o.service WHERE message TEXTSEARCH 'timeout'"
    assert ask(joined) == [("Flo",)]
    histogram = """
        SELECT indextables_histogram(price, 50.0) as price_bucket, COUNT(*) as cnt, SUM(quantity) as total_qty
        FROM my_table
        GROUP BY indextables_histogram(price, 50.0)
        ORDER BY price_bucket
    """
    assert ask(histogram) == [(0.0, 1, 1), (50.0, 2, 6), (100.0, 1, 3)]
    days = """
        SELECT indextables_date_histogram(event_time, '15m') as time_slice, service, COUNT(*) as cnt
        FROM my_table
        GROUP BY indextables_date_histogram(event_time, '15m'), service
        ORDER BY time_slice, service
    """
    assert [(row[0].minute, *row[1:]) for row in ask(days)] == [  # type: ignore[attr-defined]
        (0, "api", 1),
        (15, "api", 1),
        (0, "web", 1),
        (0, "web", 1),
    ]
    tiers = """
        SELECT indextables_range(price, 'cheap', NULL, 50.0, 'mid', 50.0, 100.0, 'expensive', 100.0, NULL) as tier,
               COUNT(*) as cnt
        FROM my_table
        GROUP BY indextables_range(price, 'cheap', NULL, 50.0, 'mid', 50.0, 100.0, 'expensive', 100.0, NULL)
    """
    assert sorted(ask(tiers)) == [("cheap", 1), ("expensive", 1), ("mid", 2)]
    spark.sql(f"CREATE TABLE my_logs USING {PROVIDER} LOCATION '{path}'")
    try:
        (merged,) = spark.sql("MERGE SPLITS my_logs TARGET SIZE 100M").collect()
        assert merged.status in ("SUCCESS", "NO_ACTION")
        assert ask("SELECT id FROM my_logs WHERE message TEXTSEARCH 'retry'") == [(4,)]
    finally:
        spark.sql("DROP TABLE my_logs")


@pytest.mark.parametrize(
    "name", ["tantivy4spark", "INDEXTABLES", "com.tantivy4spark.core.Tantivy4SparkTableProvider"]
)
def test_older_names_and_any_case_lead_to_the_same_source(spark: SparkSession, path: str, name: str) -> None:
    spark.range(2).selectExpr("id", "'x' as t").write.format(name).mode("append").save(path)
    assert spark.read.format(name).load(path).count() == 2

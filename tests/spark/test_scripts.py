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


@pytest.mark.parametrize(
    "name", ["tantivy4spark", "INDEXTABLES", "com.tantivy4spark.core.Tantivy4SparkTableProvider"]
)
def test_older_names_and_any_case_lead_to_the_same_source(spark: SparkSession, path: str, name: str) -> None:
    spark.range(2).selectExpr("id", "'x' as t").write.format(name).mode("append").save(path)
    assert spark.read.format(name).load(path).count() == 2

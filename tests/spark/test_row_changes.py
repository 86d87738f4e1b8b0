"""DELETE FROM, UPDATE and MERGE INTO in spark.sql: on names and on paths, beside Spark's own tables."""

import pyarrow as pa
import pytest
from pyspark.sql.utils import AnalysisException

from indextables import IndexTable, errors

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64()), ("body", pa.string())])


@pytest.fixture
def table(spark, path):
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])
    rows = {"id": [1, 2, 3], "day": ["a", "a", "b"], "n": [1, 2, 3], "body": ["disk full", "disk ok", "net"]}
    table.append(pa.table(rows, schema=SCHEMA))
    spark.sql(f"CREATE TABLE named USING indextables LOCATION '{path}'")
    yield table
    for name in ("named", "other"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def rows(table):
    return sorted(tuple(row.values())[::2] for row in table.refresh().to_arrow().to_pylist())


def test_rows_change_by_name_and_path(spark, table, path):
    [deleted] = spark.sql("DELETE FROM default.named WHERE body TEXTSEARCH 'disk' AND n > 1").collect()
    assert (deleted.status, deleted.deleted_rows) == ("SUCCESS", 1)
    assert rows(table) == [(1, 1), (3, 3)]
    [updated] = spark.sql(f"UPDATE indextables.`{path}` SET n = n * 10 WHERE day = 'b'").collect()
    assert updated.updated_rows == 1
    assert rows(table) == [(1, 1), (3, 30)]
    spark.range(1, 6).selectExpr("id", "id * 100 AS n").createOrReplaceTempView("changes")
    [merged] = spark.sql(
        """MERGE INTO named AS t USING (SELECT id, n, 'c' AS day FROM changes WHERE id <> 2) s ON t.id = s.id
           WHEN MATCHED AND s.n = 100 THEN DELETE
           WHEN MATCHED THEN UPDATE SET n = t.n + s.n
           WHEN NOT MATCHED THEN INSERT *"""
    ).collect()
    assert (merged.updated_rows, merged.deleted_rows, merged.inserted_rows) == (1, 1, 2)
    assert rows(table) == [(3, 330), (4, 400), (5, 500)]
    assert spark.sql("SELECT count(*) c FROM named WHERE body TEXTSEARCH 'disk'").first().c == 0
    spark.sql("MERGE INTO named USING changes ON target.id = changes.id WHEN MATCHED THEN DELETE")
    assert rows(table) == []


def test_what_does_not_work_says_so_and_changes_nothing(spark, table, path):
    spark.read.format("indextables").load(path).createOrReplaceTempView("shown")
    for text, reason in (
        ("UPDATE shown SET n = 1", "shown is a view, and shows one version of"),
        ("DELETE FROM named WHERE body TEXTSEARCH 'a' OR n = 1", "rows are chosen by one search"),
        ("DELETE FROM named WHERE NOT body TEXTSEARCH 'a'", "rows are chosen by one search"),
        ("UPDATE named SET nope", "write each value as column = expression"),
    ):
        with pytest.raises(errors.InvalidStatementError, match=reason):
            spark.sql(text)
    with pytest.raises(errors.InvalidSchemaError, match="no column 'nope'"):
        spark.sql("UPDATE named SET nope = 1")
    assert table.refresh().version == 1


def test_statements_on_tables_of_spark_stay_its_own(spark, table):
    spark.sql("CREATE TABLE other (id BIGINT) USING parquet")
    with pytest.raises(AnalysisException, match="DELETE"):
        spark.sql("DELETE FROM other WHERE id = 1")

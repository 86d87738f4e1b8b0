"""Tables with names in Spark's catalog: created, filled, read, searched, dropped."""

import shutil

import pyarrow as pa
import pytest

from indextables import IndexTable, errors

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("body", pa.string())])


def _ask(spark, text, *args, **kwargs):
    rows = spark.sql(text, *args, **kwargs).collect()
    return sorted((tuple(row) if len(row) > 1 else row[0] for row in rows), key=repr)


@pytest.fixture
def table(path):
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])
    table.append(pa.table([[1, 2], ["a", "b"], ["hello spark", "hello"]], schema=SCHEMA))
    return table


@pytest.fixture(autouse=True)
def _dropped(spark):
    yield
    for name in ("named", "other"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_an_existing_table_gets_a_name(spark, table, path):
    spark.sql(f"CREATE TABLE named USING indextables LOCATION '{path}'")
    assert _ask(spark, "SELECT id FROM named") == [1, 2]
    assert _ask(spark, "SELECT n.id FROM default.named n WHERE n.body TEXTSEARCH 'spark'") == [1]
    assert _ask(
        spark, "SELECT id FROM spark_catalog.default.named WHERE body TEXTSEARCH 'hello' OR id = 7"
    ) == [1, 2]
    spark.sql("INSERT INTO named SELECT 3, 'c', 'spark again'")
    assert _ask(
        spark, "SELECT a.id FROM named a, named b WHERE a.id = b.id AND a.body TEXTSEARCH 'spark'"
    ) == [1, 3]
    assert _ask(spark, "SELECT id FROM named VERSION AS OF 1") == [1, 2]
    assert _ask(spark, "SELECT count(*) FROM named TIMESTAMP AS OF '2999-01-01'") == [3]
    assert sorted(row.id for row in spark.table("named").collect()) == [1, 2, 3]
    old = spark.read.option("versionAsOf", 1).table("named")
    assert sorted(row.id for row in old.collect()) == [1, 2]
    (merged,) = spark.sql("MERGE SPLITS named").collect()
    assert merged.table_path.endswith(path)
    assert "named" in [row.tableName for row in spark.sql("SHOW TABLES").collect()]
    assert [row.col_name for row in spark.sql("DESCRIBE TABLE named").collect()][:3] == ["id", "day", "body"]
    spark.sql("DROP TABLE named")
    assert IndexTable(path).count() == 3


def test_a_new_table_is_created_with_its_columns_and_filled(spark, path):
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS named (id BIGINT, day STRING COMMENT 'a day', body STRING) USING indextables "
        f"PARTITIONED BY (day) OPTIONS (spark.indextables.indexing.typemap.body 'text') LOCATION '{path}'"
    )
    assert _ask(spark, "SELECT * FROM named") == []
    spark.sql("INSERT INTO named VALUES (1, 'a', 'hello spark'), (2, 'b', 'hello')")
    spark.sql("INSERT INTO named (body, id) SELECT 'spark', 3")
    spark.sql("INSERT INTO TABLE named BY NAME SELECT 'x' AS body, 'b' AS day, 4 AS id")
    spark.sql("INSERT INTO named PARTITION (day = 'c') SELECT 5, 'y'")
    assert _ask(spark, "SELECT id, day FROM named") == [(1, "a"), (2, "b"), (3, None), (4, "b"), (5, "c")]
    assert _ask(spark, "SELECT id FROM named WHERE body TEXTSEARCH 'spark'") == [1, 3]
    spark.sql("INSERT OVERWRITE named PARTITION (day = 'b') SELECT 6, 'z'")
    assert _ask(spark, "SELECT id FROM named") == [1, 3, 5, 6]
    spark.createDataFrame([(7, "d", "w")], "id int, d string, b string").write.insertInto("named")
    assert _ask(spark, "SELECT id FROM named WHERE day = 'd'") == [7]
    spark.sql("INSERT OVERWRITE TABLE named SELECT * FROM named WHERE body TEXTSEARCH 'spark'")
    assert _ask(spark, "SELECT id FROM named") == [1, 3]
    assert IndexTable(path).partition_columns == ["day"]
    with pytest.raises(errors.InvalidSchemaError, match="the rows have 2 columns"):
        spark.sql("INSERT INTO named SELECT 1, 'a'")


def test_a_query_becomes_a_managed_table_that_goes_with_its_name(spark, table, path):
    query = f"SELECT * FROM indextables.`{path}` WHERE body TEXTSEARCH 'spark'"
    spark.sql(f"CREATE TABLE named USING indextables AS {query}")
    assert _ask(spark, "SELECT id FROM named") == [1]
    location = spark.sql("CHECKPOINT INDEXTABLES named").first().table_path
    assert IndexTable(location).count() == 1
    with pytest.raises(errors.TableAlreadyExistsError, match="named already exists"):
        spark.sql("CREATE TABLE named USING indextables AS SELECT 1 AS id")
    spark.sql("DROP TABLE named")
    with pytest.raises(errors.TableNotFoundError):
        IndexTable(location)


def test_a_dataframe_is_saved_as_a_table(spark, path):
    frame = spark.createDataFrame([(1, "a", "hello spark")], "id long, day string, body string")
    writer = frame.write.format("indextables").partitionBy("day")
    writer.option("spark.indextables.indexing.typemap.body", "text").saveAsTable("named", path=path)
    assert _ask(spark, "SELECT id FROM named WHERE body TEXTSEARCH 'spark'") == [1]
    frame.select("body", "day", "id").write.format("indextables").mode("append").saveAsTable("named")
    assert _ask(spark, "SELECT id FROM named") == [1, 1]
    frame.write.mode("overwrite").saveAsTable("named")
    frame.write.format("indextables").mode("ignore").saveAsTable("named")
    assert _ask(spark, "SELECT count(*) FROM named") == [1]
    with pytest.raises(errors.TableAlreadyExistsError, match="named already exists"):
        frame.write.format("indextables").saveAsTable("named")
    assert IndexTable(path).partition_columns == ["day"]


def test_a_table_that_does_not_fit_its_name_is_refused(spark, table, path):
    with pytest.raises(errors.InvalidSchemaError, match="omit them"):
        spark.sql(f"CREATE TABLE named (id INT) USING indextables LOCATION '{path}'")
    with pytest.raises(errors.InvalidOptionError, match="partitioned by day, not by id"):
        spark.sql(f"CREATE TABLE named USING indextables PARTITIONED BY (id) LOCATION '{path}'")
    with pytest.raises(errors.TableNotFoundError, match="give the columns of a new one"):
        spark.sql(f"CREATE TABLE named USING indextables LOCATION '{path}-none'")
    with pytest.raises(errors.TableAlreadyExistsError, match="without AS"):
        spark.sql(f"CREATE TABLE named USING indextables LOCATION '{path}' AS SELECT 1 AS id")
    with pytest.raises(errors.InvalidOptionError, match="is relative"):
        spark.sql("CREATE TABLE named (id INT) USING indextables LOCATION 'logs'")
    with pytest.raises(errors.InvalidStatementError, match="drop the table first"):
        spark.sql(f"CREATE OR REPLACE TABLE named USING indextables LOCATION '{path}'")
    with pytest.raises(errors.InvalidStatementError, match="write CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE VIEW named AS SELECT * FROM indextables.`{path}`")
    assert spark.sql("SHOW TABLES LIKE 'named'").count() == 0
    with pytest.raises(errors.InvalidStatementError, match="cannot change an IndexTables table"):
        spark.sql(f"WITH q AS (SELECT 1) INSERT INTO indextables.`{path}` SELECT 1, 'a', 'b' FROM q")


def test_tables_of_other_formats_are_not_touched(spark, table, path):
    spark.sql("CREATE TABLE other (id BIGINT, day STRING, body STRING) USING parquet")
    spark.sql(f"INSERT INTO other SELECT * FROM indextables.`{path}`")
    assert _ask(spark, "SELECT id FROM other") == [1, 2]
    assert spark.table("other").count() == 2
    spark.range(1).selectExpr("id", "'x' d", "'y' b").write.insertInto("other")
    assert spark.read.table("other").count() == 3


def test_a_session_that_is_not_enabled_says_which_line_to_add(spark, table, path):
    spark.sql(f"CREATE TABLE named USING indextables LOCATION '{path}'")
    with pytest.raises(errors.InvalidOptionError, match=r"indextables\.spark\.enable\(spark\)"):
        spark.newSession().sql("SELECT * FROM named").collect()


def test_a_name_whose_table_is_gone_is_a_clear_error(spark, table, path):
    spark.sql(f"CREATE TABLE named USING indextables LOCATION '{path}'")
    shutil.rmtree(path)
    with pytest.raises(errors.TableNotFoundError):
        spark.sql("SELECT * FROM named")


def test_alter_table_changes_columns_of_names_and_paths(spark, path):
    spark.sql(f"CREATE TABLE altered (id INT, message STRING) USING indextables LOCATION '{path}'")
    try:
        spark.sql("INSERT INTO altered VALUES (1, 'disk full')")
        answer = spark.sql("ALTER TABLE altered ADD COLUMNS (level STRING DEFAULT 'INFO', n INT)").collect()
        assert answer[0]["status"] == "SUCCESS"
        spark.sql(f"alter table indextables.`{path}` RENAME COLUMN message TO body")
        spark.sql("ALTER TABLE default.altered DROP COLUMN n")
        spark.sql("INSERT INTO altered VALUES (2, 'all good', 'WARN')")
        rows = spark.sql("SELECT * FROM altered ORDER BY id").collect()
        assert [row.asDict() for row in rows] == [
            {"id": 1, "body": "disk full", "level": "INFO"},
            {"id": 2, "body": "all good", "level": "WARN"},
        ]
        assert spark.sql("SELECT id FROM altered WHERE body indexquery 'disk*'").collect() == [(1,)]
        with pytest.raises(errors.InvalidSchemaError, match="no column 'n'"):
            spark.sql("ALTER TABLE altered DROP COLUMN n")
    finally:
        spark.sql("DROP TABLE IF EXISTS altered")


def test_an_append_adds_the_columns_of_its_rows(spark, path):
    spark.createDataFrame([(1, "a")], "id long, body string").write.format("indextables").save(path)
    new = spark.createDataFrame(
        [(2, "b", 5, ("x",))], "id long, body string, n int, who struct<name: string>"
    )
    writer = new.write.format("indextables").mode("append")
    with pytest.raises(errors.InvalidSchemaError, match="n"):
        writer.save(path)
    writer.option("mergeSchema", "true").save(path)
    table = IndexTable(path)
    assert table.schema.names == ["id", "body", "n", "who"]
    assert table.to_arrow(where="n = 5").to_pylist() == [{"id": 2, "body": "b", "n": 5, "who": {"name": "x"}}]
    assert table.history()["operation"].to_pylist() == ["WRITE", "WRITE", "CREATE TABLE"]
    with pytest.raises(errors.InvalidOptionError, match="mergeSchema"):
        new.withColumnRenamed("n", "m").write.format("indextables").option("mergeSchema", "true").mode(
            "overwrite"
        ).save(path)

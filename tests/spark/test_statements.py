"""`spark.sql` with IndexTables statements and with all other statements."""

import pyarrow as pa
import pytest

import indextables
from indextables import IndexTable, errors
from indextables._results import schema_of
from indextables.spark.jobs import SparkRunner
from indextables.statements.forms import FORMS
from support.row_tables import SCHEMA, rows


@pytest.fixture
def table(path):
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])
    table.append(rows(1, 2))
    table.append(rows(3, day="2024-01-02"))
    return table


def test_a_statement_returns_the_same_with_and_without_spark(spark, table, path):
    text = f"DESCRIBE INDEXTABLES STATE '{path}';"
    assert spark.sql(text).toArrow().to_pylist() == indextables.sql(text).to_pylist()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind.__name__)
def test_every_statement_returns_a_dataframe(spark, table, path, form):
    text = (
        form.example.replace("'logs'", f"'{path}'")
        .replace("date", "day")
        .replace("(message)", "(body)")
        .replace("logs-repaired", f"{path}2")
    )
    frame = spark.sql(text)
    assert frame.columns == schema_of(form.columns).names
    assert frame.collect() is not None


def test_a_prewarm_on_executors_fills_the_cache_of_the_host(spark, table, path):
    spark.sql("FLUSH INDEXTABLES DISK CACHE")
    (row,) = spark.sql(f"PREWARM INDEXTABLES '{path}' WHERE day = '2024-01-02'").collect()
    assert (row.status, row.num_splits, row.cached_splits, row.fields) == ("SUCCESS", 1, 1, None)
    (row,) = spark.sql(f"PREWARM INDEXTABLES '{path}' FOR FIELDS (body)").collect()
    assert (row.cached_splits, row.warmed_splits, row.fields) == (2, 1, ["body"])
    (described,) = spark.sql("DESCRIBE INDEXTABLES DISK CACHE").collect()
    assert (described.host, described.cache_path) == (row.host, row.cache_path)
    assert (described.num_entries, described.size_bytes) == (2, row.cached_bytes)
    (flushed,) = spark.sql("FLUSH INDEXTABLES DISK CACHE").collect()
    assert flushed.freed_bytes == row.cached_bytes


def test_files_of_a_dry_run_can_be_exploded(spark, table, path):
    frame = spark.sql(f"TRUNCATE INDEXTABLES TIME TRAVEL '{path}' DRY RUN")
    kinds = [row["kind"] for row in frame.selectExpr("inline(files)").collect()]
    assert kinds == ["version", "version"]


def test_settings_of_the_session_apply(spark, table, path):
    spark.conf.set("spark.indextables.state.format", "json")
    try:
        (row,) = spark.sql(f"CHECKPOINT INDEXTABLES '{path}'").collect()
    finally:
        spark.conf.unset("spark.indextables.state.format")
    assert row["new_format"] == "json"


def test_a_malformed_statement_raises_our_error(spark):
    with pytest.raises(errors.InvalidStatementError, match="did you mean STATE"):
        spark.sql("DESCRIBE INDEXTABLES STAT 'p'")


def test_statements_of_spark_reach_spark(spark):
    assert spark.sql("SELECT 1 AS one").collect()[0]["one"] == 1
    assert spark.sql("SELECT :n AS n", args={"n": 5}).collect()[0]["n"] == 5
    spark.sql("CREATE TABLE plain (id INT) USING parquet")
    try:
        assert spark.sql("DESCRIBE TABLE plain").collect()[0]["col_name"] == "id"
        spark.sql("TRUNCATE TABLE plain")
    finally:
        spark.sql("DROP TABLE plain")


def test_a_table_is_found_by_its_name_in_the_catalog(spark, table, path):
    spark.sql(f"CREATE TABLE named (Location STRING) USING parquet LOCATION '{path}'")
    try:
        (row,) = spark.sql("CHECKPOINT INDEXTABLES default.named").collect()
    finally:
        spark.sql("DROP TABLE named")
    assert row["table_path"].endswith(path)


def test_a_name_missing_from_the_catalog_is_a_clear_error(spark):
    with pytest.raises(errors.TableNotFoundError, match=r"no table no\.such"):
        spark.sql("CHECKPOINT INDEXTABLES no.such")


def test_a_view_has_no_location(spark):
    spark.sql("CREATE TEMPORARY VIEW seen AS SELECT 1 AS one")
    try:
        with pytest.raises(errors.TableNotFoundError, match="has no location for seen"):
            spark.sql("FSCK INDEXTABLES seen")
    finally:
        spark.sql("DROP VIEW seen")


def test_a_session_that_is_not_enabled_keeps_its_sql(spark):
    other = spark.newSession()
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        other.sql("CHECKPOINT INDEXTABLES 'p'")
    assert isinstance(other.sql("SELECT 1").toArrow(), pa.Table)


FEW = {
    "spark.indextables.state.entriesPerManifest": "2",
    "spark.indextables.state.manifestsPerDriver": "1",
}


@pytest.fixture
def _few_entries_per_manifest(spark):
    for key, value in FEW.items():
        spark.conf.set(key, value)
    yield
    for key in FEW:
        spark.conf.unset(key)


@pytest.fixture
def ran(monkeypatch):
    """The descriptions of the runs on executors."""
    descriptions, run = [], SparkRunner.run

    def recording(self, description, tasks):
        descriptions.append(description)
        return run(self, description, tasks)

    monkeypatch.setattr(SparkRunner, "run", recording)
    return descriptions


@pytest.mark.usefixtures("_few_entries_per_manifest")
def test_executors_read_and_write_the_manifests_of_a_large_state(spark, path, ran):
    table = IndexTable.create(path, SCHEMA)
    for number in range(7):
        table.append(rows(number))
    (compacted,) = spark.sql(f"COMPACT INDEXTABLES '{path}'").collect()
    assert (compacted.num_files, compacted.new_format) == (7, "avro-state")
    assert ran == ["writing the table's state"]
    (merged,) = spark.sql(f"MERGE SPLITS '{path}'").collect()
    (purged,) = spark.sql(f"PURGE INDEXTABLE '{path}' OLDER THAN 7 DAYS DRY RUN").collect()
    assert (merged.source_splits, merged.new_splits, purged.status) == (7, 1, "DRY_RUN")
    assert "reading the table's state" in ran
    assert sorted(IndexTable(path).to_arrow()["id"].to_pylist()) == list(range(7))
    assert IndexTable(path).fsck(deep=True).errors == ()

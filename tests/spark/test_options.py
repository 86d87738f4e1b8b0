"""Names of options: other spellings, misspelled ones, and names of other libraries."""

import pytest
from pyspark.sql import SparkSession

from indextables import IndexTable
from indextables.config import UnknownSettingWarning
from indextables.errors import InvalidOptionError
from indextables.spark.option_names import ALL, READER, STREAM_WRITER, WRITER, known_options
from support.spark_frames import ids, load, logs
from support.spark_releases import needs_sources


def test_a_misspelled_option_is_an_error_that_suggests_the_right_one(spark: SparkSession, path: str) -> None:
    logs(spark).write.format("indextables").mode("append").save(path)
    for wrong, right in (("qurey", "query"), ("versonAsOf", "versionAsOf"), ("column", "columns")):
        with pytest.raises(
            InvalidOptionError, match=f"unknown option '(?i:{wrong})'; did you mean '{right}'"
        ):
            load(spark, path, **{wrong: "x"}).count()
    with pytest.raises(InvalidOptionError, match="did you mean 'replaceWhere'"):
        logs(spark).write.format("indextables").mode("overwrite").option("replaceWehre", "id = 1").save(path)
    with pytest.raises(
        InvalidOptionError, match=r"unknown option 'header'; the options are path, .* spark\.hadoop\."
    ):
        logs(spark).write.format("indextables").mode("append").option("header", True).save(path)
    assert ids(load(spark, path)) == [1, 2, 3, 4, 5]
    stream = spark.readStream.format("rate").load().selectExpr("value as id")
    with pytest.raises(InvalidOptionError, match="did you mean 'checkpointLocation'"):
        stream.writeStream.format("indextables").option("checkpointLocaton", path).start(path)


@needs_sources
def test_a_view_refuses_a_misspelled_option(spark: SparkSession, path: str) -> None:
    with pytest.raises(InvalidOptionError, match="did you mean 'where'"):
        spark.sql(
            f"CREATE TEMPORARY VIEW misspelled USING indextables OPTIONS (path '{path}', wher 'id = 1')"
        )


def test_the_writer_takes_the_names_of_the_python_api(spark: SparkSession, path: str) -> None:
    writer = logs(spark).write.format("indextables").option("text", "message,LEVEL")
    writer.option("partition_by", "day").mode("append").save(path)
    table = IndexTable(path)
    assert table.partition_columns == ["day"]
    assert table.count("message:timeout AND level:error") == 1
    logs(spark, 1).write.format("indextables").option("text", "message").mode("append").save(path)
    assert load(spark, path, query="started", fields="message").count() == 2
    assert load(spark, path, version=1).count() == 5
    with pytest.raises(InvalidOptionError, match="did you mean 'message'"):
        logs(spark).write.format("indextables").option("text", "mesage").mode("append").save(f"{path}2")


def test_an_unknown_setting_of_ours_is_a_warning_on_the_driver(spark: SparkSession, path: str) -> None:
    """Scripts for the JVM have settings that this implementation does not need."""
    writer = logs(spark).write.format("indextables").mode("append")
    with pytest.warns(UnknownSettingWarning, match=r"spark\.indextables\.docbatch\.enabled is unknown"):
        writer.option("spark.indextables.docBatch.enabled", "true").save(path)


def test_names_are_compared_without_case_and_underscores() -> None:
    assert known_options({"Query_Fields": "a", "TIMESTAMP": "2026-01-01"}, READER) == {
        "queryfields": "a",
        "timestampasof": "2026-01-01",
    }


def test_settings_of_stores_and_of_ours_pass() -> None:
    passed = {
        "fs.s3a.endpoint": "a",
        "spark.hadoop.fs.s3a.access.key": "b",
        "spark.tantivy4spark.indexwriter.heapsize": "1M",
        "indextables.session.spark.speculation": "true",
    }
    assert known_options(passed, ALL) == passed


def test_two_names_of_one_option_must_agree() -> None:
    assert known_options({"version": "1", "versionAsOf": "1"}, ALL) == {"versionasof": "1"}
    with pytest.raises(InvalidOptionError, match="contradicts another name"):
        known_options({"version": "1", "versionAsOf": "2"}, ALL)
    typemap = "spark.indextables.indexing.typemap.message"
    with pytest.raises(InvalidOptionError, match="contradicts another name"):
        known_options({"text": "message", typemap: "string"}, WRITER)


def test_an_option_of_another_kind_says_that_it_does_not_apply() -> None:
    with pytest.raises(
        InvalidOptionError, match=r"'query'; it does not apply here; the options here are path, "
    ):
        known_options({"query": "a"}, WRITER)
    with pytest.raises(InvalidOptionError, match="txnAppId"):
        known_options({"txnAppId": "a"}, STREAM_WRITER)
    assert {name.lower() for name in ALL} == set(known_options(dict.fromkeys(ALL, "1"), ALL)) - {
        "spark.indextables.indexing.typemap.1"
    } | {"text"}

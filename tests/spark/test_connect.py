"""Spark Connect: the same source and the same patches, without a JVM in the client."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from support.spark_releases import needs_stream_writers

# The script writes a stream, which Spark Connect before 4.1 would do on its server, without this package.
pytestmark = needs_stream_writers
pytest.importorskip("grpc", reason="Spark Connect needs grpcio (pip install pyspark[connect])")

SCRIPT = """
import gc
import sys
import indextables.spark
path = sys.argv[1]
spark = indextables.spark.session(**{"spark.remote": "local[2]", "spark.sql.shuffle.partitions": "2"})
frame = spark.createDataFrame([(1, "a", "hello spark"), (2, "b", "hello")], "id long, part string, body string")
spark.conf.set("spark.indextables.indexing.typemap.body", "text")
writer = frame.write.format("indextables").partitionBy("part").mode("append")
writer.option("spark.indextables.write.optimizeWrite.enabled", True).save(path)
read = spark.read.format("io.indextables.provider.IndexTablesProvider").load(path)
both = read.where("id = 1").union(read.where("part = 'b'"))
print("ids", sorted(row.id for row in both.collect()), read.count())
engine = {"spark.indextables.read.engine": "native"}
native = spark.read.format("indextables").options(**engine).load(path)
native.createOrReplaceTempView("logs")
filtered = native.where("part = 'b'").select("id", "body")
same = native.schema == frame.schema
del native
gc.collect()
counted = spark.sql("SELECT part, count(*) FROM logs GROUP BY part").collect()
print("native", filtered.collect()[0].id, filtered.count(), same, sorted(map(tuple, counted)))
found = spark.read.format("indextables").option("query", "body:spark").load(path)
print("found", [row.id for row in found.collect()])
(row,) = spark.sql(f"CHECKPOINT INDEXTABLES '{path}'").collect()
jobs = spark.sql("DESCRIBE INDEXTABLES MERGE JOBS")
print("sql", row.status, jobs.count(), spark.sql("SELECT 5 AS five").collect()[0].five)
(merged,) = spark.sql(f"MERGE SPLITS '{path}'").collect()
frame.write.format("indextables").mode("append").save(path)
(merged_again,) = spark.sql(f"MERGE SPLITS '{path}'").collect()
print("merged", merged.status, merged_again.source_splits, merged_again.new_splits)
spark.sql(f"CREATE TABLE named USING indextables LOCATION '{path}'")
read.createOrReplaceTempView("seen")
named = spark.sql("SELECT DISTINCT id FROM named WHERE body TEXTSEARCH 'spark'").collect()
either = spark.sql("SELECT DISTINCT id FROM seen WHERE body TEXTSEARCH 'spark' OR part = 'b'").collect()
spark.sql("CREATE OR REPLACE TEMPORARY VIEW again AS SELECT id, body FROM seen WHERE body TEXTSEARCH 'hello'")
again = spark.sql("SELECT id FROM again WHERE NOT body TEXTSEARCH :q", {"q": "spark"}).collect()
print("searched", *[sorted(row.id for row in rows) for rows in (named, either, again)])
best = spark.sql(f"SELECT id FROM indextables_search('{path}', 'spark', 1, 'id')").collect()
buckets = spark.sql("SELECT indextables_histogram(id, 2) AS b FROM named GROUP BY indextables_histogram(id, 2)")
spark.sql("DROP TABLE named")
print("functions", [row.id for row in best], sorted(row.b for row in buckets.collect()))
stream = spark.readStream.format("indextables").load(path)
writer = stream.writeStream.format("indextables").option("checkpointLocation", f"{path}-checkpoint")
writer = writer.option("spark.indextables.write.optimizeWrite.enabled", True).partitionBy("part")
writer.trigger(availableNow=True).start(f"{path}-copy").awaitTermination()
print("streamed", spark.read.format("indextables").load(f"{path}-copy").count())
spark.stop()
"""


def test_connect_writes_reads_filters_searches_merges_names_and_streams(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, (tmp_path / "table").as_posix()],
        cwd=tmp_path,
        env={
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))
            },
            "XDG_CACHE_HOME": str(tmp_path / "caches"),
            # The server takes any free port, and the client asks for it: another suite may run on this machine.
            "SPARK_TESTING": "yes",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    expected = [
        "ids [1, 2] 2",
        "native 2 1 True [('a', 1), ('b', 1)]",
        "found [1]",
        "sql SUCCESS 0 5",
        "merged NO_ACTION 4 2",
        "searched [1] [1, 2] [2]",
        "functions [1] [0.0, 2.0]",
        "streamed 4",
    ]
    assert done.stdout.splitlines()[-len(expected) :] == expected, done.stderr[-3000:]

"""Tables with names in a Hive Metastore: started and used in a network of its own, because it listens on all addresses.

Run as a script, in an empty folder, within `unshare -rn`.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

PORT = 9083
_STARTUP_SECONDS = 240.0
_POLL_SECONDS = 0.2


@contextlib.contextmanager
def running_metastore(folder: Path) -> Iterator[None]:
    """A metastore with a Derby database in this folder, from the jars of PySpark."""
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.async.log.enabled": "false",
        "hive.metastore.warehouse.dir": f"file:{folder}/warehouse",
    }
    given = [part for key, value in settings.items() for part in ("--hiveconf", f"{key}={value}")]
    command = [
        "java",
        "-cp",
        str(jars),
        "org.apache.hadoop.hive.metastore.HiveMetaStore",
        "-p",
        str(PORT),
        *given,
    ]
    with (folder / "metastore.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            _wait_for_port(process)
            yield
        finally:
            process.terminate()
            process.wait()


def _wait_for_port(process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _STARTUP_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT)):
            return
        time.sleep(_POLL_SECONDS)
    raise SystemExit("the metastore did not start; see metastore.log")


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def main(folder: Path) -> None:
    import indextables.spark

    conf = {
        "spark.master": "local[1]",
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": f"thrift://127.0.0.1:{PORT}",
        "spark.sql.warehouse.dir": f"file:{folder}/warehouse",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "512m",
    }
    spark = indextables.spark.session(**conf)
    there = folder / "there"
    spark.sql(
        f"CREATE TABLE logs (id BIGINT, day STRING, body STRING) USING indextables PARTITIONED BY (day) "
        f"OPTIONS (spark.indextables.indexing.typemap.body 'text') LOCATION '{there}'"
    )
    spark.sql("INSERT INTO logs VALUES (1, 'a', 'hello hive'), (2, 'b', 'hello')")
    found = spark.sql("SELECT id FROM logs WHERE body TEXTSEARCH 'hive'").collect()
    _say("found", [row.id for row in found], spark.table("default.logs").count())
    spark.sql("CREATE TABLE managed USING indextables AS SELECT id, body FROM logs")
    _say("managed", spark.sql("SELECT count(*) AS n FROM managed").first().n)
    _say("shown", sorted(row.tableName for row in spark.sql("SHOW TABLES").collect()))
    # Another session finds the names in the metastore.
    other = indextables.spark.enable(spark.newSession())
    _say("other", sorted(row.id for row in other.sql("SELECT id FROM logs").collect()))
    for name in ("logs", "managed"):
        spark.sql(f"DROP TABLE {name}")
    left = spark.sql("SHOW TABLES").count()
    _say("dropped", left, there.is_dir(), (folder / "warehouse" / "managed" / "_transaction_log").exists())
    spark.stop()


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    here = Path(sys.argv[1])
    with running_metastore(here):
        main(here)

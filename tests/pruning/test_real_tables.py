"""Entries of tables that were written on the JVM, read with fastavro."""

import gzip
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from indextables.predicates import bind, parse_predicate
from indextables.pruning import Bounds, partition_bounds, prune_files
from indextables.schema import TableShape, from_spark_json

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
STRING_MAP = pa.map_(pa.string(), pa.string())

pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"no real tables at {FIXTURES}")


def read_table(name):
    log = FIXTURES / name / "_transaction_log"
    first = (log / f"{0:020}.json").read_bytes()
    lines = gzip.decompress(first.removeprefix(b"\x01\x01")).splitlines()
    metadata = next(action["metaData"] for action in map(json.loads, lines) if "metaData" in action)
    rows = []
    for manifest in sorted(log.glob("manifests/*.avro")):
        with manifest.open("rb") as file:
            rows += list(fastavro.reader(file))
    entries = pa.table(
        {
            column: pa.array(
                [None if row[column] is None else list(row[column].items()) for row in rows], STRING_MAP
            )
            for column in ("partitionValues", "minValues", "maxValues")
        }
    )
    return entries, from_spark_json(metadata["schemaString"]), metadata["partitionColumns"]


@pytest.mark.parametrize(
    ("name", "where", "by_partition", "by_statistics"),
    [
        ("04_partitioned", "date = '2024-01-02'", 2, 0),
        ("04_partitioned", "id = 3", 0, 2),
        ("04_partitioned", "score < 30", 0, 2),
        ("04_partitioned", "date >= '2024-01-02' AND id = 5", 1, 1),
        ("04_partitioned", "date = '2024-01-01' OR id = 5", 0, 1),
        ("01_single_write", "text = 'world'", 0, 1),
        ("01_single_write", "score > 250", 0, 0),  # a maximum of doubles may have left NaN out
        ("01_single_write", "id IS NULL", 0, 0),
    ],
)
def test_statistics_of_the_jvm_are_used(name, where, by_partition, by_statistics):
    entries, schema, partition_columns = read_table(name)
    result = prune_files(
        entries, bind(parse_predicate(where), schema), TableShape(schema, tuple(partition_columns))
    )
    assert (result.skipped_by_partition, result.skipped_by_statistics) == (by_partition, by_statistics)


def test_bounds_of_real_partition_values():
    entries, schema, partition_columns = read_table("04_partitioned")
    assert partition_bounds(entries["partitionValues"], TableShape(schema, tuple(partition_columns))) == {
        "date": Bounds("2024-01-01", "2024-01-03")
    }

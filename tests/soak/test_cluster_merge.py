"""A merge of a thousand splits on a cluster of two workers."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (pip install indextables[spark])")

from support.spark_cluster import DamagedTable, running_cluster

pytestmark = pytest.mark.soak


def test_a_thousand_splits_with_three_damaged_ones_merge_in_one_commit(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    (tmp_path / "cluster").mkdir()
    table = DamagedTable.create(tmp_path / "table", partitions=50, splits_per_partition=20)
    with running_cluster(tmp_path / "cluster") as cluster:
        (answer,) = cluster.run(["merge", str(table.path)])
    table.check_merged(answer)

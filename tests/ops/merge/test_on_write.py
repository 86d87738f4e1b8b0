"""Merge-on-write merges small splits in the background; no write fails or waits because of it."""

import random
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.ops.merge import merge_jobs, wait_for_merges
from indextables.ops.write import append
from indextables.table import create_table, load_snapshot
from support import PATIENCE_SECONDS
from support.faults import FaultStore, Moment
from support.row_tables import SCHEMA, ids, rows, split_files
from support.tables import UnreliableStore, context, memory_store, options

ON = {"mergeOnWrite.enabled": "true", "mergeOnWrite.batchCpuFraction": "0"}
AT_ONCE = {**ON, "mergeOnWrite.async.enabled": "false"}
LONG_SECONDS = 30


def new_table(path, settings):
    return IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"], options=options(settings))


def jobs_of(table):
    url = table._snapshot.context.url
    return [job for job in merge_jobs().to_pylist() if job["table_path"] == url]


@pytest.fixture(autouse=True)
def _no_job_outlives_its_test():
    yield
    wait_for_merges()


def test_nothing_is_merged_unless_it_is_switched_on(tmp_path):
    table = new_table(tmp_path / "table", {})
    table.append(rows(1))
    table.append(rows(2))
    assert table.num_files == 2
    assert jobs_of(table) == []


def test_writes_are_followed_by_a_merge_in_the_background(tmp_path):
    table = new_table(tmp_path / "table", ON)
    assert [table.append(rows(1)), table.append(rows(2))] == [1, 2]
    wait_for_merges()
    (job,) = jobs_of(table)
    assert (job["status"], job["groups"]) == ("done", 1)
    assert job["message"] == "2 splits became 1 in version 3"
    assert job["started"] <= job["finished"]
    assert table.refresh().num_files == 1
    assert ids(table) == [1, 2]


def test_a_merge_at_once_is_done_when_the_write_returns(tmp_path):
    table = new_table(tmp_path / "table", AT_ONCE)
    table.append(rows(1))
    assert table.append(rows(2)) == 2
    assert table.version == 2
    assert IndexTable(tmp_path / "table").num_files == 1


def test_an_overwrite_counts_as_a_write(tmp_path):
    table = new_table(tmp_path / "table", {})
    for number in range(2):
        table.append(rows(number, day="a"))
    writer = IndexTable(tmp_path / "table", options=options(AT_ONCE))
    writer.overwrite(rows(9, day="b"), where="day = 'b'")
    assert writer.num_files == 3
    assert table.refresh().num_files == 2


def test_a_merge_starts_when_the_number_of_small_splits_exceeds_the_threshold(tmp_path):
    """The splits of all partitions count, whether or not they can be merged with each other."""
    table = new_table(tmp_path / "table", {**AT_ONCE, "mergeOnWrite.minBatchesToTrigger": "3"})
    for number, day in enumerate("aab"):
        table.append(rows(number, day=day))
    assert table.refresh().num_files == 3
    assert jobs_of(table) == []
    table.append(rows(3, day="c"))
    assert table.refresh().num_files == 3
    assert jobs_of(table)[0]["groups"] == 1


@pytest.mark.parametrize(("cpus", "threshold"), [(1, 1), (11, 1), (12, 2), (24, 4), (100, 16)])
def test_the_threshold_is_a_batch_of_the_processors_that_merges_may_use(monkeypatch, cpus, threshold):
    monkeypatch.setattr("os.cpu_count", lambda: cpus)
    settings = {"mergeOnWrite.enabled": "true", "mergeOnWrite.async.enabled": "false"}
    store = memory_store()
    table = create_table(context(store, settings), SCHEMA, (), {})
    for number in range(threshold):
        table = append(table, rows(number)).snapshot
    assert load_snapshot(context(store)).num_files == threshold
    append(table, rows(threshold))
    assert load_snapshot(context(store)).num_files == 1


def test_splits_that_have_reached_the_target_size_are_not_counted(tmp_path):
    settings = {**AT_ONCE, "mergeOnWrite.minBatchesToTrigger": "2", "mergeOnWrite.targetSize": "1M"}
    table = new_table(tmp_path / "table", settings)
    large = {"body": pa.array([random.Random(n).randbytes(60).hex() for n in range(20_000)])}
    data = rows(*range(20_000))
    index = data.schema.get_field_index("body")
    table.append(data.set_column(index, "body", large["body"]))
    assert table.total_bytes > 1024 * 1024
    for number in range(2):
        table.append(rows(number))
    assert table.refresh().num_files == 3
    table.append(rows(2))
    assert table.refresh().num_files == 2


def test_a_large_split_is_not_rewritten_after_every_small_write(tmp_path):
    table = new_table(tmp_path / "table", AT_ONCE)
    table.append(rows(*range(20_000)))
    table.append(rows(-1))
    assert table.refresh().num_files == 2
    assert jobs_of(table) == []


def test_a_merge_that_fails_does_not_fail_the_write(caplog):
    inner = memory_store()
    table = create_table(context(inner, AT_ONCE), SCHEMA, (), {})
    append(table, rows(1))
    uploads = []

    def fails(operation, key):
        if operation == "put" and key.endswith(".split"):
            uploads.append(key)
        return Moment.BEFORE if len(uploads) > 1 else None

    store = UnreliableStore(inner, fails)
    assert append(load_snapshot(context(store, AT_ONCE)), rows(2)).version == 2
    (job,) = [job for job in merge_jobs().to_pylist() if job["table_path"] == inner.url]
    assert job["status"] == "failed"
    assert "failed on purpose" in job["message"]
    assert "merge-on-write failed" in caplog.text
    assert load_snapshot(context(inner)).num_files == 2


def test_one_table_is_merged_by_one_job_at_a_time():
    class Slow(FaultStore):
        """A store that blocks the uploads of a merge until the test releases them."""

        may_go_on = threading.Event()
        reached = threading.Event()

        def put(self, key, data):
            if threading.current_thread().name.startswith("indextables-task"):
                self.reached.set()
                assert self.may_go_on.wait(LONG_SECONDS)
            super().put(key, data)

    store = Slow(memory_store())
    table = append(create_table(context(store, ON), SCHEMA, (), {}), rows(1)).snapshot
    wait_for_merges()
    table = append(table, rows(2)).snapshot
    assert store.reached.wait(LONG_SECONDS)
    for number in (3, 4):
        table = append(table, rows(number)).snapshot
    jobs = [job for job in merge_jobs().to_pylist() if job["table_path"] == store.url]
    assert [job["status"] for job in jobs] == ["running"]
    store.may_go_on.set()
    wait_for_merges()
    # The job planned again at its end, and found the splits of the other writes.
    assert load_snapshot(context(store)).num_files == 1
    assert len([job for job in merge_jobs().to_pylist() if job["table_path"] == store.url]) == 1


# --- the end of the process ----------------------------------------------------------------------------

WRITING = """
import sys
from indextables import IndexTable
from support.row_tables import rows
options = {"spark.indextables.mergeOnWrite.enabled": "true",
           "spark.indextables.mergeOnWrite.batchCpuFraction": "0",
           "spark.indextables.mergeOnWrite.shutdownTimeoutMs": sys.argv[2]}
table = IndexTable(sys.argv[1], options=options)
for day in "ab":
    for number in range(3):
        table.append(rows(number, day=day))
"""


@pytest.mark.parametrize("patience_ms", [60_000, 0])
def test_an_exiting_process_lets_its_merges_finish_or_rolls_them_back(request, tmp_path, patience_ms):
    path = tmp_path / "table"
    IndexTable.create(path, SCHEMA, partition_by=["day"])
    finished = subprocess.run(
        [sys.executable, "-c", WRITING, str(path), str(patience_ms)],
        cwd=request.config.rootpath / "tests",
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    table = IndexTable(path)
    assert ids(table) == [0, 0, 1, 1, 2, 2]
    if patience_ms:
        assert table.num_files < 6
        assert table.history()["operation"].to_pylist()[0] == "MERGE"
    added = {
        name
        for version in range(table.version + 1)
        for name in IndexTable(path, version=version).files()["path"].to_pylist()
    }
    assert set(split_files(path)) == added

"""The merges of other processes, such as the workers of Spark, are listed as long as and after they run."""

import subprocess
import sys

import pytest

from indextables import IndexTable
from indextables.ops.merge import job_records, merge_jobs
from indextables.ops.merge.job_records import JobRecord, RecordLock, read_records
from support import PATIENCE_SECONDS
from support.row_tables import SCHEMA, ids, rows

# Merges after its second write, and stops in the middle of the merge until a line arrives.
MERGING = """
import sys
import indextables.ops.merge.jobs as jobs
from indextables import IndexTable
from support.row_tables import rows
merge_splits = jobs.merge_splits
def merge_after_a_line(*arguments):
    print("merging", flush=True)
    sys.stdin.readline()
    return merge_splits(*arguments)
jobs.merge_splits = merge_after_a_line
options = {"spark.indextables.mergeOnWrite.enabled": "true",
           "spark.indextables.mergeOnWrite.async.enabled": "false",
           "spark.indextables.mergeOnWrite.batchCpuFraction": "0"}
table = IndexTable(sys.argv[1], options=options)
for number in range(2):
    table.append(rows(number))
"""


@pytest.fixture(autouse=True)
def _own_records(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.fixture
def merging(request, tmp_path):
    """A process that is in the middle of a merge."""
    IndexTable.create(tmp_path / "table", SCHEMA, partition_by=["day"])
    process = subprocess.Popen(
        [sys.executable, "-c", MERGING, str(tmp_path / "table")],
        cwd=request.config.rootpath / "tests",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "merging\n"
        yield process
        process.kill()


def listed(tmp_path) -> list[dict]:
    url = f"file://{tmp_path / 'table'}"
    return [job for job in merge_jobs().to_pylist() if job["table_path"] == url]


def test_a_merge_of_another_process_is_listed_while_it_runs_and_when_it_is_done(merging, tmp_path):
    (job,) = listed(tmp_path)
    assert (job["status"], job["groups"], job["finished"]) == ("running", 1, None)
    _, problems = merging.communicate("go on\n", timeout=PATIENCE_SECONDS)
    assert (merging.returncode, problems) == (0, None)
    (done,) = listed(tmp_path)
    assert (done["job_id"], done["status"]) == (job["job_id"], "done")
    assert done["message"] == "2 splits became 1 in version 3"
    assert done["started"] <= done["finished"]


def test_a_merge_whose_process_was_killed_is_listed_as_cancelled(merging, tmp_path):
    merging.kill()
    merging.wait(timeout=PATIENCE_SECONDS)
    (job,) = listed(tmp_path)
    assert (job["status"], job["finished"]) == ("cancelled", None)
    assert "its process ended first" in job["message"]
    assert ids(IndexTable(tmp_path / "table")) == [0, 1]


def test_a_write_succeeds_and_merges_where_no_record_can_be_written(tmp_path):
    (tmp_path / "caches").write_text("not a directory")
    options = {
        "spark.indextables.mergeOnWrite.enabled": "true",
        "spark.indextables.mergeOnWrite.async.enabled": "false",
        "spark.indextables.mergeOnWrite.batchCpuFraction": "0",
    }
    table = IndexTable.create(tmp_path / "table", SCHEMA, partition_by=["day"], options=options)
    for number in range(2):
        table.append(rows(number))
    assert table.refresh().num_files == 1
    assert [job["status"] for job in listed(tmp_path)] == ["done"]


def record(number: int, **fields) -> JobRecord:
    values = {"table_path": "t", "job_id": f"job-{number:03}", "status": "running", "started_ms": number}
    return JobRecord(**{**values, "finished_ms": None, "groups": 1, "message": "", **fields})


def test_only_the_newest_records_stay(monkeypatch):
    monkeypatch.setattr(job_records, "MAX_RECORDS", 5)
    running = RecordLock("job-000")
    running.write(record(0))
    for number in range(1, 9):
        lock = RecordLock(f"job-{number:03}")
        lock.write(record(number))
        lock.release(record(number, status="done"))
    found = {each.job_id: each.status for each in read_records()}
    assert found["job-000"] == "running"
    assert [job_id for job_id, status in found.items() if status == "done"] == [
        f"job-{number:03}" for number in range(5, 9)
    ]
    running.release(record(0, status="done"))


def test_unreadable_records_and_those_of_other_machines_are_left_out(tmp_path):
    lock = RecordLock("job-001")
    lock.write(record(1, host="elsewhere"))
    (tmp_path / "caches/indextables-merge-jobs/broken.json").write_text("{")
    assert read_records() == []
    lock.release(record(1, host="elsewhere"))

"""Writers, removers, checkpointers and readers on one table, in separate processes, for a given time.

Every process records its acknowledged commits. In the end, the table must hold exactly these.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import AddAction, IndexTable

PROCESSES = 6
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.soak
def test_table_holds_exactly_what_many_processes_committed(tmp_path, soak_minutes, soak_report):
    path = tmp_path / "table"
    IndexTable.create(str(path), SCHEMA)
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, str(path), str(number), str(soak_minutes)], stdout=subprocess.PIPE
        )
        for number in range(PROCESSES)
    ]
    reports = [json.loads(worker.communicate()[0]) for worker in workers]
    assert all(worker.returncode == 0 for worker in workers)

    table = IndexTable(str(path), options={"spark.indextables.transaction.cache.enabled": "false"})
    expected = {path: size for report in reports for path, size in report["live"].items()}
    files = table.files(columns=["path", "size"])
    assert dict(zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True)) == expected
    assert (table.num_files, table.total_bytes) == (len(expected), sum(expected.values()))
    history = table.history()
    assert history["version"].to_pylist() == list(range(table.version, -1, -1))
    commit_ids = history["commit_id"].drop_null().to_pylist()
    assert len(set(commit_ids)) == len(commit_ids) == table.version
    counts = {key: sum(report["counts"].get(key, 0) for report in reports) for key in reports[0]["counts"]}
    assert counts["adds"]
    assert table.version
    soak_report["operations"] += sum(counts.values())
    soak_report["commits"] += table.version


def work(path: str, number: int, minutes: float) -> None:
    """One process: random operations for some minutes, then a report of its committed files."""
    deadline = time.time() + minutes * 60
    chance = random.Random(number)
    table = IndexTable(path)
    live: dict[str, int] = {}
    counts = {"adds": 0, "removes": 0, "checkpoints": 0, "compactions": 0, "reads": 0}
    while time.time() < deadline:
        operation = chance.choices(list(counts), weights=[60, 25, 5, 2, 8])[0]
        counts[operation] += 1
        if operation == "adds":
            name, size = f"part-{number}-{counts['adds']:08d}.split", chance.randrange(1, 10_000)
            add = AddAction(path=name, partition_values={}, size=size, modification_time=1, data_change=True)
            table.commit(adds=[add])
            live[name] = size
        elif operation == "removes" and live:
            name = chance.choice(sorted(live))
            table.commit(removes=[name])
            del live[name]
        elif operation == "checkpoints":
            table.checkpoint()
        elif operation == "compactions":
            table.compact()
        else:
            mine = {
                path
                for path in IndexTable(path).files()["path"].to_pylist()
                if path.startswith(f"part-{number}-")
            }
            assert mine == set(live)
    sys.stdout.write(json.dumps({"live": live, "counts": counts}))


if __name__ == "__main__":
    work(str(Path(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3]))

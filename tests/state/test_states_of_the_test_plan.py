"""Scenarios of the specification's test plan that need real processes, real disks or counted memory."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from indextables import IndexTable
from indextables.errors import VersionNotFoundError
from indextables.state import manifest_writer
from support.racing import race
from support.state_tables import split, state_of

TESTS = Path(__file__).parents[1]
SCHEMA = pa.schema([("id", pa.int64())])
HOUR = 3600

WRITING = """
import sys
import pyarrow as pa
from indextables.state.manifest_writer import ManifestWriter
from support.manifest_samples import numbered_entries

class Sink:
    def write(self, data):
        pass

entries = numbered_entries(1000)
pool = pa.default_memory_pool()
before = pool.bytes_allocated()
with ManifestWriter(Sink(), entries.schema) as writer:
    for _ in range(int(sys.argv[1]) // len(entries)):
        writer.write(entries)
print(pool.max_memory() - before)
"""

CHECKPOINTING = """
from indextables import AddAction, IndexTable

table = IndexTable(task["path"], options={"spark.indextables.checkpoint.interval": "1"})

def split(commit):
    return AddAction(path=f"{task['number']}-{commit}.split", partition_values={}, size=1,
                     modification_time=0, data_change=True)

ready()
done([table.commit(adds=[split(commit)]) for commit in range(task["commits"])])
"""


def peak_bytes_of_writing(entries: int) -> int:
    """The most memory that Arrow holds at once while a manifest with this many entries is written."""
    finished = subprocess.run(
        [sys.executable, "-c", WRITING, str(entries)],
        env=os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{os.pathsep.join(sys.path)}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return int(finished.stdout)


def test_a_manifest_of_more_than_100000_entries_is_written_in_the_memory_of_a_small_one():
    small, large = peak_bytes_of_writing(50_000), peak_bytes_of_writing(330_000)
    assert large < 1.5 * small
    assert large < 32 << 20


def test_a_checkpoint_encodes_a_large_manifest_block_by_block(monkeypatch, tmp_path):
    monkeypatch.setattr(manifest_writer, "BLOCK_ROWS", 100)
    encode, encoded_at_once = manifest_writer._Layout.encode, []

    def recorded(self, entries: pa.Table) -> pa.BinaryArray:
        encoded_at_once.append(len(entries))
        return encode(self, entries)

    monkeypatch.setattr(manifest_writer._Layout, "encode", recorded)
    table = IndexTable.create(str(tmp_path / "table"), SCHEMA)
    table.commit(adds=[split(number) for number in range(1050)])
    encoded_at_once.clear()
    table.checkpoint()
    assert sum(encoded_at_once) == 1050
    assert max(encoded_at_once) <= 100
    assert [info.num_entries for info in state_of(table).manifests] == [1050]
    assert IndexTable(str(tmp_path / "table")).num_files == 1050


def test_processes_that_write_states_at_the_same_time_lose_no_commit(tmp_path):
    path = str(tmp_path / "table")
    IndexTable.create(path, SCHEMA)
    reported = race(CHECKPOINTING, 4, path=path, commits=5)
    assert sorted(version for versions in reported for version in versions) == list(range(1, 21))
    newest = IndexTable(path)
    expected = {f"{number}-{commit}.split" for number in range(4) for commit in range(5)}
    assert set(newest.files()["path"].to_pylist()) == expected
    # Every state that one of them published has exactly the files of its version.
    states = sorted(Path(path, "_transaction_log").glob("state-v*/_manifest.avro"))
    assert states
    for state in states:
        version = int(state.parent.name.removeprefix("state-v"))
        at_version = IndexTable(path, version=version)
        assert at_version.num_files == version
        assert state_of(at_version).num_files == version
    newest.checkpoint()
    assert IndexTable(path).num_files == 20


def table_with_old_states(path: Path, ages_hours: Mapping[int, float]) -> IndexTable:
    """A table on disk with a state for each version up to the last of these, and files as old as given."""
    options = {
        "spark.indextables.checkpoint.interval": "1",
        "spark.indextables.checkpoint.retention": "0",
        "spark.indextables.state.retention.versions": "0",
        "spark.indextables.state.retention.hours": "48",
        "spark.indextables.purge.txLogRetentionHours": "48",
    }
    table = IndexTable.create(str(path), SCHEMA, options=options)
    for number in range(1, max(ages_hours) + 1):
        table.commit(adds=[replace(split(number), partition_values={})])
    log = path / "_transaction_log"
    for version, hours in ages_hours.items():
        moment = (log / "_last_checkpoint").stat().st_mtime - hours * HOUR
        for file in (log / f"{version:020d}.json", *log.glob(f"state-v{version:020d}/*")):
            os.utime(file, (moment, moment))
    return table


def state_folders(path: Path) -> list[int]:
    folders = Path(path, "_transaction_log").glob("state-v*")
    return sorted(int(folder.name.removeprefix("state-v")) for folder in folders)


def test_on_disk_states_within_the_retention_are_kept_and_older_ones_go_with_their_folders(tmp_path):
    path = tmp_path / "table"
    table = table_with_old_states(path, {0: 200, 1: 100, 2: 72, 3: 49, 4: 24, 5: 1})
    assert state_folders(path) == [1, 2, 3, 4, 5]
    table.commit(adds=[replace(split(6), partition_values={})])
    assert state_folders(path) == [4, 5, 6]
    assert [IndexTable(str(path), version=version).num_files for version in (4, 5, 6)] == [4, 5, 6]
    with pytest.raises(VersionNotFoundError):
        IndexTable(str(path), version=2)

"""Tables written on the JVM with a lost or damaged log: REPAIR recovers what it can, and reports the rest."""

import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

from indextables import IndexTable, Status, errors, repair_table

FIXTURES = Path(__file__).parents[3] / "../shared/fixtures"

pytestmark = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the tables of the reference implementation are not at ../shared/fixtures"
)

EXPECTED = json.loads((FIXTURES / "expected.json").read_text()) if FIXTURES.is_dir() else {}

# Removed splits of these tables still exist. Without a log, REPAIR cannot know that they were removed.
WITH_REMOVED_SPLITS = {"12_partition_drop", "14_after_merge"}


@pytest.fixture(params=sorted(EXPECTED))
def name(request):
    return request.param


@pytest.fixture
def path(name, tmp_path):
    return shutil.copytree(FIXTURES / name, tmp_path / "table")


def log_of(path):
    return path / "_transaction_log"


def test_whole_table_needs_no_repair(path):
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert repair_table(path, swap=True).status is Status.NO_ACTION
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_damaged_hint_costs_nothing(path, name):
    expected, before = EXPECTED[name], IndexTable(path)
    (log_of(path) / "_last_checkpoint").write_text("{")
    assert before.num_files == expected["numFiles"]
    report = repair_table(path, swap=True)
    assert (report.status, report.version) == (Status.SUCCESS, expected["version"] + 1)
    table = IndexTable(path)
    assert (table.schema, table.metadata.id) == (before.schema, before.metadata.id)
    assert sorted(table.files()["path"].to_pylist()) == sorted(expected["paths"])
    assert pc.sum(table.to_arrow()["id"]).as_py() == expected["idSum"]
    assert table.fsck(deep=True).is_clean


def test_damaged_newest_state_is_salvaged_from_its_manifests(path, name):
    expected = EXPECTED[name]
    state = max(log_of(path).glob("state-v*/_manifest.avro"))
    state.write_bytes(state.read_bytes()[:100])
    report = repair_table(path, swap=True)
    assert report.status is Status.PARTIAL
    table = IndexTable(path)
    assert set(table.files()["path"].to_pylist()) >= set(expected["paths"])
    assert table.fsck(deep=True).is_clean
    # The log describes a split of the JVM in more detail than the split itself.
    assert table.partition_columns == expected["partitionColumns"]
    assert table.schema.names == expected["columns"]
    refs = set(table.files()["docMappingRef"].to_pylist())
    assert refs == set(expected["docMappingRefs"])


def test_missing_log(path, name):
    expected, before = EXPECTED[name], IndexTable(path)
    schema = before.schema
    shutil.rmtree(log_of(path))
    with pytest.raises(errors.TableNotFoundError):
        IndexTable(path)
    report = repair_table(path)
    table = IndexTable(path)
    assert report.status is Status.PARTIAL
    assert set(table.files()["path"].to_pylist()) >= set(expected["paths"])
    if name not in WITH_REMOVED_SPLITS:
        assert table.num_rows == expected["rows"]
        assert pc.sum(table.to_arrow()["id"]).as_py() == expected["idSum"]
    assert sorted(table.schema.names) == sorted(schema.names)
    assert table.partition_columns == expected["partitionColumns"]
    assert table.fsck(deep=True).is_clean
    undecided = " ".join(report.undecided)
    assert "do not record the schema" in undecided
    assert ("merges wrote" in undecided) == (name == "14_after_merge")
    assert ("come from paths" in undecided) == bool(expected["partitionColumns"])
    # The new log does not take the table away from the JVM.
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (4, 4)
    table = IndexTable(path, options={"spark.indextables.protocol.convertJvmTables": "true"})
    version = table.append(table.to_arrow().slice(0, 1))
    assert IndexTable(path).version == version

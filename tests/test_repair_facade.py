"""Repair as a Python user calls it, with a table that is open and with one that cannot be opened."""

import shutil
from pathlib import Path

import pytest

from indextables import IndexTable, Status, errors, repair_table
from indextables.log.paths import version_key
from support.row_tables import SCHEMA, ids, rows


@pytest.fixture
def table(tmp_path):
    table = IndexTable.create(str(tmp_path / "table"), SCHEMA, partition_by=["day"])
    for number, day in enumerate(("A/A", None, "%", "é")):
        table.append(rows(number, day=day))
    return table


@pytest.fixture
def path(table, tmp_path):
    path = tmp_path / "table"
    (path / version_key(3)).unlink()
    return path


def test_open_table_is_repaired_to_another_place(path, tmp_path):
    table = IndexTable(path)
    assert ids(table) == [0, 1]
    report = table.repair(str(tmp_path / "repaired"))
    assert (report.status, report.num_rows) == (Status.PARTIAL, 4)
    assert ids(table) == [0, 1]
    repaired = IndexTable(report.location)
    assert ids(repaired) == [0, 1, 2, 3]
    assert ids(repaired, where="day IS NULL") == [1]
    assert ids(repaired, where="day = 'A/A'") == [0]
    assert repaired.metadata.id == table.metadata.id


def test_open_table_shows_its_new_log_after_a_swap(path):
    table = IndexTable(path)
    report = table.repair(swap=True)
    assert (table.version, ids(table)) == (report.version, [0, 1, 2, 3])
    assert table.append(rows(9)) == report.version + 1


def test_table_that_cannot_be_opened(path, tmp_path):
    shutil.rmtree(path / "_transaction_log")
    with pytest.raises(errors.TableNotFoundError):
        IndexTable(path)
    assert repair_table(path, dry_run=True).num_files == 4
    assert repair_table(str(path), str(tmp_path / "copy")).version == 0
    assert ids(IndexTable(tmp_path / "copy")) == [0, 1, 2, 3]
    assert not (path / "_transaction_log").exists()


def test_one_thing_at_a_time(path):
    with pytest.raises(errors.InvalidOptionError, match="choose one"):
        repair_table(path, swap=True, dry_run=True)
    with pytest.raises(errors.InvalidOptionError, match="would take the place"):
        repair_table(path, str(path))
    assert len(list(Path(path, "_transaction_log").glob("*.json"))) == 4

"""Garbage collection in the log deletes only files that are certainly unreferenced."""

import os
import time
from pathlib import Path

import pytest

from indextables import errors
from support.state_tables import TableBuilder, numbered, paths, split

TWO_HOURS = 2 * 3600


@pytest.fixture
def table_with_orphans(tmp_path) -> TableBuilder:
    """A table whose older states were cleaned up, so their manifests are orphans."""
    tables = TableBuilder(str(tmp_path / "table"))
    table = tables.create()
    for number in range(3):
        table.commit(adds=[split(number)])
        table.checkpoint()
    table.compact()
    for version in (1, 2, 3):
        (log(tables) / f"state-v{version:020d}/_manifest.avro").unlink()
    return tables


def log(tables: TableBuilder) -> Path:
    return Path(tables.path, "_transaction_log")


def manifests(tables: TableBuilder) -> set[str]:
    return {file.name for file in log(tables).glob("manifests/*.avro")}


def make_old(tables: TableBuilder) -> None:
    then = time.time() - TWO_HOURS
    for file in log(tables).glob("manifests/*.avro"):
        os.utime(file, (then, then))


def test_orphans_that_are_old_enough_are_deleted(table_with_orphans):
    make_old(table_with_orphans)
    before = manifests(table_with_orphans)
    report = table_with_orphans.open().collect_garbage(dry_run=False)
    assert len(report.paths) == 3
    assert len(before) - len(manifests(table_with_orphans)) == 3
    assert paths(table_with_orphans.open()) == numbered(range(3))


def test_a_dry_run_lists_exactly_what_the_real_run_deletes(table_with_orphans):
    make_old(table_with_orphans)
    before = manifests(table_with_orphans)
    dry = table_with_orphans.open().collect_garbage()
    assert manifests(table_with_orphans) == before
    assert dry.paths == table_with_orphans.open().collect_garbage(dry_run=False).paths


def test_young_manifests_are_protected_whatever_the_setting_says(table_with_orphans):
    table = table_with_orphans.open(state__gc__minManifestAgeHours="0")
    assert table.collect_garbage(dry_run=False).paths == ()


def test_a_state_that_cannot_be_read_stops_the_collection(table_with_orphans):
    make_old(table_with_orphans)
    table = table_with_orphans.open()
    damaged = log(table_with_orphans) / "state-v00000000000000000002"
    damaged.mkdir(exist_ok=True)
    (damaged / "_manifest.avro").write_bytes(b"Obj\x01 nonsense")
    before = manifests(table_with_orphans)
    with pytest.raises(errors.LogCorruptedError, match="nothing was deleted"):
        table.collect_garbage(dry_run=False)
    assert manifests(table_with_orphans) == before


def test_manifests_of_every_state_that_is_left_are_kept(tmp_path):
    tables = TableBuilder(str(tmp_path / "table"))
    table = tables.create()
    for number in range(3):
        table.commit(adds=[split(number)])
        table.checkpoint()
    table.compact()
    make_old(tables)
    assert table.collect_garbage(dry_run=False).paths == ()
    for version in range(1, 4):
        assert paths(tables.at(version)) == numbered(range(version))


@pytest.mark.parametrize(
    ("form", "parts_pattern", "list_of_parts"),
    [
        ("json", "*.checkpoint.*.*.json", "00000000000000000001.checkpoint.json"),
        ("parquet", "_checkpoints/*.parquet", "_checkpoints/00000000000000000001.checkpoint.json"),
    ],
)
def test_parts_of_a_checkpoint_that_was_never_finished_are_collected(
    tmp_path, form, parts_pattern, list_of_parts
):
    tables = TableBuilder(
        str(tmp_path / "table"), options={"state.format": form, "checkpoint.maxFileSize": "1K"}
    )
    table = tables.create()
    table.commit(adds=[split(n) for n in range(20)])
    table.checkpoint()
    parts = sorted(log(tables).glob(parts_pattern))
    assert len(parts) > 1
    then = time.time() - TWO_HOURS
    for part in parts:
        os.utime(part, (then, then))
    assert table.collect_garbage(dry_run=False).paths == ()
    (log(tables) / list_of_parts).unlink()
    (log(tables) / "_last_checkpoint").unlink()
    assert len(tables.open().collect_garbage(dry_run=False).paths) == len(parts)
    assert paths(tables.open()) == numbered(range(20))

"""Checkpoints of tables with an older protocol, with and without permission to raise it."""

import pytest

from indextables.log.segment import BaseFormat, list_log, read_hint
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.write import commit_files
from indextables.storage import ObjectStore
from indextables.table import load_snapshot
from support.tables import (
    add,
    after,
    append,
    context,
    jvm_table,
    live,
    memory_store,
    new_table,
    write_version,
)

KEEP = {"protocol.autoUpgrade": "false"}


def table_of_protocol(version: int) -> ObjectStore:
    """A table as a release of this protocol version left it, with two files."""
    store = memory_store()
    jvm_table(store, "a", "b", protocol=version)
    return store


def formats(store: ObjectStore) -> set[BaseFormat]:
    return {base.format for base in list_log(store).bases_newest_first()}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("operation", [write_checkpoint, compact])
def test_older_table_keeps_its_protocol_if_it_must_not_be_upgraded(version, operation):
    store = table_of_protocol(version)
    report = operation(load_snapshot(context(store, KEEP)))
    assert (report.new_format, report.num_files) == ("json", 2)
    assert formats(store) == {BaseFormat.JSON}
    again = load_snapshot(context(store))
    assert (again.protocol.min_reader_version, again.protocol.min_writer_version) == (version, version)
    assert read_hint(store).protocol_version == version
    assert set(live(again)) == {"a", "b"}


def test_automatic_checkpoint_keeps_the_protocol_too():
    store = table_of_protocol(3)
    settings = KEEP | {"checkpoint.enabled": "true", "checkpoint.interval": "1"}
    commit_files(load_snapshot(context(store, settings)), [], ["a"])
    assert formats(store) == {BaseFormat.JSON}
    assert load_snapshot(context(store)).protocol.min_reader_version == 3


def test_older_table_is_upgraded_by_default():
    store = table_of_protocol(3)
    assert write_checkpoint(load_snapshot(context(store))).new_format == "avro-state"
    assert load_snapshot(context(store)).protocol.min_reader_version == 4


def test_current_table_gets_avro_checkpoints_whatever_the_setting():
    store = memory_store()
    table = after(new_table(store, KEEP), append("a"))
    assert write_checkpoint(table).new_format == "avro-state"


@pytest.mark.parametrize(("version", "new_format"), [(2, "json"), (3, "json-multipart")])
def test_checkpoint_in_parts_needs_protocol_3(version, new_format):
    store = table_of_protocol(version)
    write_version(store, 3, *(add(f"p{number}") for number in range(50)))
    report = write_checkpoint(load_snapshot(context(store, KEEP | {"checkpoint.maxFileSize": "1K"})))
    assert (report.new_format, report.num_files) == (new_format, 52)


@pytest.mark.parametrize(("version", "has_parts"), [(2, False), (3, True)])
def test_parquet_checkpoint_in_parts_needs_protocol_3(version, has_parts):
    store = table_of_protocol(version)
    write_version(store, 3, *(add(f"p{number}") for number in range(50)))
    settings = KEEP | {"state.format": "parquet", "checkpoint.maxFileSize": "1K"}
    report = write_checkpoint(load_snapshot(context(store, settings)))
    assert (report.new_format, report.num_files) == ("parquet", 52)
    hint = read_hint(store)
    assert hint is not None
    assert ((hint.parts or 1) > 1) == has_parts

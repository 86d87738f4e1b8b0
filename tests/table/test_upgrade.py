"""Tables of older protocol versions: upgrades to Avro states, and downgrades to older formats."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from indextables.log.paths import state_dir
from indextables.log.version_file import decompress
from indextables.ops.write import run
from indextables.schema import to_spark_json
from indextables.table import Operation, load_snapshot
from indextables.table.intent import Append
from support.state_tables import SCHEMA, TableBuilder, numbered, paths, split, state_of
from support.tables import CONVERT

MAPPING = '[{"name":"id","type":"i64"}]'


def write_lines(path: Path, *actions: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def add(number: int, **more) -> dict:
    return {
        "add": {
            "path": f"part-{number:05d}.split",
            "partitionValues": {"day": str(number)},
            "size": 100 + number,
            "modificationTime": 1_696_000_000_000,
            "dataChange": True,
            "numRecords": 10,
            "minValues": {"id": "1"},
            "maxValues": {"id": "9"},
            **more,
        }
    }


PROTOCOL_V1 = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA = {
    "metaData": {
        "id": "a-table",
        "name": None,
        "description": None,
        "format": {"provider": "indextables", "options": {}},
        "schemaString": to_spark_json(SCHEMA),
        "partitionColumns": ["day"],
        "configuration": {"kept": "yes"},
        "createdTime": 1_696_000_000_000,
    }
}


@pytest.fixture
def tables(tmp_path) -> TableBuilder:
    """A version 1 table: plain JSON lines, doc mappings inline, no checkpoint."""
    log = tmp_path / "table" / "_transaction_log"
    write_lines(log / f"{0:020d}.json", PROTOCOL_V1, METADATA)
    write_lines(
        log / f"{1:020d}.json",
        add(1, docMappingJson=MAPPING, tags={"a": "b"}),
        add(2, docMappingJson=MAPPING),
    )
    write_lines(log / f"{2:020d}.json", add(3, hotcacheStartOffset=5, hotcacheLength=6, timeRangeStart="x"))
    write_lines(log / f"{3:020d}.json", {"remove": {"path": "part-00002.split", "dataChange": True}})
    return TableBuilder(str(tmp_path / "table"), ("day",), CONVERT)


def log_of(tables: TableBuilder) -> Path:
    return Path(tables.path, "_transaction_log")


def check_content(tables: TableBuilder) -> None:
    table = tables.open()
    assert table.version == 3
    assert paths(table) == numbered([1, 3])
    assert table.metadata.configuration["kept"] == "yes"
    files = {row["path"]: row for row in table.files().to_pylist()}
    assert files["part-00001.split"]["tags"] == [("a", "b")]
    assert dict(files["part-00001.split"]["partitionValues"]) == {"day": "1"}
    assert dict(files["part-00001.split"]["minValues"]) == {"id": "1"}
    assert files["part-00003.split"]["hotcacheLength"] == 6
    assert files["part-00003.split"]["timeRangeStart"] == "x"


def test_a_table_without_a_checkpoint_is_read_as_it_is(tables):
    check_content(tables)
    assert tables.open().protocol.min_reader_version == 1


@pytest.mark.parametrize("legacy", ["json", "multi-part json", "parquet", "version files only"])
def test_a_checkpoint_makes_an_avro_state_of_any_older_format(tables, legacy):
    if legacy != "version files only":
        more = {"state__format": legacy.removeprefix("multi-part ")}
        if legacy == "multi-part json":
            more["checkpoint__maxFileSize"] = "1K"
        tables.open(**more).checkpoint()
        for version in range(4):
            (log_of(tables) / f"{version:020d}.json").unlink()
    check_content(tables)

    report = tables.open().checkpoint()
    assert report.new_format == "avro-state"
    check_content(tables)
    state = state_of(tables.open())
    assert (state.num_files, state.total_bytes) == (2, 204)
    assert list(state.doc_mappings.values()) == [MAPPING]
    files = tables.open().files()
    assert files["docMappingJson"].null_count == 2
    assert files["docMappingRef"].drop_null().to_pylist() == list(state.doc_mappings)


OLDER_FORMATS = {
    "json": {"state__format": "json"},
    "multi-part json": {"state__format": "json", "checkpoint__maxFileSize": "1K"},
    "parquet": {"state__format": "parquet"},
}


STATISTICS = [
    "path",
    "numRecords",
    "minValues",
    "maxValues",
    "partitionValues",
    "size",
    "tags",
    "timeRangeStart",
]


@pytest.mark.parametrize("legacy", [*OLDER_FORMATS, "version files only"])
def test_an_upgrade_changes_no_statistics(tables, legacy):
    if legacy in OLDER_FORMATS:
        tables.open(**OLDER_FORMATS[legacy]).checkpoint()
    before = tables.open().files(columns=STATISTICS).sort_by("path")
    assert before["minValues"].null_count == before["maxValues"].null_count == 0
    tables.open().checkpoint()
    assert format_of(tables.open()) == "avro-state"
    assert tables.open().files(columns=STATISTICS).sort_by("path").equals(before)
    assert tables.open().select_files("id > 9").entries.num_rows == 0
    assert tables.open().select_files("id = 5").entries.num_rows == 2


def format_of(table) -> str:
    return dict(zip(*table.describe_state().to_pydict().values(), strict=True))["format"]


@pytest.mark.parametrize("older", OLDER_FORMATS)
def test_downgrade_to_an_older_format_loses_nothing(tables, older):
    before = tables.open()
    before.checkpoint()
    table = tables.open(**OLDER_FORMATS[older])
    report = table.checkpoint()
    name = older.removeprefix("multi-part ")
    in_hint = "json-multipart" if older == "multi-part json" else name
    assert (report.version, report.previous_format, report.new_format) == (3, "avro-state", in_hint)
    # New readers and readers that have the table open both read the base that the hint names.
    assert {format_of(each) for each in (tables.open(), table, before.refresh())} == {name}
    check_content(tables)
    for file in log_of(tables).rglob("*.avro"):
        file.unlink()
    for version in range(4):
        (log_of(tables) / f"{version:020d}.json").unlink()
    check_content(tables)


@pytest.mark.parametrize("older", OLDER_FORMATS)
def test_state_of_the_same_version_is_not_read_after_a_downgrade(tables, older):
    tables.open().checkpoint()
    tables.open(**OLDER_FORMATS[older]).checkpoint()
    for file in log_of(tables).rglob("*.avro"):
        file.write_bytes(b"the reason for the way back")
    check_content(tables)
    table = tables.open(**OLDER_FORMATS[older])
    table.commit(adds=[split(4, day="4")])
    assert table.checkpoint().previous_format == ("json-multipart" if older.startswith("multi") else older)
    assert tables.open().num_files == 3


@pytest.mark.parametrize("older", OLDER_FORMATS)
def test_state_of_the_same_version_replaces_a_damaged_checkpoint(tables, older):
    tables.open().checkpoint()
    tables.open(**OLDER_FORMATS[older]).checkpoint()
    for file in log_of(tables).rglob("*.checkpoint*"):
        file.write_bytes(b"damaged")
    assert format_of(tables.open()) == "avro-state"
    check_content(tables)


def test_upgrade_after_a_downgrade_reuses_the_state(tables):
    tables.open().checkpoint()
    states = {file: file.read_bytes() for file in log_of(tables).rglob("*.avro")}
    tables.open(state__format="json").checkpoint()
    assert tables.open().checkpoint().new_format == "avro-state"
    assert format_of(tables.open()) == "avro-state"
    assert {file: file.read_bytes() for file in log_of(tables).rglob("*.avro")} == states


def test_compaction_after_a_downgrade_writes_a_new_state(tables):
    table = tables.open()
    for number in (4, 5, 6):
        table.commit(adds=[split(number, day="4")])
        table.checkpoint()
    assert len(state_of(tables.open()).manifests) > 1
    tables.open(state__format="json").checkpoint()
    assert (tables.open().compact().version, len(state_of(tables.open()).manifests)) == (7, 1)
    assert tables.open().num_files == 5


@pytest.mark.parametrize("more", [{}, {"checkpoint__maxFileSize": "1K"}])
def test_downgrade_keeps_doc_mappings_in_the_metadata_for_other_readers(tables, more):
    tables.open().checkpoint()
    (hash_,) = state_of(tables.open()).doc_mappings
    tables.open(state__format="json", **more).checkpoint()
    files = sorted(log_of(tables).glob("*.checkpoint.*"))
    lines = b"".join(decompress(file.read_bytes(), file.name) for file in files)
    actions = [json.loads(line) for line in lines.splitlines()]
    (metadata,) = (action["metaData"] for action in actions if "metaData" in action)
    assert metadata["configuration"] == {"kept": "yes", f"docMappingSchema.{hash_}": MAPPING}
    assert {action["add"].get("docMappingRef") for action in actions if "add" in action} == {hash_, None}
    # Our own reader sees the original metadata.
    assert tables.open()._snapshot.metadata.configuration == {"kept": "yes"}


def test_version_files_are_complete_without_the_state(tables):
    """A doc mapping that only the state has is registered with the first split that refers to it."""
    tables.open().checkpoint()
    (hash_,) = state_of(tables.open()).doc_mappings
    intent = Append((replace(split(4, day="4"), doc_mapping_ref=hash_),), {hash_: MAPPING})
    run(load_snapshot(tables.open()._snapshot.context), intent, Operation("WRITE"))
    shutil.rmtree(log_of(tables) / state_dir(3))
    assert tables.open()._snapshot.header.doc_mappings == {hash_: MAPPING}


def test_the_hint_of_an_older_writer_with_parts_names_its_format(tables):
    tables.open(**OLDER_FORMATS["multi-part json"]).checkpoint()
    hint_file = log_of(tables) / "_last_checkpoint"
    hint = json.loads(hint_file.read_text())
    hint_file.write_text(json.dumps({key: hint[key] for key in ("version", "size", "parts", "checkpointId")}))
    assert tables.open().checkpoint().previous_format == "json-multipart"


def test_protocol_stays_after_a_downgrade(tables):
    """Writers may have relied on it since."""
    tables.open().checkpoint()
    tables.open(state__format="json").checkpoint()
    assert tables.open().protocol.min_reader_version == 4


@pytest.mark.parametrize("legacy", ["json", "multi-part json", "parquet"])
def test_upgrade_keeps_removes_since_the_older_checkpoint(tables, legacy):
    more = {"state__format": legacy.removeprefix("multi-part ")}
    if legacy == "multi-part json":
        more["checkpoint__maxFileSize"] = "1K"
    tables.open(**more).checkpoint()
    table = tables.open()
    table.commit(adds=[split(4, day="4")])
    table.commit(removes=numbered([1, 4]))
    table.commit(adds=[split(1, size=999, day="1")])
    tables.open().checkpoint()
    for version in range(7):
        (log_of(tables) / f"{version:020d}.json").unlink()
    state = state_of(tables.open())
    assert (state.state_version, state.num_files, len(state.tombstones)) == (6, 2, 0)
    files = tables.open().files(columns=["path", "size"])
    assert dict(zip(*files.to_pydict().values(), strict=True)) == {
        "part-00001.split": 999,
        "part-00003.split": 103,
    }


def added_at(table) -> dict[str, tuple[int, int]]:
    columns = table.files(columns=["path", "addedAtVersion", "addedAtTimestamp"]).to_pydict()
    return {path: (version, time) for path, version, time in zip(*columns.values(), strict=True)}


def write_older_checkpoint(tables: TableBuilder, legacy: str, version: int = 3) -> None:
    """A checkpoint as older writers wrote it: without the version and the time of each add."""
    log = log_of(tables)
    if legacy == "parquet":
        tables.open(state__format="parquet").checkpoint()
        file = log / "_checkpoints" / f"{version:020d}.checkpoint.parquet"
        rows = pq.read_table(file)
        pq.write_table(rows.drop_columns(["addedAtVersion", "addedAtTimestamp"]), file)
    else:
        actions = [PROTOCOL_V1, METADATA, add(1, docMappingJson=MAPPING, tags={"a": "b"}), add(3)]
        write_lines(log / f"{version:020d}.checkpoint.json", *actions)


@pytest.mark.parametrize("legacy", ["json", "parquet"])
@pytest.mark.parametrize("how", ["checkpoint", "compact"])
def test_upgrade_keeps_when_files_were_added(tables, legacy, how):
    expected = added_at(tables.open())
    assert {path: version for path, (version, _) in expected.items()} == {
        "part-00001.split": 1,
        "part-00003.split": 2,
    }
    write_older_checkpoint(tables, legacy)
    table = tables.open()
    assert table._snapshot.segment.base.format.value == legacy
    table.commit(adds=[split(4, day="4")])
    getattr(tables.open(), how)()
    upgraded = added_at(tables.open())
    assert upgraded.pop("part-00004.split")[0] == 4
    assert upgraded == expected
    assert [
        (info.min_added_at_version, info.max_added_at_version) for info in state_of(tables.open()).manifests
    ] == [(1, 4)]


def test_upgrade_takes_the_last_add_of_a_path(tables):
    write_lines(log_of(tables) / f"{4:020d}.json", {"remove": {"path": "part-00001.split"}})
    write_lines(log_of(tables) / f"{5:020d}.json", add(1, docMappingJson=MAPPING, tags={"a": "b"}))
    write_older_checkpoint(tables, "json", 5)
    tables.open().checkpoint()
    assert {path: version for path, (version, _) in added_at(tables.open()).items()} == {
        "part-00001.split": 5,
        "part-00003.split": 2,
    }


@pytest.mark.parametrize("lost", ["deleted", "damaged"])
def test_upgrade_trusts_version_files_only_as_far_as_they_are_whole(tables, lost):
    """Version 2 is gone: it might have replaced a file that version 1 added."""
    write_older_checkpoint(tables, "json")
    file = log_of(tables) / f"{2:020d}.json"
    file.unlink() if lost == "deleted" else file.write_bytes(b"damaged")
    tables.open().checkpoint()
    assert {version for version, _ in added_at(tables.open()).values()} == {3}


def test_checkpoint_that_knows_when_files_were_added_is_not_looked_up(tables):
    tables.open(state__format="json").checkpoint()
    expected = added_at(tables.open())
    for version in range(3):
        (log_of(tables) / f"{version:020d}.json").write_bytes(b"not read")
    tables.open().checkpoint()
    assert added_at(tables.open()) == expected


def test_protocol_is_upgraded_from_2_to_4(tables):
    write_lines(
        log_of(tables) / f"{4:020d}.json", {"protocol": {"minReaderVersion": 2, "minWriterVersion": 2}}
    )
    table = tables.open()
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (2, 2)
    assert table.checkpoint().version == 4
    hint = json.loads((log_of(tables) / "_last_checkpoint").read_text())
    assert hint["protocolVersion"] == 4
    for version in range(5):
        (log_of(tables) / f"{version:020d}.json").unlink()
    reopened = tables.open()
    assert (reopened.protocol.min_reader_version, reopened.protocol.min_writer_version) == (4, 4)
    described = dict(zip(*reopened.describe_state().to_pydict().values(), strict=True))
    assert described["protocolVersion"] == "4"
    assert paths(reopened) == numbered([1, 3])


def test_an_automatic_checkpoint_upgrades_the_protocol(tables):
    table = tables.open(checkpoint__enabled="true", checkpoint__interval="1")
    table.commit(removes=numbered([1]))
    assert tables.open().protocol.min_reader_version == 4
    assert paths(tables.open()) == numbered([3])


def test_large_table_is_upgraded_completely(tables):
    """As many files as a large table has, in a JSON checkpoint of several parts."""
    count = 70_000
    line = json.dumps(add(0))
    assert line.count("part-00000") == 1
    lines = [
        line.replace("part-00000", f"part-{number:05d}").replace('"day": "0"', f'"day": "{number % 30}"')
        for number in range(10, count)
    ]
    (log_of(tables) / f"{4:020d}.json").write_text("\n".join(lines))
    tables.open(state__format="json", checkpoint__maxFileSize="4M").checkpoint()
    assert len(list(log_of(tables).glob("*.checkpoint.*.json"))) > 1
    for version in range(5):
        (log_of(tables) / f"{version:020d}.json").unlink()

    report = tables.open().checkpoint()
    assert (report.previous_format, report.new_format) == ("json-multipart", "avro-state")
    upgraded = tables.open()
    assert upgraded.num_files == report.num_files == count - 8
    assert paths(upgraded) == numbered([1, 3, *range(10, count)])
    assert upgraded.total_bytes == 101 + 103 + (count - 10) * 100
    in_one_day = upgraded.select_files("day = 29", ["path"])
    assert in_one_day.entries.num_rows == sum(number % 30 == 29 for number in range(10, count))
    assert in_one_day.manifests_skipped > 0


@pytest.mark.parametrize("legacy", ["json", "parquet"])
def test_writes_after_the_upgrade_are_incremental(tables, legacy):
    tables.open(state__format=legacy).checkpoint()
    assert tables.open().checkpoint().previous_format == legacy
    table = tables.open()
    table.commit(adds=[split(10, day="10")])
    table.checkpoint()
    assert [info.num_entries for info in state_of(tables.open()).manifests] == [2, 1]


def test_the_flattened_parquet_checkpoint_of_the_first_design_is_read(tmp_path):
    log = tmp_path / "table" / "_transaction_log"
    string_map = pa.map_(pa.string(), pa.string())
    rows = [
        {
            "actionType": "add",
            "path": "a.split",
            "partitionValues": [("day", "1")],
            "size": 7,
            "numRecords": 2,
        },
        {
            "actionType": "metadata",
            "metadataId": "m",
            "schemaString": to_spark_json(SCHEMA),
            "partitionColumns": ["day"],
            "format": [("provider", "indextables")],
        },
    ]
    schema = pa.schema(
        [
            ("path", pa.string()), ("partitionValues", string_map), ("size", pa.int64()), ("numRecords", pa.int64()),
            ("minValues", string_map), ("maxValues", string_map), ("metadataId", pa.string()),
            ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())), ("format", string_map),
            ("actionType", pa.string()),
        ]
    )  # fmt: skip
    folder = log / "_checkpoints" / f"{250:020d}.checkpoint.parquet"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "part-00000.snappy.parquet")
    (log / "_checkpoints" / f"{250:020d}.checkpoint.json").write_text(
        '{"version": 250, "size": 1, "createdTime": 5}'
    )
    table = TableBuilder(str(tmp_path / "table")).open()
    assert table.version == 250
    assert paths(table) == ["a.split"]
    assert table.partition_columns == ["day"]

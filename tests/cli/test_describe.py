"""`indextables describe`."""

import json

import pytest

from indextables import IndexTable
from support.cli_tables import SCHEMA, Invoke, add

KEYS = [
    "path",
    "id",
    "name",
    "description",
    "created_time",
    "version",
    "protocol",
    "schema",
    "partition_columns",
    "num_files",
    "num_rows",
    "total_bytes",
    "properties",
    "state",
]
CANARY = "canary-5f0c3b"


def test_json_has_stable_keys_and_says_what_the_table_is(invoke: Invoke, table_path: str) -> None:
    result = invoke("describe", table_path, "--json")
    document = json.loads(result.stdout)
    table = IndexTable(table_path)
    assert list(document) == KEYS
    assert document["path"] == f"file://{table_path}"
    assert document["id"] == table.metadata.id
    assert document["version"] == 3
    assert document["protocol"] == {
        "min_reader_version": table.protocol.min_reader_version,
        "min_writer_version": table.protocol.min_writer_version,
        "reader_features": list(table.protocol.reader_features or ()),
        "writer_features": list(table.protocol.writer_features or ()),
    }
    assert document["schema"] == [
        {"name": "date", "type": "string", "nullable": True, "search": "partition value"},
        {"name": "latency_ms", "type": "int64", "nullable": True, "search": "value and range"},
        {"name": "message", "type": "string", "nullable": False, "search": "full text"},
    ]
    assert document["partition_columns"] == ["date"]
    assert (document["num_files"], document["num_rows"], document["total_bytes"]) == (2, 2000, 2 * 1_258_291)
    assert document["properties"] == {
        "maxFieldId": "3",
        "spark.indextables.indexing.typemap.message": "text",
    }


def test_state_holds_the_rows_of_describe_state(invoke: Invoke, table_path: str) -> None:
    rows = IndexTable(table_path).describe_state().to_pylist()
    document = json.loads(invoke("describe", table_path, "--json").stdout)
    assert document["state"] == {row["property"]: row["value"] for row in rows}
    plain = invoke("describe", table_path).stdout
    assert all(f"  {row['property']} " in plain for row in rows)


def test_text_output_has_readable_sizes_and_times(invoke: Invoke, table_path: str) -> None:
    result = invoke("describe", table_path)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "size            2.4 MiB (2,516,582 bytes)" in lines
    assert "rows            2,000" in lines
    assert "partitioned by  date" in lines
    assert "  message     string not null  full text" in lines
    assert any(line.startswith("created ") and line.endswith("Z)") for line in lines)


def test_older_version_is_described_as_it_was(invoke: Invoke, table_path: str) -> None:
    document = json.loads(invoke("describe", table_path, "--json", "--version", "2").stdout)
    assert (document["version"], document["num_files"]) == (2, 3)


def test_rows_are_unknown_if_a_file_has_no_count(invoke: Invoke, table_path: str) -> None:
    IndexTable(table_path).commit(adds=[add("2026-02-01", "d", rows=None)])
    assert json.loads(invoke("describe", table_path, "--json").stdout)["num_rows"] is None
    assert "rows            unknown (not recorded for some files)" in invoke("describe", table_path).stdout


@pytest.mark.parametrize(
    "key",
    [
        "spark.indextables.aws.secretKey",
        "spark.hadoop.fs.s3a.secret.key",
        "fs.azure.account.key.somewhere",
        "custom.password",
    ],
)
@pytest.mark.filterwarnings("ignore::indextables.config.SettingWarning")
def test_credential_stored_in_a_table_is_not_shown(invoke: Invoke, tmp_path: object, key: str) -> None:
    IndexTable.create(f"{tmp_path}/leaky", SCHEMA, properties={key: CANARY, "team": "search"})
    for arguments in ((), ("--json",)):
        result = invoke("describe", f"{tmp_path}/leaky", *arguments)
        assert result.exit_code == 0
        assert CANARY not in result.output
        assert key in result.stdout
        assert "search" in result.stdout


def test_registered_schemas_are_abbreviated_in_text_and_complete_in_json(
    invoke: Invoke, tmp_path: object
) -> None:
    mapping = json.dumps([{"name": "message", "type": "text"}] * 50)
    IndexTable.create(f"{tmp_path}/mapped", SCHEMA, properties={"docMappingSchema.abc": mapping})
    plain = invoke("describe", f"{tmp_path}/mapped").stdout
    assert f"docMappingSchema.abc  {len(mapping):,} characters; use --json to see them" in plain
    document = json.loads(invoke("describe", f"{tmp_path}/mapped", "--json").stdout)
    assert document["properties"]["docMappingSchema.abc"] == mapping

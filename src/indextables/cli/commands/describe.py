"""`indextables describe`: schema, size, properties and log state of a table."""

import time
from typing import Any

from indextables.cli.command import examples
from indextables.cli.formatting import size, when
from indextables.cli.json_output import print_json
from indextables.cli.options import (
    AsJson,
    SettingPairs,
    StoragePairs,
    TablePath,
    Timestamp,
    Version,
    open_table,
)
from indextables.cli.output import print_facts, print_heading, print_line
from indextables.cli.progress import working
from indextables.index_table import IndexTable
from indextables.log.actions import ProtocolAction
from indextables.ops.describe import column_search, is_doc_mapping, shown_properties
from indextables.storage import StoreLocation

EXAMPLES = examples(
    "indextables describe ./logs",
    "indextables describe ./logs --timestamp 2026-01-31T12:00:00Z",
    "indextables describe s3://bucket/logs --json",
)


def describe(
    path: TablePath,
    as_json: AsJson = False,
    version: Version = None,
    timestamp: Timestamp = None,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Describe a table: version, schema, size, properties and state.

    The state covers checkpoints, manifests and the versions to replay after them.
    """
    table = open_table(path, option, storage_option, version=version, timestamp=timestamp)
    with working("reading the state of the log"):
        document = _document(table, path)
    if as_json:
        print_json(document)
        return
    print_facts(_facts(document, table.protocol))
    _print_section("schema", _schema_facts(document["schema"]))
    _print_section("properties", _property_facts(document["properties"]))
    _print_section("state", [(name, value or "-") for name, value in document["state"].items()])


def _document(table: IndexTable, path: str) -> dict[str, Any]:
    metadata, protocol = table.metadata, table.protocol
    state, search = table.describe_state(), column_search(table.snapshot)
    return {
        "path": StoreLocation.of(path).url,
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "created_time": metadata.created_time,
        "version": table.version,
        "protocol": {
            "min_reader_version": protocol.min_reader_version,
            "min_writer_version": protocol.min_writer_version,
            "reader_features": list(protocol.reader_features or ()),
            "writer_features": list(protocol.writer_features or ()),
        },
        "schema": [
            {
                "name": field.name,
                "type": str(field.type),
                "nullable": field.nullable,
                "search": search[field.name],
            }
            for field in table.schema
        ],
        "partition_columns": table.partition_columns,
        "num_files": table.num_files,
        "num_rows": table.num_rows,
        "total_bytes": table.total_bytes,
        "properties": shown_properties(metadata.configuration),
        "state": dict(zip(state["property"].to_pylist(), state["value"].to_pylist(), strict=True)),
    }


def _facts(document: dict[str, Any], protocol: ProtocolAction) -> list[tuple[str, str]]:
    rows, created_ms = document["num_rows"], document["created_time"]
    facts = [
        ("path", document["path"]),
        ("id", document["id"]),
        ("name", document["name"]),
        ("description", document["description"]),
        ("created", None if created_ms is None else when(created_ms, time.time_ns() // 1_000_000)),
        ("version", str(document["version"])),
        ("protocol", _protocol_text(protocol)),
        ("partitioned by", ", ".join(document["partition_columns"]) or "-"),
        ("files", f"{document['num_files']:,}"),
        ("rows", "unknown (not recorded for some files)" if rows is None else f"{rows:,}"),
        ("size", f"{size(document['total_bytes'])} ({document['total_bytes']:,} bytes)"),
    ]
    return [(name, value) for name, value in facts if value is not None]


def _protocol_text(protocol: ProtocolAction) -> str:
    versions = f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    return f"{versions} ({', '.join(features)})" if features else versions


def _schema_facts(schema: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The type of each column, and how it is searched."""
    types = [f"{field['type']}{'' if field['nullable'] else ' not null'}" for field in schema]
    width = max(map(len, types), default=0)
    return [
        (field["name"], f"{type_:{width}}  {field['search']}")
        for field, type_ in zip(schema, types, strict=True)
    ]


def _property_facts(properties: dict[str, str]) -> list[tuple[str, str]]:
    """The properties, with registered schemas, which are long, as their length."""
    return [
        (key, f"{len(value):,} characters; use --json to see them" if is_doc_mapping(key) else value)
        for key, value in properties.items()
    ]


def _print_section(title: str, facts: list[tuple[str, str]]) -> None:
    if facts:
        print_line()
        print_heading(title)
        print_facts([(f"  {name}", value) for name, value in facts])

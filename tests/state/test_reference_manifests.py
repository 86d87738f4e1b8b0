"""Manifests of the reference implementation on the JVM, where available."""

import io
import json
from pathlib import Path

import fastavro
import pytest

from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.log.paths import LOG_PREFIX
from indextables.state.manifest_reader import read_manifest
from indextables.state.manifest_writer import write_manifest
from indextables.state.state_manifest import decode_state_manifest, encode_state_manifest, manifest_key
from support.manifest_samples import avro_form, datafusion_rows, fastavro_rows

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"

pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"there are no reference tables at {FIXTURES}")


def reference_files(pattern):
    files = sorted(FIXTURES.glob(f"*/_transaction_log/{pattern}"))
    return pytest.mark.parametrize("file", files, ids=[str(file.relative_to(FIXTURES)) for file in files])


@reference_files("manifests/*.avro")
def test_reference_manifest_reads_as_others_read_it(file, tmp_path):
    data = file.read_bytes()
    rows = fastavro_rows(data)
    table = read_manifest(data, expected_entries=len(rows))
    assert table.schema.equals(FILE_ENTRY_SCHEMA)
    assert [{name: row[name] for name in rows[0]} for row in avro_form(table)] == rows
    assert datafusion_rows(data, tmp_path) == rows


@reference_files("manifests/*.avro")
def test_rewritten_reference_manifest_holds_the_same(file):
    table = read_manifest(file.read_bytes())
    rewritten = write_manifest(table)
    assert read_manifest(rewritten, expected_entries=len(table)).equals(table)
    original = fastavro_rows(file.read_bytes())
    assert [{name: row.get(name) for name in original[0]} for row in fastavro_rows(rewritten)] == original


@reference_files("state-v*/_manifest.avro")
def test_reference_state_manifest_reads_as_fastavro_reads_it(file):
    data = file.read_bytes()
    (row,) = fastavro_rows(data)
    manifest = decode_state_manifest(data, file.name)
    assert manifest.state_version == row["stateVersion"] == int(file.parent.name.removeprefix("state-v"))
    assert (manifest.num_files, manifest.total_bytes) == (row["numFiles"], row["totalBytes"])
    assert manifest.tombstones.to_pylist() == row["tombstones"]
    assert manifest.doc_mappings == row["schemaRegistry"]
    assert (manifest.metadata is None) == (row["metadata"] is None)
    assert [info.path for info in manifest.manifests] == [item["path"] for item in row["manifests"]]


@reference_files("state-v*/_manifest.avro")
def test_reference_state_manifest_leads_to_its_entries(file):
    table_root = file.parents[2]
    manifest = decode_state_manifest(file.read_bytes(), file.name)
    live = set()
    for info in manifest.manifests:
        key = manifest_key(info.path, manifest.state_version)
        assert key.startswith(LOG_PREFIX)
        entries = read_manifest((table_root / key).read_bytes(), name=key, expected_entries=info.num_entries)
        live |= set(entries["path"].to_pylist())
    live -= set(manifest.tombstones.to_pylist())
    assert len(live) == manifest.num_files
    expected = json.loads((FIXTURES / "expected.json").read_text())[table_root.name]
    if expected["version"] == manifest.state_version:
        assert sorted(live) == expected["paths"]


@reference_files("state-v*/_manifest.avro")
def test_rewritten_reference_state_manifest_is_readable_with_the_original_schema(file):
    data = file.read_bytes()
    reader = fastavro.reader(io.BytesIO(data))
    (original,) = reader
    rewritten = encode_state_manifest(decode_state_manifest(data, file.name))
    (again,) = fastavro.reader(io.BytesIO(rewritten), reader_schema=reader.writer_schema)
    for row in (original, again):
        row["metadata"] = row["metadata"] and json.loads(row["metadata"])
    assert again == original

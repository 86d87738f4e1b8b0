"""The containers in Tantivy's files, read from real indexes, and what happens if they are damaged."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from indextables.split.doc_mapping import ROW_FIELD, DocMapping, FieldKind, FieldMapping
from indextables.split.index_builder import IndexBuilder
from indextables.split.tantivy_files import (
    DirectoryFiles,
    body_end,
    read_composite,
    read_fast_columns,
    store_index_start,
    vint,
)
from support.search_indexes import json_field, string_field, text_field

COMPOSITES = ("term", "idx", "pos", "fieldnorm")


def build(directory: Path, mapping: DocMapping, rows: pa.Table) -> DirectoryFiles:
    builder = IndexBuilder(directory, mapping, 50_000_000)
    for batch in rows.to_batches():
        builder.add(batch)
    builder.finish()
    return DirectoryFiles(directory)


def name_of(files: DirectoryFiles, suffix: str) -> str:
    (name,) = (name for name in files.sizes() if name.endswith(f".{suffix}"))
    return name


@pytest.fixture
def files(tmp_path):
    mapping = DocMapping((text_field("body"), string_field("level"), FieldMapping("n", FieldKind.I64)))
    rows = pa.table({"body": ["a b", "c"], "level": ["x", "y"], "n": [1, 2]})
    return build(tmp_path, mapping, rows)


def test_sections_of_composite_files_are_contiguous(files):
    for suffix in COMPOSITES:
        name = name_of(files, suffix)
        sections, table = read_composite(files, name)
        ordered = sorted(sections.values())
        assert ordered[0].start == 0
        assert all(left.end == right.start for left, right in pairwise(ordered))
        assert ordered[-1].end == table.start
        assert table.end == files.sizes()[name]
    assert set(read_composite(files, name_of(files, "term")).sections) == {0, 1, 2}
    assert read_composite(files, name_of(files, "fieldnorm")).sections[0].end == 2


def test_columns_are_found_by_field(files):
    found = read_fast_columns(files, name_of(files, "fast"))
    assert set(found.columns) == {"level", "n", ROW_FIELD}
    assert max(column.end for column in found.columns.values()) == found.directory.start
    assert found.directory.start <= found.index_start <= found.directory.end


def test_a_directory_of_very_many_columns_is_read_from_all_its_blocks(tmp_path):
    mapping = DocMapping((string_field("a"), json_field("attrs"), string_field("z.z"), string_field("é")))
    documents = [
        {f"key {number} {'x' * (number % 40)}": number, "k.dot": {"l": "v"}} for number in range(5000)
    ]
    rows = pa.table(
        {"a": ["a"] * 5000, "attrs": map(json.dumps, documents), "z.z": ["z"] * 5000, "é": ["é"] * 5000}
    )
    files = build(tmp_path, mapping, rows)
    found = read_fast_columns(files, name_of(files, "fast"))
    assert found.directory.end - found.directory.start > 12_000
    places = sorted(found.columns.values())
    assert set(found.columns) == {"a", "attrs", "z.z", "é", ROW_FIELD}
    assert all(left.end == right.start for left, right in pairwise(places))


def test_an_index_without_rows_is_read(tmp_path):
    mapping = DocMapping((text_field("body"), FieldMapping("n", FieldKind.I64)))
    rows = pa.table({"body": pa.array([None], pa.string()), "n": pa.array([None], pa.int64())})
    files = build(tmp_path, mapping, rows)
    assert ROW_FIELD in read_fast_columns(files, name_of(files, "fast")).columns
    read_composite(files, name_of(files, "term"))


def test_another_format_version_is_refused(files, tmp_path):
    path = tmp_path / name_of(files, "idx")
    path.write_bytes(path.read_bytes().replace(b'"index_format_version":7', b'"index_format_version":8'))
    with pytest.raises(ValueError, match="version 8, not 7"):
        body_end(DirectoryFiles(tmp_path), path.name)


def _read_all(directory: Path) -> None:
    files = DirectoryFiles(directory)
    try:
        for suffix in COMPOSITES:
            read_composite(files, name_of(files, suffix))
        read_fast_columns(files, name_of(files, "fast"))
        store_index_start(files, name_of(files, "store"))
    finally:
        files.close()


@pytest.mark.parametrize("suffix", [*COMPOSITES, "fast", "store"])
def test_truncated_files_are_value_errors(files, tmp_path, suffix):
    path = tmp_path / name_of(files, suffix)
    intact = path.read_bytes()
    for length in range(len(intact)):
        path.write_bytes(intact[:length])
        with pytest.raises(ValueError, match=path.name):
            _read_all(tmp_path)


@pytest.mark.parametrize("suffix", [*COMPOSITES, "fast", "store"])
def test_damaged_files_are_value_errors_or_readable(files, tmp_path, suffix):
    path = tmp_path / name_of(files, suffix)
    intact = path.read_bytes()
    rng = random.Random(suffix)
    for _ in range(300):
        damaged = bytearray(intact)
        at = rng.randrange(len(damaged))
        damaged[at : at + 3] = rng.randbytes(len(damaged[at : at + 3]))
        path.write_bytes(damaged)
        try:
            _read_all(tmp_path)
        except ValueError:
            continue


def test_numbers_end_with_the_high_bit():
    assert vint(b"\x05\x81", 0) == (5 + 128, 2)
    for endless in (b"", b"\x01", b"\x01" * 100):
        with pytest.raises(ValueError, match=r"cut off|too many"):
            vint(endless, 0)

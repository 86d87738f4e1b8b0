"""Cold data survives its encoding, and anything that is wrong with it means that more is fetched, not less."""

import json
import random
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from indextables.search.hits import count_index
from indextables.search.index_query import IndexField
from indextables.split.cold_data import PAGE_BYTES, ColdData, EncodedNodes
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from indextables.split.index_builder import IndexBuilder, index_files
from indextables.split.needs import NOTHING, ByteRange, column_needs, prefix_needs, term_needs
from indextables.split.prediction import merged, rounds
from indextables.split.tantivy_files import DirectoryFiles
from support.search_indexes import json_field, string_field, text_field
from support.sparse_copies import SparseCopy

MAPPING = DocMapping((text_field("body"), string_field("id"), FieldMapping("n", FieldKind.I64)))
COUNT = 3000


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("index")
    rng = random.Random(1)
    rows = pa.table(
        {
            "body": [f"w{number % 50} w{number % 7}" for number in range(COUNT)],
            "id": [f"{rng.getrandbits(64):x}" for _ in range(COUNT)],
            "n": range(COUNT),
        }
    )
    builder = IndexBuilder(directory, MAPPING, 50_000_000)
    for batch in rows.to_batches():
        builder.add(batch)
    builder.finish()
    return directory


@pytest.mark.parametrize("whole_bytes", [0, 1_500_000])
def test_cold_data_is_decoded_as_it_was_encoded(built, whole_bytes):
    cold = ColdData.of(built, whole_bytes=whole_bytes)
    assert ColdData.decode(cold.encode()) == cold
    are_large = [bool(field.data_offsets) for field in cold.segments[0].fields.values()]
    assert are_large == [whole_bytes == 0] * 3


def test_opening_pages_are_whole_and_those_of_the_files(built):
    cold = ColdData.of(built)
    sizes = {path.name: path.stat().st_size for path in index_files(built)}
    assert {part.name for part, _ in cold.opening} == set(sizes)
    for part, data in cold.opening:
        assert part.start % PAGE_BYTES == 0
        assert part.end % PAGE_BYTES == 0 or part.end == sizes[part.name]
        assert (built / part.name).read_bytes()[part.start : part.end] == data


def test_damaged_cold_data_is_a_value_error(built):
    encoded = ColdData.of(built, whole_bytes=0).encode()
    rng = random.Random(2)
    for length in [0, 3, 4, 5, *rng.sample(range(len(encoded)), 50)]:
        with pytest.raises(ValueError, match="cold data"):
            ColdData.decode(encoded[:length])
    for _ in range(200):
        damaged = bytearray(encoded)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        try:
            ColdData.decode(bytes(damaged))
        except ValueError:
            continue


def test_nodes_are_decoded_as_they_were_encoded():
    nodes = {2**40: b"last", 17: b"first", 300: b"x" * 5000}
    assert EncodedNodes.of(nodes).decode() == nodes
    assert EncodedNodes.of({}).decode() == {}
    broken = msgspec.structs.replace(EncodedNodes.of(nodes), data=b"short")
    with pytest.raises(ValueError, match="sizes"):
        broken.decode()


def fetched(directory: Path, cold: ColdData, needs) -> list[ByteRange]:
    files = DirectoryFiles(directory)
    try:
        return [part for ranges in rounds(files, cold, needs) for part in ranges]
    finally:
        files.close()


def all_files(directory: Path) -> list[ByteRange]:
    return sorted(
        ByteRange(path.name, 0, path.stat().st_size) for path in directory.iterdir() if path.stat().st_size
    )


def test_an_index_of_an_unknown_format_is_fetched_whole(built, tmp_path):
    for path in built.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes().replace(b'_version":7', b'_version":9'))
    cold = ColdData.of(tmp_path)
    assert cold == ColdData((), None)
    assert ColdData.decode(cold.encode()) == cold
    assert sorted(fetched(tmp_path, cold, NOTHING)) == all_files(tmp_path)


def test_cold_data_of_other_files_fetches_everything(built):
    cold = ColdData.of(built)
    (segment,) = cold.segments
    other = msgspec.structs.replace(segment, identifier="0" * 32)
    strange = msgspec.structs.replace(cold, segments=(other,))
    assert sorted(fetched(built, strange, term_needs("body", b"w1"))) == all_files(built)


@pytest.mark.parametrize("whole_bytes", [0, 1_500_000])
@pytest.mark.parametrize(
    "needs", [term_needs("body", b"w1", with_positions=True), prefix_needs("body", b"w1")]
)
def test_wrong_numbers_of_a_dictionary_fetch_the_whole_field(built, whole_bytes, needs):
    cold = ColdData.of(built, whole_bytes=whole_bytes)
    (segment,) = cold.segments
    field = segment.fields["body"]
    wrong = [
        {"root": field.root + 1_000_000},
        {"fst_bytes": field.fst_bytes + 1_000_000},
        {"data_offsets": (1, 2, 3)},
        {"nodes": EncodedNodes(b"x" * 8, b"\x01\x00", b"")},
        {"nodes": EncodedNodes.of({field.root: b"\x3f"})},
    ]
    for change in wrong:
        changed = msgspec.structs.replace(field, **change)
        fields = {**segment.fields, "body": changed}
        strange = msgspec.structs.replace(cold, segments=(msgspec.structs.replace(segment, fields=fields),))
        found = merged(fetched(built, strange, needs))
        assert ByteRange(segment.file("idx"), *field.postings) in found
        assert any(part.name.endswith(".term") and part.start <= field.terms.start for part in found)


def test_fields_and_columns_that_the_index_does_not_have_need_little(built):
    cold = ColdData.of(built)
    assert fetched(built, cold, term_needs("absent", b"x")) == []
    (segment,) = cold.segments
    found = fetched(built, cold, column_needs("absent"))
    assert found == [ByteRange(segment.file("fast"), *segment.column_directory)]


def test_ranges_are_merged():
    parts = [
        ByteRange("b", 5, 9),
        ByteRange("a", 4, 6),
        ByteRange("a", 0, 4),
        ByteRange("b", 6, 7),
        ByteRange("a", 9, 9),
    ]
    assert merged(parts) == [ByteRange("a", 0, 6), ByteRange("b", 5, 9)]


def test_a_wide_index_opens_from_its_cold_data_and_finds_its_columns(tmp_path):
    rng = random.Random(1)
    names = [f"column number {number}" for number in range(600)]
    mapping = DocMapping((*(string_field(name) for name in names), json_field("attrs")))
    documents = [json.dumps({f"key {rng.getrandbits(64):x}": number}) for number in range(1000)]
    rows = pa.table({**{name: [name] * 1000 for name in names}, "attrs": documents})
    directory = tmp_path / "index"
    directory.mkdir()
    builder = IndexBuilder(directory, mapping, 500_000_000)
    for batch in rows.to_batches():
        builder.add(batch)
    builder.finish()
    cold = ColdData.of(directory)
    (segment,) = cold.segments
    assert segment.column_directory.end - segment.column_directory.start > 2 * PAGE_BYTES
    for number, field in enumerate(["column number 7", "attrs"]):
        query = IndexField(mapping.tantivy_schema(), mapping.find(field)).exists()
        copy = SparseCopy(directory, tmp_path / str(number), cold)
        copy.fetch_needs(cold, query.needs_of_all_rows())
        searcher = copy.open(mapping)
        assert copy.touched_holes() == []
        assert count_index(searcher, query) == 1000
        assert copy.touched_holes() == []


@pytest.mark.parametrize("rows", [0, 3])
def test_an_index_without_values_has_cold_data(tmp_path, rows):
    builder = IndexBuilder(tmp_path, MAPPING, 50_000_000)
    nulls = [pa.nulls(rows, kind) for kind in (pa.string(), pa.string(), pa.int64())]
    builder.add(pa.record_batch(nulls, names=["body", "id", "n"]))
    builder.finish()
    cold = ColdData.of(tmp_path)
    assert [segment.fields for segment in cold.segments] == [{}] * bool(rows)
    assert fetched(tmp_path, cold, term_needs("body", b"w1")) == []

"""Doc mappings are stored once."""

import pyarrow as pa
import pytest

from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.schema.spark_json import doc_mapping_hash
from indextables.state.writer import deduplicate, renormalize

ID_AND_TEXT = (
    '[{"fast":true,"indexed":true,"name":"id","stored":true,"type":"i64"},'
    '{"fast":true,"indexed":true,"name":"text","stored":true,"tokenizer":"raw","type":"text"}]'
)
REORDERED = (
    '[ {"type":"text","tokenizer":"raw","stored":true,"name":"text","indexed":true,"fast":true},'
    ' {"type":"i64","stored":true,"name":"id","indexed":true,"fast":true} ]'
)
WITH_SCORE = ID_AND_TEXT[:-1] + ',{"fast":true,"indexed":true,"name":"score","stored":true,"type":"f64"}]'


def entries(mappings: list[str | None], references: list[str | None] | None = None) -> pa.Table:
    rows = [
        {
            "path": f"{index}.split",
            "partitionValues": [],
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
            "hasFooterOffsets": False,
            "addedAtVersion": 1,
            "addedAtTimestamp": 1,
            "docMappingJson": mapping,
            "docMappingRef": None if references is None else references[index],
        }
        for index, mapping in enumerate(mappings)
    ]
    return pa.Table.from_pylist(rows, schema=FILE_ENTRY_SCHEMA)


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [(ID_AND_TEXT, "gC45RGOqJ_Grt0xH"), (WITH_SCORE, "z7TwwZ-tDWGD-uX5"), (REORDERED, "gC45RGOqJ_Grt0xH")],
)
def test_the_hash_is_that_of_real_tables(mapping, expected):
    assert doc_mapping_hash(mapping) == expected


def test_inline_mappings_become_references():
    result, registry = deduplicate(entries([ID_AND_TEXT, None, REORDERED, WITH_SCORE]), {})
    assert result["docMappingRef"].to_pylist() == [
        "gC45RGOqJ_Grt0xH", None, "gC45RGOqJ_Grt0xH", "z7TwwZ-tDWGD-uX5",
    ]  # fmt: skip
    assert result["docMappingJson"].null_count == 4
    assert sorted(registry) == ["gC45RGOqJ_Grt0xH", "z7TwwZ-tDWGD-uX5"]


def test_an_existing_reference_is_kept():
    result, _ = deduplicate(entries([ID_AND_TEXT], ["known"]), {"known": WITH_SCORE})
    assert result["docMappingRef"].to_pylist() == ["known"]


def test_a_mapping_that_is_not_json_stays_inline():
    result, registry = deduplicate(entries(["not json", ID_AND_TEXT]), {})
    assert result["docMappingJson"].to_pylist() == ["not json", None]
    assert sorted(registry) == ["gC45RGOqJ_Grt0xH"]


def test_references_are_renormalized_only_above_the_threshold():
    registry = {f"old-{n}": REORDERED if n % 2 else ID_AND_TEXT for n in range(4)}
    table = entries([None] * 4, list(registry))
    same, unchanged = renormalize(table, registry, threshold=4)
    assert same["docMappingRef"].to_pylist() == list(registry)
    assert unchanged == registry
    merged, after = renormalize(table, registry, threshold=3)
    assert set(merged["docMappingRef"].to_pylist()) == {"gC45RGOqJ_Grt0xH"}
    assert after["gC45RGOqJ_Grt0xH"] in (ID_AND_TEXT, REORDERED)


def test_a_reference_without_a_mapping_survives_renormalization():
    merged, _ = renormalize(entries([None, None], ["lost", "x"]), {"x": ID_AND_TEXT}, threshold=0)
    assert merged["docMappingRef"].to_pylist() == ["lost", "gC45RGOqJ_Grt0xH"]

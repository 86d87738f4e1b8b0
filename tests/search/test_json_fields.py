"""Values inside JSON: paths, types by spelling, dots, arrays and unusual keys."""

import json

import pyarrow as pa
import pytest

from indextables.split.doc_mapping import DocMapping
from support.search_indexes import build_index, found_rows, json_field, string_field

ROWS = [
    {"user": {"id": 42, "name": "Bob Smith"}, "a.b": 1, "tags": ["red", "Dark Blue"], "ok": True},
    {"user": {"id": "42", "name": "Alice"}, "a": {"b": 2}, "score": 1.5, "ok": "true"},
    {
        "user": {"id": 42.0},
        "when": "2024-01-31T12:00:00.5Z",
        "big": 2**63,
        "x\\y": 1,
        "sp ace": "v",
        "é😀": "ü",
    },
    {"nested": [{"k": 1}, {"k": "two"}], "empty": "", "none": None, "long": "w" * 255},
    None,
]


@pytest.fixture(scope="module", params=["default", "raw", "whitespace"])
def tokenized(request):
    mapping = DocMapping((json_field("j", request.param),))
    texts = [None if row is None else json.dumps(row) for row in ROWS]
    return request.param, mapping, build_index(mapping, pa.table({"j": texts}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("j.user.id:42", [0, 1, 2]),
        ("j.user.id:42.0", [0, 2]),
        ('j.user.id:"42"', [1]),
        ("j.a.b:1", [0]),
        (r"j.a\.b:1", [0]),
        ("j.a.b:2", [1]),
        ("j.score:1.5", [1]),
        ("j.ok:true", [0, 1]),
        ('j.ok:"true"', [1]),
        ("j.ok:false", []),
        ("j.when:2024-01-31T12:00:00Z", [2]),
        ("j.when:2024-01-31T13:00:00+01:00", [2]),
        ('j.when:"2024-01-31T12:00:00Z"', [2]),
        ("j.big:9223372036854775808", [2]),
        (r"j.x\\y:1", [2]),
        (r"j.sp\ ace:v", [2]),
        ("j.é😀:ü", [2]),
        ("j.tags:red", [0]),
        ("j.tags:IN [red green]", [0]),
        ("j.nested.k:1", [3]),
        ("j.nested.k:two", [3]),
        (f"j.long:{'w' * 255}", [3]),
        ("j.user:*", [0, 1, 2]),
        ("j.user.name:*", [0, 1]),
        ("j.none:*", []),
        ("j.nope:1", []),
        ("j.user.name:Ali*", [1]),
        ("j.user.name:Alicf~1", [1]),
        ("NOT j.user.id:42", [3, 4]),
        ("J.user.id:42", [0, 1, 2]),
        ("j.user.ID:42", []),
        ("j.user.(id:42)", None),
    ],
)
def test_paths_and_values(tokenized, text, expected):
    _, mapping, index = tokenized
    if expected is None:
        with pytest.raises(ValueError, match="cannot read the query"):
            found_rows(index, mapping, text)
        return
    assert found_rows(index, mapping, text) == expected


def test_text_inside_json_passes_through_its_analyzer(tokenized):
    tokenizer, mapping, index = tokenized
    whole = [0]
    part = [] if tokenizer == "raw" else [0]
    folded = [0] if tokenizer == "default" else []
    assert found_rows(index, mapping, 'j.user.name:"Bob Smith"') == whole
    assert found_rows(index, mapping, 'j.tags:"Dark Blue"') == whole
    assert found_rows(index, mapping, "j.user.name:Smith") == part
    assert found_rows(index, mapping, "j.user.name:smith") == folded


def test_arrays_are_searched_without_naming_their_key():
    mapping = DocMapping((json_field("tags", is_array=True), json_field("items", is_array=True)))
    items = pa.array(
        [[{"sku": 5}], [{"sku": 7}, {"sku": 5}], None], pa.list_(pa.struct([("sku", pa.int64())]))
    )
    index = build_index(mapping, pa.table({"tags": [["red", "blue"], ["green"], None], "items": items}))
    for text, expected in {
        "tags:red": [0],
        "tags._values:red": [0],
        "tags:IN [blue green]": [0, 1],
        "tags:*": [0, 1],
        "items.sku:5": [0, 1],
        "items.sku:7": [1],
        "NOT tags:red": [1, 2],
    }.items():
        assert found_rows(index, mapping, text) == expected, text


def test_structs_and_maps_are_searched_by_path():
    struct = pa.struct([("id", pa.int64()), ("name", pa.string())])
    mapping = DocMapping((json_field("s"), json_field("m")))
    rows = pa.table(
        {
            "s": pa.array([{"id": 1, "name": "Ann"}, {"id": 2, "name": None}], struct),
            "m": pa.array([[("k.1", "v")], [("other", "v")]], pa.map_(pa.string(), pa.string())),
        }
    )
    index = build_index(mapping, rows)
    for text, expected in {
        "s.id:1": [0],
        "s.name:ann": [0],
        "s.name:*": [0],
        "m.k.1:v": [0],
        "m.other:v": [1],
    }.items():
        assert found_rows(index, mapping, text) == expected, text


def test_a_column_name_with_a_dot_wins_over_a_path():
    mapping = DocMapping((json_field("a"), string_field("a.b")))
    index = build_index(mapping, pa.table({"a": ['{"b":"x","c":"x"}', None], "a.b": [None, "x"]}))
    assert found_rows(index, mapping, "a.b:x") == [1]
    assert found_rows(index, mapping, "a.c:x") == [0]


@pytest.mark.parametrize("values", [[-4, -3, 0, 3, 4], [-4, -3, 0, 3, 4, 0.5]])
def test_a_fraction_is_not_rounded_whether_or_not_other_values_are_whole(values):
    mapping = DocMapping((json_field("j"),))
    index = build_index(mapping, pa.table({"j": [json.dumps({"a": value}) for value in values]}))

    def found(text: str) -> list[float]:
        return sorted(values[row] for row in found_rows(index, mapping, text))

    assert found("j.a:>=3.5") == [4]
    assert found("j.a:<=-3.5") == [-4]
    assert found("j.a:[-3.5 TO 3.5]") == sorted({-3, 0, 3} | (set(values) & {0.5}))
    assert found("j.a:[3.25 TO 3.75]") == []

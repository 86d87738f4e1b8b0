"""The doc mapping: both forms of settings, defaults, JSON and hash, and matching analyzers."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.config import Settings
from indextables.errors import InvalidOptionError, InvalidPredicateError, InvalidSchemaError
from indextables.schema import TableShape
from indextables.search.predicate_query import index_term
from indextables.split.doc_mapping import (
    ARRAY_KEY,
    TOKENIZERS,
    DocMapping,
    FieldKind,
    FieldMapping,
    build_analyzer,
)
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.index_builder import index_values
from indextables.split.index_cache import IndexCache
from indextables.storage import open_store
from support.split_samples import (
    EVERY_TYPE,
    EVERY_TYPE_OPTIONS,
    PREFIX,
    opened,
    ordinary_row,
    parsed,
    searcher_of,
    write_split,
)

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string()), ("text", pa.string())])


def mapped(
    options: dict[str, str], schema: pa.Schema = SCHEMA, partitions: tuple[str, ...] = ()
) -> DocMapping:
    keys = {PREFIX + key: value for key, value in options.items()}
    return mapping_from_settings(TableShape(schema, partitions), Settings.resolve(keys))


def field(mapping: DocMapping, name: str) -> FieldMapping:
    found = mapping.find(name)
    assert found is not None
    return found


def test_a_plain_mapping_has_the_json_and_the_hash_of_other_writers():
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    mapping = mapped({}, schema)
    assert mapping.to_json() == (
        '[{"fast":true,"indexed":true,"name":"id","stored":true,"type":"i64"},'
        '{"fast":true,"indexed":true,"name":"text","stored":true,"tokenizer":"raw","type":"text"}]'
    )
    assert mapping.hash == "gC45RGOqJ_Grt0xH"
    assert mapped({}, schema.append(pa.field("score", pa.float64()))).hash == "z7TwwZ-tDWGD-uX5"


@pytest.mark.parametrize(
    "options",
    [
        {"typemap.text": "a,b"},
        {"typemap.a": "text", "typemap.b": "TEXT"},
        {"typemap.text": "a, B ,"},
        {"typemap.text": "a", "typemap.b": "text"},
    ],
)
def test_types_are_given_by_column_or_by_type(options):
    mapping = mapped(options)
    kinds = {each.name: each.kind for each in mapping}
    assert kinds == {"id": FieldKind.I64, "a": FieldKind.TEXT, "b": FieldKind.TEXT, "text": FieldKind.STRING}


def test_a_column_called_like_a_type_is_a_column_when_the_value_is_a_type():
    assert field(mapped({"typemap.text": "json"}), "text").kind is FieldKind.JSON
    assert field(mapped({"typemap.text": "text"}), "text").kind is FieldKind.TEXT


def test_a_key_with_a_column_wins_over_a_list():
    mapping = mapped(
        {"typemap.text": "a,b", "typemap.a": "string", "tokenizer.whitespace": "b", "tokenizer.b": "en_stem"}
    )
    assert field(mapping, "a").kind is FieldKind.STRING
    assert field(mapping, "b").tokenizer == "en_stem"


def test_a_tokenizer_makes_a_string_column_text():
    assert field(mapped({"tokenizer.a": "en_stem"}), "a").kind is FieldKind.TEXT
    assert field(mapped({"tokenizer.en_stem": "a"}), "a").tokenizer == "en_stem"
    assert field(mapped({"typemap.a": "text", "tokenizer.a": "raw"}), "a").kind is FieldKind.STRING


def test_record_options_limits_and_fast_fields_are_settings():
    mapping = mapped(
        {
            "typemap.text": "a,b",
            "indexrecordoption.a": "basic",
            "text.indexRecordOption": "freq",
            "tokenLength.a": "legacy",
            "text.maxTokenLength": "100",
            "fastfields": "a",
            "storeonlyfields": "id",
        }
    )
    assert (field(mapping, "a").record, field(mapping, "b").record) == ("basic", "freq")
    assert (field(mapping, "a").max_token_bytes, field(mapping, "b").max_token_bytes) == (40, 100)
    assert (field(mapping, "a").fast, field(mapping, "b").fast) == (True, False)
    assert field(mapping, "id").kind is FieldKind.NOTHING
    assert DocMapping.from_json(mapping.to_json()) == mapping


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"typemap.id": "text"}, "'id'"),
        ({"typemap.a": "vector"}, "vector"),
        ({"typemap.text": "a,zzz"}, "'zzz'"),
        ({"typemap.aa": "text"}, "did you mean 'a'"),
        ({"tokenizer.id": "default"}, "'id'"),
        ({"tokenizer.a": "nope"}, "nope"),
        ({"tokenLength.a": "0"}, "from 1 to"),
        ({"indexrecordoption.a": "all"}, "all"),
        ({"fastfields": "zzz"}, "'zzz'"),
        ({"storeonlyfields": "a", "indexonlyfields": "a"}, "'a'"),
        ({"typemap.ip": "a", "tokenizer.a": "default"}, "'a'"),
    ],
)
def test_settings_that_do_not_fit_are_rejected_with_the_column(options, named):
    with pytest.raises(InvalidOptionError, match=named):
        mapped(options)


def test_partition_columns_have_no_mapping_and_cannot_be_tokenized():
    assert [each.name for each in mapped({"fastfields": "A"}, partitions=("a",))] == ["id", "b", "text"]
    with pytest.raises(InvalidOptionError, match="partition column"):
        mapped({"typemap.a": "text"}, partitions=("a",))


def test_every_type_has_a_mapping_that_survives_its_json():
    keys = {key.removeprefix(PREFIX): value for key, value in EVERY_TYPE_OPTIONS.items()}
    mapping = mapped(keys, EVERY_TYPE)
    assert DocMapping.from_json(mapping.to_json()) == mapping
    assert {each.name: each.kind.value for each in mapping} == {
        "boolean": "bool",
        "byte": "i64",
        "short": "i64",
        "integer": "i64",
        "long": "i64",
        "float": "f64",
        "double": "f64",
        "small_decimal": "decimal",
        "widest_long_decimal": "decimal",
        "big_decimal": "big_decimal",
        "string": "string",
        "text": "text",
        "json_text": "json",
        "ip": "ip",
        "binary": "bytes",
        "date": "date",
        "timestamp": "timestamp",
        "timestamp_ntz": "timestamp_ntz",
        "struct": "json",
        "array": "json",
        "matrix": "json",
        "map": "json",
        "map_by_number": "json",
        "map_by_struct": "json",
        "void": "nothing",
    }
    assert [each.name for each in mapping if each.is_array] == ["array", "matrix", "map_by_struct"]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "null", "[1]", '[{"type":"i64"}]', '[{"name":"a","type":"text","tokenizer":"nope"}]',
     '[{"name":"a","type":"i64"},{"name":"a","type":"i64"}]', '[{"name":"a","type":"text","tokenLength":-1}]',
     '[{"name":"a","type":"i64","scale":"x"}]'],
)  # fmt: skip
def test_an_invalid_mapping_is_rejected(text):
    with pytest.raises(InvalidSchemaError, match="doc mapping"):
        DocMapping.from_json(text)


def test_unknown_types_of_other_writers_are_not_indexed():
    mapping = DocMapping.from_json('[{"name":"f","type":"facet"},{"name":"d","type":"date"},{"name":"x"}]')
    assert [each.kind for each in mapping] == [FieldKind.NOTHING, FieldKind.TIMESTAMP, FieldKind.NOTHING]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_every_tokenizer_indexes_and_finds_what_it_indexed(tokenizer, tmp_path):
    store = open_store(tmp_path / "table")
    table = pa.table({"t": ["The Running Foxes", "other"]})
    split = opened(store, write_split(store, table, {PREFIX + "tokenizer.t": tokenizer}))
    searcher = searcher_of(split, IndexCache(tmp_path / "cache", 10**9))
    chosen = field(split.mapping, "t")
    analyzer = build_analyzer(chosen.tokenizer, chosen.max_token_bytes)

    def counts(text: str) -> set[int]:
        queries = (
            tantivy.Query.term_query(split.mapping.tantivy_schema(), "t", term)
            for term in analyzer.analyze(text)
        )
        return {searcher.search(query).count for query in queries}

    assert counts("The Running Foxes") <= {1, 2}
    assert 1 in counts("The Running Foxes")
    assert counts("zzz qqq") == {0}


def test_tokens_of_up_to_255_bytes_are_found_and_longer_ones_are_not(tmp_path):
    store = open_store(tmp_path / "table")
    table = pa.table(
        {
            "t": ["a" * 255, "b" * 256, "c" * 39, "d" * 40],
            "s": ["x" * 300, "y" * 65530, "z" * 65531, "é" * 200],
        }
    )
    split = opened(store, write_split(store, table, {PREFIX + "typemap.t": "text"}))
    searcher = searcher_of(split, IndexCache(tmp_path / "cache", 10**9))

    def count(name: str, term: str) -> int:
        return searcher.search(tantivy.Query.term_query(split.mapping.tantivy_schema(), name, term)).count

    assert [count("t", text) for text in table["t"].to_pylist()] == [1, 0, 1, 1]
    assert [count("s", text) for text in table["s"].to_pylist()] == [1, 1, 0, 1]


ROW = ordinary_row()
VALUES = [
    ("boolean", True),
    ("byte", 7),
    ("long", -(2**63)),
    ("double", -0.0),
    ("small_decimal", Decimal("-12.5")),
    ("widest_long_decimal", Decimal(10**18 - 1)),
    ("big_decimal", Decimal("-9999999999999999999999999999.9999999999")),
    ("big_decimal", Decimal(0)),
    ("string", "exact value"),
    ("binary", b"\x00\xff"),
    ("date", date(1, 1, 1)),
    ("timestamp", datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)),
    ("timestamp_ntz", datetime(1969, 12, 31, 23, 59, 59, 999999)),
    ("ip", "10.1.2.3"),
]


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_a_query_for_a_value_searches_for_the_indexed_term(name, value):
    keys = {key.removeprefix(PREFIX): text for key, text in EVERY_TYPE_OPTIONS.items()}
    chosen = field(mapped(keys, EVERY_TYPE), name)
    column = pa.array([None, value, None], EVERY_TYPE.field(name).type).slice(1)
    encoded = index_values(chosen, column)
    assert encoded == [index_term(chosen, value), None]
    assert repr(encoded[0]) == repr(index_term(chosen, value))


DECIMALS = st.decimals(
    allow_nan=False, allow_infinity=False, places=10, min_value=-(10**27), max_value=10**27
)


@settings(max_examples=100)
@given(values=st.tuples(DECIMALS, DECIMALS))
def test_terms_of_big_decimals_sort_like_the_numbers(values):
    chosen = FieldMapping("d", FieldKind.BIG_DECIMAL, scale=10)
    left, right = values
    assert (left < right) == (index_term(chosen, left) < index_term(chosen, right))
    array = pa.array(values, pa.decimal128(38, 10))
    assert index_values(chosen, array) == [index_term(chosen, value) for value in values]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (FieldKind.I64, "1"),
        (FieldKind.I64, True),
        (FieldKind.DATE, datetime(2024, 1, 1)),
        (FieldKind.DECIMAL, Decimal("1.5")),
        (FieldKind.DECIMAL, Decimal("NaN")),
        (FieldKind.IP, "nonsense"),
        (FieldKind.JSON, "x"),
        (FieldKind.NOTHING, 1),
    ],
)
def test_values_without_a_term_are_rejected(kind, value):
    with pytest.raises(InvalidPredicateError, match="'c'"):
        index_term(FieldMapping("c", kind), value)


def test_nested_values_are_searchable_by_their_paths(tmp_path):
    store = open_store(tmp_path / "table")
    table = pa.Table.from_pylist([ROW, ROW | {"struct": None, "array": None}], schema=EVERY_TYPE)
    split = opened(store, write_split(store, table, EVERY_TYPE_OPTIONS))
    searcher = searcher_of(split, IndexCache(tmp_path / "cache", 10**9))

    def count(text: str) -> int:
        return searcher.search(parsed(split, text)).count

    assert count("struct.name:grace") == 1
    assert count("struct.price:9.99") == 1
    assert count("struct.inner.x:2.5") == 1
    assert count('struct.when:"2024-01-02T03:04:05.000006Z"') == 1
    assert count(f"array.{ARRAY_KEY}:green") == 1
    assert count(f"matrix.{ARRAY_KEY}:3") == 2
    assert count("map.a:1") == 2
    assert count("map_by_number.2:two") == 2
    assert count(f"map_by_struct.{ARRAY_KEY}.key.k:x") == 2
    assert count("json_text.user.name:ada") == 2
    assert count("json_text.user.age:[30 TO 40]") == 2
    assert count("ip:10.1.2.3") == 2

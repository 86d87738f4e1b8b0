"""The doc mapping of a merged split whose sources have different mappings."""

import pyarrow as pa
import pytest

from indextables.config import Settings
from indextables.ops.merge.task import merged_mapping
from indextables.schema import TableShape
from indextables.split.doc_mapping import FieldKind
from indextables.split.doc_mapping_settings import mapping_from_settings
from support.tables import options

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("body", pa.string())])
PARTITIONS = ("day",)
SHAPE = TableShape(SCHEMA, PARTITIONS)


def settings(**indexing):
    return Settings.resolve(options({f"indexing.{key}": value for key, value in indexing.items()}))


def mapping(schema=SCHEMA, **indexing):
    return mapping_from_settings(TableShape(schema, PARTITIONS), settings(**indexing))


TEXT = {"typemap.body": "text"}
WHITESPACE = {"typemap.body": "text", "tokenizer.body": "whitespace"}


@pytest.mark.parametrize("now", [{}, TEXT, WHITESPACE])
def test_a_mapping_that_all_sources_share_stays(now):
    source = mapping(**WHITESPACE)
    assert merged_mapping([source, source], SHAPE, settings(**now)) == source


@pytest.mark.parametrize("sources", [({}, TEXT), (TEXT, {})])
def test_text_wins_where_sources_differ_and_no_setting_exists(sources):
    merged = merged_mapping([mapping(**each) for each in sources], SHAPE, settings())
    assert merged == mapping(**TEXT)


def test_current_settings_win_where_sources_differ():
    sources = [mapping(), mapping(**TEXT)]
    assert merged_mapping(sources, SHAPE, settings(**WHITESPACE)) == mapping(**WHITESPACE)


def test_a_column_that_no_source_has_is_indexed_as_the_settings_say():
    older = mapping(pa.schema([("id", pa.int64()), ("day", pa.string())]))
    assert merged_mapping([older], SHAPE, settings(**TEXT)) == mapping(**TEXT)


def test_a_column_whose_type_changed_is_indexed_by_its_new_one():
    older = mapping(pa.schema([("id", pa.string()), ("day", pa.string()), ("body", pa.string())]))
    merged = merged_mapping([older], SHAPE, settings())
    assert merged.find("id").kind is FieldKind.I64

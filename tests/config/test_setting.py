"""Parsing one setting's value: texts, typed values, bounds, and what the error says."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from indextables.config import Setting, list_settings
from indextables.config.kinds import Boolean, Choice, Hours, Integer, Names, Ratio, Size, Text, WholeDuration
from indextables.config.registry import (
    CHECKPOINT_ENABLED,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_MAX_FILE_SIZE,
    DATA_SKIPPING_NUM_INDEXED_COLS,
    DATA_SKIPPING_STATS_COLUMNS,
    INDEXING_TEXT_MAX_TOKEN_LENGTH,
    STATE_COMPACTION_LARGE_REMOVE_THRESHOLD,
    STATE_COMPACTION_TOMBSTONE_THRESHOLD,
    STATE_COMPRESSION_LEVEL,
    STATE_FORMAT,
    STATE_RETENTION_HOURS,
    TRANSACTION_CACHE_EXPIRATION_SECONDS,
    TRANSACTION_RETRY_BASE_DELAY_MS,
)
from indextables.errors import InvalidOptionError

EVERY_SETTING = pytest.mark.parametrize("setting", list_settings(), ids=lambda setting: setting.key)


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (CHECKPOINT_ENABLED, "TRUE", True),
        (CHECKPOINT_ENABLED, " false ", False),
        (CHECKPOINT_INTERVAL, " 25 ", 25),
        (CHECKPOINT_INTERVAL, "+7", 7),
        (CHECKPOINT_MAX_FILE_SIZE, "134217728", 128 * 1024**2),
        (CHECKPOINT_MAX_FILE_SIZE, "100M", 100 * 1024**2),
        (CHECKPOINT_MAX_FILE_SIZE, "4g", 4 * 1024**3),
        (CHECKPOINT_MAX_FILE_SIZE, "1.5 GiB", 3 * 1024**3 // 2),
        (CHECKPOINT_MAX_FILE_SIZE, "2048 kb", 2 * 1024**2),
        (DATA_SKIPPING_NUM_INDEXED_COLS, "-1", -1),
        (DATA_SKIPPING_STATS_COLUMNS, " id, title ,,score", ("id", "title", "score")),
        (DATA_SKIPPING_STATS_COLUMNS, "", ()),
        (INDEXING_TEXT_MAX_TOKEN_LENGTH, "legacy", 40),
        (INDEXING_TEXT_MAX_TOKEN_LENGTH, "TANTIVY_MAX", 65_530),
        (STATE_COMPACTION_LARGE_REMOVE_THRESHOLD, "MAX_INT", 2_147_483_647),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, "0.25", 0.25),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, "25%", 0.25),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, "1E-1", 0.1),
        (STATE_FORMAT, "JSON", "json"),
        (STATE_RETENTION_HOURS, "0.5", 0.5),
        (STATE_RETENTION_HOURS, "7 days", 168.0),
        (STATE_RETENTION_HOURS, "90min", 1.5),
        (TRANSACTION_CACHE_EXPIRATION_SECONDS, "5 min", 300),
        (TRANSACTION_RETRY_BASE_DELAY_MS, "1.5s", 1500),
    ],
)
def test_text_is_read_as_the_type_of_the_setting(setting, text, value):
    parsed = setting.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        (CHECKPOINT_ENABLED, False),
        (CHECKPOINT_INTERVAL, 3),
        (CHECKPOINT_MAX_FILE_SIZE, 1024**2),
        (DATA_SKIPPING_STATS_COLUMNS, ("id", "title")),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, 0.5),
        (STATE_RETENTION_HOURS, 12.0),
        (TRANSACTION_RETRY_BASE_DELAY_MS, 250),
    ],
)
def test_typed_value_is_taken_as_it_is(setting, value):
    assert setting.parse(value) == value


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        (CHECKPOINT_ENABLED, "yes"),
        (CHECKPOINT_ENABLED, 1),
        (CHECKPOINT_INTERVAL, "0"),
        (CHECKPOINT_INTERVAL, "ten"),
        (CHECKPOINT_INTERVAL, "1_000"),
        (CHECKPOINT_INTERVAL, "٣"),
        (CHECKPOINT_INTERVAL, "2.0"),
        (CHECKPOINT_INTERVAL, ""),
        (CHECKPOINT_INTERVAL, True),
        (CHECKPOINT_INTERVAL, None),
        (CHECKPOINT_MAX_FILE_SIZE, "0"),
        (CHECKPOINT_MAX_FILE_SIZE, "-1M"),
        (CHECKPOINT_MAX_FILE_SIZE, "10 parsecs"),
        (CHECKPOINT_MAX_FILE_SIZE, "M"),
        (DATA_SKIPPING_NUM_INDEXED_COLS, "-2"),
        (DATA_SKIPPING_STATS_COLUMNS, 5),
        (DATA_SKIPPING_STATS_COLUMNS, ["id", None]),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, "1.01"),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, "101%"),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, "nan"),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, float("nan")),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, "1e999"),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, 10**400),
        (STATE_COMPRESSION_LEVEL, "23"),
        (STATE_FORMAT, "orc"),
        (STATE_RETENTION_HOURS, "-1"),
        (STATE_RETENTION_HOURS, "1 fortnight"),
        (STATE_RETENTION_HOURS, float("inf")),
        (STATE_RETENTION_HOURS, "9" * 30),
        (TRANSACTION_CACHE_EXPIRATION_SECONDS, "1 ms"),
        (TRANSACTION_RETRY_BASE_DELAY_MS, "0.5"),
    ],
)
def test_wrong_value_is_an_invalid_option(setting, value):
    with pytest.raises(InvalidOptionError):
        setting.parse(value)


def test_error_names_key_value_what_is_allowed_and_an_example():
    with pytest.raises(InvalidOptionError) as caught:
        STATE_COMPRESSION_LEVEL.parse("99")
    assert str(caught.value) == (
        "setting spark.indextables.state.compressionLevel is '99', "
        "but must be a whole number from 1 to 22, for example 3"
    )


def test_error_cuts_a_long_value_short():
    with pytest.raises(InvalidOptionError) as caught:
        STATE_FORMAT.parse("x" * 10_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        (CHECKPOINT_ENABLED, "true or false"),
        (CHECKPOINT_INTERVAL, "a whole number of at least 1"),
        (CHECKPOINT_MAX_FILE_SIZE, "a number of bytes from 1K to 1P, optionally with a unit (K, M, G, T)"),
        (STATE_COMPACTION_LARGE_REMOVE_THRESHOLD, "a whole number of at least 0, or MAX_INT"),
        (STATE_COMPACTION_TOMBSTONE_THRESHOLD, "a number from 0 to 1, or a percentage"),
        (STATE_FORMAT, "one of avro, json, parquet"),
        (STATE_RETENTION_HOURS, "a number of hours from 0 to 876000"),
        (TRANSACTION_RETRY_BASE_DELAY_MS, "a whole number of milliseconds from 0 to 86400000"),
    ],
)
def test_allowed_values_are_described_with_their_bounds(setting, allowed):
    assert setting.allowed == allowed


def test_text_kind_keeps_every_character():
    assert Text().read("  as it is ") == "  as it is "
    with pytest.raises(ValueError, match="not text"):
        Text().read(5)


@EVERY_SETTING
def test_default_and_example_parse(setting: Setting[object]):
    assert setting.parse(setting.default) == setting.default
    assert setting.parse(setting.kind.show(setting.default)) == setting.default
    setting.parse(setting.example)


@given(
    setting=st.sampled_from(list_settings()),
    text=st.text(max_size=40)
    | st.from_regex(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][0-9]{1,4})?\s?[a-zA-Z%]{0,7}", fullmatch=True),
)
@hypothesis_settings(max_examples=400)
def test_any_text_parses_or_is_an_invalid_option(setting, text):
    try:
        value = setting.parse(text)
    except InvalidOptionError:
        return
    assert setting.parse(value) == value
    assert setting.parse(setting.kind.show(value)) == value


KINDS = [
    Boolean(),
    Integer(),
    Ratio(),
    Size(),
    WholeDuration("seconds"),
    Hours(),
    Choice(("a", "b")),
    Text(),
    Names(),
]


@given(
    kind=st.sampled_from(KINDS),
    value=st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.binary(), st.lists(st.text() | st.integers())
    ),
)
@hypothesis_settings(max_examples=300)
def test_any_python_value_is_read_or_refused_by_value_error(kind, value):
    with contextlib.suppress(ValueError):
        assert isinstance(kind.show(kind.read(value)), str)

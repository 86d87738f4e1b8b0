"""Precedence of values, older names, and what is an error or a warning."""

import pickle
import warnings

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from indextables.config import (
    ConflictingSettingWarning,
    InvalidTablePropertyWarning,
    Settings,
    SettingWarning,
    UnknownSettingWarning,
    list_settings,
)
from indextables.config.registry import (
    CHECKPOINT_ENABLED,
    CHECKPOINT_INTERVAL,
    INDEXING_TEXT_MAX_TOKEN_LENGTH,
    INDEXING_TOKEN_LENGTH,
    INDEXING_TYPEMAP,
    PURGE_TX_LOG_RETENTION_HOURS,
    STATE_FORMAT,
    STATE_RETENTION_HOURS,
    STORAGE_AWS,
    TRANSACTION_RETRY_MAX_ATTEMPTS,
)
from indextables.errors import InvalidOptionError

INTERVAL = "spark.indextables.checkpoint.interval"
CANARY = "canary-credential-7f3a"


def test_nothing_given_is_all_defaults():
    settings = Settings.resolve()
    assert list(settings.items()) == [(setting, setting.default) for setting in list_settings()]
    assert {settings.source(setting) for setting in list_settings()} == {"default"}


@pytest.mark.parametrize(
    ("places", "value", "source"),
    [
        ({}, 10, "default"),
        ({"session": "50"}, 50, "session"),
        ({"session": "50", "table_properties": "20"}, 20, "table property"),
        ({"session": "50", "table_properties": "20", "options": "5"}, 5, "option"),
        ({"session": "50", "options": "5"}, 5, "option"),
    ],
)
def test_option_wins_over_table_property_over_session_over_default(places, value, source):
    settings = Settings.resolve(**{place: {INTERVAL: text} for place, text in places.items()})
    assert settings[CHECKPOINT_INTERVAL] == value
    assert settings.source(CHECKPOINT_INTERVAL) == source


@given(
    st.fixed_dictionaries(
        {}, optional={place: st.integers(1, 1000) for place in ("options", "table_properties", "session")}
    )
)
@hypothesis_settings(max_examples=50)
def test_value_is_that_of_the_first_place_that_has_one(given_values):
    settings = Settings.resolve(**{place: {INTERVAL: str(value)} for place, value in given_values.items()})
    expected = [given_values[p] for p in ("options", "table_properties", "session") if p in given_values]
    assert settings[CHECKPOINT_INTERVAL] == [*expected, 10][0]


def test_default_given_explicitly_still_wins_over_the_session():
    settings = Settings.resolve(options={INTERVAL: "10"}, session={INTERVAL: "50"})
    assert settings[CHECKPOINT_INTERVAL] == 10
    assert settings.source(CHECKPOINT_INTERVAL) == "option"


def test_keys_in_lower_case_are_recognised():
    settings = Settings.resolve(options={"spark.indextables.transaction.retry.maxattempts": "3"})
    assert settings[TRANSACTION_RETRY_MAX_ATTEMPTS] == 3


def test_foreign_keys_are_passed_over_whatever_their_value():
    foreign = {"path": "/x", "checkpoint.interval": "5", "spark.app.name": "x", "docMappingSchema.ab": "[]"}
    settings = Settings.resolve(foreign, foreign, foreign)
    assert settings == Settings.resolve()


# --- older names --------------------------------------------------------------------------------------


def test_older_prefix_stands_for_the_current_one():
    settings = Settings.resolve(session={"spark.tantivy4spark.checkpoint.interval": "4"})
    assert settings[CHECKPOINT_INTERVAL] == 4


@pytest.mark.parametrize(
    ("key", "text", "setting", "value"),
    [
        ("spark.indextables.logRetention.duration", "2592000000", PURGE_TX_LOG_RETENTION_HOURS, 720.0),
        ("spark.indextables.logRetention.duration", "900000", PURGE_TX_LOG_RETENTION_HOURS, 0.25),
        ("spark.indextables.logretention.duration", "2 days", PURGE_TX_LOG_RETENTION_HOURS, 48.0),
        ("spark.indextables.checkpointRetention.duration", "7200000", STATE_RETENTION_HOURS, 2.0),
        ("spark.tantivy4spark.checkpointRetention.duration", "7200000", STATE_RETENTION_HOURS, 2.0),
        ("spark.indextables.checkpoint.format", "parquet", STATE_FORMAT, "parquet"),
        ("spark.indextables.indexing.tokenLength", "legacy", INDEXING_TEXT_MAX_TOKEN_LENGTH, 40),
    ],
)
def test_older_name_sets_the_setting_that_replaced_it(key, text, setting, value):
    settings = Settings.resolve(options={key: text})
    assert settings[setting] == value
    assert settings.source(setting) == "option"


def test_older_name_in_an_option_wins_over_the_newer_one_in_the_session():
    settings = Settings.resolve(
        options={"spark.indextables.logRetention.duration": "3600000"},
        session={"spark.indextables.purge.txLogRetentionHours": "99"},
    )
    assert settings[PURGE_TX_LOG_RETENTION_HOURS] == 1


@pytest.mark.parametrize("older_first", [True, False])
def test_newer_name_wins_over_a_differing_older_one_with_a_warning(older_first):
    options = {
        "spark.indextables.logRetention.duration": "3600000",
        "spark.indextables.purge.txlogretentionhours": "99",
    }
    if not older_first:
        options = dict(reversed(options.items()))
    with pytest.warns(ConflictingSettingWarning, match=r"txlogretentionhours is used"):
        settings = Settings.resolve(options=options)
    assert settings[PURGE_TX_LOG_RETENTION_HOURS] == 99


def test_current_prefix_wins_over_a_differing_older_one_with_a_warning():
    options = {"spark.tantivy4spark.checkpoint.interval": "4", INTERVAL: "5"}
    with pytest.warns(ConflictingSettingWarning):
        settings = Settings.resolve(options=options)
    assert settings[CHECKPOINT_INTERVAL] == 5


def test_two_names_with_equal_values_do_not_warn():
    options = {
        "spark.indextables.logRetention.duration": "3600000",
        "spark.indextables.purge.txLogRetentionHours": "1",
    }
    assert Settings.resolve(options=options)[PURGE_TX_LOG_RETENTION_HOURS] == 1


def test_wrong_value_under_an_older_name_names_both_keys():
    with pytest.raises(InvalidOptionError) as caught:
        Settings.resolve(options={"spark.indextables.logRetention.duration": "-1"})
    assert "spark.indextables.logRetention.duration is '-1'" in str(caught.value)
    assert "for example 2592000000" in str(caught.value)
    assert "spark.indextables.purge.txLogRetentionHours has replaced it" in str(caught.value)


# --- wrong values and unknown keys --------------------------------------------------------------------


@pytest.mark.parametrize(("place", "named"), [("options", "option"), ("session", "session setting")])
def test_wrong_value_is_an_error_that_names_where_it_came_from(place, named):
    with pytest.raises(InvalidOptionError) as caught:
        Settings.resolve(**{place: {INTERVAL.lower(): "many"}})
    assert str(caught.value) == (
        f"{named} {INTERVAL} is 'many', but must be a whole number of at least 1, for example 10"
    )


def test_wrong_value_in_the_session_is_an_error_even_if_an_option_overrides_it():
    with pytest.raises(InvalidOptionError, match="session setting"):
        Settings.resolve(options={INTERVAL: "5"}, session={INTERVAL: "many"})


@pytest.mark.parametrize("value", ["many", "0", None, ["10"]])
def test_wrong_table_property_warns_and_counts_as_absent(value):
    with pytest.warns(InvalidTablePropertyWarning, match=r"table property .* it is ignored"):
        settings = Settings.resolve(table_properties={INTERVAL: value}, session={INTERVAL: "50"})
    assert settings[CHECKPOINT_INTERVAL] == 50
    assert settings.source(CHECKPOINT_INTERVAL) == "session"


@given(st.dictionaries(st.sampled_from([setting.key for setting in list_settings()]), st.text(max_size=10)))
@hypothesis_settings(max_examples=50)
def test_no_table_property_raises(properties):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SettingWarning)
        settings = Settings.resolve(table_properties=properties)
    assert len(list(settings.items())) == len(list_settings())


@pytest.mark.parametrize("place", ["options", "table_properties", "session"])
def test_unknown_key_warns_and_suggests_the_nearest(place):
    with pytest.warns(
        UnknownSettingWarning, match=r"did you mean spark\.indextables\.checkpoint\.interval\?"
    ):
        Settings.resolve(**{place: {"spark.indextables.checkpoint.intervall": CANARY}})


def test_unknown_key_in_several_places_warns_once_and_at_the_caller():
    unknown = {"spark.indextables.zzz": CANARY}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Settings.resolve(unknown, unknown, {"SPARK.indextables.ZZZ": CANARY})
    (warning,) = caught
    assert warning.category is UnknownSettingWarning
    assert warning.filename == __file__
    assert CANARY not in str(warning.message)


# --- families and secrets -----------------------------------------------------------------------------


def test_family_is_merged_over_the_places_by_ending():
    settings = Settings.resolve(
        options={"spark.indextables.indexing.typemap.title": "text"},
        table_properties={
            "spark.indextables.indexing.typemap.Title": "string",
            "spark.tantivy4spark.indexing.typemap.body": "text",
        },
        session={
            "spark.indextables.indexing.typemap.body": "json",
            "spark.indextables.indexing.tokenlength.b": "9",
        },
    )
    assert settings.family(INDEXING_TYPEMAP) == {"title": "text", "body": "text"}
    assert settings.family(INDEXING_TOKEN_LENGTH) == {"b": "9"}


def test_lower_case_credentials_get_their_names_back():
    settings = Settings.resolve(
        options={"spark.indextables.aws.accesskey": "a", "spark.indextables.aws.new": "b"}
    )
    assert settings.family(STORAGE_AWS) == {"accessKey": "a", "new": "b"}


def test_differing_spellings_of_a_credential_warn_without_showing_it():
    options = {"spark.tantivy4spark.aws.secretKey": CANARY, "spark.indextables.aws.secretKey": CANARY + "2"}
    with pytest.warns(ConflictingSettingWarning) as caught:
        settings = Settings.resolve(options=options)
    assert settings.family(STORAGE_AWS) == {"secretKey": CANARY + "2"}
    assert all(CANARY not in str(warning.message) for warning in caught)


def test_table_properties_cannot_set_storage():
    with pytest.warns(InvalidTablePropertyWarning) as caught:
        settings = Settings.resolve(table_properties={"spark.indextables.aws.endpoint": CANARY})
    assert settings.family(STORAGE_AWS) == {}
    assert all(CANARY not in str(warning.message) for warning in caught)


def test_credential_without_a_value_is_an_error():
    with pytest.raises(InvalidOptionError, match=r"option spark\.indextables\.aws\.region has no value"):
        Settings.resolve(options={"spark.indextables.aws.region": None})


def test_values_of_families_may_be_typed():
    settings = Settings.resolve(
        options={"spark.indextables.aws.skipSignature": True, "spark.indextables.aws.retries": 3}
    )
    assert settings.family(STORAGE_AWS) == {"skipSignature": "true", "retries": "3"}


def test_repr_shows_what_is_set_and_no_secret():
    settings = Settings.resolve(options={INTERVAL: "5", "spark.indextables.aws.secretKey": CANARY})
    assert repr(settings) == f"Settings({INTERVAL}=5, spark.indextables.aws.secretKey=…)"
    assert CANARY not in repr(settings.options)


# --- the object itself --------------------------------------------------------------------------------


def test_table_properties_can_be_added_later():
    opened = Settings.resolve(
        options={INTERVAL: "5"}, session={"spark.indextables.checkpoint.enabled": "true"}
    )
    properties = {INTERVAL: "20", "spark.indextables.checkpoint.enabled": "false"}
    settings = opened.with_table_properties(properties)
    assert settings[CHECKPOINT_INTERVAL] == 5
    assert settings[CHECKPOINT_ENABLED] is False
    assert settings.source(CHECKPOINT_ENABLED) == "table property"
    assert opened[CHECKPOINT_ENABLED] is True
    assert settings.with_table_properties({}) == opened


def test_wrong_table_property_added_later_warns_at_the_caller():
    with pytest.warns(InvalidTablePropertyWarning) as caught:
        Settings.resolve().with_table_properties({INTERVAL: "many"})
    assert caught[0].filename == __file__


def test_settings_survive_pickling():
    settings = Settings.resolve(
        options={INTERVAL: "5", "spark.indextables.aws.secretKey": CANARY},
        table_properties={"spark.indextables.dataSkippingStatsColumns": "id,title"},
        session={"spark.indextables.state.format": "json"},
    )
    copy = pickle.loads(pickle.dumps(settings))
    assert copy == settings
    assert list(copy.items()) == list(settings.items())
    assert copy.family(STORAGE_AWS) == {"secretKey": CANARY}


def test_settings_do_not_follow_later_changes_of_what_was_given():
    options = {INTERVAL: "5"}
    settings = Settings.resolve(options=options)
    options[INTERVAL] = "6"
    assert settings[CHECKPOINT_INTERVAL] == 5
    with pytest.raises(AttributeError):
        settings.options = settings.session

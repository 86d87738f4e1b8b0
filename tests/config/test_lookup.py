"""Lookup of settings by any name, and suggestions for misspelled names."""

import pytest

from indextables.config import list_settings, nearest
from indextables.config.registry import CHECKPOINT_INTERVAL, PURGE_TX_LOG_RETENTION_HOURS, STORAGE_AWS
from indextables.config.settings import FamilyMatch, SettingMatch, find, is_ours


@pytest.mark.parametrize("setting", list_settings(), ids=lambda setting: setting.key)
def test_setting_is_found_in_any_case_and_with_the_older_prefix(setting):
    older = setting.key.replace("spark.indextables.", "spark.tantivy4spark.")
    for key in (setting.key, setting.key.lower(), setting.key.upper(), older):
        assert find(key) == SettingMatch(setting)


def test_alias_is_found_with_the_setting_that_replaced_it():
    match = find("spark.indextables.logretention.duration")
    assert isinstance(match, SettingMatch)
    assert match.setting is PURGE_TX_LOG_RETENTION_HOURS
    assert match.alias is not None


def test_lower_case_credential_gets_its_spelling_back():
    assert find("spark.indextables.aws.secretkey") == FamilyMatch(STORAGE_AWS, "secretKey")


def test_foreign_keys_are_not_ours():
    assert not is_ours("spark.sql.shuffle.partitions")
    assert not is_ours("checkpoint.interval")
    assert not is_ours("spark.indextablesx.checkpoint.interval")
    assert is_ours("SPARK.INDEXTABLES.nonsense")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("spark.indextables.checkpoint.intervall", CHECKPOINT_INTERVAL.key),
        ("spark.indextables.chekpoint.interval", CHECKPOINT_INTERVAL.key),
        ("spark.tantivy4spark.checkpoint.Interva", CHECKPOINT_INTERVAL.key),
        ("checkpoint.intervals", CHECKPOINT_INTERVAL.key),
        ("spark.indextables.logRetention.durations", PURGE_TX_LOG_RETENTION_HOURS.key),
        ("spark.indextables.state.maxManifests", "spark.indextables.state.compaction.maxManifests"),
        ("spark.indextables.indexing.typmap.title", "spark.indextables.indexing.typemap.title"),
        ("spark.indextables.azur.accountkey", "spark.indextables.azure.accountKey"),
    ],
)
def test_misspelled_key_suggests_the_nearest(wrong, meant):
    assert nearest(wrong) == meant


@pytest.mark.parametrize(
    "wrong", ["spark.indextables.zzz", "spark.indextables.foo.bar.baz", "spark.indextables.", ""]
)
def test_key_that_resembles_nothing_suggests_nothing(wrong):
    assert nearest(wrong) is None

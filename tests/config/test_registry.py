"""The registry is complete and consistent, has the defaults of the specification, and every setting has an effect."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from indextables.config import Section, Setting, SettingFamily, list_families, list_settings, registry
from indextables.config.settings import SettingMatch, find

SPECIFICATION = Path(__file__).parents[3] / "shared" / "spec"

# Every key in the specification with its default; None if the specification states none.
DOCUMENTED_DEFAULTS = {
    "spark.indextables.checkpoint.compression": "snappy",
    "spark.indextables.checkpoint.enabled": True,
    "spark.indextables.checkpoint.interval": 10,
    "spark.indextables.checkpoint.maxFileSize": 134_217_728,
    "spark.indextables.checkpoint.parallelism": 8,
    "spark.indextables.checkpoint.read.timeoutSeconds": 60,
    "spark.indextables.checkpoint.retention": 30,
    "spark.indextables.checkpointRetention.duration": None,
    "spark.indextables.cleanup.dryRun": False,
    "spark.indextables.cleanup.failurePolicy": "continue",
    "spark.indextables.dataSkippingNumIndexedCols": 32,
    "spark.indextables.logRetention.duration": 720,
    "spark.indextables.mergeOnWrite.async.enabled": True,
    "spark.indextables.mergeOnWrite.enabled": False,
    "spark.indextables.purge.txLogRetentionHours": 720,
    "spark.indextables.purgeOnWrite.enabled": False,
    "spark.indextables.state.compaction.afterMerge": True,
    "spark.indextables.state.compaction.largeRemoveThreshold": 2_147_483_647,
    "spark.indextables.state.compaction.maxManifests": 20,
    "spark.indextables.state.compaction.tombstoneThreshold": 0.10,
    "spark.indextables.state.compression": "zstd",
    "spark.indextables.state.compressionLevel": 3,
    "spark.indextables.state.entriesPerManifest": 50_000,
    "spark.indextables.state.format": "avro",
    "spark.indextables.state.gc.minManifestAgeHours": 1,
    "spark.indextables.state.read.parallelism": 8,
    "spark.indextables.state.retention.hours": 168,
    "spark.indextables.state.retention.versions": 2,
    "spark.indextables.state.retry.baseDelayMs": 100,
    "spark.indextables.state.retry.maxAttempts": 10,
    "spark.indextables.state.retry.maxDelayMs": 5000,
    "spark.indextables.state.schema.renormalizeThreshold": 5,
    "spark.indextables.stats.truncation.enabled": True,
    "spark.indextables.stats.truncation.maxLength": 32,
    "spark.indextables.transaction.cache.enabled": True,
    "spark.indextables.transaction.cache.expirationSeconds": 300,
    "spark.indextables.transaction.compression.enabled": True,
    "spark.indextables.transaction.retry.baseDelayMs": 100,
    "spark.indextables.transaction.retry.maxAttempts": 10,
    "spark.indextables.transaction.retry.maxDelayMs": 5000,
}


@pytest.mark.parametrize("key", DOCUMENTED_DEFAULTS)
def test_documented_key_is_known_with_its_documented_default(key):
    match = find(key)
    assert isinstance(match, SettingMatch)
    if DOCUMENTED_DEFAULTS[key] is not None:
        assert match.setting.default == DOCUMENTED_DEFAULTS[key]


@pytest.mark.skipif(not SPECIFICATION.is_dir(), reason="the specification is not next to the project")
def test_every_key_in_the_specification_is_known():
    named = {
        key.rstrip(".")
        for document in SPECIFICATION.glob("*.md")
        for key in re.findall(r"spark\.indextables\.[A-Za-z0-9.]+", document.read_text(encoding="utf-8"))
    }
    assert len(named) >= len(DOCUMENTED_DEFAULTS)
    assert [key for key in sorted(named) if find(key) is None] == []


@pytest.mark.parametrize(
    "key",
    [
        "spark.indextables.aws.secretKey",
        "spark.indextables.azure.accountKey",
        "spark.indextables.gcp.serviceAccountKey",
        "spark.indextables.s3.endpoint",
        "spark.indextables.indexing.typemap.title",
        "spark.indextables.indexing.tokenizer.title",
        "spark.indextables.indexing.indexrecordoption.title",
        "spark.indextables.indexing.tokenLength",
        "spark.indextables.indexing.tokenLength.title",
        "spark.indextables.indexing.fastfields",
    ],
)
def test_key_of_a_family_is_known(key):
    assert find(key) is not None


@pytest.mark.parametrize("key", ["spark.indextables.aws.", "spark.indextables.indexing.typemap"])
def test_family_without_an_ending_is_no_key(key):
    assert find(key) is None


def test_no_two_settings_share_a_name():
    names = [setting.key for setting in list_settings()]
    names += [alias.key for setting in list_settings() for alias in setting.aliases]
    names += [family.prefix for family in list_families()]
    assert [name for name, count in Counter(map(str.lower, names)).items() if count > 1] == []


def test_every_definition_is_documentable():
    for definition in (*list_settings(), *list_families()):
        assert re.fullmatch(r"\S[^\n]{5,100}\.", definition.help), definition
    for key in (setting.key for setting in list_settings()):
        assert re.fullmatch(r"spark\.indextables(\.[A-Za-z0-9]+)+", key)


def test_settings_are_listed_in_the_order_of_the_sections():
    order = list(Section)
    positions = [order.index(setting.section) for setting in list_settings()]
    assert positions == sorted(positions)


# --- every setting has an effect ----------------------------------------------------------------------

SOURCES = Path(registry.__file__).parents[1]
DEFINITIONS = {
    name: definition
    for name, definition in vars(registry).items()
    if isinstance(definition, Setting | SettingFamily)
}


@pytest.fixture(scope="module")
def read_constants() -> frozenset[str]:
    modules = [path for path in SOURCES.rglob("*.py") if path.parent.name != "config"]
    return frozenset().union(*(constants_read_by(path.read_text(encoding="utf-8")) for path in modules))


def constants_read_by(source: str) -> set[str]:
    """The constants that a module reads; `CONSTANT.key` in a message does not count, and neither does an import."""
    tree = ast.parse(source)
    named = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "key"
    }
    read = [node for node in ast.walk(tree) if id(node) not in named]
    return {node.id for node in read if isinstance(node, ast.Name)} | {
        node.attr
        for node in read
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "registry"
    }


@pytest.mark.parametrize("name", DEFINITIONS)
def test_setting_is_read_by_the_code_unless_it_is_declared_to_have_no_effect(name, read_constants):
    definition = DEFINITIONS[name]
    is_declared = isinstance(definition, Setting) and definition.without_effect is not None
    assert (name in read_constants) is not is_declared


def test_constant_that_only_a_message_names_does_not_count_as_read():
    source = "from x import A, B, C, D\nsettings[A]\nf'{B.key}'\nregistry.C\nregistry.D.key\n"
    assert constants_read_by(source) & {"A", "B", "C", "D"} == {"A", "C"}

"""`indextables config`."""

import json

from indextables import IndexTable
from indextables.config import list_families, list_settings
from support.cli_tables import Invoke

KEYS = [
    "key",
    "value",
    "default",
    "source",
    "type",
    "allowed",
    "section",
    "help",
    "older_keys",
    "value_text",
    "default_text",
]
INTERVAL = "spark.indextables.checkpoint.interval"
CANARY = "canary-5f0c3b"


def test_every_setting_is_listed_with_value_default_and_help(invoke: Invoke) -> None:
    documents = json.loads(invoke("config", "--json").stdout)
    assert all(list(document) == KEYS for document in documents)
    assert [document["key"] for document in documents] == [
        *(setting.key for setting in list_settings()),
        *(f"{family.prefix}<{family.placeholder}>" for family in list_families()),
    ]
    lines = invoke("config").stdout.splitlines()
    assert lines[0].split() == ["key", "value", "default", "meaning"]
    assert len(lines) == 1 + len(documents)
    for line, document in zip(lines[1:], documents, strict=True):
        assert line.startswith(document["key"])
        assert line.endswith(document["help"])


def test_values_are_exact_in_json_and_written_as_options_take_them(invoke: Invoke) -> None:
    (document,) = json.loads(invoke("config", "checkpoint.maxFileSize", "--json").stdout)
    assert (document["value"], document["value_text"]) == (134_217_728, "128M")


def test_part_of_a_key_filters_in_any_case(invoke: Invoke) -> None:
    documents = json.loads(invoke("config", "RETRY", "--json").stdout)
    assert documents
    assert all("retry" in document["key"].lower() for document in documents)
    assert len(documents) == sum("retry" in setting.key.lower() for setting in list_settings())


def test_whole_key_shows_everything_about_one_setting(invoke: Invoke) -> None:
    for key in (INTERVAL, "checkpoint.interval"):
        lines = invoke("config", key).stdout.splitlines()
        assert lines[0] == f"key         {INTERVAL}"
        assert "default     10" in lines
        assert "value       10 (from: default)" in lines
        assert "allowed     a whole number of at least 1" in lines


def test_older_key_leads_to_the_setting(invoke: Invoke) -> None:
    (document,) = json.loads(invoke("config", "checkpoint.format", "--json").stdout)
    assert document["key"] == "spark.indextables.state.format"
    assert document["older_keys"] == ["spark.indextables.checkpoint.format"]


def test_unknown_key_exits_with_2_and_a_suggestion(invoke: Invoke) -> None:
    result = invoke("config", "checkpoint.intervall")
    assert result.exit_code == 2
    assert f"did you mean {INTERVAL}?" in result.stderr
    assert result.stdout == ""
    assert invoke("config", "zzzzzzzz").exit_code == 2


def test_value_says_where_it_comes_from(invoke: Invoke, table_path: str) -> None:
    IndexTable(table_path).set_properties({INTERVAL: "20"})
    arguments = ("config", INTERVAL, "--json", "--table", table_path)
    (of_table,) = json.loads(invoke(*arguments).stdout)
    assert (of_table["value"], of_table["source"]) == (20, "table property")
    (of_option,) = json.loads(invoke(*arguments, "--option", "checkpoint.interval=7").stdout)
    assert (of_option["value"], of_option["source"], of_option["default"]) == (7, "option", 10)


def test_family_shows_what_is_set_in_it(invoke: Invoke, table_path: str) -> None:
    (family,) = json.loads(invoke("config", "typemap", "--table", table_path, "--json").stdout)
    assert family["key"] == "spark.indextables.indexing.typemap.<field>"
    assert (family["value"], family["source"]) == ({"message": "text"}, "table property")


def test_credentials_are_never_shown(invoke: Invoke) -> None:
    for arguments in (("aws.",), ("aws.", "--json"), ("spark.indextables.aws.secretKey",)):
        result = invoke("config", *arguments, "--option", f"aws.secretKey={CANARY}")
        assert result.exit_code == 0
        assert CANARY not in result.output
        assert "secretKey" in result.stdout

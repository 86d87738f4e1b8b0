"""Options that commands share."""

import pytest
import typer

from indextables.cli.options import parse_pairs, parse_settings
from support.cli_tables import Invoke

CANARY = "canary-5f0c3b"


def test_value_may_have_an_equals_sign_and_the_last_of_two_wins() -> None:
    assert parse_pairs(["a=1", "b=x=y=", "a=2"]) == {"a": "2", "b": "x=y="}
    assert parse_pairs(None) == {}


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("checkpoint.interval", "spark.indextables.checkpoint.interval"),
        ("CHECKPOINT.INTERVAL", "spark.indextables.checkpoint.interval"),
        ("indexing.typemap.title", "spark.indextables.indexing.typemap.title"),
        # An older key is kept: its unit may differ.
        ("checkpoint.format", "spark.indextables.checkpoint.format"),
        ("fs.s3a.endpoint", "fs.s3a.endpoint"),
        ("spark.hadoop.fs.s3a.endpoint", "spark.hadoop.fs.s3a.endpoint"),
    ],
)
def test_prefix_of_a_setting_is_optional(given: str, key: str) -> None:
    assert parse_settings([f"{given}=5"]) == {key: "5"}


def test_unknown_key_is_refused_with_a_suggestion() -> None:
    with pytest.raises(typer.BadParameter, match=r"did you mean spark\.indextables\.checkpoint\.interval\?"):
        parse_settings(["checkpoint.intervall=5"])
    with pytest.raises(typer.BadParameter, match="unknown setting"):
        parse_settings(["spark.indextables.no.such.key=5"])


def test_setting_reaches_the_table(invoke: Invoke, table_path: str) -> None:
    result = invoke("files", table_path, "--option", "checkpoint.interval=often")
    assert result.exit_code == 1
    assert "spark.indextables.checkpoint.interval is 'often', but must be a whole number" in result.stderr


@pytest.mark.parametrize("name", ["--option", "--storage-option"])
@pytest.mark.parametrize(
    "arguments",
    [
        (CANARY,),
        ("aws_secret_access_key", CANARY),
        (f"={CANARY}",),
        (" = " + CANARY,),
    ],
)
def test_a_possible_secret_is_not_repeated(invoke: Invoke, name: str, arguments: tuple[str, ...]) -> None:
    for line in (("files", "somewhere", name, *arguments), ("files", name, *arguments, "somewhere")):
        result = invoke(*line)
        assert result.exit_code == 2
        assert "KEY=VALUE" in result.stderr
        assert CANARY not in result.output


def test_unknown_storage_option_is_named_without_its_value(invoke: Invoke) -> None:
    result = invoke("files", "s3://bucket/logs", "--storage-option", f"aws_sekret={CANARY}")
    assert result.exit_code == 1
    assert "aws_sekret" in result.stderr
    assert CANARY not in result.output

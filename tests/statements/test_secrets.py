"""Canary credentials in every option: no answer, log message, error or file of the table contains them."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import indextables
from indextables import IndexTable
from indextables.errors import IndexTablesError
from indextables.statements.forms import FORMS
from support.row_tables import SCHEMA, rows

CANARY = "CANARY"
STORAGE_OPTIONS = {
    "aws_access_key_id": f"{CANARY}-1",
    "aws_secret_access_key": f"{CANARY}-2",
    "aws_session_token": f"{CANARY}/3+%=",
    "sas_token": f"sig={CANARY}%2Fx",
}
OPTIONS = {
    "spark.indextables.aws.accessKey": f"{CANARY}-1",
    "spark.indextables.aws.secretKey": f"{CANARY}-2",
    "spark.indextables.aws.sessionToken": f"{CANARY}-3",
    "spark.indextables.azure.accountKey": "CANARYCANARY",
    "spark.indextables.azure.bearerToken": f"{CANARY}-TOKEN",
    "spark.indextables.azure.connectionString": "AccountName=account;AccountKey=CANARYCANARY;",
    "spark.indextables.azure.clientSecret": f"{CANARY}-SECRET",
    "spark.indextables.gcp.serviceAccountKey": '{"private_key": "CANARY"}',
    "spark.hadoop.fs.s3a.secret.key": f"{CANARY}-4",
    "fs.azure.account.key.account.dfs.core.windows.net": "CANARYCANARY",
    "FS.S3A.ACCESS.KEY": f"{CANARY}-5",
}
GIVEN = {"storage_options": STORAGE_OPTIONS, "options": OPTIONS}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{CANARY}-6")
    monkeypatch.chdir(tmp_path)
    table = IndexTable.create("logs", SCHEMA, partition_by=["day"], text=["body"], **GIVEN)
    for number in range(3):
        table.append(rows(number))
    table.append(rows(7, day="2024-01-02"))
    return str(tmp_path / "logs")


def files_with_a_canary(path: str) -> list[str]:
    return [
        str(file) for file in Path(path).rglob("*") if file.is_file() and CANARY.encode() in file.read_bytes()
    ]


def reports(path: str) -> Iterator[object]:
    """The representations of the table, its parts and its results."""
    table = IndexTable(path, **GIVEN)
    yield from (table, table.metadata, table.protocol, table._snapshot, table._snapshot.context)
    yield from (table.merge_splits(), table.checkpoint(), table.compact(), table.collect_garbage())
    yield from (
        table.purge(),
        table.purge(dry_run=False),
        table.truncate_time_travel(),
        table.fsck(deep=True),
    )
    table.overwrite(rows(9))
    table.drop_partitions("day = '2024-01-01'")
    table.restore(version=table.version - 1)
    table.set_properties({"owner": "me"})
    yield from (table.history().to_pylist(), table.describe_state().to_pylist(), table.files().to_pylist())


def test_results_history_and_files_contain_no_credentials(path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    seen = [text for report in reports(path) for text in (repr(report), str(report))]
    seen += [caplog.text, *capfd.readouterr()]
    assert [text for text in seen if CANARY in text] == []
    assert files_with_a_canary(path) == []


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind.__name__)
def test_no_answer_contains_credentials(form, path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    answer = indextables.sql(form.example.replace("date", "day").replace("(message)", "(body)"), **GIVEN)
    seen = [str(answer.to_pylist()), caplog.text, *capfd.readouterr()]
    assert [text for text in seen if CANARY in text] == []
    assert files_with_a_canary(path) == []


@pytest.mark.parametrize(
    "text",
    [
        "MERGE SPLITS 'nowhere'",
        "DESCRIBE INDEXTABLES STATE 'nowhere'",
        "PURGE INDEXTABLE 'logs' OLDER THAN 1 HOURS",
    ],
)
def test_no_error_contains_credentials(text, path):
    with pytest.raises(IndexTablesError) as caught:
        indextables.sql(text, **GIVEN)
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in repr(error)
        assert CANARY not in str(error)
        error = error.__cause__ or error.__context__


def test_a_wrong_value_of_a_secret_setting_is_not_repeated(path):
    wrong = {**OPTIONS, "spark.indextables.azure.accountKey": "CANARY is not base64"}
    with pytest.raises(IndexTablesError) as caught:
        IndexTable("az://container/table", storage_options={"timeout": "for ever"}, options=wrong)
    assert CANARY not in repr(caught.value)

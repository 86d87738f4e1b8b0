"""The effect and the answer of every statement, on a real table."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import indextables
from indextables import IndexTable, errors
from indextables._results import schema_of
from indextables.log.paths import version_key
from indextables.ops.merge import wait_for_merges
from indextables.ops.runner import LocalRunner
from indextables.statements import Caller, parse_statement, run_statement
from indextables.statements.forms import FORMS
from support.row_tables import SCHEMA, ids, rows

DAYS = ("2024-01-01", "2024-01-02")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Version 0 creates the table; versions 1 to 4 add one split each, two per day."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    path = tmp_path / "logs"
    table = IndexTable.create(path.as_posix(), SCHEMA, partition_by=["day"], text=["body"])
    for number, day in enumerate([*DAYS, *DAYS]):
        table.append(rows(number, day=day))
    return path.as_posix()


def one(text: str, **arguments: object) -> dict[str, object]:
    """The only row of an answer."""
    (row,) = indextables.sql(text, **arguments).to_pylist()
    return row


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind.__name__)
def test_answer_has_the_documented_columns(form, path, monkeypatch):
    monkeypatch.chdir(Path(path).parent)
    text = form.example.replace("date", "day").replace("(message)", "(body)")
    answer = indextables.sql(text)
    documented = schema_of(form.columns)
    assert [(field.name, field.type) for field in answer.schema] == [
        (field.name, field.type) for field in documented
    ]


def test_checkpoint_writes_the_state_and_names_the_previous_format(path):
    first = one(f"CHECKPOINT INDEXTABLES '{path}'", options={"spark.indextables.state.format": "json"})
    assert first == {
        "table_path": f"file://{path}",
        "status": "SUCCESS",
        "previous_format": None,
        "new_format": "json",
        "version": 4,
        "num_files": 4,
        "total_bytes": IndexTable(path).total_bytes,
        "message": "version 4 has a checkpoint in the format json",
    }
    second = one(f"checkpoint tantivy4spark '{path}';")
    assert (second["previous_format"], second["new_format"]) == ("json", "avro-state")


def test_compact_leaves_no_tombstones(path):
    one(f"CHECKPOINT INDEXTABLES '{path}'")
    table = IndexTable(path)
    table.commit(removes=table.files()["path"].to_pylist()[:1])
    lazy = {"spark.indextables.state.compaction.tombstoneThreshold": "100%"}
    one(f"CHECKPOINT INDEXTABLES '{path}'", options=lazy)
    assert state(path)["numTombstones"] == "1"
    assert one(f"COMPACT INDEXTABLES '{path}'")["num_files"] == 3
    assert state(path)["numTombstones"] == "0"


def state(path: str) -> dict[str, str]:
    answer = indextables.sql(f"DESCRIBE INDEXTABLES STATE '{path}'")
    return dict(zip(answer["property"].to_pylist(), answer["value"].to_pylist(), strict=True))


def test_describe_state_has_what_the_specification_lists(path):
    one(f"CHECKPOINT INDEXTABLES '{path}'")
    found = state(path)
    assert found["format"] == "avro-state"
    assert (found["version"], found["numFiles"], found["tombstoneRatio"]) == ("4", "4", "0.00%")
    assert (found["needs_compaction"], found["protocolVersion"]) == ("false", "5")
    assert (found["openSkips"], found["gap"]) == ("0", None)
    assert {"totalBytes", "numManifests", "numTombstones", "createdAt"} <= found.keys()


def test_describe_history_is_newest_first(path):
    answer = indextables.sql(f"DESCRIBE INDEXTABLES HISTORY '{path}'")
    assert answer.equals(IndexTable(path).history())
    assert answer["version"].to_pylist() == [4, 3, 2, 1, 0]


def test_merge_with_all_its_clauses(path):
    text = (
        f"MERGE SPLITS '{path}' WHERE day = '2024-01-02' TARGET SIZE 1G MAX DEST SPLITS 5 "
        f"MAX SOURCE SPLITS PER MERGE 2"
    )
    before = ids(IndexTable(path))
    row = one(text)
    assert (row["status"], row["version"], row["source_splits"], row["new_splits"]) == ("SUCCESS", 5, 2, 1)
    assert (row["rows"], row["skipped"], row["given_up"]) == (2, [], [])
    assert row["bytes_before"] > row["bytes_after"] > 0
    assert ids(IndexTable(path)) == before
    again = one(text)
    assert (again["status"], again["version"], again["merged_groups"]) == ("NO_ACTION", None, 0)


def test_merge_lists_unreadable_splits(path):
    bad = IndexTable(path).files(where="day = '2024-01-01'")["path"].to_pylist()[0]
    Path(path, bad).write_bytes(b"x" * 4000)
    row = one(f"MERGE SPLITS '{path}'")
    assert row["status"] == "PARTIAL"
    assert [problem["path"] for problem in row["skipped"]] == [bad]
    assert row["skipped"][0]["reason"]


def test_merge_runs_on_the_runner_of_the_caller(path):
    descriptions = []

    class Noting(LocalRunner):
        def run(self, description, tasks):
            descriptions.append((description, len(tasks)))
            return super().run(description, tasks)

    assert one(f"MERGE SPLITS '{path}'", runner=Noting())["merged_groups"] == 2
    assert [number for _, number in descriptions] == [2]


def test_merge_reports_progress(path):
    told = []
    one(f"MERGE SPLITS '{path}'", progress=told.append)
    assert (told[-1].done, told[-1].total) == (2, 2)


UNCHECKED = {"spark.indextables.purge.retentionCheckEnabled": "false"}


def test_purge_previews_and_then_deletes_the_same_files(path):
    one(f"DROP INDEXTABLES PARTITIONS FROM '{path}' WHERE day = '2024-01-01'")
    one(f"TRUNCATE INDEXTABLES TIME TRAVEL '{path}'")
    text = f"PURGE INDEXTABLE '{path}' OLDER THAN 0 HOURS TRANSACTION LOG RETENTION 0 DAYS"
    preview = one(f"{text} DRY RUN", options=UNCHECKED)
    assert (preview["status"], preview["num_deleted"]) == ("DRY_RUN", 0)
    assert preview["num_removed_splits"] + preview["num_orphaned_splits"] == 2
    done = one(text, options=UNCHECKED)
    assert (done["status"], done["num_deleted"]) == ("SUCCESS", len(preview["files"]))
    assert [file["path"] for file in done["files"]] == [file["path"] for file in preview["files"]]
    assert all(file["is_deleted"] and file["error"] is None for file in done["files"])
    assert done["size_bytes"] == sum(file["size"] for file in done["files"])
    assert not any(Path(path, file["path"]).exists() for file in done["files"])
    assert ids(IndexTable(path)) == [1, 3]
    assert one(text, options=UNCHECKED)["status"] == "NO_ACTION"


def test_purge_with_a_short_retention_is_refused(path):
    with pytest.raises(errors.InvalidOptionError, match="keep at least"):
        indextables.sql(f"PURGE INDEXTABLE '{path}' OLDER THAN 1 HOURS")


def test_truncate_previews_and_then_ends_time_travel(path):
    preview = one(f"TRUNCATE INDEXTABLES TIME TRAVEL '{path}' DRY RUN")
    assert (preview["status"], preview["version"], preview["num_versions"]) == ("DRY_RUN", 4, 4)
    assert [file["path"] for file in preview["files"]] == [version_key(version) for version in range(4)]
    assert IndexTable(path, version=1).num_files == 1
    done = one(f"TRUNCATE INDEXTABLES TIME TRAVEL '{path}'")
    assert (done["status"], done["num_versions"], done["size_bytes"]) == ("SUCCESS", 4, preview["size_bytes"])
    with pytest.raises(errors.VersionNotFoundError):
        IndexTable(path, version=1)
    assert one(f"TRUNCATE INDEXTABLES TIME TRAVEL '{path}'")["status"] == "NO_ACTION"


def test_drop_partitions_counts_what_it_removed(path):
    doomed = IndexTable(path).files(where="day = '2024-01-01'")
    row = one(f"DROP INDEXTABLES PARTITIONS FROM '{path}' WHERE day < '2024-01-02'")
    assert (row["status"], row["version"], row["removed_files"]) == ("SUCCESS", 5, 2)
    assert row["removed_bytes"] == sum(doomed["size"].to_pylist())
    assert ids(IndexTable(path)) == [1, 3]
    again = one(f"DROP INDEXTABLES PARTITIONS FROM '{path}' WHERE day < '2024-01-02'")
    assert (again["status"], again["version"], again["removed_files"]) == ("NO_ACTION", 5, 0)


def test_drop_by_a_column_that_is_not_a_partition_column_is_refused(path):
    with pytest.raises(errors.InvalidPredicateError):
        indextables.sql(f"DROP INDEXTABLES PARTITIONS FROM '{path}' WHERE id = 1")
    assert IndexTable(path).version == 4


def test_restore_to_a_version(path):
    row = one(f"RESTORE INDEXTABLES '{path}' TO VERSION 2")
    assert (row["status"], row["version"], row["restored_version"], row["num_files"]) == ("SUCCESS", 5, 2, 2)
    assert ids(IndexTable(path)) == [0, 1]
    assert one(f"RESTORE INDEXTABLES '{path}' TO VERSION 5")["status"] == "NO_ACTION"


def test_restore_to_a_timestamp(path):
    moment = IndexTable(path).history()["timestamp"].to_pylist()[1]
    row = one(f"RESTORE INDEXTABLES '{path}' TO TIMESTAMP '{moment.isoformat()}'")
    assert row["restored_version"] == 3
    assert ids(IndexTable(path)) == [0, 1, 2]


def test_repair_of_a_table_that_lost_its_log(path):
    assert one(f"REPAIR INDEXFILES TRANSACTION LOG '{path}'")["status"] == "NO_ACTION"
    shutil.rmtree(Path(path, "_transaction_log"))
    with pytest.raises(errors.TableNotFoundError):
        IndexTable(path)
    row = one(f"REPAIR INDEXFILES TRANSACTION LOG '{path}'")
    assert (row["table_path"], row["location"], row["num_files"], row["num_rows"]) == (
        f"file://{path}",
        f"file://{path}",
        4,
        4,
    )
    assert row["proven_version"] is None
    assert ids(IndexTable(path)) == [0, 1, 2, 3]


def test_repair_at_another_location_only_reads_the_table(path):
    Path(path, version_key(2)).unlink()
    row = one(f"REPAIR INDEXFILES TRANSACTION LOG '{path}' AT LOCATION '{path}-repaired'")
    assert row["location"] == f"file://{path}-repaired"
    assert not Path(path, version_key(2)).exists()
    assert ids(IndexTable(f"{path}-repaired")) == [0, 1, 2, 3]
    with pytest.raises(errors.TableAlreadyExistsError):
        indextables.sql(f"REPAIR INDEXFILES TRANSACTION LOG '{path}' AT LOCATION '{path}-repaired'")


def test_fsck_of_a_whole_table_and_of_one_that_lost_a_split(path):
    row = one(f"FSCK INDEXTABLES '{path}' DEEP")
    assert (row["status"], row["splits_checked"], row["num_errors"], row["findings"]) == ("SUCCESS", 4, 0, [])
    lost = IndexTable(path).files()["path"].to_pylist()[0]
    Path(path, lost).unlink()
    row = one(f"FSCK INDEXTABLES '{path}'")
    assert (row["status"], row["num_errors"]) == ("FAILED", 1)
    assert (row["findings"][0]["severity"], row["findings"][0]["object"]) == ("error", lost)


def test_invalidate_clears_the_cache_of_one_table_or_of_all(path, tmp_path):
    other = (tmp_path / "other").as_posix()
    IndexTable.create(other, SCHEMA).append(rows(1))
    indextables.sql("INVALIDATE INDEXTABLES TRANSACTION LOG CACHE")
    for each in (path, other):
        indextables.sql(f"DESCRIBE INDEXTABLES HISTORY '{each}'")
    row = one(f"INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{path}'")
    assert (row["table_path"], row["status"]) == (f"file://{path}", "SUCCESS")
    assert one(f"INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{path}'")["status"] == "NO_ACTION"
    row = one("INVALIDATE INDEXTABLES TRANSACTION LOG CACHE")
    assert row["table_path"] is None
    assert row["num_entries"] > 0


def test_disk_cache_is_described_and_flushed(path, tmp_path):
    empty = one("DESCRIBE INDEXTABLES DISK CACHE")
    assert (empty["num_entries"], empty["most_recent_use"]) == (0, None)
    assert empty["cache_path"] == str(tmp_path / "caches" / "indextables")
    assert IndexTable(path).count("body:row") == 4
    full = one("DESCRIBE INDEXTABLES DISK CACHE")
    assert full["num_entries"] == 4
    assert full["least_recent_use"] <= full["most_recent_use"]
    flushed = one("FLUSH INDEXTABLES DISK CACHE")
    assert (flushed["status"], flushed["freed_bytes"], flushed["num_entries_left"]) == (
        "SUCCESS",
        full["size_bytes"],
        0,
    )
    assert one("FLUSH INDEXTABLES DISK CACHE")["status"] == "NO_ACTION"


def test_prewarm_with_all_its_clauses(path, tmp_path):
    row = one(f"PREWARM INDEXTABLES '{path}' FOR FIELDS (body, `ID`) WHERE day = '{DAYS[0]}'")
    assert (row["status"], row["fields"], row["num_splits"], row["cached_splits"]) == (
        "SUCCESS",
        ["body", "id"],
        2,
        2,
    )
    assert row["cache_path"] == str(tmp_path / "caches" / "indextables")
    row = one(f"PREWARM INDEXTABLES '{path}'")
    assert (row["fields"], row["num_splits"], row["cached_splits"], row["warmed_splits"]) == (None, 4, 4, 2)
    described = one("DESCRIBE INDEXTABLES DISK CACHE")
    assert (described["host"], described["size_bytes"]) == (row["host"], row["cached_bytes"])
    with pytest.raises(errors.InvalidSchemaError, match="did you mean 'body'"):
        indextables.sql(f"PREWARM INDEXTABLES '{path}' FOR FIELDS (bodi)")


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        ("FOR FIELDS ()", "expected"),
        ("FOR FIELDS (body", "the statement ends here"),
        ("FOR FIELDS (body id)", "expected"),
        ("FOR FIELD (body)", "expected FIELDS"),
    ],
)
def test_invalid_fields_of_a_prewarm_are_syntax_errors(path, clauses, message):
    with pytest.raises(errors.InvalidStatementError, match=message):
        indextables.sql(f"PREWARM INDEXTABLES '{path}' {clauses}")


def test_merge_jobs_shows_the_merges_that_writes_started(path):
    settings = {
        "spark.indextables.mergeOnWrite.enabled": "true",
        "spark.indextables.mergeOnWrite.minBatchesToTrigger": "1",
        "spark.indextables.mergeOnWrite.batchCpuFraction": "0.01",
    }
    IndexTable(path, options=settings).append(rows(9))
    wait_for_merges()
    jobs = [
        job
        for job in indextables.sql("DESCRIBE INDEXTABLES MERGE JOBS").to_pylist()
        if job["table_path"] == f"file://{path}"
    ]
    assert [(job["status"], job["groups"]) for job in jobs] == [("done", 2)]


CANARY = "canary-7f3a"


def test_environment_shows_settings_and_no_credential(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{CANARY}-environment")
    caller = Caller(
        storage_options={"aws_secret_access_key": f"{CANARY}-storage"},
        options={
            "spark.indextables.state.format": "json",
            "spark.indextables.aws.secretKey": f"{CANARY}-option",
            "fs.s3a.secret.key": f"{CANARY}-hadoop",
        },
        session={
            "spark.indextables.checkpoint.interval": "7",
            "spark.indextables.azure.accountKey": f"{CANARY}-session",
            "spark.hadoop.fs.s3a.session.token": f"{CANARY}-session",
        },
    )
    statement = parse_statement("DESCRIBE INDEXTABLES ENVIRONMENT")
    assert statement is not None
    found = run_statement(statement, caller).to_pylist()
    assert CANARY not in repr(found)
    assert CANARY not in repr(caller)
    values = {row["name"]: (row["kind"], row["value"], row["source"]) for row in found}
    assert values["spark.indextables.state.format"] == ("setting", "json", "option")
    assert values["spark.indextables.checkpoint.interval"] == ("setting", "7", "session")
    assert values["spark.indextables.checkpoint.enabled"] == ("setting", "true", "default")
    assert values["spark.indextables.aws.secretKey"] == ("setting", "***", "option")
    assert values["spark.indextables.azure.accountKey"] == ("setting", "***", "session")
    assert values["aws_secret_access_key"] == ("storage option", "***", "option")
    assert values["fs.s3a.secret.key"] == ("storage option", "***", "option")
    assert values["spark.hadoop.fs.s3a.session.token"] == ("storage option", "***", "session")
    assert values["AWS_SECRET_ACCESS_KEY"] == ("environment variable", "***", None)
    assert values["indextables"] == ("runtime", indextables.__version__, None)
    assert values["processors"][1] == str(os.cpu_count())
    assert values["pyarrow"][0] == "library"


def test_a_catalog_finds_tables_by_name(path):
    catalog = {"db.logs": path}
    row = one("CHECKPOINT INDEXTABLES db.`logs`", resolve_table=lambda name: catalog[str(name)])
    assert row["table_path"] == f"file://{path}"


def test_options_take_precedence_over_session_settings(path):
    statement = parse_statement(f"CHECKPOINT INDEXTABLES '{path}'")
    assert statement is not None
    session = {"spark.indextables.state.format": "json"}
    options = {"spark.indextables.state.format": "parquet"}
    (row,) = run_statement(statement, Caller(session=session)).to_pylist()
    assert row["new_format"] == "json"
    (row,) = run_statement(statement, Caller(session=session, options=options)).to_pylist()
    assert row["new_format"] == "parquet"


def test_a_path_without_a_table_is_an_error(tmp_path):
    for text in ("CHECKPOINT INDEXTABLES", "FSCK INDEXTABLES", "MERGE SPLITS", "PURGE INDEXTABLE"):
        with pytest.raises(errors.TableNotFoundError):
            indextables.sql(f"{text} '{tmp_path.as_posix()}/nothing'")


@pytest.mark.parametrize(
    "first",
    [
        "import indextables",
        "from indextables.statements import parse_statement",
        "import indextables.statements.grammar",
        "from indextables import sql",
    ],
)
def test_sql_is_importable_in_any_order(first, tmp_path):
    code = f"""
import sys
{first}
import indextables
from indextables import sql
from indextables.statements import is_statement
assert indextables.sql("DESCRIBE INDEXTABLES MERGE JOBS").num_rows == 0
assert sql("DESCRIBE INDEXTABLES MERGE JOBS").num_rows == 0
assert indextables.statements.is_statement("MERGE SPLITS 'p'")
"""
    own_cache = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=own_cache, check=True)


def test_import_indextables_does_not_load_the_statements():
    code = "import sys, indextables; assert 'indextables.statements' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_delete_counts_and_deletes_rows(path):
    text = f"DELETE FROM '{path}' WHERE day = '{DAYS[0]}' MATCHING QUERY 'body:0'"
    counted = one(f"{text} DRY RUN")
    assert (counted["status"], counted["deleted_rows"], counted["version"]) == ("DRY_RUN", 1, 4)
    assert [dict(each["partition"]) for each in counted["partitions"]] == [{"day": DAYS[0]}]
    done = one(text)
    assert (done["status"], done["deleted_rows"], done["removed_files"], done["version"]) == (
        "SUCCESS",
        1,
        1,
        5,
    )
    assert ids(IndexTable(path)) == [1, 2, 3]
    assert one(text)["status"] == "NO_ACTION"
    assert one(f'DELETE FROM "{path}" WHERE id = 1 OR id = 99')["deleted_rows"] == 1
    assert one(f"DELETE FROM '{path}'")["deleted_rows"] == 2
    assert ids(IndexTable(path)) == []


def test_delete_from_a_name_is_left_to_spark(path):
    assert parse_statement("DELETE FROM logs WHERE id = 1") is None
    with pytest.raises(errors.InvalidStatementError, match="DELETE FROM 'path'"):
        indextables.sql("DELETE FROM logs WHERE id = 1")

"""The calls that newcomers get wrong: each is an error of ours that names the argument and says what to pass."""

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import indextables
from indextables import IndexTable
from indextables.errors import IndexTablesError

SCHEMA = pa.schema([("id", pa.int64()), ("message", pa.string())])
INDEXING = "spark.indextables.indexing"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("wrong")


@pytest.fixture(scope="module")
def table(folder) -> IndexTable:
    rows = [{"id": 1, "ts": dt.datetime(2026, 1, 1), "level": "A", "message": "disk full"}]
    return indextables.write(folder / "logs", rows, text="message")


READS = {
    "no limit": (
        lambda t: t.search("disk", limit=None),
        r"search: limit is None; pass a whole number.*len\(table\)",
    ),
    "limit as text": (lambda t: t.search("disk", limit="10"), "limit is '10'; pass a whole number"),
    "limit of zero": (lambda t: t.search("disk", limit=0), "at least 1"),
    "limit of a truth value": (lambda t: t.search("disk", limit=True), "limit is True; pass a whole number"),
    "limit of a fraction": (lambda t: t.search("disk", limit=2.5), "limit is 2.5"),
    "no query": (lambda t: t.search(None), "query is None; pass a text; .* use scan or to_arrow"),
    "query of a number": (lambda t: t.search(5), "query is 5; pass a text"),
    "query of a list": (lambda t: t.search(["disk"]), r"query is \['disk'\]; pass a text"),
    "count of a number": (lambda t: t.count(5), "count: query is 5"),
    "one column as text": (lambda t: t.search("disk", columns="message"), r"as in columns=\['message'\]"),
    "one column as text in a scan": (lambda t: t.scan(columns="id"), r"scan: .* as in columns=\['id'\]"),
    "column by number": (lambda t: t.to_arrow(columns=[1]), r"columns is \[1\]; pass .*a list of names"),
    "filter of a dict": (
        lambda t: t.to_arrow(where={"id": 1}),
        "where is {'id': 1}; pass a text.*filters are SQL",
    ),
    "filter of a function": (
        lambda t: t.count(where=lambda row: True),
        "count: where is <function.*filters are SQL",
    ),
    "filter of a truth value": (lambda t: t.to_pandas(where=True), "where is True"),
    "history of a text": (lambda t: t.history(limit="x"), "history: limit is 'x'"),
    "changes since a text": (lambda t: t.changes(since_version="x"), "since_version is 'x'"),
    "prewarm one field": (lambda t: t.prewarm(fields="message"), r"as in fields=\['message'\]"),
    "highlight a number": (lambda t: t.highlighter(5), "query is 5"),
    "one column of files": (lambda t: t.files(columns="path"), r"as in columns=\['path'\]"),
}
WRITES = {
    "update of a list": (
        lambda t: t.update([("level", "B")], where="true"),
        "set is .* pass new values by column",
    ),
    "update without rows": (lambda t: t.update({"level": "B"}), "where"),
    "delete without rows": (lambda t: t.delete(), "where"),
    "delete a number": (lambda t: t.delete(where=5), "delete: where is 5"),
    "restore a text": (lambda t: t.restore(version="0"), "version is '0'"),
    "properties of a list": (lambda t: t.set_properties(["a"]), r"properties is \['a'\]; pass a dict"),
    "property of a number": (lambda t: t.set_properties({"a": 5}), "'a' must be a string"),
    "unknown property": (
        lambda t: t.set_properties({"spark.indextables.checkpoint.intervall": "5"}),
        r"unknown table property .*did you mean spark\.indextables\.checkpoint\.interval\?",
    ),
    "unknown tokenizer": (
        lambda t: t.set_properties({f"{INDEXING}.tokenizer.message": "english"}),
        "english",
    ),
    "dry run as text": (lambda t: t.purge(dry_run="no"), "purge: dry_run is 'no'; pass True or False"),
    "commit of paths": (
        lambda t: t.commit(adds=["a.split"]),
        r"adds is \['a.split'\]; pass a list of AddAction",
    ),
    "removal of one path": (lambda t: t.commit(removes="abc"), r"as in removes=\['abc'\]"),
    "merge to no size": (lambda t: t.merge_splits(target_size="huge"), "huge"),
    "purge of no time": (lambda t: t.purge(older_than="soon"), "soon"),
}


@pytest.mark.parametrize(("call", "message"), [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
def test_a_wrong_call_of_a_table_is_an_error_with_a_remedy(table, call, message):
    with pytest.raises(IndexTablesError, match=f"(?s){message}"):
        call(table)
    assert table.version == 0


OPENINGS = {
    "path of none": (lambda f: IndexTable(None), "IndexTable: path is None; pass a text or a path"),
    "path of a number": (lambda f: IndexTable(5), "path is 5"),
    "version as text": (lambda f: IndexTable(f / "logs", version="0"), "version is '0'; pass a whole number"),
    "version of a fraction": (lambda f: IndexTable(f / "logs", version=0.0), "version is 0.0"),
    "moment of a number": (
        lambda f: IndexTable(f / "logs", timestamp=5),
        "timestamp is 5; pass a text, a datetime",
    ),
    "options of a list": (
        lambda f: IndexTable(f / "logs", options=["a=b"]),
        r"options is \['a=b'\]; pass a dict",
    ),
    "option without its prefix": (
        lambda f: IndexTable(f / "logs", options={"checkpoint.interval": "5"}),
        r"unknown option 'checkpoint.interval'; did you mean spark\.indextables\.checkpoint\.interval\?",
    ),
    "misspelled option": (
        lambda f: IndexTable(f / "logs", options={"spark.indextables.chekpoint.interval": "5"}),
        r"did you mean spark\.indextables\.checkpoint\.interval\?",
    ),
    "option of nothing": (
        lambda f: IndexTable(f / "logs", options={"color": "red"}),
        "docs/configuration.md",
    ),
    "invalid value": (
        lambda f: IndexTable(f / "logs", options={"spark.indextables.checkpoint.interval": "often"}),
        "'often'.*whole number",
    ),
    "option of a statement": (
        lambda f: indextables.sql(f"FSCK INDEXTABLES '{f / 'logs'}'", options={"checkpoint.interval": "5"}),
        "did you mean",
    ),
    "statement of a number": (lambda f: indextables.sql(5), "sql: text is 5"),
    "no statement": (lambda f: indextables.sql(""), "the statements are"),
}


@pytest.mark.parametrize(("call", "message"), OPENINGS.values(), ids=OPENINGS)
def test_a_wrong_opening_is_an_error_with_a_remedy(table, folder, call, message):
    with pytest.raises(IndexTablesError, match=f"(?s){message}"):
        call(folder)


CREATIONS = {
    "schema of a dict": ({"schema": {"id": "int"}}, r"schema is .*pa\.schema\("),
    "schema of a list": ({"schema": [("id", pa.int64())]}, r"schema is .*pa\.schema\("),
    "misspelled text column": (
        {"text": "mesage"},
        "'mesage' is not in the schema; the columns are id, message",
    ),
    "text column of a number": ({"text": 5}, "create: text is 5; pass a text or a list of names"),
    "text column of numbers": ({"text": "id"}, "only strings"),
    "misspelled partition column": ({"partition_by": "dat"}, "dat"),
    "partition column of a number": ({"partition_by": 3}, "partition_by is 3"),
    "option without its prefix": ({"options": {"indexing.typemap.message": "text"}}, "did you mean spark"),
    "unknown property": (
        {"properties": {"spark.indextables.checkpoint.intervall": "5"}},
        r"did you mean spark\.indextables\.checkpoint\.interval\?",
    ),
    "unknown tokenizer": ({"properties": {f"{INDEXING}.tokenizer.message": "english"}}, "english"),
    "tokenizer as an option": (
        {"text": "message", "options": {f"{INDEXING}.tokenizer.message": "english"}},
        "english",
    ),
    "tokenizer of no column": (
        {"text": "message", "options": {f"{INDEXING}.tokenizer.mesage": "raw"}},
        "'mesage', which does not exist; did you mean 'message'",
    ),
    "unknown type of index": ({"options": {f"{INDEXING}.typemap.message": "txt"}}, "'txt'"),
}


@pytest.mark.parametrize(("arguments", "message"), CREATIONS.values(), ids=CREATIONS)
def test_a_wrong_creation_is_an_error_and_leaves_no_table(tmp_path, arguments, message):
    with pytest.raises(IndexTablesError, match=f"(?s){message}"):
        IndexTable.create(tmp_path / "t", **{"schema": SCHEMA, **arguments})
    given = {name: value for name, value in arguments.items() if name != "schema"}
    if given:
        with pytest.raises(IndexTablesError):
            indextables.write(tmp_path / "t", [{"id": 1, "message": "x"}], **given)
    assert not (tmp_path / "t").exists()


def test_numbers_of_numpy_and_names_in_any_collection_are_fine(table):
    assert table.search("disk", limit=np.int64(1), columns=pd.Index(["id"])).num_rows == 1
    assert table.search("disk", columns=("id",), fields={"message"}).num_rows == 1


def test_options_of_stores_under_the_names_of_hadoop_pass(folder, table):
    options = {"fs.s3a.access.key": "a", "spark.hadoop.fs.s3a.secret.key": "b"}
    assert IndexTable(folder / "logs", options=options).version == 0

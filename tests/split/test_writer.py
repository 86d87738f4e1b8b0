"""The writer: partitions, statistics, limits, and failures that leave nothing behind."""

import subprocess
import sys
import textwrap
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from indextables.config import Settings
from indextables.errors import (
    InvalidOptionError,
    InvalidSchemaError,
    InvalidValueError,
    SplitWriteError,
    TransientStorageError,
)
from indextables.schema import TableShape
from indextables.split.doc_mapping import ROW_FIELD
from indextables.split.index_cache import IndexCache
from indextables.split.reader import open_split
from indextables.split.writer import SplitWriter, WriterOptions
from indextables.storage import open_store
from support import PATIENCE_SECONDS
from support.faults import FaultStore, Moment
from support.split_samples import PREFIX, opened, parsed, read_all, searcher_of, write_split, write_splits


@pytest.fixture
def scratch(tmp_path):
    path = tmp_path / "scratch"
    path.mkdir()
    return path


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "table")


def keys(store) -> list[str]:
    return [meta.key for meta in store.list("")]


def test_the_writer_reports_what_the_log_records(store):
    table = pa.table({"id": [3, 1, None], "name": ["b", "a", "c" * 100], "void": pa.nulls(3)})
    file = write_split(store, table)
    assert store.head(file.path).size == file.size == file.footer_end_offset
    assert file.path.startswith("part-")
    assert file.path.endswith(".split")
    assert file.num_records == 3
    assert (file.min_values["id"], file.max_values["id"]) == ("1", "3")
    assert file.min_values["name"] == "a"
    assert "c" * 31 < file.max_values["name"] <= "c" * 31 + "d"
    assert "void" not in file.min_values
    assert file.uncompressed_size_bytes > 0
    assert file.doc_mapping_ref == opened(store, file).mapping.hash


def test_statistics_of_many_chunks_are_bounds_of_all_rows(store):
    count = 70_000
    table = pa.table({"up": range(count), "down": [float(count - i) for i in range(count)]})
    file = write_split(store, table)
    assert (file.min_values["up"], file.max_values["up"]) == ("0", str(count - 1))
    assert (file.min_values["down"], file.max_values["down"]) == ("1.0", str(float(count)))


def test_rows_go_to_the_split_of_their_partition_in_their_order(store):
    rows = [(i, i % 2, ["x", None, "", "a/b", ".."][i % 5]) for i in range(1000)]
    table = pa.table(
        {
            "id": [r[0] for r in rows],
            "p": pa.array([r[1] for r in rows], pa.int32()),
            "q": [r[2] for r in rows],
        }
    )
    files = write_splits(store, table, partition_columns=("p", "q"))
    assert len(files) == 10
    assert {tuple(file.partition_values.items()) for file in files} == {
        (("p", str(p)), ("q", q)) for p in range(2) for q in ("x", None, "", "a/b", "..")
    }
    for file in files:
        split = opened(store, file)
        assert "p" not in file.min_values
        found = read_all(split)
        assert found.schema.names == ["id", "p", "q"]
        wanted = [
            r for r in rows if str(r[1]) == file.partition_values["p"] and r[2] == file.partition_values["q"]
        ]
        assert [tuple(row.values()) for row in found.to_pylist()] == wanted
    paths = [file.path for file in files]
    assert all(path.startswith("p=") and ".." not in path.split("/") for path in paths)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([date(2024, 9, 1), None]), ["2024-09-01", None]),
        (pa.array([Decimal("1.50"), Decimal("-2.00")]), ["1.50", "-2.00"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([9, 10]), ["9", "10"]),
        (pa.array([1.5, float("nan")]), ["1.5", "NaN"]),
    ],
)
def test_partition_values_are_texts_that_read_back(store, values, texts):
    table = pa.table({"id": [1, 2], "p": values})
    files = write_splits(store, table, partition_columns=("p",))
    assert sorted((file.partition_values["p"] for file in files), key=str) == sorted(texts, key=str)
    found = pa.concat_tables(read_all(opened(store, file)) for file in files).sort_by("id")
    assert repr(found.to_pylist()) == repr(table.cast(found.schema).to_pylist())


def test_a_partition_value_without_a_text_form_is_rejected(store, scratch):
    table = pa.table({"id": [1], "p": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())})
    with pytest.raises(InvalidValueError, match="'p'"):
        write_splits(store, table, partition_columns=("p",), writer_options=WriterOptions(scratch=scratch))
    assert keys(store) == []
    assert list(scratch.iterdir()) == []


def test_many_partitions_stay_within_the_bounds_of_files_and_memory(store, scratch):
    options = WriterOptions(buffer_bytes=20_000, max_open_files=3, scratch=scratch)
    table = pa.table({"id": range(6000), "p": [i % 12 for i in range(6000)], "text": ["some words"] * 6000})
    files = write_splits(store, table, partition_columns=("p",), writer_options=options)
    assert sum(file.num_records for file in files) == 6000
    found = pa.concat_tables(read_all(opened(store, file)) for file in files).sort_by("id")
    assert found.column("id").to_pylist() == list(range(6000))
    assert list(scratch.iterdir()) == []


def test_a_small_heap_makes_one_segment_and_documents_keep_their_row_numbers(store, tmp_path):
    count = 60_000
    table = pa.table(
        {"id": range(count), "text": [f"{i * 2654435761 % 2**32:x} {i:o} {i:x}" for i in range(count)]}
    )
    options = WriterOptions(heap_bytes=15_000_000)
    (file,) = write_splits(store, table, {PREFIX + "typemap.text": "text"}, writer_options=options)
    split = opened(store, file)
    searcher = searcher_of(split, IndexCache(tmp_path / "cache", 10**9))
    assert searcher.num_segments == 1
    for number in (0, 1, count // 2, count - 1):
        hits = searcher.search(parsed(split, f"id:{number}")).hits
        (row,) = searcher.fast_field_values(ROW_FIELD, [address for _, address in hits])
        assert split.take([row]).column("id").to_pylist() == [number]


def test_columns_are_matched_by_name_and_cast_without_loss(store):
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("extra", pa.float64())])
    writer = SplitWriter(store, TableShape(schema), Settings())
    writer.write(pa.table({"NAME": pa.array(["a"]).dictionary_encode(), "id": pa.array([1], pa.int32())}))
    writer.write(
        pa.table(
            {"id": [2], "name": pa.array(["b"], pa.large_string()), "extra": pa.array([2.5], pa.float32())}
        )
    )
    (file,) = writer.commit()
    assert read_all(opened(store, file)).to_pylist() == [
        {"id": 1, "name": "a", "extra": None},
        {"id": 2, "name": "b", "extra": 2.5},
    ]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"id": [1], "other": [1]}, InvalidSchemaError, "'other'"),
        ({"name": ["a"]}, InvalidSchemaError, "'id' is missing"),
        ({"id": ["1"]}, InvalidSchemaError, "'id' has the type string"),
        ({"id": pa.array([2**63], pa.uint64())}, InvalidValueError, "'id'"),
        ({"id": [1, None]}, InvalidValueError, "'id' has nulls"),
    ],
)
def test_rows_that_do_not_fit_the_table_are_rejected_with_the_column(store, scratch, data, error, message):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    writer = SplitWriter(store, TableShape(schema), Settings(), WriterOptions(scratch=scratch))
    with pytest.raises(error, match=message):
        writer.write(pa.table(data))
    assert list(scratch.iterdir()) == []
    with pytest.raises(SplitWriteError, match="aborted"):
        writer.commit()


def test_abort_removes_what_was_uploaded(store, scratch):
    options = WriterOptions(target_bytes=1, scratch=scratch)
    writer = SplitWriter(store, TableShape(pa.schema([("id", pa.int64())])), Settings(), options)
    writer.write(pa.table({"id": range(70_000)}))
    assert keys(store)
    writer.abort()
    assert keys(store) == []
    assert list(scratch.iterdir()) == []
    writer.abort()


def test_leaving_the_block_without_commit_aborts(store, scratch):
    with SplitWriter(
        store, TableShape(pa.schema([("id", pa.int64())])), Settings(), WriterOptions(scratch=scratch)
    ) as writer:
        writer.write(pa.table({"id": [1]}))
    assert keys(store) == []
    assert list(scratch.iterdir()) == []


def test_a_bad_row_in_a_later_batch_removes_the_splits_before_it(store, scratch):
    settings = Settings.resolve({PREFIX + "typemap.ip": "ip"})
    writer = SplitWriter(
        store,
        TableShape(pa.schema([("ip", pa.string())])),
        settings,
        WriterOptions(target_bytes=1, scratch=scratch),
    )
    writer.write(pa.table({"ip": ["1.2.3.4"] * 40_000}))
    assert keys(store)
    with pytest.raises(InvalidValueError):
        writer.write(pa.table({"ip": ["nonsense"] * 40_000}))
    assert keys(store) == []
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("moment", list(Moment))
def test_every_store_call_of_a_write_may_fail_and_nothing_is_left(store, scratch, moment):
    table = pa.table({"id": range(40), "p": [i % 2 for i in range(40)]})
    options = WriterOptions(scratch=scratch)
    healthy = FaultStore(store)
    write_splits(healthy, table, partition_columns=("p",), writer_options=options)
    store.delete_many(keys(store))
    for number in range(len(healthy.calls)):
        faulty = FaultStore(store, fail_call=(number, moment))
        with pytest.raises(TransientStorageError):
            write_splits(faulty, table, partition_columns=("p",), writer_options=options)
        assert keys(store) == []
        assert list(scratch.iterdir()) == []


def test_an_outage_leaves_orphans_and_reports_its_cause(store, scratch):
    table = pa.table({"id": range(40), "p": [i % 2 for i in range(40)]})
    faulty = FaultStore(store, outage_from=1)
    with pytest.raises(TransientStorageError, match="put"):
        write_splits(faulty, table, partition_columns=("p",), writer_options=WriterOptions(scratch=scratch))
    assert len(keys(store)) == 1
    open_split(store, keys(store)[0]).verify()
    assert list(scratch.iterdir()) == []


def test_a_writer_leaves_the_scratch_of_another_alone(store, scratch):
    options = WriterOptions(scratch=scratch)
    first = SplitWriter(store, TableShape(pa.schema([("id", pa.int64())])), Settings(), options)
    first.write(pa.table({"id": [1]}))
    write_splits(store, pa.table({"id": [2]}), writer_options=options)
    (file,) = first.commit()
    assert read_all(opened(store, file)).to_pylist() == [{"id": 1}]


def test_statistics_of_an_unknown_column_are_rejected_at_once(store):
    settings = Settings.resolve({"spark.indextables.dataSkippingStatsColumns": "zzz"})
    with pytest.raises(InvalidOptionError, match="'zzz'"):
        SplitWriter(store, TableShape(pa.schema([("id", pa.int64())])), settings)


def test_statistics_named_for_a_partition_column_do_no_harm(store):
    table = pa.table({"id": [1], "p": ["x"]})
    options = {"spark.indextables.dataSkippingStatsColumns": "p,id"}
    (file,) = write_splits(store, table, options, partition_columns=("p",))
    assert file.min_values == {"id": "1"}


def test_a_full_disk_is_an_error_of_the_writer_and_nothing_is_left(store, scratch):
    program = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        import pyarrow as pa
        from indextables.config import Settings
        from indextables.errors import SplitWriteError
        from indextables.schema import TableShape
        from indextables.split.writer import SplitWriter, WriterOptions
        from indextables.storage import open_store

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        writer = SplitWriter(open_store(sys.argv[1]), TableShape(pa.schema([("id", pa.string())])), Settings(),
                             WriterOptions(scratch=Path(sys.argv[2])))
        try:
            writer.write(pa.table({"id": [f"{i * 2654435761 % 2**32:x}" for i in range(60_000)]}))
            writer.commit()
        except SplitWriteError:
            sys.exit(7)
    """)
    arguments = [sys.executable, "-c", program, str(store.url.removeprefix("file://")), str(scratch)]
    result = subprocess.run(arguments, check=False, capture_output=True, timeout=PATIENCE_SECONDS)
    assert result.returncode == 7, result.stderr.decode()
    assert keys(store) == []
    assert list(scratch.iterdir()) == []


def test_a_missing_scratch_directory_is_an_error_of_the_writer(store, tmp_path):
    with pytest.raises(SplitWriteError, match="local directory"):
        SplitWriter(
            store,
            TableShape(pa.schema([("id", pa.int64())])),
            Settings(),
            WriterOptions(scratch=tmp_path / "gone"),
        )


KILLED_WRITER = """
    import os, sys
    import pyarrow as pa
    from indextables.config import Settings
    from indextables.schema import TableShape
    from indextables.split.writer import SplitWriter, WriterOptions
    from indextables.split import {module}
    from indextables.storage import open_store
    from pathlib import Path

    def killed(*arguments, **named):
        os.kill(os.getpid(), 9)

    {module}.{name} = killed
    writer = SplitWriter(open_store(sys.argv[1]), TableShape(pa.schema([("id", pa.int64())])), Settings(),
                         WriterOptions(scratch=Path(sys.argv[2])))
    writer.write(pa.table({{"id": range(5_000)}}))
    writer.commit()
"""


@pytest.mark.parametrize(
    ("module", "name", "splits"),
    [
        ("builder", "column_statistics", 0),
        ("builder", "pack", 0),
        ("builder", "encode_tail", 0),
        ("writer", "memory_mapped", 0),
        ("writer", "SplitFile", 1),
    ],
)
def test_a_killed_writer_leaves_at_most_a_whole_orphan(store, tmp_path, scratch, module, name, splits):
    program = textwrap.dedent(KILLED_WRITER.format(module=module, name=name))
    arguments = [sys.executable, "-c", program, str(tmp_path / "table"), str(scratch)]
    result = subprocess.run(arguments, check=False, capture_output=True, timeout=PATIENCE_SECONDS)
    assert result.returncode == -9, result.stderr.decode()
    assert len(keys(store)) == splits
    for key in keys(store):
        split = open_split(store, key)
        split.verify()
        assert split.num_records == 5_000
    files = [path for path in Path(tmp_path / "table").rglob("*") if path.is_file()]
    assert len(files) == splits
    assert len(list(scratch.iterdir())) == 1
    write_splits(store, pa.table({"id": [1]}), writer_options=WriterOptions(scratch=scratch))
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_splits_of_object_stores_are_written_read_and_searched(request, tmp_path, kind):
    if kind == "s3":
        server = request.getfixturevalue("s3_server")
        store = open_store(f"s3://{server.make_bucket()}/table", storage_options=server.storage_options)
    else:
        store = open_store(f"memory://{tmp_path.name}")
    table = pa.table({"id": range(5000), "text": [f"word {i}" for i in range(5000)]})
    split = opened(store, write_split(store, table))
    assert read_all(split).equals(table)
    assert split.take([4999, 0]).equals(table.take([4999, 0]))
    assert searcher_of(split, IndexCache(tmp_path / "cache", 10**9)).num_docs == 5000
    split.verify()

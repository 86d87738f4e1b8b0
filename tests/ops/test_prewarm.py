"""Prewarming: what is in the cache afterwards, what is left out, and that searches then fetch nothing of an index."""

from pathlib import Path

import pyarrow as pa
import pytest

from indextables import IndexTable, PrewarmRequest, Status
from indextables.errors import IndexCacheError, InvalidPredicateError, InvalidSchemaError
from indextables.metrics import INDEX_FETCHED_BYTES
from indextables.ops.prewarm import prewarm
from indextables.ops.runner import LocalRunner
from indextables.predicates import parse_predicate
from indextables.split.index_cache import index_cache

FIXTURES = Path(__file__).parents[2] / "../shared/fixtures"
SPLITS = 8
ROWS_OF_SPLIT = 5000
DAYS = ("2026-01-30", "2026-01-31")
SCHEMA = pa.schema(
    [
        ("day", pa.string()),
        ("id", pa.int64()),
        ("level", pa.string()),
        ("body", pa.string()),
        ("payload", pa.struct([("user", pa.string())])),
        ("address", pa.string()),
        ("blob", pa.binary()),
    ]
)
ROWS = 20_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of two days, with one split each."""
    path = str(tmp_path_factory.mktemp("tables") / "logs")
    properties = {"spark.indextables.indexing.typemap.address": "ip"}
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"], properties=properties)
    for day in DAYS:
        numbers = range(ROWS)
        table.append(
            pa.table(
                {
                    "day": [day] * ROWS,
                    "id": list(numbers),
                    "level": [("INFO", "ERROR")[number % 7 == 0] for number in numbers],
                    "body": [
                        f"word{number * 7919 % 1009} and word{number * 104729 % 2003}" for number in numbers
                    ],
                    "payload": [{"user": f"user {number % 50}"} for number in numbers],
                    "address": [f"10.0.{number // 256}.{number % 256}" for number in numbers],
                    "blob": [number.to_bytes(8, "big") for number in numbers],
                },
                schema=SCHEMA,
            )
        )
    return path


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """Settings with an empty cache."""
    return {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The bytes of indexes that this process has fetched, one number per request."""
    sizes: list[float] = []
    monkeypatch.setattr(INDEX_FETCHED_BYTES, "_recorder", lambda value, _: sizes.append(value))
    return sizes


def only_host(result):
    (host,) = result.hosts
    return host


SEARCHES = {
    "body": [
        lambda table: table.search("body:word5 OR body:word17", limit=10),
        lambda table: table.search('body:"word0 and word0"'),
        lambda table: table.count("body:word1*"),
        lambda table: table.count("body:word~1"),
        lambda table: table.count("body:/word1.*/"),
    ],
    "level": [
        lambda table: table.count("level:ERROR"),
        lambda table: table.aggregate(["count"], by="level"),
        lambda table: table.count(where="level IN ('ERROR', 'WARN')"),
    ],
    "id": [
        lambda table: table.count(where="id > 10 AND id < 1000"),
        lambda table: table.search("id:5"),
        lambda table: table.aggregate(["min(id)", "max(id)", "avg(id)"]),
    ],
    "payload": [
        lambda table: table.count("payload.user:user"),
        lambda table: table.search('payload.user:"user 7"'),
    ],
    "address": [lambda table: table.count("address:10.0.0.7")],
    "blob": [lambda table: table.count(where="blob IS NOT NULL")],
}


@pytest.mark.parametrize("field", SEARCHES)
def test_searches_on_a_prewarmed_field_fetch_nothing_of_the_index(path, options, fetched, field):
    table = IndexTable(path, options=options)
    expected = [search(IndexTable(path)) for search in SEARCHES[field]]
    fetched.clear()
    host = only_host(table.prewarm(fields=[field]))
    assert (host.status, host.fields, host.cached_splits, host.num_splits) == (Status.SUCCESS, (field,), 2, 2)
    assert host.fetched_bytes == sum(fetched) > 0
    fetched.clear()
    assert [search(table) for search in SEARCHES[field]] == expected
    assert fetched == []


def test_all_searches_on_a_prewarmed_table_fetch_nothing_of_the_index(path, options, fetched):
    table = IndexTable(path, options=options)
    host = only_host(table.prewarm())
    assert (host.status, host.fields, host.cached_splits) == (Status.SUCCESS, None, 2)
    assert host.fetched_bytes == sum(fetched) > 0
    assert host.cached_bytes == index_cache(table.snapshot.context.settings).size()
    fetched.clear()
    for searches in SEARCHES.values():
        for search in searches:
            search(table)
    assert fetched == []


def test_prewarming_again_fetches_nothing_and_more_fields_only_what_is_missing(path, options, fetched):
    table = IndexTable(path, options=options)
    assert only_host(table.prewarm(fields=["level"])).status is Status.SUCCESS
    again = only_host(table.prewarm(fields=["LEVEL", "level"]))
    assert (again.status, again.fetched_bytes, again.fields) == (Status.NO_ACTION, 0, ("level",))
    assert (again.warmed_splits, again.cached_splits) == (0, 2)
    fetched.clear()
    rest = only_host(table.prewarm())
    whole = only_host(
        IndexTable(path, options={key: f"{value}-2" for key, value in options.items()}).prewarm()
    )
    assert 0 < rest.fetched_bytes < whole.fetched_bytes
    assert rest.cached_bytes == whole.cached_bytes


def test_where_selects_splits(path, options):
    table = IndexTable(path, options=options)
    host = only_host(table.prewarm(where=f"day = '{DAYS[0]}' AND id < 10"))
    assert (host.num_splits, host.cached_splits) == (1, 1)
    assert len(index_cache(table.snapshot.context.settings).entries()) == 1
    assert table.prewarm(where="day = 'never'").hosts == ()
    with pytest.raises(InvalidPredicateError):
        table.prewarm(where="nothing = 1")


def test_prewarm_reports_progress_and_runs_as_an_operation(path, options):
    table = IndexTable(path, options=options)
    told = []
    table.prewarm(progress=told.append)
    assert ("prewarming", 2, 2) in [(each.description, each.done, each.total) for each in told]
    request = PrewarmRequest(("body",), parse_predicate(f"day = '{DAYS[1]}'"))
    host = only_host(prewarm(table.snapshot, request, LocalRunner(1)))
    assert (host.num_splits, host.status) == (1, Status.NO_ACTION)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("boddy", "there is no column 'boddy' to prewarm; did you mean 'body'?"),
        ("?", "there is no column '.' to prewarm; the columns are day, id"),
        ("day", "'day' is a partition column"),
    ],
)
def test_a_field_without_an_index_is_an_error(path, options, field, message):
    with pytest.raises(InvalidSchemaError, match=message.replace("?", "[?]")):
        IndexTable(path, options=options).prewarm(fields=["body", field])


def test_a_column_that_is_not_indexed_is_an_error(tmp_path, options):
    schema = pa.schema([("id", pa.int64()), ("empty", pa.null())])
    table = IndexTable.create(str(tmp_path / "table"), schema, options=options)
    table.append(pa.table({"id": [1], "empty": [None]}, schema=schema))
    with pytest.raises(InvalidSchemaError, match="column 'empty' is not indexed"):
        table.prewarm(fields=["empty"])


def test_a_full_cache_keeps_what_was_fetched_first_and_says_how_much_did_not_fit(tmp_path, path, options):
    table = IndexTable.create(str(tmp_path / "many"), SCHEMA, partition_by=["day"], text=["body"])
    rows = IndexTable(path).to_arrow(where=f"day = '{DAYS[0]}'").slice(0, ROWS_OF_SPLIT)
    for _ in range(SPLITS):
        table.append(rows)
    whole = only_host(IndexTable(str(tmp_path / "many"), options=options).prewarm())
    assert whole.cached_splits == SPLITS
    max_bytes = max(1024**2, whole.cached_bytes // 2)
    assert whole.cached_bytes > max_bytes
    small = {"spark.indextables.cache.disk.path": str(tmp_path / "small")}
    small["spark.indextables.cache.disk.maxSize"] = str(max_bytes)
    narrow = IndexTable(str(tmp_path / "many"), options=small)
    host = only_host(narrow.prewarm(runner=LocalRunner(1)))
    assert host.status is Status.PARTIAL
    assert 0 < host.cached_splits < SPLITS
    assert 0 < host.cached_bytes <= max_bytes
    assert host.fetched_bytes < whole.fetched_bytes
    assert abs(host.cached_bytes + host.left_bytes - whole.cached_bytes) < whole.cached_bytes // 4
    assert f"{host.left_bytes} bytes did not fit" in host.message
    again = only_host(narrow.prewarm(runner=LocalRunner(1)))
    assert again.cached_splits >= host.cached_splits
    assert narrow.count("body:and") == SPLITS * ROWS_OF_SPLIT


def test_a_prewarm_makes_room_from_entries_that_are_older(tmp_path, path):
    first, second = DAYS
    options = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    size = only_host(IndexTable(path, options=options).prewarm(where=f"day = '{first}'")).cached_bytes
    options["spark.indextables.cache.disk.maxSize"] = str(max(1024**2, size * 5 // 4))
    table = IndexTable(path, options=options)
    host = only_host(table.prewarm(where=f"day = '{second}'"))
    assert (host.status, host.left_bytes) == (Status.SUCCESS, 0)
    assert index_cache(table.snapshot.context.settings).size() <= max(1024**2, size * 5 // 4)


def test_an_unreadable_split_is_a_problem_and_the_others_are_fetched(tmp_path, options):
    table = IndexTable.create(str(tmp_path / "table"), pa.schema([("id", pa.int64())]), options=options)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    lost, damaged, _ = table.files()["path"].to_pylist()
    (tmp_path / "table" / lost).unlink()
    (tmp_path / "table" / damaged).write_bytes(b"?" * 1000)
    host = only_host(table.prewarm())
    assert (host.status, host.cached_splits, host.num_splits) == (Status.PARTIAL, 1, 3)
    assert {problem.path for problem in host.problems} == {lost, damaged}
    assert host.to_dict()["problems"][0]["reason"]
    assert "2 splits could not be read" in host.message


def test_an_unusable_cache_is_an_error(path, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    table = IndexTable(path, options={"spark.indextables.cache.disk.path": str(tmp_path / "file")})
    with pytest.raises(IndexCacheError, match="set another directory"):
        table.prewarm()


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the tables of the JVM are not at ../shared/fixtures")
def test_splits_of_the_jvm_are_indexed_into_the_cache(tmp_path, options):
    name = next(each.name for each in sorted(FIXTURES.iterdir()) if (each / "_transaction_log").is_dir())
    table = IndexTable(FIXTURES / name, options=options)
    host = only_host(table.prewarm())
    assert (host.status, host.cached_splits) == (Status.SUCCESS, table.num_files)
    entries = index_cache(table.snapshot.context.settings).entries()
    assert len(entries) == table.num_files
    table.search("*")
    assert {each.path for each in index_cache(table.snapshot.context.settings).entries()} == {
        each.path for each in entries
    }
    assert only_host(table.prewarm()).status is Status.NO_ACTION

"""The first search of a large split on a distant store: how often it waits for an answer, and what it fetches."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables import IndexTable
from indextables._caching import clear_process_caches
from indextables.ops.read import open_ref, split_refs
from indextables.split.reader import OwnSplit
from support.fault_proxy import FaultProxy, Request

ROWS = 1_000_000
WORDS_PER_ROW = 6
VOCABULARY = 50_000
SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("level", pa.string()), ("body", pa.string())])

# Longer than the 30 ms of a store, so that a busy machine takes no requests that were sent at once for two round trips.
LATENCY_SECONDS = 0.25


def large_table() -> pa.Table:
    """Rows with words as frequent as those of a language, and with a key that no other row has."""
    chance = np.random.default_rng(1)
    ranks = np.minimum(chance.zipf(1.2, ROWS * WORDS_PER_ROW), VOCABULARY)
    words = pc.binary_join_element_wise("w", pa.array(ranks).cast(pa.string()), "")
    offsets = pa.array(np.arange(0, len(ranks) + 1, WORDS_PER_ROW), pa.int32())
    # Multiples of an odd number, modulo a power of two, are all different.
    keys = np.arange(ROWS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    columns = [
        pa.array(np.arange(ROWS)),
        pa.array(keys).cast(pa.string()),
        pa.array(["debug", "info", "warn"]).take(pa.array(ranks[:ROWS] % 3)),
        pc.binary_join(pa.ListArray.from_arrays(offsets, words), " "),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


class DistantTable:
    """A table of one split, behind a proxy."""

    def __init__(self, url: str, proxy: FaultProxy, storage_options: dict[str, str]) -> None:
        self._url = url
        self._proxy = proxy
        self._storage_options = storage_options | {"aws_endpoint": proxy.endpoint}
        snapshot = IndexTable(url, storage_options=storage_options).snapshot
        (ref,) = split_refs(snapshot.entries)
        split = open_ref(snapshot, ref)
        assert isinstance(split, OwnSplit)
        assert split.num_records == ROWS
        self._index = range(split._bundle.index_start, split._bundle.footer_start)

    def first(self, cache: Path, ask: Callable[[IndexTable], Any]) -> tuple[Any, list[Request]]:
        """The first answer of a process, and the requests that it made after the log was read."""
        clear_process_caches()
        options = {"spark.indextables.cache.disk.path": str(cache)}
        table = IndexTable(self._url, storage_options=self._storage_options, options=options)
        before = len(self._proxy.requests)
        answer = ask(table)
        return answer, self._proxy.requests[before:]

    def index_share(self, requests: list[Request]) -> float:
        """Which part of the index was fetched."""
        ranges = [request.byte_range for request in requests if request.byte_range is not None]
        fetched = sum(
            max(min(end, self._index.stop) - max(start, self._index.start), 0) for start, end in ranges
        )
        return fetched / len(self._index)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return large_table()


@pytest.fixture(scope="module")
def distant(rows, s3_server) -> Iterator[DistantTable]:
    url = f"s3://{s3_server.make_bucket()}/table"
    table = IndexTable.create(url, SCHEMA, text=["body"], storage_options=s3_server.storage_options)
    table.append(rows)
    assert table.num_files == 1
    with FaultProxy(s3_server.endpoint, [], LATENCY_SECONDS).running() as proxy:
        yield DistantTable(url, proxy, s3_server.storage_options)


def round_trips(requests: list[Request]) -> int:
    return len({request.round_trip for request in requests})


@pytest.mark.parametrize("word", ["w2", "w77", "w4321", "absent"])
def test_the_best_rows_of_a_term_take_four_round_trips_and_little_of_the_index(distant, rows, tmp_path, word):
    found, requests = distant.first(tmp_path, lambda table: table.search(f"body:{word}", limit=10))
    has_word = pc.match_substring_regex(rows["body"], rf"\b{word}\b")
    assert found.num_rows == min(10, pc.sum(has_word).as_py())
    assert all(word in body.split() for body in found["body"].to_pylist())
    assert round_trips(requests) <= 4
    assert distant.index_share(requests) < 0.1


@pytest.mark.parametrize("query", ['body:"w77 w3"', "level:warn AND body:w999"])
def test_other_searches_take_no_more_round_trips(distant, tmp_path, query):
    found, requests = distant.first(tmp_path, lambda table: table.search(query, limit=10))
    assert found.num_rows
    assert round_trips(requests) <= 4


def test_one_row_of_a_million_is_found_by_its_key(distant, rows, tmp_path):
    wanted = rows.slice(654_321, 1)
    key = wanted["key"][0].as_py()
    found, requests = distant.first(tmp_path, lambda table: table.search(f"key:{key}"))
    assert found.select(SCHEMA.names).equals(wanted)
    assert round_trips(requests) <= 4
    assert distant.index_share(requests) < 0.1


def test_a_count_takes_three_round_trips(distant, rows, tmp_path):
    found, requests = distant.first(tmp_path, lambda table: table.count("body:w77"))
    assert found == pc.sum(pc.match_substring_regex(rows["body"], r"\bw77\b")).as_py()
    assert round_trips(requests) <= 3
    assert distant.index_share(requests) < 0.1

"""Listings of more objects than fit on one page: S3 hands out a thousand at a time."""

import functools
import itertools
import uuid
from concurrent.futures import ThreadPoolExecutor

import obstore
import pytest

from indextables.storage import KeyRange, open_store
from support.fault_proxy import SLOW_DOWN, Action, Fault

KEYS = [f"data/{number:05d}" for number in range(1_060)]


@pytest.fixture(scope="module")
def filled_bucket(s3_server) -> str:
    bucket = s3_server.make_bucket()
    store = open_store(f"s3://{bucket}", storage_options=s3_server.storage_options)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b""), KEYS))
    return bucket


@pytest.fixture
def listed_behind(behind, filled_bucket):
    return functools.partial(behind, root=f"s3://{filled_bucket}")


def test_all_pages_are_listed(listed_behind):
    with listed_behind() as (store, proxy):
        assert [meta.key for meta in store.list("data/")] == KEYS
        assert proxy.count("GET") == 2


def test_listing_starts_after_any_key(listed_behind):
    with listed_behind() as (store, _):
        for position in (0, 998, 999, 1000, 1058, 1059):
            found = [meta.key for meta in store.list("data/", start_after=KEYS[position])]
            assert found == KEYS[position + 1 :]


def test_pages_of_skipped_keys_are_not_fetched(listed_behind):
    """Without the range there are two pages, too, but the second one would start among the skipped keys."""
    with listed_behind() as (store, proxy):
        skipped = KeyRange(KEYS[3], KEYS[1050])
        assert [meta.key for meta in store.list("data/", skip=skipped)] == KEYS[:3] + KEYS[1051:]
        first, second = [request.path for request in proxy.requests if request.method == "GET"]
        assert "start-after" not in first
        assert "start-after" in second
        assert "01050" in second


def test_skipped_keys_cost_at_most_one_page_however_many_there_are(monkeypatch):
    fetched: list[int] = []
    listed = obstore.list

    def counted(*args, **kwargs):
        for page in listed(*args, **kwargs):
            fetched.append(len(page))
            yield page

    store = open_store(f"memory://{uuid.uuid4().hex}/table")
    for number in range(5_000):
        store.put(f"log/manifests/{number:05d}", b"")
    store.put("log/0", b"")
    store.put("log/state", b"")
    monkeypatch.setattr(obstore, "list", counted)
    skipped = KeyRange("log/manifests/", "log/s")
    assert [meta.key for meta in store.list("log/", skip=skipped)] == ["log/0", "log/state"]
    assert fetched == [1000, 1]


def test_pages_that_are_not_consumed_are_not_fetched(listed_behind):
    with listed_behind() as (store, proxy):
        listing = store.list("data/")
        first = [meta.key for meta in itertools.islice(listing, 10)]
        listing.close()
        assert first == KEYS[:10]
        assert proxy.count("GET") == 1


def test_listing_goes_on_where_it_broke(listed_behind):
    broken = Fault("GET", Action.ANSWER, path_contains="continuation-token", body=SLOW_DOWN)
    with listed_behind(broken) as (store, proxy):
        assert [meta.key for meta in store.list("data/")] == KEYS
        resumed = [request.path for request in proxy.requests if "start-after" in request.path]
        assert len(resumed) == 1
        assert "00999" in resumed[0]


def test_deletes_go_out_in_batches(listed_behind):
    with listed_behind() as (store, proxy):
        store.delete_many(f"absent/{number}" for number in range(1_500))
        assert proxy.count("POST") == 2
        assert proxy.count("DELETE") == 0

"""A remote store whose server answers late, wrongly or not at all, behind a proxy."""

import uuid

import pytest

from indextables.errors import StorageError, TransientStorageError
from indextables.storage import PutOutcome, RetryPolicy, open_store
from support.fault_proxy import CONFLICT, SLOW_DOWN, Action, Fault, FaultProxy

THROTTLED = Fault("PUT", Action.ANSWER, status=503, body=SLOW_DOWN)
CONFLICTING = Fault("PUT", Action.ANSWER, status=409, body=CONFLICT)
LOST = Fault("PUT", Action.DROP_AFTER)
UNSENT = Fault("PUT", Action.DROP_BEFORE)


def methods(proxy: FaultProxy) -> list[str]:
    return [request.method for request in proxy.requests]


def test_conditional_conflict_is_tried_again_and_written(behind):
    with behind(CONFLICTING, CONFLICTING) as (store, proxy):
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN
        assert store.get("log/0") == b"ours"
        assert methods(proxy) == ["PUT", "HEAD", "PUT", "HEAD", "PUT", "GET"]


def test_failed_precondition_is_exists_at_once(behind):
    with behind() as (store, proxy):
        store.put("log/0", b"theirs")
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.EXISTS
        assert methods(proxy) == ["PUT", "PUT", "HEAD"]
        assert store.get("log/0") == b"theirs"


def test_conditional_conflict_that_another_writer_won_is_exists(behind):
    with behind() as (store, _):
        store.put("log/0", b"theirs")
    with behind(CONFLICTING) as (store, _):
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.EXISTS
        assert store.get("log/0") == b"theirs"


def test_throttled_put_is_tried_again(behind):
    with behind(THROTTLED, THROTTLED) as (store, proxy):
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN
        # Were the client to retry on its own, a lost answer would be hidden from us.
        assert methods(proxy) == ["PUT", "PUT", "PUT"]


def test_put_whose_answer_was_lost_is_recognised_as_ours(behind):
    with behind(LOST) as (store, proxy):
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN
        assert store.get("log/0") == b"ours"
        assert methods(proxy) == ["PUT", "PUT", "HEAD", "GET", "GET"]


def test_put_that_never_arrived_is_sent_again(behind):
    with behind(UNSENT) as (store, _):
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN
        assert store.get("log/0") == b"ours"


def test_put_that_lost_to_another_writer_is_exists(behind):
    with behind() as (store, _):
        store.put("log/0", b"theirs")
    with behind(LOST, UNSENT) as (store, _):
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.EXISTS
        assert store.get("log/0") == b"theirs"


def test_put_that_is_never_answered_stays_unknown(behind):
    attempts = RetryPolicy().max_attempts
    with behind(*[LOST] * attempts) as (store, proxy):
        with pytest.raises(TransientStorageError, match="log/0"):
            store.put_if_absent("log/0", b"ours")
        assert proxy.count("PUT") == attempts
        assert store.get("log/0") == b"ours"


@pytest.mark.parametrize("action", [Action.ANSWER, Action.DROP_BEFORE, Action.DROP_AFTER, Action.TRUNCATE])
def test_read_survives_every_kind_of_failure(behind, action):
    with behind(Fault("GET", action, body=SLOW_DOWN), Fault("GET", action, body=SLOW_DOWN)) as (store, _):
        store.put("object", b"0123456789" * 10_000)
        assert store.get("object") == b"0123456789" * 10_000


def test_range_read_survives_a_body_that_was_cut(behind):
    with behind(Fault("GET", Action.TRUNCATE)) as (store, _):
        store.put("object", b"0123456789" * 1000)
        assert store.get_range("object", 10, 5000) == (b"0123456789" * 1000)[10:5000]


def test_delete_survives_a_throttled_batch(behind):
    with behind(Fault("POST", Action.ANSWER, body=SLOW_DOWN)) as (store, _):
        store.put("object", b"")
        store.delete_many(["object"])
        assert list(store.list("")) == []


def test_refused_listing_is_tried_again(behind):
    with behind(Fault("GET", Action.ANSWER, path_contains="list-type", body=SLOW_DOWN)) as (store, _):
        store.put("object", b"")
        assert [meta.key for meta in store.list("")] == ["object"]


def test_missing_bucket_is_named(s3_server):
    store = open_store("s3://no-such-bucket/table", storage_options=s3_server.storage_options)
    for write in (store.put, store.put_if_absent):
        with pytest.raises(StorageError, match="the bucket or container 'no-such-bucket' does not exist"):
            write("object", b"")


def test_requests_that_a_client_sends_at_once_are_one_round_trip(s3_server, s3_bucket):
    """Many ranges of an object, too far from each other to be read together, and then another one."""
    apart, count = 512 * 1024, 40
    root = f"s3://{s3_bucket}/{uuid.uuid4().hex}"
    data = bytes(count * apart)
    open_store(root, storage_options=s3_server.storage_options).put("object", data)
    with FaultProxy(s3_server.endpoint, [], latency_seconds=0.25).running() as proxy:
        options = s3_server.storage_options | {"aws_endpoint": proxy.endpoint}
        store = open_store(root, storage_options=options)
        found = store.get_ranges("object", [(number * apart, number * apart + 9) for number in range(count)])
        assert found == [bytes(9)] * count
        assert store.get_range("object", 5, 7) == bytes(2)
    assert [request.round_trip for request in proxy.requests] == [0] * count + [1]
    assert proxy.requests[-1].byte_range == (5, 7)

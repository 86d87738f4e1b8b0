"""Ordered work of several threads: bounded, with errors in their place, and no thread that blocks an exit."""

import subprocess
import sys
import threading

import pytest

from indextables.ops.runner import ordered_streams, parallel_map
from support import PATIENCE_SECONDS


class BrokenError(Exception):
    pass


def test_results_come_in_the_order_of_the_items():
    first_is_last = threading.Event()

    def work(item):
        if item == 0:
            assert first_is_last.wait(PATIENCE_SECONDS)
        else:
            first_is_last.set()
        return item * 10

    assert parallel_map(work, [0, 1], parallelism=2) == [0, 10]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_error_in_an_item_is_raised_and_leaves_no_thread(parallelism):
    def work(item):
        if item == 2:
            raise BrokenError
        return item

    before = set(threading.enumerate())
    with pytest.raises(BrokenError):
        parallel_map(work, range(5), parallelism)
    assert set(threading.enumerate()) == before


def test_no_items_give_no_results():
    assert parallel_map(str, [], parallelism=4) == []
    assert list(ordered_streams([], parallelism=4)) == []


@pytest.mark.parametrize("parallelism", [1, 2, 7, 50])
def test_streams_of_any_length_come_one_after_the_other(parallelism):
    lengths = [0, 3, 0, 20, 1, 7, 0]
    streams = [
        lambda number=number, length=length: iter([(number, item) for item in range(length)])
        for number, length in enumerate(lengths)
    ]
    expected = [(number, item) for number, length in enumerate(lengths) for item in range(length)]
    assert list(ordered_streams(streams, parallelism)) == expected


def test_the_next_streams_are_produced_while_the_first_is_consumed():
    together = threading.Barrier(3, timeout=PATIENCE_SECONDS)

    def stream():
        together.wait()  # passes only if all three run at once
        yield 1

    assert list(ordered_streams([stream] * 3, parallelism=3)) == [1, 1, 1]


def test_number_of_open_streams_is_bounded():
    lock, is_open, most = threading.Lock(), 0, 0

    def stream():
        nonlocal is_open, most
        with lock:
            is_open += 1
            most = max(most, is_open)
        yield from range(3)
        with lock:
            is_open -= 1

    assert len(list(ordered_streams([stream] * 20, parallelism=3))) == 60
    assert most <= 3


def test_producers_stay_a_bounded_way_ahead_of_the_consumer():
    taken, leads = 0, []

    def stream():
        for item in range(200):
            leads.append(item - taken)
            yield item

    for _ in ordered_streams([stream], parallelism=1):
        taken += 1
    assert max(leads) <= 6


def test_an_error_in_a_stream_is_raised_in_place_of_its_next_item():
    def broken():
        yield "b"
        raise BrokenError

    before = set(threading.enumerate())
    items = ordered_streams([lambda: iter("a"), broken, lambda: iter("c")], parallelism=2)
    assert [next(items), next(items)] == ["a", "b"]
    with pytest.raises(BrokenError):
        next(items)
    assert set(threading.enumerate()) == before


def test_an_error_when_a_stream_is_opened_is_raised():
    def broken():
        raise BrokenError

    with pytest.raises(BrokenError):
        list(ordered_streams([broken], parallelism=2))


def test_a_consumer_that_stops_early_closes_every_stream_and_leaves_no_thread():
    closed = []

    def stream(number):
        try:
            yield from range(1000)
        finally:
            closed.append(number)

    before = set(threading.enumerate())
    items = ordered_streams([lambda number=number: stream(number) for number in range(4)], parallelism=2)
    assert next(items) == 0
    items.close()
    del items
    assert set(threading.enumerate()) == before
    assert closed == [0, 1] or closed == [1, 0]


def test_a_process_exits_with_an_unfinished_stream():
    program = """
from indextables.ops.runner import ordered_streams
items = ordered_streams([lambda: iter(range(1000))] * 3, 2)
print(next(items))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert done.stdout == "0\n"

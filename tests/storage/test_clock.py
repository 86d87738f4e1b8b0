"""The system clock, and the virtual clock of the tests."""

import threading
import time

from indextables.storage import SystemClock
from support.clock import VirtualClock


def test_virtual_clock_moves_only_when_told():
    clock = VirtualClock(start_ms=1_000)
    assert clock.now_ms() == 1_000
    clock.sleep(0.25)
    clock.advance(1.0)
    assert clock.now_ms() == 2_250
    clock.advance(-2.0)
    assert clock.now_ms() == 250


def test_virtual_clock_loses_no_sleep_of_any_thread():
    clock = VirtualClock(start_ms=0)
    threads = [threading.Thread(target=lambda: [clock.sleep(0.001) for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now_ms() == 1_600


def test_system_clock_is_the_machines():
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().now_ms() <= time.time_ns() // 1_000_000
    SystemClock().sleep(0)

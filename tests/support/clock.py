"""A clock that tests control."""

import threading


class VirtualClock:
    """A clock that moves only when a test sleeps on it or advances it. Thread-safe."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._now_us = start_ms * 1000

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        with self._lock:
            return self._now_us // 1000

    def sleep(self, seconds: float) -> None:
        """Move the clock forward by `seconds`, without waiting."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock; negative seconds move it backwards, which happens to real clocks, too."""
        with self._lock:
            self._now_us += round(seconds * 1_000_000)

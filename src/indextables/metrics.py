"""Metrics through OpenTelemetry, for applications that use it.

This module imports OpenTelemetry only if the application already has, or names a provider in the environment.
Otherwise recording does nothing, and commands skip the cost of the import.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Literal

_METER: Final = "indextables"
_LIBRARY: Final = "opentelemetry.metrics"
# Names a provider that OpenTelemetry loads by itself.
_PROVIDER_VARIABLE: Final = "OTEL_PYTHON_METER_PROVIDER"

_CREATION_LOCK: Final = threading.Lock()


class _Instrument:
    """An OpenTelemetry instrument, created on first use. Thread-safe."""

    __slots__ = ("_description", "_kind", "_name", "_recorder", "_unit")

    def __init__(
        self, kind: Literal["histogram", "counter", "gauge"], name: str, description: str, unit: str = ""
    ) -> None:
        self._kind = kind
        self._name = name
        self._description = description
        self._unit = unit
        self._recorder: Callable[[float], None] | None = None

    def record(self, value: float) -> None:
        """Record an observation of a histogram, an increment of a counter, or the value of a gauge."""
        recorder = self._recorder or self._create_if_enabled()
        if recorder is not None:
            recorder(value)

    def _create_if_enabled(self) -> Callable[[float], None] | None:
        if _LIBRARY not in sys.modules and _PROVIDER_VARIABLE not in os.environ:
            return None
        with _CREATION_LOCK:
            if self._recorder is None:
                self._recorder = self._create()
            return self._recorder

    def _create(self) -> Any:
        from opentelemetry import metrics

        meter = metrics.get_meter(_METER)
        match self._kind:
            case "histogram":
                return meter.create_histogram(self._name, self._unit, self._description).record
            case "counter":
                return meter.create_counter(self._name, self._unit, self._description).add
            case "gauge":
                return meter.create_gauge(self._name, self._unit, self._description).set


STATE_READ_DURATION_MS = _Instrument(
    "histogram",
    "indextables.state.read.duration_ms",
    "Time to read the file entries of a state.",
    unit="ms",
)
STATE_READ_MANIFEST_COUNT = _Instrument(
    "histogram",
    "indextables.state.read.manifest_count",
    "Number of manifests that a read of a state fetched.",
)
STATE_READ_FILE_COUNT = _Instrument(
    "histogram",
    "indextables.state.read.file_count",
    "Number of file entries that a read of a state returned.",
)
STATE_WRITE_DURATION_MS = _Instrument(
    "histogram", "indextables.state.write.duration_ms", "Time to write a state.", unit="ms"
)
STATE_WRITE_COMPACTED = _Instrument(
    "counter", "indextables.state.write.compacted", "Number of state writes that compacted."
)
STATE_TOMBSTONE_COUNT = _Instrument(
    "gauge", "indextables.state.tombstone_count", "Number of tombstones in the newest state that was written."
)
STATE_TOMBSTONE_RATIO = _Instrument(
    "gauge",
    "indextables.state.tombstone_ratio",
    "Tombstones per live file in the newest state that was written.",
)

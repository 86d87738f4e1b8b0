"""Metrics through OpenTelemetry, for applications that use it.

Its library is imported by whoever configures it. Until somebody has, there is nobody to tell, and commands are spared
the time that the import takes.
"""

import os
import sys
import threading
from typing import Any, Final, Literal

_METER: Final = "indextables"
_LIBRARY: Final = "opentelemetry.metrics"
# Names a provider that the library loads by itself.
_PROVIDER_VARIABLE: Final = "OTEL_PYTHON_METER_PROVIDER"

_MAKING: Final = threading.Lock()


class _Instrument:
    """An instrument of OpenTelemetry, made when it is first used."""

    __slots__ = ("_description", "_kind", "_made", "_name", "_unit")

    def __init__(
        self, kind: Literal["histogram", "counter", "gauge"], name: str, description: str, unit: str = ""
    ) -> None:
        self._kind = kind
        self._name = name
        self._description = description
        self._unit = unit
        self._made: Any = None

    def record(self, value: float) -> None:
        """Tell a value: an observation of a histogram, the increase of a counter, what a gauge shows."""
        tell = self._made or self._made_now()
        if tell is not None:
            tell(value)

    def _made_now(self) -> Any:
        if _LIBRARY not in sys.modules and _PROVIDER_VARIABLE not in os.environ:
            return None
        with _MAKING:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> Any:
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
    "histogram", "indextables.state.read.manifest_count", "Manifests read to get the entries."
)
STATE_READ_FILE_COUNT = _Instrument(
    "histogram", "indextables.state.read.file_count", "File entries that a read gave."
)
STATE_WRITE_DURATION_MS = _Instrument(
    "histogram", "indextables.state.write.duration_ms", "Time to write a state.", unit="ms"
)
STATE_WRITE_COMPACTED = _Instrument(
    "counter", "indextables.state.write.compacted", "State writes that compacted."
)
STATE_TOMBSTONE_COUNT = _Instrument(
    "gauge", "indextables.state.tombstone_count", "Tombstones in the state written last."
)
STATE_TOMBSTONE_RATIO = _Instrument(
    "gauge", "indextables.state.tombstone_ratio", "Tombstones per live file in the state written last."
)

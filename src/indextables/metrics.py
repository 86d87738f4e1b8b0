"""Metrics through OpenTelemetry, for applications that use it.

This module imports OpenTelemetry only if the application already has, or was started with a provider named in the
environment. Otherwise recording does nothing, and commands skip the cost of the import.

Every measurement names its table by the URL of the store, which never contains credentials. docs/operations.md lists
the instruments.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Literal

_METER: Final = "indextables"
_LIBRARY: Final = "opentelemetry.metrics"
# Whether the environment names a provider, which OpenTelemetry then loads by itself. Looked up once: a search of many
# splits records many measurements.
_IS_PROVIDER_NAMED: Final = "OTEL_PYTHON_METER_PROVIDER" in os.environ

_CREATION_LOCK: Final = threading.Lock()


class Instrument:
    """An OpenTelemetry instrument, created on first use. Thread-safe.

    `attributes` are those that a measurement has in addition to `table`.
    """

    __slots__ = ("_recorder", "attributes", "description", "kind", "name", "unit")

    def __init__(
        self,
        kind: Literal["histogram", "counter", "gauge"],
        name: str,
        description: str,
        *,
        unit: str = "",
        attributes: tuple[str, ...] = (),
    ) -> None:
        self.kind = kind
        self.name = name
        self.description = description
        self.unit = unit
        self.attributes = attributes
        self._recorder: Callable[[float, dict[str, str]], None] | None = None

    def record(self, value: float, table: str, **attributes: str) -> None:
        """Record an observation of a histogram, an increment of a counter, or the value of a gauge."""
        recorder = self._recorder or self._create_if_enabled()
        if recorder is not None:
            recorder(value, {"table": table, **attributes})

    def _create_if_enabled(self) -> Callable[[float, dict[str, str]], None] | None:
        if _LIBRARY not in sys.modules and not _IS_PROVIDER_NAMED:
            return None
        with _CREATION_LOCK:
            if self._recorder is None:
                self._recorder = self._create()
            return self._recorder

    def _create(self) -> Any:
        from opentelemetry import metrics

        meter = metrics.get_meter(_METER)
        match self.kind:
            case "histogram":
                return meter.create_histogram(self.name, self.unit, self.description).record
            case "counter":
                return meter.create_counter(self.name, self.unit, self.description).add
            case "gauge":
                return meter.create_gauge(self.name, self.unit, self.description).set


# --- Opening tables and reading their state -----------------------------------------------------------

LOAD_DURATION_MS = Instrument(
    "histogram",
    "indextables.load.duration_ms",
    "Time to open a version of a table from its log, by the format of the checkpoint that it starts from.",
    unit="ms",
    attributes=("format",),
)
STATE_READ_DURATION_MS = Instrument(
    "histogram",
    "indextables.state.read.duration_ms",
    "Time to read the file entries of a state.",
    unit="ms",
)
STATE_READ_MANIFEST_COUNT = Instrument(
    "histogram",
    "indextables.state.read.manifest_count",
    "Number of manifests that a read of a state fetched.",
)
STATE_READ_FILE_COUNT = Instrument(
    "histogram",
    "indextables.state.read.file_count",
    "Number of file entries that a read of a state returned.",
)
STATE_TOMBSTONE_COUNT = Instrument(
    "gauge",
    "indextables.state.tombstone_count",
    "Number of tombstones in the newest state that was written or opened.",
)
STATE_TOMBSTONE_RATIO = Instrument(
    "gauge",
    "indextables.state.tombstone_ratio",
    "Tombstones per live file in the newest state that was written or opened.",
)

# --- Checkpoints and cleanup --------------------------------------------------------------------------

STATE_WRITE_DURATION_MS = Instrument(
    "histogram", "indextables.state.write.duration_ms", "Time to write a state.", unit="ms"
)
STATE_WRITE_COMPACTED = Instrument(
    "counter", "indextables.state.write.compacted", "Number of state writes that compacted."
)
CHECKPOINT_DURATION_MS = Instrument(
    "histogram",
    "indextables.checkpoint.duration_ms",
    "Time to write a checkpoint.",
    unit="ms",
    attributes=("format",),
)
CHECKPOINT_SIZE_BYTES = Instrument(
    "histogram",
    "indextables.checkpoint.size_bytes",
    "Size of the files that a checkpoint wrote.",
    unit="By",
    attributes=("format",),
)
CHECKPOINT_COMPRESSION_RATIO = Instrument(
    "histogram",
    "indextables.checkpoint.compression_ratio",
    "Size of the file entries that a checkpoint wrote, before compression, divided by their size after it.",
    attributes=("format",),
)
CLEANUP_DELETED_FILES = Instrument(
    "counter",
    "indextables.cleanup.deleted_files",
    "Number of log files that cleanup deleted after a checkpoint.",
    attributes=("kind",),
)

# --- Commits and merges -------------------------------------------------------------------------------

COMMITS = Instrument("counter", "indextables.commits", "Number of commits.", attributes=("operation",))
COMMIT_CONFLICTS = Instrument(
    "counter",
    "indextables.commit.conflicts",
    "Number of times that a concurrent commit took the version of a transaction, or made it fail.",
    attributes=("operation", "outcome"),
)
INDEXED_ROWS = Instrument(
    "counter",
    "indextables.indexed_rows",
    "Number of rows in the new splits of commits.",
    attributes=("operation",),
)
MERGE_DURATION_MS = Instrument(
    "histogram",
    "indextables.merge.duration_ms",
    "Time of a merge that committed new splits.",
    unit="ms",
)
MERGE_SOURCE_SPLITS = Instrument(
    "counter", "indextables.merge.source_splits", "Number of splits that merges replaced."
)
MERGE_NEW_SPLITS = Instrument(
    "counter", "indextables.merge.new_splits", "Number of splits that merges wrote."
)

# --- Searches and caches ------------------------------------------------------------------------------

SEARCH_DURATION_MS = Instrument(
    "histogram",
    "indextables.search.duration_ms",
    "Time of a search, count or aggregation.",
    unit="ms",
    attributes=("operation",),
)
CACHE_HITS = Instrument(
    "counter",
    "indextables.cache.hits",
    "Number of requests that a cache answered.",
    attributes=("cache",),
)
CACHE_MISSES = Instrument(
    "counter",
    "indextables.cache.misses",
    "Number of requests that a cache could not answer.",
    attributes=("cache",),
)
INDEX_FETCHED_BYTES = Instrument(
    "counter",
    "indextables.index.fetched_bytes",
    "Bytes of indexes that searches fetched from splits.",
    unit="By",
)
INDEX_PREDICTION_MISSES = Instrument(
    "counter",
    "indextables.index.prediction_misses",
    "Number of times that a search read a part of an index that had not been fetched, and was repeated.",
)


def all_instruments() -> tuple[Instrument, ...]:
    """Return every instrument, in the order of the documentation."""
    return tuple(value for value in globals().values() if isinstance(value, Instrument))

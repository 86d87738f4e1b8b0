"""Metrics through OpenTelemetry: no-ops until the application configures an SDK."""

from opentelemetry import metrics

_meter = metrics.get_meter("indextables")

STATE_READ_DURATION_MS = _meter.create_histogram(
    "indextables.state.read.duration_ms", unit="ms", description="Time to read the file entries of a state."
)
STATE_READ_MANIFEST_COUNT = _meter.create_histogram(
    "indextables.state.read.manifest_count", description="Manifests read to get the entries."
)
STATE_READ_FILE_COUNT = _meter.create_histogram(
    "indextables.state.read.file_count", description="File entries that a read gave."
)
STATE_WRITE_DURATION_MS = _meter.create_histogram(
    "indextables.state.write.duration_ms", unit="ms", description="Time to write a state."
)
STATE_WRITE_COMPACTED = _meter.create_counter(
    "indextables.state.write.compacted", description="State writes that compacted."
)
STATE_TOMBSTONE_COUNT = _meter.create_gauge(
    "indextables.state.tombstone_count", description="Tombstones in the state written last."
)
STATE_TOMBSTONE_RATIO = _meter.create_gauge(
    "indextables.state.tombstone_ratio", description="Tombstones per live file in the state written last."
)

"""The metrics that an OpenTelemetry SDK receives, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

# The names and kinds in the specification.
EXPECTED = {
    "indextables.state.read.duration_ms": "Histogram",
    "indextables.state.read.manifest_count": "Histogram",
    "indextables.state.read.file_count": "Histogram",
    "indextables.state.write.duration_ms": "Histogram",
    "indextables.state.write.compacted": "Sum",
    "indextables.state.tombstone_count": "Gauge",
    "indextables.state.tombstone_ratio": "Gauge",
}

WORK = """
import pyarrow as pa
from indextables import IndexTable
table = IndexTable.create(sys.argv[1], pa.schema([("id", pa.int64())]))
table.append(pa.table({"id": [1, 2]}))
table.checkpoint()
IndexTable(sys.argv[1], options={"spark.indextables.transaction.cache.enabled": "false"}).files()
"""

WITH_SDK = f"""
import json, sys
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
{WORK}
found = [
    metric
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
]
print(json.dumps({{metric.name: type(metric.data).__name__ for metric in found}}))
"""

WITHOUT = f"""
import sys
{WORK}
print(any(name.startswith("opentelemetry") for name in sys.modules))
"""


def output_of(script: str, path: Path) -> str:
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_application_with_an_sdk_receives_every_metric(tmp_path):
    assert json.loads(output_of(WITH_SDK, tmp_path / "table")) == EXPECTED


def test_opentelemetry_is_not_imported_without_an_sdk(tmp_path):
    assert output_of(WITHOUT, tmp_path / "table").strip() == "False"

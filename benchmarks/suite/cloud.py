"""Open a table on S3 and list its files. The server is local: this measures the requests."""

from collections.abc import Iterator

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks import ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import AtMost, Figure, Unit
from benchmarks.measure import always, measure_times
from benchmarks.s3_server import running_s3
from benchmarks.workshop import Workshop
from indextables import IndexTable


def _measure(workshop: Workshop) -> Iterator[Figure]:
    files = workshop.sizes.table_files
    with running_s3() as server:
        our_url = server.upload(workshop.our_table(files))
        delta_url = server.upload(workshop.delta_table(files))
        options = server.storage_options

        def list_ours() -> pa.Table:
            return IndexTable(our_url, storage_options=options, options=ours.NO_CACHE).files()

        def list_delta() -> pa.Table:
            return pa.table(DeltaTable(delta_url, storage_options=options).get_add_actions(flatten=False))

        times = measure_times(
            {"ours": always(list_ours), "deltalake": always(list_delta)},
            runs=workshop.sizes.slow_runs,
            expected_length=files,
        )
    yield Figure(
        name=f"open and list {files:,} files on S3",
        unit=Unit.SECONDS,
        ours=times["ours"].median,
        peer_name="deltalake",
        peer=times["deltalake"].median,
        goal=AtMost(2),
        note="The S3 server is MiniStack on the same machine: there is no network, and it is slower than S3.",
        samples={"ours": times["ours"].values, "peer": times["deltalake"].values},
    )


CLOUD = Benchmark("s3", "open a table on S3 and list all its files", _measure)

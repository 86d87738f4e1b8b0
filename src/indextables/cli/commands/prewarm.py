"""`indextables prewarm`: fetch indexes into the cache on local disk."""

import time
from typing import Annotated

import typer

from indextables._results import Status
from indextables.cli.command import REFUSED, examples
from indextables.cli.formatting import count, duration, size
from indextables.cli.json_output import print_json
from indextables.cli.options import (
    AsJson,
    SettingPairs,
    StoragePairs,
    TablePath,
    Timestamp,
    Version,
    open_table,
)
from indextables.cli.output import print_line, print_warning
from indextables.cli.progress import progressing
from indextables.ops.prewarm import PrewarmedHost

EXAMPLES = examples(
    "indextables prewarm ./logs",
    "indextables prewarm s3://bucket/logs --fields message,level --where \"date >= '2026-01-01'\"",
)


def prewarm(
    path: TablePath,
    fields: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Fetch only what searches on these columns read; all by default."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only splits that may have rows with this condition.")
    ] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Fetch indexes into the local cache before searches do.

    What has no room in the cache is left out, with a warning. If that is everything, the exit code is 1.
    """
    names = None if fields is None else [name.strip() for name in fields.split(",")]
    table = open_table(path, option, storage_option, version=version, timestamp=timestamp)
    started = time.perf_counter()
    with progressing() as show:
        result = table.prewarm(names, where, progress=show)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(result.to_dict())
    else:
        for host in result.hosts:
            _print(host, seconds)
        if not result.hosts:
            print_line("there are no splits to prewarm")
    if any(host.status is Status.FAILED for host in result.hosts):
        raise typer.Exit(REFUSED)


def _print(host: PrewarmedHost, seconds: float) -> None:
    for problem in host.problems:
        print_warning(f"{problem.path} was left out: {problem.reason}")
    if host.left_bytes:
        print_warning(
            f"{size(host.left_bytes)} did not fit into the cache; raise spark.indextables.cache.disk.maxSize, or "
            f"select less with --fields and --where"
        )
    print_line(
        f"{count(host.cached_splits, 'split')} of {host.num_splits:,} in {host.cache_path}, {size(host.cached_bytes)}; "
        f"{size(host.fetched_bytes)} fetched in {duration(seconds)}"
    )

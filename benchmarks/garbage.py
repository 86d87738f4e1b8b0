"""Tables whose files were all removed, with the (empty) files, for benchmarks of purges."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from deltalake import DeltaTable

from benchmarks import delta, ours
from benchmarks.files import DataFile
from indextables.ops.purge.report import PurgeResult

_DELETE_ALL = {**ours.NO_CHECKPOINTS, "spark.indextables.purge.retentionCheckEnabled": "false"}
_HOURS = 0


def build_our_table(path: Path, files: Sequence[DataFile]) -> None:
    """Build an IndexTables table that removed these files, with no version that has them."""
    table = ours.create_table(path)
    table.commit(adds=[ours.add_action(file) for file in files])
    table.commit(removes=[file.path for file in files])
    table.checkpoint()
    table.truncate_time_travel(dry_run=False)


def build_delta_table(path: Path, files: Sequence[DataFile]) -> None:
    """Build a Delta table that removed these files."""
    delta.build_table(path, files)
    removed_ms = max(file.modified_ms for file in files)
    with (path / "_delta_log" / f"{2:020d}.json").open("w") as stream:
        stream.writelines(
            json.dumps({"remove": {"path": file.path, "deletionTimestamp": removed_ms, "dataChange": True}})
            + "\n"
            for file in files
        )


def put_files(path: Path, files: Iterable[DataFile]) -> list[str]:
    """Create the files again; returns their paths."""
    paths = [path / file.path for file in files]
    for folder in {file.parent for file in paths}:
        folder.mkdir(parents=True, exist_ok=True)
    for file in paths:
        file.touch()
    return [str(file) for file in paths]


def plan_ours(path: Path) -> range:
    """Plan our purge; returns as many items as it would delete files."""
    return range(_purge(path, dry_run=True).num_files)


def purge_ours(path: Path) -> range:
    """Delete the files with our purge; returns as many items as it deleted files."""
    return range(_purge(path, dry_run=False).num_deleted)


def plan_delta(path: Path) -> list[str]:
    """Plan a vacuum of deltalake; returns the files it would delete."""
    return _vacuum(path, dry_run=True)


def purge_delta(path: Path) -> list[str]:
    """Delete the files with a vacuum of deltalake."""
    return _vacuum(path, dry_run=False)


def unlink_all(paths: Sequence[str]) -> Sequence[str]:
    """Delete files directly, without a log."""
    for path in paths:
        os.unlink(path)  # noqa: PTH108  # measure nothing else
    return paths


def _purge(path: Path, *, dry_run: bool) -> PurgeResult:
    return ours.open_table(path, _DELETE_ALL).purge(_HOURS, dry_run=dry_run)


def _vacuum(path: Path, *, dry_run: bool) -> list[str]:
    # A full vacuum also deletes files that the log does not know, as ours does.
    table = DeltaTable(str(path))
    return table.vacuum(_HOURS, dry_run=dry_run, enforce_retention_duration=False, full=True)

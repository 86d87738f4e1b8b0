"""A racing deltalake writer: `python -m benchmarks.delta_writer TABLE NUMBER COMMITS`."""

import sys
from pathlib import Path

from deltalake import DeltaTable

from benchmarks import delta
from benchmarks.files import DataFile
from benchmarks.racing import Commit, be_a_writer


def open_writer(path: str | Path) -> Commit:
    """Commit one file at a time; a commit leaves the object at the previous version, so it must be updated."""
    table = DeltaTable(str(path))

    def commit(file: DataFile) -> None:
        delta.commit(table, [delta.add_action(file)])
        table.update_incremental()

    return commit


if __name__ == "__main__":
    be_a_writer(open_writer, sys.argv[1:])

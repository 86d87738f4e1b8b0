"""A racing IndexTables writer: `python -m benchmarks.our_writer TABLE NUMBER COMMITS`."""

import sys
from pathlib import Path

from benchmarks import ours
from benchmarks.racing import Commit, be_a_writer


def open_writer(path: str | Path) -> Commit:
    """Commit one file at a time, each from the version of the last commit."""
    table = ours.open_table(path, ours.PATIENT)
    return lambda file: table.commit(adds=[ours.add_action(file)])


if __name__ == "__main__":
    be_a_writer(open_writer, sys.argv[1:])

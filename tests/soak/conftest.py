"""Collects counts from all soak tests, and prints them at the end."""

import sys
from collections import Counter
from collections.abc import Iterator

import pytest

LINES = (
    "operations",
    "commits",
    "faults injected",
    "crashes survived",
    "seeds",
    "inputs tried",
    "violations",
)


@pytest.fixture(scope="session")
def soak_report() -> Iterator[Counter[str]]:
    """Counters that tests increment. A violation is counted before the test fails."""
    counts: Counter[str] = Counter()
    yield counts
    names = [*LINES, *sorted(set(counts) - set(LINES))]
    width = max(map(len, names))
    sys.stdout.write("\n\nsoak report\n")
    sys.stdout.writelines(f"  {name:{width}} {counts[name]:>12,}\n" for name in names)

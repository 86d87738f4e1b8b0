"""Invariants under random concurrency, faults and crashes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from indextables.ops.write import commit_files
from simulation.scheduler import Odds
from simulation.simulation import START_MS, Simulation
from simulation.witness import Author, WitnessStore
from support.clock import VirtualClock
from support.purge_tables import HOUR, put_split
from support.tables import memory_store, new_table

SEEDS = range(12)
ROUGH = Odds(error=0.03, late=0.01, crash=0.01, nap=0.03, outage=0.003, jump=0.01)


@pytest.mark.parametrize("seed", SEEDS)
def test_invariants_hold_in_a_simulated_run(seed):
    report = Simulation(seed, length=40, odds=ROUGH if seed % 2 else None).run()
    assert report.versions > 5
    assert report.faults
    assert report.operations.total() >= 40


def test_damaged_manifests_are_shared_and_are_repaired_or_are_not():
    """The end of a run damages a manifest: what the log looks like by then decides whether it can be repaired."""
    reports = [Simulation(seed, length=25).run() for seed in range(10)]
    damaged = [report for report in reports if report.damaged]
    assert any(report.damaged > 1 for report in damaged)
    assert {report.repairs for report in damaged} == {0, 1}


def test_same_seed_gives_the_same_run_in_another_process():
    program = (
        "import logging; logging.disable(logging.CRITICAL)\n"
        "from simulation.simulation import Simulation\n"
        "print(chr(10).join(Simulation(3, length=25).run().trace))"
    )
    traces = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parent.parent,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parent.parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    # Messages may contain the name of the store, which is random.
    traces = [re.sub(r"memory://\w+", "memory://name", trace) for trace in traces]
    assert traces[0] == traces[1]
    assert len(traces[0].splitlines()) > 50


@pytest.fixture
def witness() -> WitnessStore:
    clock = VirtualClock(START_MS)
    return WitnessStore(memory_store(clock), clock)


def table_with_a_removed_split(witness: WitnessStore) -> None:
    table = new_table(witness)
    witness.sample_of |= dict.fromkeys(("a.split", "b.split", "other.split"), 0)
    table = commit_files(table, [put_split(witness, "a.split"), put_split(witness, "b.split")], []).snapshot
    commit_files(table, [], ["a.split"])


@pytest.mark.parametrize(
    ("path", "hours", "complaint"),
    [("b.split", 1000, "show"), ("a.split", 1000, "show"), ("other.split", 23, "uploaded")],
)
def test_witness_reports_the_deletion_of_a_needed_split(witness, path, hours, complaint):
    table_with_a_removed_split(witness)
    put_split(witness, "other.split")
    witness.author = Author("a purge", split_hours=24)
    witness.clock.advance(hours * HOUR)
    witness.delete_many([path])
    assert complaint in witness.broken[0]


def test_witness_reports_an_overwrite_that_misses_a_file(witness):
    table_with_a_removed_split(witness)
    key = "_transaction_log/00000000000000000003.json"
    witness.put_if_absent(key, b'{"commitInfo":{"commitId":"x","operation":"OVERWRITE","timestamp":1}}\n')
    assert "survive an overwrite" in witness.broken[0]

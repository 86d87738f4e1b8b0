"""Simulated runs with new seeds for a given time. A failing seed is reported with its trace."""

import logging
import random
import time

import pytest

from simulation.scheduler import Odds
from simulation.simulation import Simulation
from simulation.witness import InvariantError

WEATHERS = {
    "fair": Odds(),
    "rough": Odds(error=0.03, late=0.01, crash=0.01, nap=0.03, outage=0.003, jump=0.01),
    "sleepy": Odds(error=0.01, late=0.01, crash=0.02, nap=0.12, outage=0.001, jump=0.04),
}


@pytest.mark.soak
def test_invariants_hold_in_any_simulated_run(soak_minutes, soak_report, caplog):
    caplog.set_level(logging.CRITICAL)
    deadline = time.monotonic() + soak_minutes * 60
    first, failures = random.SystemRandom().randrange(1 << 40), []
    for seed in range(first, first + (1 << 40)):
        if time.monotonic() > deadline:
            break
        weather = list(WEATHERS)[seed % len(WEATHERS)]
        simulation = Simulation(seed, length=80, width=5, odds=WEATHERS[weather])
        try:
            simulation.run()
        except InvariantError as error:
            soak_report["violations"] += 1
            failures.append(f"{weather} weather: {error}")
            # Print it now: the rest of the run may take long.
            print(failures[-1], flush=True)  # noqa: T201
        _add(soak_report, simulation.report)
    assert not failures, "\n\n".join(failures)


def _add(soak_report, report) -> None:
    crashes = report.operations.pop("crashed", 0)
    soak_report["seeds"] += 1
    soak_report["operations"] += report.operations.total()
    soak_report["commits"] += report.versions
    soak_report["faults injected"] += report.faults.total()
    soak_report["crashes survived"] += crashes
    soak_report["numbers of versions used twice, and refused"] += report.ghosts
    soak_report["writers beyond help"] += report.beyond_help

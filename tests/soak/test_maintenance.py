"""The model of all operations, with new sequences for a given time. A failing sequence is minimized."""

import time
from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from support.maintenance_model import MaintenanceMachine

LONG = settings(max_examples=20, stateful_step_count=60, derandomize=False)


class CountedMachine(MaintenanceMachine):
    """A machine that counts its steps, once per sequence."""

    counts: ClassVar[Counter[str]] = Counter()

    def teardown(self) -> None:
        super().teardown()
        self.counts["commits"] += len(self.versions)
        self.counts["inputs tried"] += 1


@pytest.mark.soak
def test_every_retained_version_reads_back_after_any_sequence(soak_minutes, soak_report):
    deadline = time.monotonic() + soak_minutes * 60
    try:
        while time.monotonic() < deadline:
            run_state_machine_as_test(CountedMachine, settings=LONG)
    except BaseException:
        soak_report["violations"] += 1
        raise
    finally:
        soak_report.update(CountedMachine.counts)

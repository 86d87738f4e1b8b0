"""Any sequence of writes, merges, drops, restores, purges and truncations keeps the rows of every retained version.

After each sequence, FSCK finds nothing wrong.
"""

from hypothesis import settings

from support.maintenance_model import DATES, MaintenanceMachine

FIRST, SECOND, _ = DATES

# Each step has work to do: it merges what was written, restores what was merged, and purges what was restored.
LIFE = (
    ("append", {"dates": [FIRST, SECOND]}),
    ("merge", {"max_sources": 10, "size": "100M"}),
    ("restore", {"which": 1}),
    ("upload", {"sample": 0, "date": FIRST}),
    ("upload", {"sample": 1, "date": SECOND}),
    ("wait", {"hours": 30}),
    ("commit_an_upload", {"which": 0}),
    ("upload", {"sample": 2, "date": FIRST}),
    ("merge_and_purge", {}),
    ("checkpoint", {"form": "json"}),
    ("overwrite", {"date": FIRST, "is_all": False}),
    ("purge", {"hours": 24, "log_hours": None}),
    ("restore", {"which": -2}),
    ("drop", {"date": SECOND}),
    ("compact", {}),
    ("wait", {"hours": 250}),
    ("purge", {"hours": 200, "log_hours": 0}),
    ("append", {"dates": [SECOND]}),
    ("remove", {"which": 0}),
    ("restore", {"which": 0}),
    ("truncate", {}),
    ("wait", {"hours": 250}),
    ("purge", {"hours": 48, "log_hours": 24}),
    ("overwrite", {"date": SECOND, "is_all": True}),
    ("collect_garbage", {}),
)


def test_sequence_in_which_every_step_has_work_to_do():
    machine = MaintenanceMachine()
    machine.create()
    merges = versions_lost = splits_purged = 0
    for name, arguments in LIFE:
        newest, kept, stored = machine.versions[-1], set(machine.kept), set(machine.stored)
        getattr(machine, name)(**arguments)
        machine.everything_is_as_it_should_be()
        merges += name.startswith("merge") and machine.versions[-1].paths != newest.paths
        versions_lost += len(kept - set(machine.kept))
        splits_purged += len(stored - machine.stored)
    machine.teardown()
    assert merges == 2
    assert versions_lost
    assert splits_purged


TestMaintenanceAgainstModel = MaintenanceMachine.TestCase
TestMaintenanceAgainstModel.settings = settings(max_examples=9, stateful_step_count=20)

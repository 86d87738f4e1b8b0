"""The line that a purge draws before it deletes what nobody has committed.

A writer may look for its splits, sleep, and commit them, and a purge may look for commits, sleep, and delete: no look
is late enough to rule the other out. So a purge first commits the time up to which it deletes. Whatever was committed
before that version is known to the purge when it deletes, and whoever commits after it knows the time, because only
the version after the newest one can be written.
"""

from typing import Final

from indextables.log.actions import TransactionAction
from indextables.table.commit import Operation, commit
from indextables.table.intent import RecordTransaction
from indextables.table.snapshot import Snapshot

# It lives where the last batch of each streaming writer does, so that every checkpoint carries it on.
PURGE_APP_ID: Final = "indextables.purge"

# No purge takes younger splits, unless somebody has switched its check off: that is at everybody's own risk, because
# the times of some stores are too coarse to tell what came before such a purge from what came after it.
LONG_WAIT_MS: Final = 3_600_000


def purge_fence_ms(snapshot: Snapshot) -> int:
    """Splits of up to this time, by the store's clock, must not be committed any more; 0 if there is no such time."""
    return snapshot.header.transactions.get(PURGE_APP_ID, 0)


def draw_purge_fence(snapshot: Snapshot, until_ms: int) -> Snapshot:
    """Let nobody commit splits of up to this time any more. Nothing is committed if that is so already.

    Returns a snapshot that says so. Raises what `commit` raises.
    """
    fence = RecordTransaction(TransactionAction(app_id=PURGE_APP_ID, version=until_ms))
    return commit(snapshot, fence, Operation("PURGE", {"uncommittedUntil": str(until_ms)})).snapshot

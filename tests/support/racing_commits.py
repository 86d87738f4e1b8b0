"""Transactions that lose a race to one that a test chooses."""

from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.intent import Intent
from support.tables import InterruptingStore, context, do


def losing_to(store: ObjectStore, *winners: Intent) -> Snapshot:
    """The newest snapshot; just before its first commit, others make theirs."""
    interrupting = InterruptingStore(store)
    snapshot = load_snapshot(context(interrupting))

    def win() -> None:
        for winner in winners:
            do(load_snapshot(context(store)), winner)

    interrupting.before_commit = win
    return snapshot

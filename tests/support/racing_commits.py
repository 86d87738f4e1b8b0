"""Transactions that meet concurrent commits chosen by a test."""

from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.intent import Intent
from support.tables import InterruptingStore, context, do


def overtaken_by(store: ObjectStore, *concurrent: Intent) -> Snapshot:
    """The newest snapshot, on a store that runs concurrent commits just before its first commit."""
    interrupting = InterruptingStore(store)
    snapshot = load_snapshot(context(interrupting))

    def commit_concurrently() -> None:
        for intent in concurrent:
            do(load_snapshot(context(store)), intent)

    interrupting.before_commit = commit_concurrently
    return snapshot

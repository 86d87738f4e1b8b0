"""Protocol 5: whether a table may get splits of this implementation, and how its log says that it has.

The JVM cannot read our splits. Its planning would succeed and its queries would fail on the executors, so a commit that
adds splits to a table below version 5 also raises the protocol, and the JVM refuses the table.

The protocol also tells whose splits a table holds, without opening any of them: every table that we have added a split
to has version 5, so the splits of a table below it come from the JVM. Raising that table takes it away from the JVM,
which the caller has to allow.
"""

from indextables.config.registry import PROTOCOL_AUTO_UPGRADE, PROTOCOL_CONVERT_JVM_TABLES
from indextables.errors import ProtocolUpgradeError
from indextables.log.actions import (
    SPLIT_PROTOCOL_VERSION,
    ProtocolAction,
    check_writable,
    upgraded,
    with_feature,
)
from indextables.table.snapshot import Snapshot


def check_accepts_splits(snapshot: Snapshot) -> None:
    """Raise UnsupportedProtocolError or ProtocolUpgradeError if new splits could not be committed to the table.

    Call it before splits are written. A commit checks again, on the version that it builds on.
    """
    check_writable(snapshot.protocol, snapshot.context.url)
    protocol_for_splits(snapshot)


def protocol_for_splits(snapshot: Snapshot, feature: str | None = None) -> tuple[ProtocolAction, ...]:
    """The protocol action of a commit that adds splits, or needs a feature: none if the table has it already.

    Raises ProtocolUpgradeError if the settings do not allow the upgrade.
    """
    url, settings, current = snapshot.context.url, snapshot.context.settings, snapshot.protocol
    protocol = upgraded(current, SPLIT_PROTOCOL_VERSION, SPLIT_PROTOCOL_VERSION)
    if protocol == current:
        needed = protocol if feature is None else with_feature(protocol, feature)
        return () if needed == current else (needed,)
    versions = f"{current.min_reader_version} for readers and {current.min_writer_version} for writers"
    if not settings[PROTOCOL_AUTO_UPGRADE]:
        raise ProtocolUpgradeError(
            f"{url}: the table has protocol version {versions}, and a table with splits of this implementation needs "
            f"version {SPLIT_PROTOCOL_VERSION}, but {PROTOCOL_AUTO_UPGRADE.key} is false; set it to true, or write to "
            f"a new table"
        )
    if not settings[PROTOCOL_CONVERT_JVM_TABLES] and snapshot.num_files:
        raise ProtocolUpgradeError(
            f"{url}: the table has protocol version {versions} and holds splits of the JVM, which cannot read the "
            f"splits of this implementation; adding one raises the table to version {SPLIT_PROTOCOL_VERSION}, after "
            f"which the JVM can neither read nor write it. If no reader or writer on the JVM needs the table any more, "
            f"set {PROTOCOL_CONVERT_JVM_TABLES.key} to true; otherwise write to a new table"
        )
    return (protocol if feature is None else with_feature(protocol, feature),)

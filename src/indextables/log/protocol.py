"""The table protocol: which versions and features this release reads and writes."""

from indextables.errors import UnsupportedProtocolError
from indextables.log.actions import ProtocolAction

READER_VERSION = 4
WRITER_VERSION = 4

# Features that the specification and other writers name. Every release of this package supports all of them.
KNOWN_FEATURES = frozenset(
    {
        "avroState",
        "multiPartCheckpoint",
        "schemaDeduplication",
        "footerOffsets",
        "tantivy4java",
        "conditionalWrites",
        "checkpoint",
        "checkpoints",
        "extendedMetadata",
        "optimizeWrite",
        "skippedFiles",
    }
)

CURRENT_PROTOCOL = ProtocolAction(min_reader_version=READER_VERSION, min_writer_version=WRITER_VERSION)
# The protocol of a table without a protocol action, which was optional before version 2 of the format.
DEFAULT_PROTOCOL = ProtocolAction(min_reader_version=1, min_writer_version=1)


def check_readable(protocol: ProtocolAction, table: str) -> None:
    """Raise UnsupportedProtocolError, naming what is needed, unless this release can read the table."""
    _check(protocol.min_reader_version, READER_VERSION, protocol.reader_features, table, "read")


def check_writable(protocol: ProtocolAction, table: str) -> None:
    """Raise UnsupportedProtocolError, naming what is needed, unless this release can read and write the table."""
    check_readable(protocol, table)
    _check(protocol.min_writer_version, WRITER_VERSION, protocol.writer_features, table, "write to")


def upgraded(protocol: ProtocolAction, reader_version: int, writer_version: int) -> ProtocolAction:
    """The protocol, raised to at least these versions. Versions never decrease, and features stay."""
    return ProtocolAction(
        min_reader_version=max(protocol.min_reader_version, reader_version),
        min_writer_version=max(protocol.min_writer_version, writer_version),
        reader_features=protocol.reader_features,
        writer_features=protocol.writer_features,
        unknown=protocol.unknown,
    )


def _check(needed: int, supported: int, features: tuple[str, ...] | None, table: str, verb: str) -> None:
    if needed > supported:
        raise UnsupportedProtocolError(
            f"{table}: needs protocol version {needed} to {verb}, this release of indextables supports "
            f"version {supported}; upgrade indextables"
        )
    unknown = sorted(set(features or ()) - KNOWN_FEATURES)
    if unknown:
        raise UnsupportedProtocolError(
            f"{table}: needs the features {', '.join(unknown)} to {verb}, which this release of indextables "
            f"does not have; upgrade indextables"
        )

"""The request and the result of PUBLISH."""

from enum import Enum
from typing import ClassVar

import msgspec
import pyarrow as pa

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns, Result, Status


class PublishFormat(Enum):
    """The formats that a table can be published as.

    Attributes:
        DELTA: Delta Lake: a `_delta_log` in the table's folder.
    """

    DELTA = "delta"


class PublishRequest(msgspec.Struct, frozen=True):
    """What to publish a table as.

    Attributes:
        format: The format of the published log.
    """

    format: PublishFormat


class PublishResult(Result, frozen=True):
    """The result of `IndexTable.publish`.

    Attributes:
        table_path: The URL of the table, which other engines open, too.
        format: The format of the published log.
        version: The newest published version. Versions have the same numbers in both logs.
        first_version: The oldest published version.
        num_published: The versions that this call added to the published log.
        num_trimmed: The versions that this call removed from it, because the table no longer keeps them.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: the published log was up to date"),
        Column("format", pa.string(), "the format of the published log: `delta`"),
        Column(
            "version", pa.int64(), "the newest published version; versions have the same numbers in both logs"
        ),
        Column("first_version", pa.int64(), "the oldest published version"),
        Column("num_published", pa.int64(), "the versions that were added to the published log"),
        Column(
            "num_trimmed",
            pa.int64(),
            "the versions that were removed from it: the table no longer keeps them",
        ),
        MESSAGE,
    )

    table_path: str
    format: PublishFormat
    version: int
    first_version: int
    num_published: int
    num_trimmed: int

    @property
    def status(self) -> Status:
        """NO_ACTION if the published log was up to date."""
        return Status.SUCCESS if self.num_published or self.num_trimmed else Status.NO_ACTION

    @property
    def message(self) -> str:
        """A one-line summary."""
        versions = f"versions {self.first_version} to {self.version} are published as {self.format.value}"
        return versions if self.num_published else f"{versions}; nothing was missing"

"""How far a stream has read a table: what Spark keeps in the checkpoint of a query."""

from collections.abc import Mapping
from typing import Any

import msgspec

from indextables.errors import InvalidOptionError

StoredOffset = dict[str, str | int | bool]


class StreamOffset(msgspec.Struct, frozen=True, order=True):
    """The place between two files of a table: all files before it were read.

    The next one is the file at `index`, from 0, among those that `version` added; or, if `is_snapshot`, among all
    files that were live at `version`, with which a stream begins that nobody told where to start. There is one offset
    for each place: after the last file of a version comes the first one of the next.
    """

    version: int
    index: int
    is_snapshot: bool
    table_id: str

    @classmethod
    def at_version(cls, table_id: str, version: int) -> "StreamOffset":
        """The place before the first file that a version added."""
        return cls(version, 0, False, table_id)

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> "StreamOffset":
        """The offset that `to_store` was made of. Raises InvalidOptionError."""
        try:
            return cls(
                int(values["version"]),
                int(values["index"]),
                bool(values["isSnapshot"]),
                str(values["tableId"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidOptionError(
                f"the checkpoint of the query holds {dict(values)!r}, which is no offset of a table; start the query "
                f"with a new checkpointLocation"
            ) from error

    def to_store(self) -> StoredOffset:
        """What Spark keeps as JSON. It takes two offsets for equal if their texts are."""
        return {
            "tableId": self.table_id,
            "version": self.version,
            "index": self.index,
            "isSnapshot": self.is_snapshot,
        }

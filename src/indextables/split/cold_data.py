"""What a split stores of its index beside the footer, so that a search knows which parts of the index to fetch.

The bytes that Tantivy reads when it opens the index, and where the parts of each field are.
"""

from pathlib import Path

import msgspec

from indextables.split.needs import ByteRange


class ColdData(msgspec.Struct, frozen=True):
    """The cold data of one index. `opening` holds whole pages of 4 kB, or less at the end of a file."""

    opening: tuple[tuple[ByteRange, bytes], ...] = ()

    @classmethod
    def of(cls, directory: Path) -> "ColdData":
        """Collect the cold data of a complete index."""
        opening = []
        for path in sorted(directory.iterdir()):
            data = path.read_bytes()
            opening.append((ByteRange(path.name, 0, len(data)), data))
        return cls(tuple(opening))

    def encode(self) -> bytes:
        """Encode the cold data."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> "ColdData":
        """Decode cold data. Raises ValueError if it is damaged."""
        return msgspec.msgpack.decode(data, type=cls)

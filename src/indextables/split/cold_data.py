"""What a split records of its index beside the footer, so that a search knows which parts of the index to fetch.

The bytes that Tantivy reads when it opens the index, and where the parts of each field are in the index files.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from indextables._caching import lazy_property
from indextables._structs import decodable
from indextables.split.index_files import META_FILE
from indextables.split.needs import ByteRange, IndexFiles
from indextables.split.tantivy_files import (
    DirectoryFiles,
    FastColumns,
    Section,
    read_composite,
    read_fast_columns,
    store_index_start,
)
from indextables.split.term_dictionary import (
    WHOLE_DICTIONARY_BYTES,
    Dictionary,
    num_data_offsets,
    read_dictionary,
)

PAGE_BYTES: Final = 4096

_VERSION: Final = 1
_LEVEL: Final = 9
_LENGTH_BYTES: Final = 4
_MAX_DECODED_BYTES: Final = 256 * 1024**2
_STORE_INDEX_HEADER_BYTES: Final = 64

# A directory of fast columns up to this size is part of what opening needs; a larger one is fetched with the columns.
_MAX_OPENING_DIRECTORY_BYTES: Final = 8 * 1024


class EncodedNodes(msgspec.Struct, frozen=True, array_like=True):
    """Nodes of a large dictionary: differences of their addresses (u64), their sizes (u16), and their bytes."""

    addresses: bytes = b""
    sizes: bytes = b""
    data: bytes = b""

    @classmethod
    def of(cls, nodes: Mapping[int, bytes]) -> "EncodedNodes":
        """Encode nodes by address."""
        addresses = np.array(sorted(nodes), np.uint64)
        ordered = [nodes[address] for address in addresses.tolist()]
        sizes = np.array([len(node) for node in ordered], np.uint16)
        return cls(
            np.diff(addresses, prepend=np.uint64(0)).astype("<u8").tobytes(),
            sizes.astype("<u2").tobytes(),
            b"".join(ordered),
        )

    def decode(self) -> dict[int, bytes]:
        """Return the nodes by address. Raises ValueError if their sizes do not fit."""
        addresses = np.cumsum(np.frombuffer(self.addresses, "<u8")).tolist()
        ends = np.cumsum(np.frombuffer(self.sizes, "<u2"), dtype=np.int64).tolist()
        if len(addresses) != len(ends) or (ends or [0])[-1] != len(self.data):
            raise ValueError("the nodes of a dictionary do not match their sizes")
        places = pairwise([0, *ends])
        return {
            address: self.data[start:end] for address, (start, end) in zip(addresses, places, strict=True)
        }


class FieldParts(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """Where the parts of one field are in the files of a segment, and the numbers of its dictionary."""

    terms: Section
    postings: Section
    positions: Section | None
    norms: Section | None
    fst_bytes: int
    root: int
    num_terms: int
    nodes: EncodedNodes
    data_offsets: tuple[int, ...]

    @lazy_property
    def _decoded_nodes(self) -> dict[int, bytes]:
        return self.nodes.decode()

    def dictionary(self, name: str) -> Dictionary:
        """Return the numbers of the field's dictionary. Raises ValueError if they do not fit together."""
        nodes = self._decoded_nodes
        if self.data_offsets and len(self.data_offsets) != num_data_offsets(self.num_terms):
            raise ValueError("a dictionary does not have as many data offsets as it should")
        return Dictionary(
            name, self.terms, self.fst_bytes, self.root, self.num_terms, nodes, self.data_offsets
        )


class SegmentParts(msgspec.Struct, frozen=True, array_like=True):
    """One segment of an index: its fields by name, and the columns of its .fast file."""

    identifier: str
    fields: dict[str, FieldParts]
    columns: dict[str, Section]
    column_directory: Section

    def file(self, suffix: str) -> str:
        """Return the name of a file of the segment."""
        return f"{self.identifier}.{suffix}"


@decodable
class ColdData(msgspec.Struct, frozen=True, array_like=True):
    """The cold data of one index.

    `opening` holds pages of 4 kB, the last one of a file possibly shorter. `segments` is None if a file has a format
    that is not known here: every search then needs all files.
    """

    opening: tuple[tuple[ByteRange, bytes], ...]
    segments: tuple[SegmentParts, ...] | None

    @classmethod
    def of(cls, directory: Path, *, whole_bytes: int = WHOLE_DICTIONARY_BYTES) -> "ColdData":
        """Collect the cold data of a complete index; dictionaries beyond `whole_bytes` are large. Raises OSError."""
        files = DirectoryFiles(directory)
        try:
            return cls._collected(files, whole_bytes)
        except (ValueError, KeyError):
            return cls((), None)
        finally:
            files.close()

    @classmethod
    def _collected(cls, files: IndexFiles, whole_bytes: int) -> "ColdData":
        sizes = files.sizes()
        meta = orjson.loads(files.read(META_FILE, 0, sizes[META_FILE]))
        names = [field["name"] for field in meta["schema"]]
        opening = {META_FILE: [Section(0, sizes[META_FILE])]}
        segments = []
        for segment in meta["segments"]:
            parts, touched = _read_segment(files, segment["segment_id"].replace("-", ""), names, whole_bytes)
            segments.append(parts)
            opening |= touched
        pages = [
            (ByteRange(name, start, end), files.read(name, start, end))
            for name, sections in opening.items()
            for start, end in _pages(sections, sizes[name])
        ]
        return cls(tuple(pages), tuple(segments))

    def encode(self) -> bytes:
        """Encode the cold data."""
        data = msgspec.msgpack.encode((_VERSION, self))
        packed: bytes = pa.Codec("zstd", _LEVEL).compress(data, asbytes=True)
        return len(data).to_bytes(_LENGTH_BYTES, "little") + packed

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "ColdData":
        """Decode cold data. Raises ValueError if it is damaged or has an unknown version."""
        length = int.from_bytes(data[:_LENGTH_BYTES], "little")
        if length > _MAX_DECODED_BYTES:
            raise ValueError(f"the cold data of an index cannot have {length} bytes")
        try:
            decoded = pa.Codec("zstd").decompress(data[_LENGTH_BYTES:], decompressed_size=length)
            version, cold = msgspec.msgpack.decode(memoryview(decoded), type=tuple[int, ColdData])
        except (OSError, ValueError) as error:
            raise ValueError(f"the cold data of an index is damaged: {error}") from error
        if version != _VERSION:
            raise ValueError(f"the cold data of an index has the unknown version {version}")
        return cold


def _read_segment(
    files: IndexFiles, identifier: str, names: Sequence[str], whole_bytes: int
) -> tuple[SegmentParts, dict[str, list[Section]]]:
    """Return where the parts of a segment are, and what opening it reads. Raises ValueError and KeyError."""
    terms, postings, positions, norms = (
        read_composite(files, f"{identifier}.{suffix}") for suffix in ("term", "idx", "pos", "fieldnorm")
    )
    fast = read_fast_columns(files, f"{identifier}.fast")
    fields = {}
    for number, section in terms.sections.items():
        if number >= len(names):
            raise ValueError(f"the schema has no field {number}")
        numbers = read_dictionary(files, f"{identifier}.term", section, whole_bytes=whole_bytes)
        fields[names[number]] = FieldParts(
            terms=section,
            postings=postings.sections[number],
            positions=positions.sections.get(number),
            norms=norms.sections.get(number),
            fst_bytes=numbers.fst_bytes,
            root=numbers.root,
            num_terms=numbers.num_terms,
            nodes=EncodedNodes.of(numbers.nodes),
            data_offsets=tuple(numbers.data_offsets),
        )
    parts = SegmentParts(identifier, fields, dict(fast.columns), fast.directory)
    opening = {
        parts.file("term"): [terms.table],
        parts.file("idx"): [postings.table],
        parts.file("pos"): [positions.table],
        parts.file("fieldnorm"): [norms.table],
        parts.file("fast"): [_fast_opening(files, parts.file("fast"), fast)],
        parts.file("store"): _store_opening(files, parts.file("store")),
    }
    return parts, opening


def _fast_opening(files: IndexFiles, name: str, fast: FastColumns) -> Section:
    is_small = fast.directory.end - fast.directory.start <= _MAX_OPENING_DIRECTORY_BYTES
    return Section(fast.directory.start if is_small else fast.index_start, files.sizes()[name])


def _store_opening(files: IndexFiles, name: str) -> list[Section]:
    size, start = files.sizes()[name], store_index_start(files, name)
    return [Section(start, min(start + _STORE_INDEX_HEADER_BYTES, size)), Section(size - 1, size)]


def _pages(sections: Sequence[Section], size: int) -> list[Section]:
    """Return the pages of sections, adjacent ones as one range."""
    numbers = sorted(
        {page for start, end in sections for page in range(start // PAGE_BYTES, -(-end // PAGE_BYTES))}
    )
    found: list[Section] = []
    for page in numbers:
        start, end = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, size)
        if found and found[-1].end == start:
            start = found.pop().start
        found.append(Section(start, end))
    return found

"""Deletion vectors: which rows of a split are deleted, as the log records it.

A vector is a roaring bitmap of row numbers, in the serialization that Delta and Iceberg 3 share:

    1681511377: u32 | number of 32-bit bitmaps: u64 | (upper 32 bits: u32 | roaring bitmap) …      little-endian

A small vector is part of the add action, in Z85 after padding it to whole words. Larger ones lie in a file beside the
splits, as many in one file as a commit writes:

    1: u8 | (length: u32 | vector | CRC-32 of the vector: u32) …                                   big-endian
"""

import base64
import struct
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables._structs import decodable
from indextables.errors import (
    AccessDeniedError,
    DeletionVectorCorruptedError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    UnsafePathError,
)
from indextables.storage import ObjectStore, validate_key

# The columns that `file_identities` needs.
IDENTITY_COLUMNS: Final = ("path", "size", "modificationTime", "deletionVector")

RowNumbers = npt.NDArray[np.int64]

VECTOR_SUFFIX: Final = ".bin"
VECTOR_PREFIX: Final = "deletion_vector_"

INLINE: Final = "i"
IN_FILE: Final = "p"

# A vector of this size is part of the add action: a file would cost a request to every reader.
MAX_INLINE_BYTES: Final = 1024
# No split has as many rows as a vector of this size could name.
_MAX_VECTOR_BYTES: Final = 1 << 30

_MAGIC: Final = struct.Struct("<I")
_MAGIC_NUMBER: Final = 1681511377
_LENGTH: Final = struct.Struct(">I")
_FILE_VERSION: Final = b"\x01"

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85: Final = str.maketrans(_B85, _Z85)
_FROM_Z85: Final = str.maketrans(_Z85, _B85)
_WORD_BYTES: Final = 4

_Damaged = Callable[[str], DeletionVectorCorruptedError]

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


@decodable
class DeletionVector(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the deleted rows of a split are recorded, and how many there are (`cardinality`).

    With the storage type `i`, `path_or_inline_dv` is the vector itself. With `p`, it is a path relative to the table,
    and `offset` the place of the vector in that file.
    """

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: _Size
    cardinality: _Count
    offset: _Offset | None = None

    @property
    def id(self) -> str:
        """What tells this vector from all others of the split."""
        return f"{self.storage_type}{self.path_or_inline_dv}@{self.offset or 0}"


REQUIRED_VECTOR_FIELDS: Final = frozenset(
    field.encode_name for field in msgspec.structs.fields(DeletionVector) if field.required
)


# --- columns of file entries --------------------------------------------------------------------------


def vector_ids(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """The id of each vector; an empty text where there is none."""
    if vectors.null_count == len(vectors):
        return pa.chunked_array([pa.repeat("", len(vectors))], pa.string())
    offset = pc.fill_null(pc.struct_field(vectors, "offset"), 0).cast(pa.string())
    found = pc.binary_join_element_wise(
        pc.struct_field(vectors, "storageType"), pc.struct_field(vectors, "pathOrInlineDv"), ""
    )
    return pc.fill_null(pc.binary_join_element_wise(found, offset, "@"), "")


def deleted_counts(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """The number of deleted rows of each entry."""
    return pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)


def live_counts(entries: pa.Table) -> pa.ChunkedArray:
    """The number of rows that are left in each split; null where the log does not record the rows of the split."""
    return pc.subtract(entries["numRecords"], deleted_counts(entries["deletionVector"]))


def file_identities(entries: pa.Table) -> pa.Table:
    """What tells file entries apart: entries with the same path are of another file, or have other deleted rows."""
    columns = {name: entries[name] for name in ("path", "size", "modificationTime")}
    return pa.table({**columns, "vector": vector_ids(entries["deletionVector"])})


def vector_files(vectors: pa.ChunkedArray) -> pa.Array:
    """The paths of the files that hold these vectors, each once."""
    in_files = pc.equal(pc.struct_field(vectors, "storageType"), IN_FILE)
    paths = pc.struct_field(vectors, "pathOrInlineDv").filter(pc.fill_null(in_files, False))
    return pc.unique(paths)


def parse_vector(fields: Mapping[str, object] | None, place: str) -> DeletionVector | None:
    """A value of the column as an object. Raises DeletionVectorCorruptedError."""
    if fields is None:
        return None
    try:
        return msgspec.convert(
            {name: value for name, value in fields.items() if value is not None}, DeletionVector
        )
    except msgspec.ValidationError as error:
        raise DeletionVectorCorruptedError(
            f"{place}: its deletion vector is not valid: {error}; {_REMEDY}"
        ) from error


def are_vector_files(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which keys are names of files of deletion vectors."""
    return pc.match_substring_regex(keys, f"(^|/){VECTOR_PREFIX}[^/]*\\{VECTOR_SUFFIX}$")


# --- writing ------------------------------------------------------------------------------------------


def write_vectors(store: ObjectStore, rows: Sequence[RowNumbers]) -> list[DeletionVector]:
    """Write the vectors of these ascending row numbers, none of them empty: small ones inline, the rest to one file.

    Raises StorageError.
    """
    contents = [_encode(numbers) for numbers in rows]
    path = f"{VECTOR_PREFIX}{uuid.uuid4()}{VECTOR_SUFFIX}"
    data = bytearray(_FILE_VERSION)
    vectors = []
    for content, numbers in zip(contents, rows, strict=True):
        if len(content) <= MAX_INLINE_BYTES:
            vectors.append(_inline(content, len(numbers)))
            continue
        vectors.append(
            DeletionVector(
                storage_type=IN_FILE,
                path_or_inline_dv=path,
                offset=len(data),
                size_in_bytes=len(content),
                cardinality=len(numbers),
            )
        )
        data += _LENGTH.pack(len(content)) + content + _LENGTH.pack(zlib.crc32(content))
    if len(data) > len(_FILE_VERSION):
        store.put(path, bytes(data))
    return vectors


def inline_vector(rows: RowNumbers) -> DeletionVector:
    """The vector of these ascending row numbers, of any size, without a file."""
    return _inline(_encode(rows), len(rows))


def _inline(content: bytes, cardinality: int) -> DeletionVector:
    padded = content.ljust(-(-len(content) // _WORD_BYTES) * _WORD_BYTES, b"\0")
    return DeletionVector(
        storage_type=INLINE,
        path_or_inline_dv=z85(padded),
        size_in_bytes=len(content),
        cardinality=cardinality,
    )


def z85(content: bytes) -> str:
    """Return bytes in the base 85 that Delta writes."""
    return base64.b85encode(content).decode().translate(_TO_Z85)


def _encode(rows: RowNumbers) -> bytes:
    # Imported here: few tables have deleted rows.
    from pyroaring import BitMap64

    bitmap = BitMap64(rows)
    bitmap.run_optimize()
    return _MAGIC.pack(_MAGIC_NUMBER) + bytes(bitmap.serialize())


# --- reading ------------------------------------------------------------------------------------------

_REMEDY: Final = "restore the version before the delete, or restore the file from a backup"


def read_vector(
    store: ObjectStore, vector: DeletionVector, place: str, num_records: int | None = None
) -> RowNumbers:
    """The deleted rows, ascending. `place` names the split in errors, and `num_records` are its rows, if known.

    Raises DeletionVectorCorruptedError if the vector is missing, damaged or contradicts its description, and storage
    errors.
    """

    def damaged(reason: str) -> DeletionVectorCorruptedError:
        return DeletionVectorCorruptedError(f"{place}: {reason}; {_REMEDY}")

    if num_records is not None and vector.cardinality > num_records:
        raise damaged(f"{vector.cardinality} rows are deleted, but the split has only {num_records}")
    match vector.storage_type:
        case "i":
            content = _read_inline(vector, damaged)
        case "p":
            content = _read_from_file(store, vector, damaged)
        case other:
            raise damaged(f"its deletion vector has the unknown storage type {other!r}")
    return _decode(content, vector.cardinality, damaged)


def _read_inline(vector: DeletionVector, damaged: _Damaged) -> bytes:
    text = vector.path_or_inline_dv
    if not set(text) <= set(_Z85):
        raise damaged("its deletion vector has characters that Z85 does not have")
    try:
        content = base64.b85decode(text.translate(_FROM_Z85))
    except ValueError as error:
        raise damaged(f"its deletion vector cannot be decoded ({error})") from error
    if not 0 <= len(content) - vector.size_in_bytes < _WORD_BYTES:
        raise damaged(
            f"its deletion vector has {len(content)} bytes, but the log records {vector.size_in_bytes}"
        )
    return content[: vector.size_in_bytes]


def _read_from_file(store: ObjectStore, vector: DeletionVector, damaged: _Damaged) -> bytes:
    path, start, size = vector.path_or_inline_dv, vector.offset or 0, vector.size_in_bytes
    try:
        validate_key(path)
    except UnsafePathError as error:
        raise damaged(f"its deletion vector is outside of the table ({error})") from error
    if size > _MAX_VECTOR_BYTES:
        raise damaged(f"its deletion vector would have {size} bytes, more than any split needs")
    end = start + _LENGTH.size + size + _LENGTH.size
    try:
        data = store.get_range(path, start, end)
    except ObjectNotFoundError as error:
        raise damaged(f"the file {path} with its deletion vector does not exist") from error
    except (AccessDeniedError, TransientStorageError):
        raise
    except StorageError as error:
        if store.head(path).size >= end:
            raise
        raise damaged(f"the file {path} ends inside of its deletion vector") from error
    (length,) = _LENGTH.unpack_from(data)
    if length != size:
        raise damaged(f"{path} has {length} bytes at {start}, but the log records {size}")
    content = data[_LENGTH.size : -_LENGTH.size]
    (checksum,) = _LENGTH.unpack_from(data, _LENGTH.size + size)
    if zlib.crc32(content) != checksum:
        raise damaged(f"the checksum of its deletion vector in {path} at {start} is wrong")
    return content


def _decode(content: bytes, cardinality: int, damaged: _Damaged) -> RowNumbers:
    from pyroaring import BitMap64

    if len(content) < _MAGIC.size or _MAGIC.unpack_from(content)[0] != _MAGIC_NUMBER:
        raise damaged("its deletion vector does not begin like one")
    try:
        bitmap = BitMap64.deserialize(content[_MAGIC.size :])
    except (ValueError, IndexError, MemoryError) as error:
        raise damaged(f"its deletion vector is not a roaring bitmap ({error})") from error
    if bytes(bitmap.serialize()) != content[_MAGIC.size :]:
        raise damaged("its deletion vector has bytes that belong to no row")
    # Before the rows are listed: a few bytes may stand for billions of them.
    if len(bitmap) != cardinality:
        raise damaged(f"its deletion vector has {len(bitmap)} rows, but the log records {cardinality}")
    if bitmap.max() > np.iinfo(np.int64).max:
        raise damaged("its deletion vector names rows that no split can have")
    rows: RowNumbers = np.array(bitmap.to_array(), dtype=np.int64)
    if (np.diff(rows) <= 0).any():
        raise damaged("its deletion vector names rows twice")
    return rows

"""The bytes of deletion vectors, and ways to damage them: each gives a typed error."""

import base64
import contextlib
import struct
import zlib
from collections.abc import Callable

import msgspec
import numpy as np
import pyarrow as pa
import pyroaring
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import DeletionVectorCorruptedError, StorageError
from indextables.log.deletion_vectors import (
    MAX_INLINE_BYTES,
    DeletionVector,
    are_vector_files,
    inline_vector,
    parse_vector,
    read_vector,
    vector_ids,
    write_vectors,
)
from indextables.log.fields import DELETION_VECTOR
from indextables.storage import ObjectStore
from support.tables import memory_store

PLACE = "file:///table: a.split"


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


def scattered(count: int) -> np.ndarray:
    return np.unique(np.random.default_rng(count).integers(0, 1_000_000, count))


@given(st.sets(st.integers(0, 2**40), min_size=1, max_size=200))
def test_any_rows_survive(rows):
    numbers = np.array(sorted(rows), np.int64)
    vector = inline_vector(numbers)
    assert vector.cardinality == len(rows)
    assert read_vector(memory_store(), vector, PLACE).tolist() == numbers.tolist()


def test_small_vectors_are_inline_and_large_ones_share_a_file(store):
    rows = [np.array([0]), scattered(5000), scattered(100), scattered(9000)]
    vectors = write_vectors(store, rows)
    assert [vector.storage_type for vector in vectors] == ["i", "p", "i", "p"]
    assert vectors[0].size_in_bytes <= MAX_INLINE_BYTES < vectors[1].size_in_bytes
    assert len({vector.path_or_inline_dv for vector in vectors if vector.storage_type == "p"}) == 1
    assert [meta.key for meta in store.list("")] == [vectors[1].path_or_inline_dv]
    for vector, numbers in zip(vectors, rows, strict=True):
        assert read_vector(store, vector, PLACE).tolist() == numbers.tolist()


def test_an_inline_vector_is_z85_of_the_serialization_that_delta_and_iceberg_share():
    vector = inline_vector(np.array([3, 4, 7, 11, 18, 29, 2**33]))
    z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    numbers = [z85.index(character) for character in vector.path_or_inline_dv]
    words = [
        sum(digit * 85 ** (4 - place) for place, digit in enumerate(numbers[start : start + 5]))
        for start in range(0, len(numbers), 5)
    ]
    content = struct.pack(f">{len(words)}I", *words)[: vector.size_in_bytes]
    assert struct.unpack("<I", content[:4]) == (1681511377,)
    assert struct.unpack("<Q", content[4:12]) == (2,)
    assert struct.unpack("<I", content[12:16]) == (0,)
    assert list(pyroaring.BitMap64.deserialize(content[4:])) == [3, 4, 7, 11, 18, 29, 2**33]


def test_ids_of_the_column_are_those_of_the_objects():
    vectors = [
        inline_vector(np.array([1])),
        *write_vectors(memory_store(), [scattered(5000), scattered(6000)]),
    ]
    column = pa.chunked_array([pa.array([*map(msgspec.to_builtins, vectors), None], DELETION_VECTOR)])
    assert vector_ids(column).to_pylist() == [*(vector.id for vector in vectors), ""]
    assert len({vector.id for vector in vectors}) == 3


def test_names_of_vector_files():
    keys = [
        "deletion_vector_x.bin",
        "day=1/deletion_vector_y.bin",
        "deletion_vector_x.split",
        "a.bin",
        "deletion_vector_/a.bin",
    ]
    assert are_vector_files(pa.chunked_array([keys])).to_pylist() == [True, True, False, False, False]


# Ways to damage a vector: of the description in the log, and of the file.

Change = Callable[[DeletionVector], DeletionVector]


def described(**fields) -> Change:
    return lambda vector: msgspec.structs.replace(vector, **fields)


def stretched(vector: DeletionVector) -> DeletionVector:
    return msgspec.structs.replace(vector, path_or_inline_dv=vector.path_or_inline_dv + "00000")


INLINE_DAMAGE: dict[str, tuple[Change, str]] = {
    "too few rows": (described(cardinality=4), "has 5 rows, but the log records 4"),
    "too many rows": (described(cardinality=6), "has 5 rows, but the log records 6"),
    "shorter than recorded": (described(size_in_bytes=99), "bytes, but the log records 99"),
    "longer than recorded": (stretched, "bytes, but the log records"),
    "cut off": (described(size_in_bytes=41), "is not a roaring bitmap|belong to no row"),
    "no Z85": (described(path_or_inline_dv="~~~~~"), "characters that Z85 does not have"),
    "too large a word": (described(path_or_inline_dv="#####"), "cannot be decoded"),
    "no text": (described(path_or_inline_dv=""), "has 0 bytes"),
    "unknown storage": (described(storage_type="u"), "unknown storage type 'u'"),
}


@pytest.mark.parametrize("damage", INLINE_DAMAGE)
def test_a_damaged_inline_vector_is_an_error(store, damage):
    change, message = INLINE_DAMAGE[damage]
    vector = change(inline_vector(np.array([1, 4, 9, 16, 25])))
    with pytest.raises(DeletionVectorCorruptedError, match=message) as caught:
        read_vector(store, vector, PLACE)
    assert str(caught.value).startswith(PLACE)


def inline(content: bytes, cardinality: int) -> DeletionVector:
    to_z85 = str.maketrans(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    )
    padded = content.ljust(-(-len(content) // 4) * 4, b"\0")
    text = base64.b85encode(padded).decode().translate(to_z85)
    return DeletionVector(
        storage_type="i", path_or_inline_dv=text, size_in_bytes=len(content), cardinality=cardinality
    )


def test_another_magic_number_is_an_error(store):
    with pytest.raises(DeletionVectorCorruptedError, match="does not begin like one"):
        read_vector(store, inline(b"\x01" * 20, 1), PLACE)


def test_more_rows_than_the_split_has_are_refused_before_they_are_listed(store):
    bitmap = pyroaring.BitMap64()
    bitmap.add_range(0, 2**26)
    content = struct.pack("<I", 1681511377) + bitmap.serialize()
    with pytest.raises(DeletionVectorCorruptedError, match="the log records 5"):
        read_vector(store, inline(content, 5), PLACE)
    with pytest.raises(DeletionVectorCorruptedError, match="the split has only 100"):
        read_vector(store, inline(content, 2**26), PLACE, 100)


def test_a_row_beyond_any_split_is_an_error(store):
    content = struct.pack("<I", 1681511377) + pyroaring.BitMap64([2**63]).serialize()
    with pytest.raises(DeletionVectorCorruptedError, match="no split can have"):
        read_vector(store, inline(content, 1), PLACE)


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


FILE_DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda data: data[:-1], "ends inside of its deletion vector"),
    "empty": (lambda _: b"", "ends inside of its deletion vector"),
    "wrong length": (lambda data: flipped(data, 2), "bytes at 1, but the log records"),
    "wrong content": (lambda data: flipped(data, len(data) // 2), "checksum"),
    "wrong checksum": (lambda data: flipped(data, len(data) - 1), "checksum"),
}


@pytest.mark.parametrize("damage", FILE_DAMAGE)
def test_a_damaged_file_is_an_error(store, damage):
    change, message = FILE_DAMAGE[damage]
    [vector] = write_vectors(store, [scattered(5000)])
    store.put(vector.path_or_inline_dv, change(store.get(vector.path_or_inline_dv)))
    with pytest.raises(DeletionVectorCorruptedError, match=message):
        read_vector(store, vector, PLACE)


def test_a_missing_file_is_an_error(store):
    [vector] = write_vectors(store, [scattered(5000)])
    store.delete_many([vector.path_or_inline_dv])
    with pytest.raises(DeletionVectorCorruptedError, match="does not exist"):
        read_vector(store, vector, PLACE)


@pytest.mark.parametrize("path", ["../secret.bin", "/etc/passwd", "s3://other/deletion_vector_x.bin", "a\0b"])
def test_a_file_outside_of_the_table_is_not_read(store, path):
    [vector] = write_vectors(store, [scattered(5000)])
    with pytest.raises((DeletionVectorCorruptedError, StorageError)):
        read_vector(store, msgspec.structs.replace(vector, path_or_inline_dv=path), PLACE)


def test_a_huge_size_is_refused_before_anything_is_read(store):
    [vector] = write_vectors(store, [scattered(5000)])
    with pytest.raises(DeletionVectorCorruptedError, match="more than any split needs"):
        read_vector(store, msgspec.structs.replace(vector, size_in_bytes=2**31 - 1), PLACE)


@given(st.data())
def test_any_damaged_byte_of_a_file_is_found(data):
    store = memory_store()
    [vector] = write_vectors(store, [scattered(2000)])
    content = store.get(vector.path_or_inline_dv)
    place = data.draw(st.integers(1, len(content) - 1))
    damaged = bytearray(content)
    damaged[place] ^= data.draw(st.integers(1, 255))
    store.put(vector.path_or_inline_dv, bytes(damaged))
    with pytest.raises(DeletionVectorCorruptedError):
        read_vector(store, vector, PLACE)


@given(st.binary(max_size=200))
def test_any_content_with_a_right_checksum_gives_rows_or_a_typed_error(content):
    store = memory_store()
    body = struct.pack("<I", 1681511377) + content
    store.put("v.bin", b"\x01" + struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body)))
    vector = DeletionVector(
        storage_type="p", path_or_inline_dv="v.bin", offset=1, size_in_bytes=len(body), cardinality=3
    )
    with contextlib.suppress(DeletionVectorCorruptedError):
        assert len(read_vector(store, vector, PLACE)) == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1},
        {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 0},
        {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": -1, "cardinality": 1},
        {"storageType": "p", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1, "offset": -1},
        {"pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1},
    ],
)
def test_a_description_without_sense_is_an_error(fields):
    with pytest.raises(DeletionVectorCorruptedError, match="is not valid"):
        parse_vector(fields, PLACE)

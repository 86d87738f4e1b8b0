import gzip
import random

import pytest

from indextables.errors import LogCorruptedError
from indextables.log.version_file import compress, decompress
from support.log_samples import add, json_lines

LINES = json_lines(add("a"), add("b", minValues={"text": "ü"}))
NAME = "memory://t/_transaction_log/00000000000000000007.json"


def test_compressed_files_start_with_magic_and_codec_and_are_gzip_after_that():
    data = compress(LINES)
    assert data[:2] == b"\x01\x01"
    assert gzip.decompress(data[2:]) == LINES


def test_the_same_lines_give_the_same_bytes():
    assert compress(LINES) == compress(LINES)


@pytest.mark.parametrize("encode", [compress, gzip.compress, bytes], ids=["prefixed", "bare", "plain"])
def test_all_three_encodings_are_read(encode):
    assert decompress(encode(LINES), NAME) == LINES
    assert decompress(encode(b""), NAME) == b""


@pytest.mark.parametrize("prefix", [b"", b"\x01\x01"], ids=["bare", "prefixed"])
def test_several_gzip_members_are_one_file(prefix):
    data = prefix + gzip.compress(LINES) + gzip.compress(b"") + gzip.compress(LINES)
    assert decompress(data, NAME) == LINES + LINES


@pytest.mark.parametrize("encode", [compress, gzip.compress], ids=["prefixed", "bare"])
def test_a_file_that_is_cut_off_anywhere_is_refused(encode):
    data = encode(LINES)
    shortest = 1 if encode is compress else 2  # one byte of a bare gzip stream is not yet one
    for length in range(shortest, len(data)):
        with pytest.raises(LogCorruptedError, match=NAME):
            decompress(data[:length], NAME)


def test_a_second_member_that_is_cut_off_is_refused():
    second = gzip.compress(LINES)
    for length in range(1, len(second)):
        with pytest.raises(LogCorruptedError, match=NAME):
            decompress(compress(LINES) + second[:length], NAME)


def test_a_flipped_bit_never_changes_what_is_read():
    data = compress(LINES)
    generator = random.Random(7)
    refused = 0
    for _ in range(200):
        damaged = bytearray(data)
        damaged[generator.randrange(2, len(data))] ^= 1 << generator.randrange(8)
        try:
            assert (
                decompress(bytes(damaged), NAME) == LINES
            )  # in the header, and in padding, some do not matter
        except LogCorruptedError:
            refused += 1
    assert refused > 150


@pytest.mark.parametrize("data", [b"\x01", b"\x01\x02abc", b"\x01\x00", b"\x01{}"])
def test_an_unknown_codec_is_refused_by_name(data):
    codec = data[1:2].hex() or r"\?"
    with pytest.raises(LogCorruptedError, match=f"{NAME}: compressed with codec {codec}"):
        decompress(data, NAME)


def test_a_bomb_is_refused_at_the_cap():
    with pytest.raises(LogCorruptedError, match="larger than 1000 bytes"):
        decompress(compress(bytes(1001)), NAME, max_bytes=1000)
    assert decompress(compress(bytes(1000)), NAME, max_bytes=1000) == bytes(1000)


def test_a_bomb_in_a_second_member_is_refused_at_the_cap():
    data = compress(bytes(1000)) + gzip.compress(bytes(1))
    with pytest.raises(LogCorruptedError, match="larger than 1000 bytes"):
        decompress(data, NAME, max_bytes=1000)


def test_a_bomb_is_not_inflated_to_the_end():
    # The end of the stream is damaged: a reader that got there would report that instead.
    bomb = compress(bytes(32 * 1024**2))[:-8] + bytes(8)
    with pytest.raises(LogCorruptedError, match="larger than"):
        decompress(bomb, NAME, max_bytes=1024**2)

"""Compression of blocks, and the bounds on their decompressed size."""

import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidOptionError
from indextables.state.avro.container import Codec, Compression, decompress, zstd_size_bound
from indextables.state.avro.types import AvroFormatError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENOUGH = 1 << 30
ZSTD_BLOCK = 128 * 1024
CONTENTS = st.binary(max_size=500) | st.binary(min_size=1, max_size=30).map(lambda part: part * 20_000)


@pytest.mark.parametrize("compression", list(Compression))
@settings(max_examples=25)
@given(content=CONTENTS)
def test_content_survives(compression, content):
    compressed = Codec(compression).compress(content)
    assert decompress(compression, memoryview(compressed), ENOUGH) == content


@pytest.mark.parametrize("compression", list(Compression))
def test_content_beyond_the_limit_is_refused(compression):
    compressed = memoryview(Codec(compression).compress(bytes(1 << 20)))
    assert len(decompress(compression, compressed, 1 << 21)) == 1 << 20
    with pytest.raises(AvroFormatError, match="allowed"):
        decompress(compression, compressed, 1 << 19)


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.SNAPPY, Compression.DEFLATE])
def test_content_cut_off_anywhere_is_refused(compression):
    compressed = Codec(compression).compress(b"some content, and more of it" * 3)
    for length in range(len(compressed)):
        if compression is Compression.ZSTD and not length:
            continue  # no frames are no content
        with pytest.raises(AvroFormatError):
            decompress(compression, memoryview(compressed)[:length], ENOUGH)


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.SNAPPY])
def test_checksum_detects_every_changed_byte(compression):
    content = b"some content, and more of it" * 3
    compressed = Codec(compression).compress(content)
    for position in range(len(compressed)):
        damaged = bytearray(compressed)
        damaged[position] ^= 0x55
        try:
            assert decompress(compression, memoryview(damaged), ENOUGH) == content
        except AvroFormatError:
            continue


def test_snappy_that_announces_too_much_is_refused():
    with pytest.raises(AvroFormatError, match="allowed"):
        decompress(Compression.SNAPPY, memoryview(b"\xff\xff\xff\xff\x0f" + bytes(10)), 1 << 20)
    with pytest.raises(AvroFormatError, match="damaged"):
        decompress(Compression.SNAPPY, memoryview(b"\xff" * 20), 1 << 20)


@settings(max_examples=60)
@given(
    content=CONTENTS, level=st.sampled_from([1, 3, 19]), has_checksum=st.booleans(), pieces=st.integers(1, 3)
)
def test_zstd_bound_holds_and_is_close(content, level, has_checksum, pieces):
    options = {
        zstd.CompressionParameter.compression_level: level,
        zstd.CompressionParameter.checksum_flag: int(has_checksum),
    }
    compressed = zstd.compress(content, options=options) * pieces
    bound = zstd_size_bound(memoryview(compressed))
    assert len(content) * pieces <= bound <= (len(content) + ZSTD_BLOCK) * pieces


@settings(max_examples=30)
@given(content=CONTENTS)
def test_zstd_bound_holds_for_streams_that_do_not_announce_their_size(content):
    compressor = zstd.ZstdCompressor()
    compressed = compressor.compress(content, mode=compressor.CONTINUE) + compressor.flush()
    bound = zstd_size_bound(memoryview(compressed))
    assert len(content) <= bound <= len(content) + ZSTD_BLOCK


def test_zstd_bound_ignores_skippable_frames():
    skippable = (0x184D2A57).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    compressed = skippable + zstd.compress(b"content") + skippable
    assert zstd_size_bound(memoryview(compressed)) == len(b"content")
    assert decompress(Compression.ZSTD, memoryview(compressed), ENOUGH) == b"content"


def test_zstd_frame_that_lies_about_its_size_is_bounded_by_its_blocks():
    compressed = bytearray(zstd.compress(bytes(1 << 20)))
    size_at = compressed.index((1 << 20).to_bytes(4, "little"))
    compressed[size_at : size_at + 4] = (200_000).to_bytes(4, "little")
    assert zstd_size_bound(memoryview(compressed)) >= 1 << 20


@settings(max_examples=100)
@given(data=st.binary(min_size=1, max_size=60), prefix=st.sampled_from([b"", b"\x28\xb5\x2f\xfd"]))
def test_zstd_bound_of_arbitrary_bytes_is_a_number_or_an_error(data, prefix):
    with suppress(AvroFormatError):
        assert zstd_size_bound(memoryview(prefix + data)) >= 0


def test_codec_from_the_setting():
    assert Codec.from_option("zstd", 5) == Codec(Compression.ZSTD, 5)
    assert Codec.from_option("SNAPPY", 5) == Codec(Compression.SNAPPY)
    assert Codec.from_option("none") == Codec(Compression.NONE)


@pytest.mark.parametrize(("name", "level"), [("lz4", None), ("", None), ("zstd", 0), ("zstd", 23)])
def test_unknown_codec_or_level_is_refused(name, level):
    with pytest.raises(InvalidOptionError):
        Codec.from_option(name, level)

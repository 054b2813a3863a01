"""The codecs: what others write is read, what we write Java reads, nothing grows beyond its limit (B52, B53, B54)."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.records.compression import (
    Codec,
    CompressedDataCorrupt,
    DecompressionBomb,
    UnknownCodec,
    compress,
    decompress,
    repair_lz4_header_checksum,
)

TEXT = b"the quick brown fox jumps over the lazy dog " * 20_000  # several blocks in every codec
MIXED = TEXT[:300_000] + random.Random(7).randbytes(200_000) + TEXT[:100_000]
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def xerial(*blocks: bytes) -> bytes:
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def snappy_block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def lz4_frame(data: bytes, *, linked: bool, checksum: bool) -> bytes:
    writer = cramjam.lz4.Compressor(content_checksum=checksum, block_linked=linked)
    writer.compress(data)
    return bytes(writer.finish())


def zstd_streamed(data: bytes) -> bytes:
    writer = cramjam.zstd.Compressor()
    frame = b""
    for start in range(0, len(data), 50_000):
        writer.compress(data[start : start + 50_000])
        frame += bytes(writer.flush())
    return frame + bytes(writer.finish())


def zstd_frame(data: bytes, *, declared: int | None = None, checksum: bool = False) -> bytes:
    """A frame put together by hand: blocks as they are, 100 KB each, with or without the content's size."""
    blocks = [data[start : start + 100_000] for start in range(0, len(data), 100_000)] or [b""]
    sized = b"" if declared is None else struct.pack("<Q", declared)
    frame = struct.pack("<IBB", 0xFD2FB528, 0xC0 if sized else 0x00, 0x58) + sized
    for block in blocks:
        frame += (len(block) << 3 | (block is blocks[-1])).to_bytes(3, "little") + block
    return frame


SKIPPABLE = struct.pack("<II", 0x184D2A53, 5) + b"extra"

WRITTEN_BY_OTHERS: dict[str, tuple[Codec, bytes, bytes]] = {
    "gzip": (Codec.GZIP, gzip.compress(MIXED), MIXED),
    "gzip of nothing": (Codec.GZIP, gzip.compress(b""), b""),
    "gzip in members": (Codec.GZIP, gzip.compress(MIXED) + gzip.compress(b"") + gzip.compress(TEXT), MIXED + TEXT),
    "snappy raw": (Codec.SNAPPY, snappy_block(MIXED), MIXED),
    "snappy raw of nothing": (Codec.SNAPPY, snappy_block(b""), b""),
    "snappy xerial": (Codec.SNAPPY, xerial(snappy_block(MIXED), snappy_block(b""), snappy_block(TEXT)), MIXED + TEXT),
    "snappy xerial of nothing": (Codec.SNAPPY, xerial(), b""),
    "lz4 independent": (Codec.LZ4, lz4_frame(MIXED, linked=False, checksum=False), MIXED),
    "lz4 linked, checksum": (Codec.LZ4, lz4_frame(MIXED, linked=True, checksum=True), MIXED),
    "lz4 of nothing": (Codec.LZ4, lz4_frame(b"", linked=False, checksum=True), b""),
    "lz4 in frames": (
        Codec.LZ4,
        lz4_frame(MIXED, linked=True, checksum=True) + lz4_frame(TEXT, linked=False, checksum=False),
        MIXED + TEXT,
    ),
    "zstd with size": (Codec.ZSTD, bytes(cramjam.zstd.compress(MIXED)), MIXED),
    "zstd with one byte": (Codec.ZSTD, bytes(cramjam.zstd.compress(b"x")), b"x"),
    "zstd streamed, without size": (Codec.ZSTD, zstd_streamed(MIXED), MIXED),
    "zstd of nothing": (Codec.ZSTD, zstd_streamed(b""), b""),
    "zstd stored": (Codec.ZSTD, zstd_frame(MIXED), MIXED),
    "zstd stored, with size": (Codec.ZSTD, zstd_frame(MIXED, declared=len(MIXED)), MIXED),
    "zstd in frames": (Codec.ZSTD, zstd_streamed(TEXT) + SKIPPABLE + zstd_frame(b"end"), TEXT + b"end"),
}


@pytest.mark.parametrize("name", WRITTEN_BY_OTHERS)
def test_what_other_writers_compress_is_read(name: str) -> None:
    codec, compressed, plain = WRITTEN_BY_OTHERS[name]
    assert decompress(codec, compressed) == plain
    assert decompress(codec, memoryview(bytearray(compressed)), max_bytes=len(plain)) == plain


@pytest.mark.parametrize("name", [name for name, (_, _, plain) in WRITTEN_BY_OTHERS.items() if len(plain) > 1])
def test_one_byte_less_than_the_content_is_too_little(name: str) -> None:
    codec, compressed, plain = WRITTEN_BY_OTHERS[name]
    with pytest.raises(DecompressionBomb):
        decompress(codec, compressed, max_bytes=len(plain) - 1)


@pytest.mark.parametrize("name", [name for name, (_, _, plain) in WRITTEN_BY_OTHERS.items() if plain])
def test_compressed_data_that_ends_too_early_is_not_taken_for_less_data(name: str) -> None:
    codec, compressed, plain = WRITTEN_BY_OTHERS[name]
    for length in {0, 1, 3, 5, 7, 12, 17, len(compressed) // 2, len(compressed) - 1} & set(range(len(compressed))):
        try:
            assert plain.startswith(decompress(codec, compressed[:length]))
        except CompressedDataCorrupt:
            continue
        # The formats allow several frames after each other, and none: such an end cannot be told from a whole one.
        assert length == 0 or any(word in name for word in ("frames", "members", "xerial"))


@pytest.mark.parametrize("plain", [b"x", MIXED], ids=["1", "mixed"])
def test_what_we_compress_other_libraries_read(plain: bytes) -> None:
    assert gzip.decompress(compress(Codec.GZIP, plain)) == plain
    assert bytes(cramjam.lz4.decompress(compress(Codec.LZ4, plain))) == plain
    assert bytes(cramjam.zstd.decompress(compress(Codec.ZSTD, plain))) == plain


def test_lz4_is_written_in_the_one_way_that_java_reads() -> None:
    frame = bytes(compress(Codec.LZ4, MIXED))
    # Version 1, independent blocks of 64 KB, no checksum of blocks or content: byte for byte the header Java writes.
    assert frame[:7] == bytes.fromhex("04224d18604082")
    assert frame[-4:] == bytes(4)


def test_snappy_is_written_in_xerial_s_blocks_of_32_kb() -> None:
    framed = bytes(compress(Codec.SNAPPY, MIXED))
    assert framed[:16] == xerial()
    position, sizes = 16, []
    while position < len(framed):
        (size,) = struct.unpack_from(">i", framed, position)
        sizes.append(cramjam.snappy.decompress_raw_len(framed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert set(sizes[:-1]) == {32 * 1024}
    assert sum(sizes) == len(MIXED)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named(codec: int) -> None:
    with pytest.raises(UnknownCodec, match=f"codec {codec} is unknown"):
        decompress(codec, b"data")
    with pytest.raises(UnknownCodec):
        compress(codec, b"data")


ZEROS = bytes(50_000_000)
BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: gzip.compress(ZEROS)),
    "gzip in members": (Codec.GZIP, lambda: gzip.compress(ZEROS[:900_000]) * 50),
    "snappy raw": (Codec.SNAPPY, lambda: snappy_block(ZEROS)),
    "snappy xerial": (Codec.SNAPPY, lambda: xerial(*[snappy_block(ZEROS[:500_000])] * 100)),
    "lz4": (Codec.LZ4, lambda: bytes(cramjam.lz4.compress(ZEROS))),
    "lz4 in frames": (Codec.LZ4, lambda: bytes(compress(Codec.LZ4, ZEROS[:500_000])) * 100),
    "zstd with size": (Codec.ZSTD, lambda: bytes(cramjam.zstd.compress(ZEROS))),
    "zstd without size": (Codec.ZSTD, lambda: zstd_streamed(ZEROS)),
    "zstd in frames": (Codec.ZSTD, lambda: bytes(cramjam.zstd.compress(ZEROS[:900_000])) * 60),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_takes_more_than_the_limit(name: str) -> None:
    codec, make = BOMBS[name]
    bomb = make()
    limit = 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionBomb, match="more than 1000000 bytes"):
            decompress(codec, bomb, max_bytes=limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit


LIARS: dict[str, tuple[Codec, bytes]] = {
    "snappy block of 4 GB": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 20),
    "snappy block of 60 MB": (Codec.SNAPPY, b"\x80\x8e\xce\x1c" + b"x" * 20),
    "xerial block of 2 GB": (Codec.SNAPPY, xerial() + b"\x7f\xff\xff\xff" + b"x" * 20),
    "xerial block of -1": (Codec.SNAPPY, xerial() + b"\xff\xff\xff\xff" + b"x" * 20),
    "zstd of 2^60 bytes": (Codec.ZSTD, zstd_frame(b"little", declared=1 << 60)),
    "zstd of 60 MB": (Codec.ZSTD, zstd_frame(b"little", declared=60_000_000)),
    "zstd of one byte": (Codec.ZSTD, zstd_frame(b"little", declared=1)),
    "zstd block of 2 MB": (Codec.ZSTD, zstd_frame(b"")[:6] + b"\xff\xff\xff"),
    "skippable frame of 4 GB": (Codec.ZSTD, struct.pack("<II", 0x184D2A50, 0xFFFFFFFF)),
    "lz4 block of 2 GB": (Codec.LZ4, bytes.fromhex("04224d18604082ffffff7f") + b"x" * 20),
    "lz4 of 2^60 bytes": (Codec.LZ4, bytes.fromhex("04224d186840") + struct.pack("<Q", 1 << 60) + b"x" * 20),
    "gzip of nothing at all": (Codec.GZIP, b""),
}


@pytest.mark.parametrize("name", LIARS)
def test_sizes_that_the_data_does_not_bear_out_cost_no_memory(name: str) -> None:
    codec, data = LIARS[name]
    tracemalloc.start()
    try:
        with pytest.raises((CompressedDataCorrupt, DecompressionBomb)):
            decompress(codec, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@given(st.data(), st.sampled_from(COMPRESSED))
def test_damaged_data_is_refused_or_read_but_never_anything_else(data: st.DataObject, codec: Codec) -> None:
    compressed = bytearray(compress(codec, MIXED[295_000:305_000]))
    for _ in range(data.draw(st.integers(1, 5))):
        compressed[data.draw(st.integers(0, min(len(compressed) - 1, 60)))] = data.draw(st.integers(0, 255))
    with suppress(CompressedDataCorrupt, DecompressionBomb):
        assert len(decompress(codec, compressed, max_bytes=100_000)) <= 100_000


@given(st.binary(max_size=200), st.sampled_from(COMPRESSED))
def test_random_bytes_are_refused_or_read_but_never_anything_else(data: bytes, codec: Codec) -> None:
    starts = {Codec.LZ4: b"\x04\x22\x4d\x18", Codec.ZSTD: b"\x28\xb5\x2f\xfd", Codec.GZIP: b"\x1f\x8b\x08"}
    for start in (b"", starts.get(codec, xerial())):
        with suppress(CompressedDataCorrupt, DecompressionBomb):
            assert len(decompress(codec, start + data, max_bytes=100_000)) <= 100_000


def test_the_lz4_header_checksum_of_magic_0_is_mended() -> None:
    # Both headers are Java's: the checksum is 0x1a where it covers the frame's magic as well, 0x82 where it does not.
    assert repair_lz4_header_checksum(bytes.fromhex("04224d1860401a00000000")) == bytes.fromhex(
        "04224d1860408200000000"
    )


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_an_lz4_header_checksum_that_is_right_stays(linked: bool, checksum: bool) -> None:
    frame = lz4_frame(b"x", linked=linked, checksum=checksum)
    assert repair_lz4_header_checksum(frame) == frame


@pytest.mark.parametrize("length", range(7))
def test_an_lz4_header_that_is_cut_is_not_mended(length: int) -> None:
    with pytest.raises(CompressedDataCorrupt):
        repair_lz4_header_checksum(bytes.fromhex("04224d186840")[:length])


def test_gzip_is_written_as_one_member() -> None:
    reader = zlib.decompressobj(wbits=31)
    reader.decompress(compress(Codec.GZIP, MIXED))
    assert reader.eof
    assert not reader.unused_data

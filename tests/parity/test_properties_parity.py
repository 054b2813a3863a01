"""mm2py reads a settings file as Java does, or refuses it: generated files, read by both."""

from __future__ import annotations

import json
import os
import random
import re
from typing import Any

import pytest

from mm2py.config.properties import parse_properties
from mm2py.errors import ConfigError

FILES = 4000
SEED = int(os.environ.get("MM2PY_SEED", "20240501"))

PIECES = (
    [b"\\"] * 8
    + [b"\n", b"\r", b"\r\n", b"\\\n", b"\\\r", b"\\\r\n", b"\n\n"] * 2
    + [b"=", b":", b" ", b"\t", b"\x0c", b"#", b"!"] * 3
    + [b"\\u0041", b"\\u00e9", b"\\uD83D\\uDE00", b"\\ud800", b"\\u00", b"\\uuuu", b"\\u12G4", b"\\U0041"]
    + [b"\\=", b"\\:", b"\\ ", b"\\#", b"\\!", b"\\\\", b"\\t", b"\\n", b"\\r", b"\\f", b"\\b", b"\\0", b"\\x"]
    + [b"a", b"b", b"key", b"A->B.enabled", b"topics", b"true", b".*", b"mm2.*\\\\.internal", b"${file:/x:y}"]
    + [b"\xe9", b"\xff", b"\x00", b"\x0b", b"\x1c", b"\x85", b"\xa0", b"\xef\xbb\xbf", b"\x7f"]
)
NASTY = [
    b"",
    b"\\",
    b"\\\n",
    b"\\\r",
    b"\\\r\n",
    b"\\\n\n",
    b"\\\n#x=y\nz=1",
    b"\\\n  #x=y\nz=1",
    b"a\\\n#x=y\nz=1",
    b"a=1\\\n\nb=2",
    b"a=1\\\n  \nb=2",
    b"a=1\\",
    b"a=1\\\n",
    b"a=1\\\r\n",
    b"a=1\\\r",
    b"a=1\\\\\\\n\\\n b",
    b"#a\\\nb=1",
    b"  ! comment\r\n\tb = 1",
    b"a",
    b"a b c = d",
    b"a = = b",
    b"a : = b",
    b"a\\ b\\=c\\:d=e",
    b"=value",
    b":",
    b" ",
    b"\xef\xbb\xbfclusters=A,B",
    b"\xef\xbb\xbf# comment\nclusters=A,B",
    b"a=1\na=2\na=3",
    b"A->B.enabled = true     # disabled by default",
    b"x = \\u0041\\u00df\\u20ac\n\\u006bey = v",
    b"x=\\u12",
    b"x=\\u 123",
    b"\\u12=x",
    b"x=y\\u",
    b"a=b\x0cc",
    b"a\x0cb=c",
    b"trail = value   \t ",
]


def generated(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return NASTY + [b"".join(chance.choices(PIECES, k=chance.randint(1, 40))) for _ in range(count)]


OURS_ALONE = ("byte order mark", "half of a character", "continues nothing")
"""What Java accepts and mm2py refuses, by its message."""
LONE_BACKSLASH = re.compile(rb"(?:\A|[\r\n])[ \t\f]*\\[\r\n]")
"""Refused, too, but perhaps with another message: for Java a comment may stand in the next line."""


def ours(data: bytes) -> dict[str, str] | None:
    """Return the entries; None where Java has to refuse the file as well. Raises: ConfigError, for ours alone."""
    try:
        return {key: entry.value for key, entry in parse_properties(data).entries.items()}
    except ConfigError as error:
        if any(what in error.what for what in OURS_ALONE) or LONE_BACKSLASH.search(data):
            raise
        return None


@pytest.fixture(scope="session")
def java_properties(jvm: Any) -> Any:
    """What java.util.Properties makes of some bytes; None where it refuses them."""
    from py4j.protocol import Py4JJavaError

    java = jvm.jvm
    mapper = java.com.fasterxml.jackson.databind.ObjectMapper()
    # As ASCII, halves of surrogate pairs survive the way.
    escape = java.com.fasterxml.jackson.core.JsonGenerator.Feature.valueOf("ESCAPE_NON_ASCII")
    mapper.getFactory().configure(escape, True)

    def read(data: bytes) -> dict[str, str] | None:
        properties = java.java.util.Properties()
        try:
            properties.load(java.java.io.ByteArrayInputStream(data))
        except Py4JJavaError as error:
            assert "Malformed" in str(error.java_exception)
            return None
        found: dict[str, str] = json.loads(mapper.writeValueAsString(properties))
        return found

    return read


def test_java_reads_the_same_out_of_generated_files(java_properties: Any) -> None:
    print(f"MM2PY_SEED={SEED}")
    refused = ours_alone = entries = 0
    for data in generated(FILES, SEED):
        theirs = java_properties(data)
        try:
            assert ours(data) == theirs, data
        except ConfigError:
            ours_alone += 1
            continue
        refused += theirs is None
        entries += len(theirs or ())
    # The comparison means something: most files are legal and hold several entries.
    assert refused < FILES / 2
    assert ours_alone < FILES / 2
    assert entries > 1500


def test_java_reads_the_same_across_its_read_buffer(java_properties: Any) -> None:
    """Java reads 8 KiB at a time; escapes, line ends and continuations fall on that edge."""
    for tail in (b"\\\n b=1", b"\\\r\nb=1", b"\r\nb=1", b"\\u0041=\\u0042"):
        for shift in range(-len(tail) - 2, 3):
            data = b"k=" + b"x" * (8192 - 2 + shift) + tail
            assert ours(data) == java_properties(data), (tail, shift)

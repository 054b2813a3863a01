"""What a text means as a boolean, a number, a list: Kafka's ConfigDef and mm2py say the same of generated texts."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from mm2py.config.kinds import BadValue, boolean, integer, one_of, string, strings

SEED = int(os.environ.get("MM2PY_SEED", "20240503"))
TEXTS = 400
PIECES = [
    *["true", "false", "TRUE", "tRuE", "yes", "1", "0", "-", "+", "9", "2147483647", "2147483648", "-2147483649"],
    *["9223372036854775807", "9223372036854775808", "1e3", "0x10", "1_000", "1.0", "\u0661", "l", "L"],
    *[" ", "\t", "\n", "\r", "\x0b", "\x0c", "\x00", "\x1f", "\xa0", "\u2003", "\x85"],
    *[",", ",", ",", " , ", "a", "a", "b", ".*", "A", "compact", "read_committed", "READ_COMMITTED"],
]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    print(f"MM2PY_SEED={SEED}")
    chance = random.Random(SEED)
    generated = ["".join(chance.choices(PIECES, k=chance.randint(0, 5))) for _ in range(TEXTS)]
    return [*PIECES, "", " ", ",", "a,", ",a", "a,,b", "a , b", "a,b,a", "-0", "+5", "--5", "2 147", *generated]


@pytest.fixture(scope="module")
def definition(jvm: Any) -> Any:
    """Parse a text as one type; "refused" where Kafka does."""
    from py4j.protocol import Py4JJavaError

    config = jvm.jvm.org.apache.kafka.common.config
    required = config.ConfigDef.NO_DEFAULT_VALUE
    importance = config.ConfigDef.Importance.valueOf("HIGH")

    def parse(type_name: str, text: str, validator: Any = None) -> Any:
        kind = config.ConfigDef.Type.valueOf(type_name)
        made = config.ConfigDef().define("x", kind, required, validator, importance, "")
        properties = jvm.jvm.java.util.HashMap()
        properties.put("x", text)
        try:
            found = made.parse(properties).get("x")
        except Py4JJavaError as error:
            assert "ConfigException" in str(error.java_exception)
            return "refused"
        return tuple(found) if type_name == "LIST" else found

    return parse


def ours(kind: Any, text: str) -> Any:
    try:
        return kind(text)
    except BadValue:
        return "refused"


def test_booleans(definition: Any, texts: list[str]) -> None:
    for text in texts:
        assert ours(boolean, text) == definition("BOOLEAN", text), repr(text)


def test_numbers(definition: Any, texts: list[str]) -> None:
    for text in texts:
        assert ours(integer(-(2**31)), text) == definition("INT", text), repr(text)
        assert ours(integer(-(2**63), 2**63 - 1), text) == definition("LONG", text), repr(text)


def test_strings_and_choices(definition: Any, texts: list[str]) -> None:
    for text in texts:
        assert ours(string, text) == definition("STRING", text), repr(text)
    assert ours(one_of("read_committed", "read_uncommitted"), "READ_COMMITTED") == "refused"


def test_lists_have_no_empty_entry_and_equal_ones_count_once(jvm: Any, definition: Any, texts: list[str]) -> None:
    valid_list = jvm.jvm.org.apache.kafka.common.config.ConfigDef.ValidList
    for text in texts:
        validator = valid_list.anyNonDuplicateValues(True, False)
        assert ours(strings, text) == definition("LIST", text, validator), repr(text)

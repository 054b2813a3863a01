"""Reading properties: Java's rules, the line of each key, and files that are none (B01 to B05, B22)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mm2py.config.properties import Properties, PropertyEntry, parse_properties, read_properties
from mm2py.errors import ConfigError
from mm2py.secret import (
    CLIENT_NAMES,
    HIDDEN,
    may_hold_secret,
    setting_within,
    shown_key,
    shown_unknown_key,
    shown_value,
)


def parsed(data: bytes) -> dict[str, str]:
    return {key: entry.value for key, entry in parse_properties(data).entries.items()}


def test_equals_sign_colon_and_blank_all_separate() -> None:
    assert parsed(b"a=1\nb:2\nc 3\nd = 4\ne : 5\nf\t=6\ng\x0c7") == dict(zip("abcdefg", "1234567", strict=True))


def test_only_the_first_separator_separates() -> None:
    assert parsed(b"a==1\nb=:2\nc = = 3\nA->B.topics = x=y:z") == {
        "a": "=1",
        "b": ":2",
        "c": "= 3",
        "A->B.topics": "x=y:z",
    }


def test_a_key_alone_has_the_empty_value() -> None:
    assert parsed(b"a\nb=\nc:") == {"a": "", "b": "", "c": ""}


def test_blanks_before_a_value_go_and_behind_it_stay() -> None:
    assert parsed(b"a =  1 \t\n") == {"a": "1 \t"}


def test_a_comment_needs_a_line_of_its_own() -> None:
    text = b"# one\n  ! two\n#three\\\na = true     # on\n"
    assert parsed(text) == {"a": "true     # on"}


def test_a_line_ends_with_cr_lf_or_both() -> None:
    assert parsed(b"a=1\rb=2\nc=3\r\n\r\nd=4") == {"a": "1", "b": "2", "c": "3", "d": "4"}


def test_an_odd_number_of_backslashes_continues_a_line() -> None:
    assert parsed(b"a=1,\\\n    2,\\\r\n\t3\nb=1\\\\\nc=2\\\\\\\n3") == {"a": "1,2,3", "b": "1\\", "c": "2\\3"}


def test_a_continued_line_may_look_like_a_comment() -> None:
    assert parsed(b"a=1\\\n#2") == {"a": "1#2"}


@pytest.mark.parametrize(
    "text", [b"\\\nb=2", b"a=\\", b"a=1, \\\n", b"a=1\\\\\\\r\n", b"  \\\r\nb=2", b"\\", b"a=1, \\ \nb=2"]
)
def test_a_backslash_that_continues_nothing_is_refused_with_its_line(text: bytes) -> None:
    """Versions of Java read it differently, and it is a slip of the pen."""
    with pytest.raises(ConfigError, match="The entry of line 2 has a backslash that continues nothing"):
        parse_properties(b"x=1\n" + text)


def test_a_backslash_at_the_end_of_a_comment_is_part_of_it() -> None:
    assert parsed(b"a=1\n# b\\") == {"a": "1"}


def test_half_of_a_character_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2: b holds half of a character"):
        parse_properties(rb"a=1%sb=\ud83d" % b"\n")


def test_escapes() -> None:
    text = rb"a\ b\=c\:d = \t|\n|\r|\f|\\|\z|\u0041\u00e9|\uD83D\uDE00"
    assert parsed(text) == {"a b=c:d": "\t|\n|\r|\f|\\|z|Aé|😀"}


def test_bytes_are_latin_1() -> None:
    assert parsed("a=é".encode("latin-1")) == {"a": "é"}
    assert parsed("a=é".encode()) == {"a": "Ã©"}


@pytest.mark.parametrize("text", [rb"a=\u12", rb"\u12=a", rb"a=\u12G4", rb"a=\u", rb"a=\u 041"])
def test_a_broken_escape_is_an_error_with_its_line(text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"line 3 has \\u without four hexadecimal digits"):
        parse_properties(b"# one\n\n" + text)


def test_of_equal_keys_the_last_counts_and_a_warning_says_so() -> None:
    properties = parse_properties(b"a=1\nb=2\na=3\n")
    assert properties.entries["a"] == PropertyEntry("3", "a", 3)
    assert properties.warnings == ("line 3: a is set again (first in line 1); the last one counts",)


def test_many_repetitions_make_few_warnings() -> None:
    properties = parse_properties(b"a=1\n" * 1000)
    assert len(properties.warnings) == 21
    assert properties.warnings[-1].startswith("979 more")


def test_an_entry_knows_the_line_it_begins_in() -> None:
    entries = parse_properties(b"# x\r\n\r\na=1,\\\r\n  2\r\nb=3").entries
    assert (entries["a"].line, entries["b"].line) == (3, 5)


@pytest.mark.parametrize("text", ["clusters=A,B\n", "# clusters\nclusters=A,B\n"])
def test_a_byte_order_mark_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="byte order mark"):
        parse_properties(text.encode("utf-8-sig"))


@given(st.binary(max_size=400))
@example(b"\\")
@example(b"\\\r\n")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        properties = parse_properties(data)
    except ConfigError as error:
        assert any(what in error.what for what in ("hexadecimal", "continues nothing", "byte order", "half of"))
        return
    lines = data.count(b"\n") + data.count(b"\r") + 1
    assert all(entry.line is not None and 1 <= entry.line <= lines for entry in properties.entries.values())


def escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if chr(code).isalnum() and code < 128 else f"\\u{code:04x}" for code in codes)


@given(st.dictionaries(st.text(min_size=1), st.text()), st.sampled_from(["=", ":", " ", " = ", "\t:\t"]))
def test_what_is_escaped_comes_back(entries: dict[str, str], separator: str) -> None:
    text = "".join(f"{escaped(key)}{separator}{escaped(value)}\n" for key, value in entries.items())
    assert parsed(text.encode()) == entries


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read .*missing\.properties: No such file"):
        read_properties(tmp_path / "missing.properties")
    with pytest.raises(ConfigError, match="is a directory"):
        read_properties(tmp_path)
    with pytest.raises(ConfigError, match="not a plain file"):
        read_properties(Path("/dev/null"))
    with pytest.raises(ConfigError, match="is not a file name"):
        read_properties(Path("a\0b"))
    with pytest.raises(ConfigError, match="File name too long"):
        read_properties(tmp_path / ("x" * 5000))


def test_an_absurd_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_bytes(b"a=1\n" * 500_000)
    with pytest.raises(ConfigError, match="larger than 1,048,576 bytes"):
        read_properties(path)


def test_a_long_list_of_continued_lines_is_read_soon() -> None:
    began_s = time.process_time()
    assert parsed(b"topics = \\\n" + b"a-topic-of-many-others, \\\n" * 1_000 + b"z\n")["topics"].endswith(" z")
    assert time.process_time() - began_s < 10


SECRET_KEYS = [
    "ssl.keystore.password",
    "A.sasl.jaas.config",
    "A->B.consumer.ssl.key.password",
    "ssl.keystore.key",
    "ssl.truststore.certificates",
    "my.secret",
    "vault.token",
    "api.key",
    "aws.secret.access.key",
    "filter.credentials",
    "sasl.oauthbearer.client.credentials.client.secret",
    "basic.auth.user.info",
    "db.pwd",
]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_values_of_keys_that_may_hold_secrets_are_never_shown(key: str) -> None:
    assert may_hold_secret(key)
    assert shown_value(key, "canary") == HIDDEN
    assert "canary" not in repr(PropertyEntry("canary", key, 1))
    assert "canary" not in repr(Properties({key: PropertyEntry("canary", key, 1)}))


@pytest.mark.parametrize(
    "key", ["topics", "key.converter", "A.key.converter", "B.producer.key.serializer", "tasks.max"]
)
def test_values_of_ordinary_keys_are_shown(key: str) -> None:
    assert not may_hold_secret(key)
    assert shown_value(key, "x y") == "'x y'"


@pytest.mark.parametrize(
    "value",
    [
        'orders, #A.sasl.jaas.config = x.PlainLoginModule required username="u" password="canary";',
        'orders  username="u" password="canary";',
        "ordersA.ssl.keystore.password=canary",
        "orders, A.ssl.key.password canary",
        "orders, A.ssl.truststore.password: canary",
        "g1,A->B.source.cluster.bootstrap.servers = canary:9092",
        "a:1,B.zookeeper.connect=canary:2181",
        "B.zookeeper.auth.digest = me:canary",
        "x, A.reporter.endpoint = canary",
        "x, my.client_secret: canary",
        "o, B.zookeeper.auth.digest mm2:canary",
        "o, A.password canary",
        "o, #A.reporter.api.key\tcanary",
    ],
)
def test_a_setting_of_a_connection_inside_another_value_is_found_and_not_shown(value: str) -> None:
    assert setting_within(value)
    assert shown_value("topics", value) == HIDDEN
    assert shown_value("topics", value, most=None) == HIDDEN


@pytest.mark.parametrize(
    "value",
    [
        "password-resets, tokens, ssl.keystore.password, sasl.jaas.config",
        "ssl.key.password , bootstrap.servers",
        ".*(password|secret|token).*, (?i)credentials",
        "(?=.*token)x.*, x(?=secret), (?<=password)y, (?<token>a|b)",
        "token:refresh, svc-secret:x, env=prod, a key, my password manager",
        "retention.ms, min.insync.replicas, ssl\\.client\\.auth",
        "h1:9092, h2:9092",
        "https://idp/keys?client.token=x",
        "${file:/etc/mm2/secret.properties:password}",
        "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "",
    ],
)
def test_names_and_patterns_that_only_speak_of_secrets_are_no_settings(value: str) -> None:
    assert setting_within(value) == ""
    assert shown_value("topics", value) != HIDDEN


@given(st.sampled_from(sorted(CLIENT_NAMES)), st.sampled_from(["", "A.", "A->B.", "#B.consumer."]))
def test_every_setting_of_a_connection_is_found_however_it_is_set(name: str, level: str) -> None:
    for between in ("=", " = ", ":", " : ", " ", "\t"):
        assert setting_within(f"orders, {level}{name}{between}canary") == name


def test_what_is_shown_stays_in_its_line() -> None:
    assert shown_key("a\nb\x1b[2J") == "a\\nb\\x1b[2J"
    assert "\n" not in shown_value("topics", "a\nb")
    assert len(shown_key("x." * 5000)) < 200
    assert len(shown_value("topics", "x." * 5000)) < 200


def test_a_torn_key_block_is_not_shown_as_a_key() -> None:
    """A continuation line is missing: the middle of a private key becomes the name of a key."""
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
    assert line[:20] not in shown_key(line)


@pytest.mark.parametrize(
    "key", ['"canary";', "canary;", "can!ary", "canary\n", "'canary", "a/canary", "canary+x=", "c" * 64]
)
def test_an_unknown_key_that_is_not_made_like_one_is_not_shown(key: str) -> None:
    assert "canary" not in shown_unknown_key(key, "x")
    assert "may be part of a secret" in shown_unknown_key(key, "x")


@pytest.mark.parametrize("key", ["A->B.odd.thing", "Zürich.my-key_2", "x$y", "A -> B.x"])
def test_an_unknown_key_that_is_made_like_one_is_shown_unless_it_is_a_piece_of_a_value(key: str) -> None:
    assert shown_unknown_key(key, "x") == key
    assert key not in shown_unknown_key(key, "")


def test_a_key_without_a_value_may_be_a_piece_of_the_value_before_it_and_is_not_shown() -> None:
    assert "Canary" not in repr(list(parse_properties(b"a=\nCanary\nb=1").entries.values()))
    (warning,) = parse_properties(b"a=\nCanary\nb=\nCanary\n").warnings
    assert warning.startswith("line 4: [a key that is not shown")
    assert "Canary" not in warning

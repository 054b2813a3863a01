"""Nobody reads a record in quarantine who may not read the remote topic."""

from __future__ import annotations

import pytest

from mm2py.topics.acls import Operation, Pattern, Permission, TopicAcl, reader_beyond

HERE, THERE = "mm2-quarantine.A.internal", "A.orders"


def allow(
    name: str, principal: str, operation: Operation = Operation.READ, *, prefixed: bool = False, host: str = "*"
) -> TopicAcl:
    pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
    return TopicAcl(name, pattern, f"User:{principal}", host, operation, Permission.ALLOW)


def deny(name: str, principal: str, operation: Operation = Operation.READ) -> TopicAcl:
    return TopicAcl(name, Pattern.LITERAL, f"User:{principal}", "*", operation, Permission.DENY)


def beyond(*acls: TopicAcl, open_without_acl: bool = False) -> str | None:
    return reader_beyond(acls, quarantine=HERE, remote=THERE, open_without_acl=open_without_acl)


@pytest.mark.parametrize(
    "acls",
    [
        [],
        [allow(THERE, "jane")],
        [allow("*", "jane")],
        [allow("*", "*", Operation.ALL)],
        [allow(HERE, "operator")],
        [allow("mm2", "mm2py", Operation.ALL, prefixed=True), allow("A.", "mm2py", Operation.WRITE, prefixed=True)],
        [allow("mm2-", "jane", prefixed=True), allow(THERE, "jane")],
        [allow("mm2-", "jane", prefixed=True), allow(THERE, "*")],
        [allow("mm2-", "jane", Operation.DESCRIBE, prefixed=True)],
        [allow("*", "jane"), deny("*", "bob")],
        [allow("*", "*"), deny(THERE, "bob"), deny(HERE, "bob", Operation.ALL)],
        [deny(THERE, "bob")],
        [allow("*", "jane"), deny(THERE, "bob")],
    ],
)
def test_who_reads_both_or_neither_is_nobody_beyond(acls: list[TopicAcl]) -> None:
    assert beyond(*acls) is None


@pytest.mark.parametrize(
    ("acls", "who"),
    [
        ([allow("mm2-", "eve", prefixed=True)], "User:eve from *"),
        ([allow("mm2-", "eve", prefixed=True), allow(THERE, "jane")], "User:eve from *"),
        ([allow("mm2-", "eve", prefixed=True), allow(THERE, "eve", host="10.0.0.1")], "User:eve from *"),
        ([allow("mm2-", "eve", prefixed=True), allow(THERE, "eve", Operation.DESCRIBE)], "User:eve from *"),
        ([allow("*", "*"), deny(THERE, "bob")], "User:bob from *"),
        ([allow("*", "bob"), deny(THERE, "*", Operation.ALL)], "User:* from *"),
    ],
)
def test_who_reads_the_quarantine_only_is_named(acls: list[TopicAcl], who: str) -> None:
    assert beyond(*acls) == who


def test_a_topic_that_is_open_without_an_acl_is_fine_only_for_what_is_open_as_well() -> None:
    assert beyond(open_without_acl=True) is None
    assert "everybody" in str(beyond(allow(THERE, "jane"), open_without_acl=True))
    assert beyond(allow(THERE, "jane"), allow(HERE, "operator"), open_without_acl=True) is None
    assert beyond(allow("mm2-", "eve", prefixed=True), open_without_acl=True) is None, "the other is open to her"

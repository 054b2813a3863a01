"""PLAIN and OAUTHBEARER as conversations."""

from __future__ import annotations

import json

import pytest

from mm2py.kafka.security.sasl import (
    REASON_MAX_CHARS,
    OAuthBearer,
    Plain,
    SaslRefused,
    extension_problem,
    is_token,
    shown_reason,
)
from mm2py.secret import Secret


def test_plain_sends_name_and_password() -> None:
    plain = Plain("änna", Secret("ge,heim"))
    assert plain.first() == "\0änna\0ge,heim".encode()
    assert plain.answer(b"") is None
    with pytest.raises(SaslRefused):
        plain.answer(b"more?")


def test_oauthbearer_sends_its_token_and_extensions() -> None:
    assert OAuthBearer(Secret("a.b.c")).first() == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    with_extensions = OAuthBearer(Secret("a.b.c"), [("logicalCluster", "lkc-1"), ("pool", "p 1")])
    assert with_extensions.first() == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01pool=p 1\x01\x01"
    assert with_extensions.answer(b"") is None


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b'{"status":"invalid_token"}', "(invalid_token)"),
        (b'{"status":"a\\nb"}', "(a\\nb)"),
        (b"{}", "without a status"),
        (b"[]", "without a reason"),
        (b"\xff", "without a reason"),
        (b"[" * 100_000, "without a reason"),
    ],
)
def test_a_refused_token_is_acknowledged_and_told(challenge: bytes, why: str) -> None:
    bearer = OAuthBearer(Secret("canary"))
    assert bearer.answer(challenge) == b"\x01"
    assert why in bearer.refused
    with pytest.raises(SaslRefused, match="it refuses the token") as caught:
        bearer.answer(b"")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("Sup3rSecret.", "Authentication failed for anna/Sup3rSecret."),
        ("Sup3r Secret ", "Authentication failed for anna/Sup3r Secret "),
        ("Sup3rSecretLongPassword", "x" * 185 + "Sup3rSecretLongPassword"),
        ("Sup3r" + "A" * 600 + ".sig", "Invalid token Sup3r" + "A" * 600 + ".sig"),
        ("Sup3r\u00a0\u200bord", "bad password Sup3r\u00a0\u200bord"),
    ],
)
def test_what_a_broker_echoes_is_freed_of_secrets_before_it_is_shortened_and_escaped(secret: str, said: str) -> None:
    shown = shown_reason(said, (Secret(secret),))
    assert "Sup3r" not in shown
    assert len(shown) <= REASON_MAX_CHARS


def test_the_status_with_which_a_token_is_refused_does_not_repeat_it() -> None:
    token = "Sup3r" + "A" * 600 + ".sig"
    bearer = OAuthBearer(Secret(token))
    bearer.answer(json.dumps({"status": f"x{token}"}).encode())
    assert bearer.refused == "it refuses the token (x[hidden])"


@pytest.mark.parametrize(("name", "value", "fine"), [
    ("pool", "x", True), ("auth", "x", False), ("a1", "x", False), ("pool", "a\x01b", False), ("pool", "", False),
])  # fmt: skip
def test_extensions_cannot_forge_a_message(name: str, value: str, fine: bool) -> None:
    assert (extension_problem(name, value) is None) is fine


@pytest.mark.parametrize(("text", "fine"), [("a.b.c", True), ("", False), ("a b", False), ("a\x01auth=x", False)])
def test_a_token_cannot_forge_a_message(text: str, fine: bool) -> None:
    assert is_token(text) is fine

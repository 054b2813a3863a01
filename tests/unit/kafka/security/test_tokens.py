"""Tokens for OAUTHBEARER: when they are fetched anew, from whom they are taken, and what is told when there is none."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.certificates import Authority, write_private
from mm2py.kafka.errors import TokenUnavailable
from mm2py.kafka.security.settings import RefreshSettings, TlsSettings, TokenEndpoint, TokenFile, TrustStore
from mm2py.kafka.security.tokens import EndpointTokens, FileTokens, expiry_of, read_answer, refresh_at_s
from mm2py.secret import Secret
from tests.fakes.token_server import Answer, given_token, jwt, token_server

pytestmark = pytest.mark.real_time

AUTHORITY = Authority()
TLS = TlsSettings(TrustStore("PEM", certificates=Secret(AUTHORITY.pem().decode())))


# -- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("life_s", "jitter", "expected_s"),
    [
        (3600, 0.0, 2880),  # 80 %
        (3600, 1.0, 3060),
        (1000, 1.0, 700),  # not later than the buffer before the end
        (400, 0.0, 100),  # as above, and it wins over 80 %
        (360, 0.0, 60),  # both bounds meet
        (359, 0.0, 287.2),  # too short for both: neither counts
        (10, 0.0, 8),
    ],
)
def test_a_token_is_fetched_anew_when_kafka_would(life_s: float, jitter: float, expected_s: float) -> None:
    assert refresh_at_s(1000, 1000 + life_s, RefreshSettings(), jitter) == pytest.approx(1000 + expected_s)


@given(st.floats(0.001, 1e8), st.floats(0, 1))
def test_a_token_is_never_fetched_after_it_expired(life_s: float, jitter: float) -> None:
    assert 1000 <= refresh_at_s(1000, 1000 + life_s, RefreshSettings(), jitter) <= 1000 + life_s


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (jwt({"exp": 12345}), 12345),
        (jwt({"exp": 12345.5}), 12345.5),
        (jwt({"exp": "12345"}), None),
        (jwt({"exp": True}), None),
        (jwt({"exp": 1e300}), None),
        (jwt({}), None),
        (jwt([1]), None),
        ("opaque", None),
        ("a.b", None),
        ("a.!!!.c", None),
        ("a.é.c", None),
    ],
)
def test_the_expiry_is_read_where_there_is_one(token: str, expected: float | None) -> None:
    assert expiry_of(token) == expected


def test_the_earlier_of_two_expiries_counts() -> None:
    def answer(claims: object, expires_in: object) -> float | None:
        body = json.dumps({"access_token": jwt(claims), "expires_in": expires_in}).encode()
        return read_answer(body, 1000.0).expires_at_s

    assert answer({"exp": 1500}, 300) == 1300
    assert answer({"exp": 1200}, 300) == 1200
    assert answer({}, 300) == 1300
    assert answer({}, None) is None


@pytest.mark.parametrize(
    "body", [b"", b"canary", b"[]", b"{}", b'{"access_token":1}', b'{"access_token":"a b"}', b"[" * 99999]
)
def test_an_answer_without_a_token_is_refused_and_not_repeated(body: bytes) -> None:
    with pytest.raises(ValueError, match="its answer") as caught:
        read_answer(body, 0.0)
    assert "canary" not in str(caught.value)


# -- from a server ----------------------------------------------------------------------------------------------------


def endpoint(url: str, **more: Any) -> TokenEndpoint:
    settings = TokenEndpoint(url, "cli ent", Secret("canary/secret"), tls=TLS, backoff_s=0.2, backoff_most_s=0.4)
    return replace(settings, **more)


def source(settings: TokenEndpoint, said: list[str] | None = None) -> EndpointTokens:
    return EndpointTokens(settings, rng=random.Random(1), report=([] if said is None else said).append)


async def test_credentials_are_sent_as_kafka_sends_them_and_the_token_is_kept(tmp_path: Path) -> None:
    certificate = write_private(tmp_path / "server.pem", AUTHORITY.issue("server").pem())
    with token_server(lambda: given_token("token-1", expires_in=600), certificate) as server:
        tokens = source(endpoint(server.url, scope="a b"))
        first = await asyncio.gather(*(tokens.token() for _ in range(5)))
        assert {token.secret.reveal() for token in first} == {"token-1"}
        ((path, headers, body),) = server.asked
        assert path == "/token?a=b"
        assert headers["Authorization"] == "Basic " + base64.b64encode(b"cli ent:canary/secret").decode()
        assert headers["Content-Type"] == "application/x-www-form-urlencoded"
        assert body == "grant_type=client_credentials&scope=a+b"
        encoded = source(endpoint(server.url, url_encode=True))
        await encoded.token()
        assert server.asked[1][1]["Authorization"] == "Basic " + base64.b64encode(b"cli+ent:canary%2Fsecret").decode()
        assert server.asked[1][2] == "grant_type=client_credentials"


async def test_a_short_token_is_renewed_before_its_end_and_the_old_one_serves_while_that_fails() -> None:
    answers = [given_token("one", expires_in=1)]
    said: list[str] = []
    with token_server(lambda: answers[0]) as server:
        tokens = source(endpoint(server.url), said)
        assert (await tokens.token()).secret.reveal() == "one"
        tokens._refresh_at_s = 0.0  # as if four fifths of its life were over
        answers[0] = (503, {}, b"canary")
        assert (await tokens.token()).secret.reveal() == "one"
        assert (await tokens.token()).secret.reveal() == "one"
        assert len(server.asked) == 2, "a server that fails is left alone for a while"
        (text,) = said
        assert "it answers 503. The old one stays in use." in text
        answers[0] = given_token("two")
        tokens._again_at_s = 0.0
        assert (await tokens.token()).secret.reveal() == "two"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, {}, b'{"error":"invalid_client canary"}'), "it answers 401"),
        ((302, {"Location": "https://elsewhere.example/canary"}, b""), "it answers with a redirect (302)"),
        ((307, {"Location": "/token"}, b""), "it answers with a redirect (307)"),
        ((500, {}, b"canary"), "it answers 500"),
        ((200, {}, b"<html>canary"), "its answer is no JSON"),
        ((200, {}, b"x" * ((1 << 20) + 1)), "its answer is too large"),
        (given_token(jwt({"exp": 5})), "it gave a token that has expired"),
    ],
)
async def test_what_the_server_refuses_is_told_once_and_asked_seldom(answer: Answer, why: str) -> None:
    """S11: among others it leads nowhere else."""
    with token_server(lambda: answer) as server:
        tokens = source(endpoint(server.url))
        for _ in range(3):
            with pytest.raises(TokenUnavailable) as caught:
                await tokens.token()
            assert why in str(caught.value)
            assert "canary" not in str(caught.value)
            assert "?a=b" not in str(caught.value)
        assert len(server.asked) == 1, "no redirect is followed, and it is left alone for a while"


async def test_a_server_whose_certificate_is_not_trusted_gets_no_secret(tmp_path: Path) -> None:
    certificates = {
        "comes from an authority that is not trusted": Authority("other").issue("server"),
        "is not for 127.0.0.1": AUTHORITY.issue("server", ["token.example"]),
        "has expired": AUTHORITY.issue("server", valid_days=(-9, -1)),
    }
    for why, certified in certificates.items():
        path = write_private(tmp_path / "server.pem", certified.pem())
        with token_server(lambda: given_token("x"), path) as server:
            with pytest.raises(TokenUnavailable, match=why):
                await source(endpoint(server.url)).token()
            assert server.asked == []


async def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    release = threading.Event()

    def silent() -> Answer:
        release.wait(20)
        return given_token("late")

    with token_server(silent) as server:
        began_s = time.monotonic()
        with pytest.raises(TokenUnavailable, match="did not answer in time"):
            await source(endpoint(server.url, connect_timeout_s=0.2, read_timeout_s=0.2)).token()
        assert time.monotonic() - began_s < 15
        release.set()
    with pytest.raises(TokenUnavailable, match="Connection refused"):
        await source(endpoint("http://127.0.0.1:1/")).token()


# -- from a file ------------------------------------------------------------------------------------------------------


def file_tokens(path: Path, said: list[str] | None = None) -> FileTokens:
    return FileTokens(TokenFile(path), report=([] if said is None else said).append)


UNUSABLE: list[tuple[bytes | None, str]] = [
    (jwt({"exp": 5}).encode(), "it has expired"),
    (b"can ary", "it holds no token"),
    (b"\xff", "it holds no token"),
    (b"", "it holds no token"),
    (None, "No such file"),
]


def put(path: Path, content: bytes | None) -> None:
    path.unlink() if content is None else write_private(path, content)


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    tokens = file_tokens(path)
    for content, why in [(None, "No such file"), *UNUSABLE]:
        if content is not None or path.exists():
            put(path, content)
        with pytest.raises(TokenUnavailable, match=why):
            await tokens.token()
    path.mkdir()
    with pytest.raises(TokenUnavailable, match="it is not a file"):
        await tokens.token()
    path.rmdir()
    write_private(path, b"first\n")
    assert (await tokens.token()).secret.reveal() == "first"
    write_private(path, jwt({"exp": time.time() + 60}).encode())
    assert (await tokens.token()).expires_at_s is not None


async def test_a_token_that_is_still_good_stays_in_force_when_its_file_is_emptied_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    said: list[str] = []
    tokens = file_tokens(path, said)
    write_private(path, jwt({"exp": time.time() + 60}).encode())
    good = await tokens.token()
    for content, why in UNUSABLE:
        put(path, content)
        assert await tokens.token() == good
        assert await tokens.token() == good
        assert why in said[-1] and "The token it held before stays in use." in said[-1]
    assert len(said) == 3, "each reason is told once"
    assert "ary" not in "".join(said).replace(str(tmp_path), "")
    write_private(path, b"next")
    assert (await tokens.token()).secret.reveal() == "next"


async def test_a_token_that_has_expired_does_not_stay_in_force(tmp_path: Path) -> None:
    path = tmp_path / "token"
    said: list[str] = []
    tokens = file_tokens(path, said)
    write_private(path, jwt({"exp": time.time() + 0.5}).encode())
    await tokens.token()
    path.unlink()
    await tokens.token()
    assert len(said) == 1
    while True:
        try:
            await tokens.token()
        except TokenUnavailable as error:
            assert "No such file" in str(error)
            return
        await asyncio.sleep(0.05)

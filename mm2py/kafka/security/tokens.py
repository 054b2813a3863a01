"""Tokens for OAUTHBEARER: from an OAuth server by client credentials, or from a file that another program renews.

A token is fetched when a connection needs one, kept for all connections of the cluster, and fetched again at four
fifths of its lifetime. The broker checks the content of a token; this module reads only its expiry.

Counterpart: ClientCredentialsJwtRetriever, FileJwtRetriever and ExpiringCredentialRefreshingLogin of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import http.client
import json
import os
import random
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mm2py.kafka.errors import Backoff, KeyMaterialUnusable, TokenUnavailable
from mm2py.kafka.security.sasl import is_token
from mm2py.kafka.security.settings import RefreshSettings, TokenEndpoint, TokenFile
from mm2py.kafka.security.tls import Tls, explain
from mm2py.secret import Secret

ANSWER_MAX_BYTES: Final = 1 << 20
TOKEN_FILE_MAX_BYTES: Final = 1 << 20
REFUSED_FIRST_S: Final = 1.0
REFUSED_MOST_S: Final = 30.0
"""First and longest pause after the server refused our credentials: more frequent attempts may lock accounts."""
_CHECK_CREDENTIALS: Final = "Check client id, client secret and scope."


@dataclass(frozen=True, slots=True)
class Token:
    """A token. ``expires_at_s`` is in seconds of the Unix epoch; None when the expiry is unknown."""

    secret: Secret
    expires_at_s: float | None

    def is_usable(self, now_s: float) -> bool:
        return self.expires_at_s is None or now_s < self.expires_at_s


class TokenSource(Protocol):
    async def token(self) -> Token:
        """Return a token that can be used now.

        Raises:
            TokenUnavailable: there is none. Calls shortly after raise the same error without any traffic.
        """
        ...


def refresh_at_s(got_at_s: float, expires_at_s: float, refresh: RefreshSettings, jitter: float) -> float:
    """Return when to fetch a new token, as Kafka computes it.

    Args:
        got_at_s: when it was fetched.
        jitter: a random number from 0 to 1.
    """
    life_s = expires_at_s - got_at_s
    wanted_s = got_at_s + life_s * (refresh.window_factor + refresh.window_jitter * jitter)
    if refresh.min_period_s + refresh.buffer_s > life_s:
        return wanted_s  # the lifetime is too short for both bounds: Kafka then ignores them
    return min(max(wanted_s, got_at_s + refresh.min_period_s), expires_at_s - refresh.buffer_s)


def expiry_of(token: str) -> float | None:
    """Return when a token expires, in seconds of the Unix epoch; None if it is no JWT with an expiry.

    Its signature is not checked.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return _seconds(claims.get("exp")) if isinstance(claims, dict) else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
        return None
    return float(value)


def read_answer(body: bytes, now_s: float) -> Token:
    """Return the token in a token server's answer.

    Raises:
        ValueError: there is no token in it; the message says what is wrong and repeats nothing of the answer.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("its answer is no JSON") from None
    text = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not is_token(text):
        raise ValueError("its answer holds no access_token")
    life_s = _seconds(answer.get("expires_in"))
    ends = [end for end in (expiry_of(text), None if life_s is None else now_s + life_s) if end is not None]
    return Token(Secret(text), min(ends, default=None))


class FileTokens:
    """A token in a file. While the file cannot be used, the last token is used until it expires."""

    def __init__(self, settings: TokenFile, *, report: Callable[[str], None]) -> None:
        """``report`` gets a sentence when the file has no usable token while the previous one is still valid."""
        self._path = settings.path
        self._report = report
        self._read: tuple[tuple[int, int, int], Token] | None = None
        """The last usable token, and the signature of the file from which it was read."""
        self._reported = ""

    async def token(self) -> Token:
        try:
            token = await asyncio.to_thread(self._current)
        except TokenUnavailable as error:
            if self._read is None or not self._read[1].is_usable(time.time()):
                raise
            if self._reported != error.what:
                self._reported = error.what
                self._report(f"{error.what} The token it held before stays in use.")
            return self._read[1]
        self._reported = ""
        return token

    def _current(self) -> Token:
        try:
            found = self._path.stat()
            signature = (found.st_ino, found.st_size, found.st_mtime_ns)
            if self._read is not None and self._read[0] == signature and self._read[1].is_usable(time.time()):
                return self._read[1]
            if not self._path.is_file():
                raise self._unusable("it is not a file", "Name a file.")
            with self._path.open("rb") as file:
                text = file.read(TOKEN_FILE_MAX_BYTES).decode("ascii", "replace").strip()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else "it cannot be read"
            raise self._unusable(why, "Let mm2py read it; it tries again.") from error
        if not is_token(text):
            raise self._unusable("it holds no token", "Put the token there, alone; mm2py reads it again.")
        token = Token(Secret(text), expiry_of(text))
        if not token.is_usable(time.time()):
            raise self._unusable(
                "it has expired", "Let the program that supplies the file renew it; mm2py reads it again."
            )
        self._read = (signature, token)
        return token

    def _unusable(self, why: str, remedy: str) -> TokenUnavailable:
        return TokenUnavailable(str(self._path), why, remedy=remedy)


class EndpointTokens:
    """Tokens that an OAuth server gives for client credentials."""

    def __init__(self, settings: TokenEndpoint, *, rng: random.Random, report: Callable[[str], None]) -> None:
        """``report`` gets a sentence when no new token could be fetched while the old one is still valid."""
        self._settings = settings
        self._rng = rng
        self._report = report
        self._tls = Tls(settings.tls, report)
        self._lock = asyncio.Lock()
        self._token: Token | None = None
        self._refresh_at_s = 0.0
        self._failure: TokenUnavailable | None = None
        self._again_at_s = 0.0
        self._passing = Backoff(rng, first_s=settings.backoff_s, most_s=settings.backoff_most_s)
        self._refused = Backoff(rng, first_s=REFUSED_FIRST_S, most_s=REFUSED_MOST_S)
        parts = urllib.parse.urlsplit(settings.url)
        self._scheme, self._host, self._port = parts.scheme, parts.hostname or "", parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.where = f"{parts.scheme}://{parts.netloc}{parts.path}"

    async def token(self) -> Token:
        async with self._lock:
            now_s = time.time()
            if self._token is not None and now_s < self._refresh_at_s and self._token.is_usable(now_s):
                return self._token
            if self._failure is not None and now_s < self._again_at_s:
                return self._old_or_raise(self._failure)
            try:
                token = await self._fetch()
            except TokenUnavailable as error:
                if self._failure is None and self._token is not None and self._token.is_usable(now_s):
                    self._report(f"{error.what} The old one stays in use.")
                self._failure = error
                return self._old_or_raise(error)
            self._failure = None
            self._passing.reset()
            self._refused.reset()
            self._token = token
            self._refresh_at_s = float("inf")
            if token.expires_at_s is not None:
                got_at_s, jitter = time.time(), self._rng.random()
                self._refresh_at_s = refresh_at_s(got_at_s, token.expires_at_s, self._settings.refresh, jitter)
            return token

    def _old_or_raise(self, error: TokenUnavailable) -> Token:
        if self._token is not None and self._token.is_usable(time.time()):
            return self._token
        raise error.with_traceback(None)  # the same error each time

    async def _fetch(self) -> Token:
        settings = self._settings
        try:
            context = await self._tls.context() if self._scheme == "https" else None
        except KeyMaterialUnusable as error:
            raise self._failed(self._passing, error.what.rstrip("."), error.remedy) from error
        connection = self._connection(context)
        deadline_s = settings.connect_timeout_s + 2 * settings.read_timeout_s
        try:
            async with asyncio.timeout(deadline_s):
                status, body = await asyncio.to_thread(self._ask, connection)
        except TimeoutError:
            raise self._failed(
                self._passing, "it did not answer in time", "Check the server and the network."
            ) from None
        except (OSError, http.client.HTTPException) as error:
            explained = explain(settings.tls, self._host, error) if context is not None else None
            if explained is not None:
                advice = "Its ssl settings are options in sasl.jaas.config, such as ssl.truststore.location."
                raise self._failed(self._passing, explained[0], advice) from error
            raise self._failed(self._passing, _reason(error), "Check the server and the network.") from error
        finally:
            _hang_up(connection)  # a thread that still waits for it wakes up
        return self._judge(status, body)

    def _connection(self, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
        timeout_s = self._settings.connect_timeout_s
        if context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)

    def _ask(self, connection: http.client.HTTPConnection) -> tuple[int, bytes]:
        """Ask the server, in a thread. Follow no redirect, use no proxy, and read no more than the largest answer."""
        settings = self._settings
        connection.connect()
        connection.sock.settimeout(settings.read_timeout_s)
        client_id, client_secret = settings.client_id, settings.client_secret.reveal()
        if settings.url_encode:
            client_id, client_secret = (urllib.parse.quote_plus(text) for text in (client_id, client_secret))
        basic = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
        form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
        headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {basic}",
            "Cache-Control": "no-cache",
            "Connection": "close",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        connection.request("POST", self._path, urllib.parse.urlencode(form), headers)
        answer = connection.getresponse()
        return answer.status, answer.read(ANSWER_MAX_BYTES + 1)

    def _judge(self, status: int, body: bytes) -> Token:
        if len(body) > ANSWER_MAX_BYTES:
            raise self._failed(self._refused, "its answer is too large", "Check the address.")
        if 300 <= status < 400:
            raise self._failed(self._refused, f"it answers with a redirect ({status})", "Name the address it leads to.")
        if status >= 500 or status in (408, 425, 429):
            raise self._failed(self._passing, f"it answers {status}", "mm2py keeps trying.")
        if status != 200:
            raise self._failed(self._refused, f"it answers {status}", _CHECK_CREDENTIALS)
        try:
            token = read_answer(body, time.time())
        except ValueError as error:
            raise self._failed(self._refused, str(error), "Check the address.") from None
        if not token.is_usable(time.time()):
            raise self._failed(self._passing, "it gave a token that has expired", "Compare the clocks.")
        return token

    def _failed(self, backoff: Backoff, why: str, remedy: str) -> TokenUnavailable:
        self._again_at_s = time.time() + backoff.next_s()
        return TokenUnavailable(self.where, why, remedy=remedy)


def _hang_up(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        connection.close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or "no connection"
    return f"its answer is no HTTP ({type(error).__name__})"

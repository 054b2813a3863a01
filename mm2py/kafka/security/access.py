"""TLS and authentication of every connection that one side of a flow opens.

One ``Access`` serves all connections of a ``Cluster``: it keeps the TLS context and the token or ticket, and renews
them.

Counterpart: SslFactory, SaslClientAuthenticator and LoginManager of Apache Kafka's clients.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from kio.static.protocol import Payload

from mm2py.kafka import messages
from mm2py.kafka.error_codes import ILLEGAL_SASL_STATE, UNSUPPORTED_SASL_MECHANISM, name_of
from mm2py.kafka.errors import AuthenticationFailed, KafkaError, TlsFailed
from mm2py.kafka.security.gssapi_sasl import BROKER_REMEDY, GssapiConversation
from mm2py.kafka.security.kerberos import KerberosLogin
from mm2py.kafka.security.kerberos_library import GssapiLibrary
from mm2py.kafka.security.sasl import TOKEN_REMEDY, Conversation, OAuthBearer, Plain, SaslRefused, Scram, shown_reason
from mm2py.kafka.security.settings import (
    PLAINTEXT,
    KerberosCredential,
    PasswordCredential,
    SaslSettings,
    Security,
    TokenEndpoint,
    TokenFile,
)
from mm2py.kafka.security.tls import Tls, explain
from mm2py.kafka.security.tokens import EndpointTokens, FileTokens, TokenSource

RENEW_AT: Final = 0.85
"""A session is renewed at this part of its lifetime; Kafka's clients choose at random from 0.85 to 0.95."""
RENEW_AGAIN_S: Final = 1.0
RENEWALS_APART_S: Final = 1.05
"""A broker refuses an authentication within a second of the last one with ILLEGAL_SASL_STATE (SaslServerAuthenticator,
MIN_REAUTHENTICATION_INTERVAL). With a token that is about to expire, sessions are that short."""
STEPS_MOST: Final = 8


Ask = Callable[[Payload], Awaitable[Payload]]


@dataclass(frozen=True, slots=True)
class Admission:
    """The TLS context and the SASL conversation of the next connection, prepared before it is opened."""

    tls: ssl.SSLContext | None
    conversation: Conversation | None


class Authenticate(Protocol):
    """Authenticates a connection once more; returns as ``Access.authenticate``."""

    def __call__(self) -> Awaitable[float | None]: ...


class Access:
    """Secures and authenticates the connections that one side of a flow opens to its cluster."""

    def __init__(
        self,
        alias: str,
        security: Security = PLAINTEXT,
        *,
        rng: random.Random | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``report`` gets a sentence when a certificate, token or session is still valid but could not be renewed."""
        self.alias = alias
        self.protocol = security.protocol
        self._report = report
        self._tls = Tls(security.tls, report) if security.tls is not None else None
        self._sasl = security.sasl
        self._tokens: TokenSource | None = None
        self._kerberos: KerberosLogin | None = None
        rng = rng or random.Random()  # noqa: S311
        match security.sasl:
            case None | SaslSettings(credential=PasswordCredential()):
                pass
            case SaslSettings(credential=TokenFile() as file):
                self._tokens = FileTokens(file, report=report)
            case SaslSettings(credential=TokenEndpoint() as endpoint):
                self._tokens = EndpointTokens(endpoint, rng=rng, report=report)
            case SaslSettings(credential=KerberosCredential() as kerberos):
                self._kerberos = KerberosLogin(kerberos, GssapiLibrary(), rng=rng, report=report)

    async def prepare(self, host: str) -> Admission:
        """Prepare the next connection to a host; may read files, fetch a token and ask a Kerberos server.

        Raises:
            KeyMaterialUnusable: a certificate or a key cannot be used.
            TokenUnavailable, TicketUnavailable: there is no token, or no ticket.
        """
        context = await self._tls.context() if self._tls is not None else None
        return Admission(context, await self._conversation(host))

    def tls_failure(self, broker: str, host: str, error: Exception, *, shaking_hands: bool) -> TlsFailed | None:
        """Return what a broken connection means to an operator, if TLS is the reason; see ``tls.explain``."""
        if self._tls is None:
            return None
        explained = explain(self._tls.settings, host, error, shaking_hands=shaking_hands)
        return TlsFailed(self.alias, broker, explained[0], remedy=explained[1]) if explained is not None else None

    async def authenticate(self, broker: str, conversation: Conversation, ask: Ask) -> float | None:
        """Authenticate a connection.

        Args:
            broker: its address, for messages.
            ask: sends a request on the connection and returns the reply.
        Returns:
            For how many seconds the broker accepts the connection; None: as long as it is open.
        Raises:
            AuthenticationFailed: the broker does not accept us, or has not proved that it is the right one.
        """
        assert self._sasl is not None  # noqa: S101  (else there is no conversation)
        try:
            return await _converse(self._sasl.mechanism, conversation, ask)
        except SaslRefused as refused:
            raise AuthenticationFailed(
                self.alias, broker, self._sasl.mechanism, str(refused), remedy=refused.remedy
            ) from None

    def session(self, lifetime_s: float | None, again: Authenticate) -> SaslSession | None:
        """Return the session that keeps a connection authenticated; None if it never has to be renewed."""
        return None if lifetime_s is None else SaslSession(lifetime_s, again, self._report)

    async def _conversation(self, host: str) -> Conversation | None:
        if self._sasl is None:
            return None
        if self._kerberos is not None:
            return await self._kerberos.conversation(host)
        mechanism, credential = self._sasl.mechanism, self._sasl.credential
        if isinstance(credential, PasswordCredential):
            if mechanism == "PLAIN":
                return Plain(credential.username, credential.password)
            return Scram(mechanism, credential.username, credential.password, nonce=secrets.token_urlsafe(24))
        assert self._tokens is not None and not isinstance(credential, KerberosCredential)  # noqa: S101  (see __init__)
        return OAuthBearer((await self._tokens.token()).secret, credential.extensions)


class SaslSession:
    """Renews the authentication of a connection before the broker ends it (KIP-368). Requests keep their order."""

    def __init__(self, lifetime_s: float, again: Authenticate, report: Callable[[str], None]) -> None:
        self._again = again
        self._report = report
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._begin(lifetime_s)

    def _begin(self, lifetime_s: float) -> None:
        now_s = self._loop.time()
        self._renew_at_s, self._ends_at_s = now_s + RENEW_AT * lifetime_s, now_s + lifetime_s
        self._renewable_at_s = now_s + RENEWALS_APART_S

    async def ensure(self) -> None:
        """Return when a request may be sent.

        Raises:
            AuthenticationFailed, TokenUnavailable, ...: the session has ended and could not be renewed.
        """
        async with self._lock:  # fair: callers send in the order of arrival
            if self._loop.time() < self._renew_at_s:
                return
            await asyncio.sleep(max(0.0, self._renewable_at_s - self._loop.time()))
            try:
                lifetime_s = await self._again()
            except AuthenticationFailed:
                raise
            except KafkaError as error:
                if self._loop.time() + RENEW_AGAIN_S >= self._ends_at_s:
                    raise
                self._report(f"{error.what} The session lasts a while yet.")
                self._renew_at_s = self._loop.time() + RENEW_AGAIN_S
            else:
                self._begin(float("inf") if lifetime_s is None else lifetime_s)


async def _converse(mechanism: str, conversation: Conversation, ask: Ask) -> float | None:
    handshake = await ask(messages.SaslHandshakeRequest(mechanism=mechanism))
    assert isinstance(handshake, messages.SaslHandshakeResponse)  # noqa: S101  (REPLY_TO says so)
    code = int(handshake.error_code)
    if code == UNSUPPORTED_SASL_MECHANISM:
        offered = shown_reason(", ".join(handshake.mechanisms), conversation.secrets) or "none"
        raise SaslRefused(f"it offers other mechanisms: {offered}", remedy="Set sasl.mechanism to one of them.")
    if code == ILLEGAL_SASL_STATE:
        raise SaslRefused(
            "this listener does no SASL", remedy="Set security.protocol without SASL_, or use another port."
        )
    if code:
        raise SaslRefused(f"it answers {name_of(code)}", remedy="See the broker's log.")
    message: bytes | None = conversation.first()
    for _ in range(STEPS_MOST):
        assert message is not None  # noqa: S101
        reply = await ask(messages.SaslAuthenticateRequest(auth_bytes=message))
        assert isinstance(reply, messages.SaslAuthenticateResponse)  # noqa: S101  (REPLY_TO says so)
        if reply.error_code:
            raise _refused(conversation, int(reply.error_code), reply.error_message)
        challenge = reply.auth_bytes
        if conversation.slow:
            message = await asyncio.to_thread(conversation.answer, challenge)
        else:
            message = conversation.answer(challenge)
        if message is None:
            return reply.session_lifetime.total_seconds() or None
    raise SaslRefused("it does not come to an end", remedy="Check what listens there.")


def _refused(conversation: Conversation, code: int, text: str | None) -> SaslRefused:
    why = shown_reason(text, conversation.secrets) if text else name_of(code)
    if isinstance(conversation, OAuthBearer):
        return SaslRefused(conversation.refused or why, remedy=TOKEN_REMEDY)
    if isinstance(conversation, GssapiConversation):
        return SaslRefused(why, remedy=BROKER_REMEDY)
    return SaslRefused(why, remedy="Check user name and password, and that the user may use this mechanism.")

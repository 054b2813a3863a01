"""Which user a request comes from: by password, by token, or by the certificate of its connection.

A password takes long to check, on purpose. So it is checked in a thread, one at a time, and what was right is known for
a while. Neither passwords nor tokens are kept for that: only a keyed digest of the header, whose key dies with the
process.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from cryptography import x509
from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.secret import Secret
from rest.access.callers import Caller, User
from rest.access.failures import FREE, Failures
from rest.access.hashes import hash_of_nothing, token_digest
from rest.access.users import Users, UsersFile
from rest.errors import RestError

KNOWN_S: Final = 300.0
"""So long a right password is not checked again, unless the users' file changes."""
KNOWN_MOST: Final = 1024
WAITING_MOST: Final = 16
"""Passwords that wait for being checked; with more, callers are sent away."""
HEADER_MAX_BYTES: Final = 4096
CHALLENGE: Final = 'Basic realm="mm2py", charset="UTF-8", Bearer realm="mm2py"'
_HASH_OF_NOTHING: Final = hash_of_nothing()
"""Checked for users that there are not, so that the time tells nothing."""


class Authentication:
    """Tells who asks. Safe for any number of requests at once."""

    def __init__(self, users: UsersFile, clock: Clock, log: FilteringBoundLogger) -> None:
        self._users = users
        self._clock = clock
        self._log = log
        self._failures = Failures()
        self._known: OrderedDict[bytes, tuple[User, float]] = OrderedDict()
        """Users by the digest of the header that proved them, and until when."""
        self._key = secrets.token_bytes(32)
        self._generation = 0
        self._checking = asyncio.Lock()
        self._waiting = 0

    async def caller(self, header: bytes | None, address: str, certificate: bytes | None) -> Caller:
        """Return who asks.

        Args:
            header: ``Authorization``, if there is one. Then it counts, and no certificate.
            certificate: of the client, in DER; it has been verified.
        Raises:
            RestError: 401 it proves no user, 429 too many failures or passwords to check.
            UsersUnusable: the users' file cannot be used.
        """
        users = self._users.current()
        if self._users.generation != self._generation:
            self._generation = self._users.generation
            self._known.clear()
        if header is None:
            user = None if certificate is None else user_of_certificate(users, certificate)
            if user is None:
                raise unauthorized("Say who you are: this takes a user of rest.users.file.")
            return Caller(user, address, "certificate")
        if len(header) > HEADER_MAX_BYTES:
            raise self._failed(address)
        scheme, _, rest = header.decode("latin-1").partition(" ")
        match scheme.lower():
            case "bearer":
                user = user_of_token(users, Secret(rest.strip()))
                if user is None:
                    raise self._failed(address)
                return Caller(user, address, "token")
            case "basic":
                return Caller(await self._user_of_password(users, rest.strip(), address), address, "password")
            case _:
                raise unauthorized("mm2py takes basic authentication, bearer tokens and client certificates.")

    async def _user_of_password(self, users: Users, encoded: str, address: str) -> User:
        digest = hmac.digest(self._key, encoded.encode("latin-1"), "sha256")
        known = self._of_known(digest)
        if known is not None:
            return known
        self._check_wait(address)
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise self._failed(address) from None
        if not colon:
            raise self._failed(address)
        if self._waiting >= WAITING_MOST:
            raise RestError(429, "Too many passwords wait for being checked.", {"Retry-After": "2"})
        self._waiting += 1
        try:
            async with self._checking:
                known = self._of_known(digest)  # the same header may have waited before this one
                if known is not None:
                    return known
                self._check_wait(address)
                generation = self._generation
                wanted, user = users.passwords.get(name, (_HASH_OF_NOTHING, None))
                is_right = await asyncio.to_thread(wanted.matches, Secret(password))
        finally:
            self._waiting -= 1
        if not is_right or user is None:
            raise self._failed(address)
        if generation == self._generation:
            self._known[digest] = user, self._clock.monotonic() + KNOWN_S
            while len(self._known) > KNOWN_MOST:
                self._known.popitem(last=False)
        return user

    def _of_known(self, digest: bytes) -> User | None:
        user, until_s = self._known.get(digest, (None, 0.0))
        return user if self._clock.monotonic() < until_s else None

    def _check_wait(self, address: str) -> None:
        wait_s = self._failures.wait_s(address, self._clock.monotonic())
        if wait_s > 0:
            raise RestError(429, "Too many failed attempts. Wait.", {"Retry-After": str(int(wait_s) + 1)})

    def _failed(self, address: str) -> RestError:
        self._check_wait(address)
        count = self._failures.failed(address, self._clock.monotonic())
        if count <= FREE + 1 or count % 100 == 0:
            self._log.warning("rest.login_failed", address=address, in_a_row=count)
        return unauthorized("The user, the password or the token is wrong.")


def unauthorized(message: str) -> RestError:
    """Return the refusal of a request that proves no user."""
    return RestError(401, message, {"WWW-Authenticate": CHALLENGE})


def user_of_token(users: Users, token: Secret) -> User | None:
    """Return the user of a bearer token. All are compared, so that the time tells nothing."""
    digest = token_digest(token)
    found = [user for known, user in users.tokens if hmac.compare_digest(known, digest)]
    return found[0] if found else None


def user_of_certificate(users: Users, certificate: bytes) -> User | None:
    """Return the user that a certificate belongs to, by its subject or by one of its names."""
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        subject = parsed.subject.rfc4514_string()
    except ValueError:
        return None
    if subject in users.subjects:
        return users.subjects[subject]
    return next((users.names[name] for name in _names(parsed) if name in users.names), None)


def _names(certificate: x509.Certificate) -> Sequence[str]:
    kinds: Sequence[Callable[[x509.SubjectAlternativeName], Sequence[object]]] = (
        lambda names: names.get_values_for_type(x509.DNSName),
        lambda names: names.get_values_for_type(x509.UniformResourceIdentifier),
        lambda names: names.get_values_for_type(x509.RFC822Name),
        lambda names: names.get_values_for_type(x509.IPAddress),
    )
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [str(name) for kind in kinds for name in kind(names)]
    except (x509.ExtensionNotFound, ValueError):
        return []

"""Finds the user of a request by password, by token, or by the certificate of its connection.

A password takes long to check, on purpose. So a thread checks one at a time, and each address gets its turn
(``turns.py``). A password that was right once does not wait again: other attempts from the same address cannot delay
it. The process keeps neither passwords nor tokens for that. It keeps a keyed digest of the header, with a key that ends
with the process, and the hash of the users' file that the password matched. If that hash changes, the digest proves
nothing.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cryptography import x509
from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.secret import Secret
from mm2py_rest.access.callers import Caller, User, network_of
from mm2py_rest.access.failures import Failures, is_told
from mm2py_rest.access.hashes import PasswordHash, hash_of_nothing, token_digest
from mm2py_rest.access.turns import REST_S, Turns
from mm2py_rest.access.users import Users, UsersFile
from mm2py_rest.errors import RestError

KNOWN_S: Final = 3600.0
"""A right password that was not sent for this long is checked again."""
KNOWN_MOST: Final = 1024
HEADER_MAX_BYTES: Final = 4096
CHALLENGE: Final = 'Basic realm="mm2py", charset="UTF-8", Bearer realm="mm2py"'
_HASH_OF_NOTHING: Final = hash_of_nothing()
"""Checked for users that do not exist, so that the time does not reveal which users exist."""


Matching = Callable[[PasswordHash, Secret], "asyncio.Future[bool]"]
"""Starts to check a password; the future has the result."""


def in_thread(wanted: PasswordHash, password: Secret) -> asyncio.Future[bool]:
    """Check a password outside of the event loop."""
    return asyncio.get_running_loop().run_in_executor(None, wanted.matches, password)


@dataclass(frozen=True, slots=True, eq=False)
class _Check:
    """One check of a password, shared by all requests that send it."""

    wanted: PasswordHash
    password: Secret
    network: str
    digest: bytes
    answer: asyncio.Future[bool | None]
    """Whether the password is right; None: the queue was full."""


class Authentication:
    """Finds the user of each request. Safe for any number of requests at once."""

    def __init__(
        self, users: UsersFile, clock: Clock, log: FilteringBoundLogger, *, matching: Matching = in_thread
    ) -> None:
        self._matching = matching
        self._users = users
        self._clock = clock
        self._log = log
        self._failures = Failures()
        self._known: OrderedDict[bytes, tuple[PasswordHash, float]] = OrderedDict()
        """Digest of a header -> the hash that it matches, and until when that is known; the latest used last."""
        self._key = secrets.token_bytes(32)
        self._turns: Turns[_Check] = Turns()
        self._checks: dict[tuple[bytes, PasswordHash], _Check] = {}
        """The checks that wait or run."""
        self._due: asyncio.TimerHandle | None = None
        """Timer for the next check, if none may run now."""

    async def caller(self, header: bytes | None, address: str, certificate: bytes | None) -> Caller:
        """Return the caller.

        Args:
            header: ``Authorization``, if there is one. If there is, the certificate is ignored.
            certificate: of the client, in DER; it has been verified.
        Raises:
            RestError: 401 the request proves no user, 429 too many passwords wait to be checked.
            UsersUnusable: the users' file cannot be used.
        """
        users = self._users.current()
        if header is None:
            user = None if certificate is None else user_of_certificate(users, certificate)
            if user is None:
                raise unauthorized("Say who you are: this takes a user of rest.users.file.")
            return Caller(user, address, "certificate", certificate)
        if len(header) > HEADER_MAX_BYTES:
            raise self._failed(address)
        scheme, _, rest = header.decode("latin-1").partition(" ")
        match scheme.lower():
            case "bearer":
                digest = token_digest(Secret(rest.strip()))
                user = user_of_token(users, digest)
                if user is None:
                    raise self._failed(address)
                return Caller(user, address, "token", digest)
            case "basic":
                user, proven = await self._user_of_password(users, rest.strip(), address)
                return Caller(user, address, "password", proven)
            case _:
                raise unauthorized("mm2py takes basic authentication, bearer tokens and client certificates.")

    def still(self, caller: Caller) -> Caller:
        """Return an earlier caller with the rights it has now. It waits in no queue and checks no password.

        Raises:
            RestError: 401, the users' file no longer contains the proof of this user.
        """
        users, user = self._users.current(), None
        match caller.evidence:
            case PasswordHash():
                wanted, found = users.passwords.get(caller.user.name, (None, None))
                user = found if wanted == caller.evidence else None
            case bytes() if caller.proof == "token":
                user = user_of_token(users, caller.evidence)
            case bytes():
                user = user_of_certificate(users, caller.evidence)
        if user is None:
            raise unauthorized("This user has been changed.")
        return replace(caller, user=user)

    async def _user_of_password(self, users: Users, encoded: str, address: str) -> tuple[User, PasswordHash]:
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except ValueError:  # not base64, or not UTF-8
            raise self._failed(address) from None
        if not colon:
            raise self._failed(address)
        wanted, user = users.passwords.get(name, (_HASH_OF_NOTHING, None))
        digest = hmac.digest(self._key, encoded.encode("latin-1"), "sha256")
        if not self._is_known(digest, wanted):
            is_right = await self._checked(wanted, Secret(password), address, digest)
            now_wanted, user = self._users.current().passwords.get(name, (None, None))  # it may have changed meanwhile
            if not is_right or now_wanted != wanted:
                raise self._failed(address)
        if user is None:
            raise self._failed(address)
        return user, wanted

    def _is_known(self, digest: bytes, wanted: PasswordHash) -> bool:
        proven, until_s = self._known.pop(digest, (None, 0.0))
        if proven != wanted or self._clock.monotonic() >= until_s:
            return False
        self._know(digest, wanted)
        return True

    def _know(self, digest: bytes, proven: PasswordHash) -> None:
        self._known[digest] = proven, self._clock.monotonic() + KNOWN_S
        while len(self._known) > KNOWN_MOST:
            self._known.popitem(last=False)

    async def _checked(self, wanted: PasswordHash, password: Secret, address: str, digest: bytes) -> bool:
        """Wait for this password's turn and return whether it is right. Raises: RestError 429, the queue is full."""
        check = self._checks.get((digest, wanted))
        if check is None:
            answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
            check = _Check(wanted, password, network_of(address), digest, answer)
            self._checks[digest, wanted] = check
            turned_away = self._turns.join(check, check.network)
            if turned_away is not None:
                self._end(turned_away, None)
            self._go_on()
        is_right = await asyncio.shield(check.answer)  # other requests may wait for it as well
        if is_right is None:
            raise RestError(429, "Too many passwords wait for being checked.", {"Retry-After": str(int(REST_S))})
        return is_right

    def _go_on(self) -> None:
        """Start the next check, or set a timer for when it may run."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        now_s = self._clock.monotonic()
        check = self._turns.take(now_s)
        if check is not None:
            self._matching(check.wanted, check.password).add_done_callback(functools.partial(self._has_ended, check))
        elif (wait_s := self._turns.wait_s(now_s)) is not None:
            self._due = asyncio.get_running_loop().call_later(wait_s, self._go_on)

    def _has_ended(self, check: _Check, matching: asyncio.Future[bool]) -> None:
        if matching.cancelled():
            return  # the process ends
        error = matching.exception()
        is_right = error is None and matching.result()
        if is_right:
            self._know(check.digest, check.wanted)
        self._turns.checked(check.network, self._clock.monotonic(), is_right=is_right)
        self._end(check, error or is_right)
        self._go_on()

    def _end(self, check: _Check, outcome: bool | BaseException | None) -> None:
        del self._checks[check.digest, check.wanted]
        if isinstance(outcome, BaseException):
            check.answer.set_exception(outcome)
        else:
            check.answer.set_result(outcome)

    def _failed(self, address: str) -> RestError:
        count = self._failures.failed(network_of(address), self._clock.monotonic())
        if is_told(count):
            self._log.warning("rest.login_failed", address=address, in_a_row=count)
        return unauthorized("The user, the password or the token is wrong.")


def unauthorized(message: str) -> RestError:
    """Return the refusal of a request that proves no user."""
    return RestError(401, message, {"WWW-Authenticate": CHALLENGE})


def user_of_token(users: Users, digest: bytes) -> User | None:
    """Return the user of a bearer token. It compares all tokens, so that the time does not reveal which one matches."""
    found = [user for known, user in users.tokens if hmac.compare_digest(known, digest)]
    return found[0] if found else None


def user_of_certificate(users: Users, certificate: bytes) -> User | None:
    """Return the user of a certificate, by its subject or by one of its names."""
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        subject = parsed.subject.rfc4514_string()
    except ValueError:
        return None
    if subject in users.subjects:
        return users.subjects[subject]
    return next((users.names[name] for name in _names(parsed) if name in users.names), None)


def _names(certificate: x509.Certificate) -> Sequence[str]:
    """Return the alternative names of a certificate, each with its kind, as ``parse_name`` returns it."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [
            *(f"DNS:{name.lower()}" for name in names.get_values_for_type(x509.DNSName)),
            *(f"URI:{name}" for name in names.get_values_for_type(x509.UniformResourceIdentifier)),
            *(f"EMAIL:{name}" for name in names.get_values_for_type(x509.RFC822Name)),
            *(f"IP:{name}" for name in names.get_values_for_type(x509.IPAddress)),
        ]
    except (x509.ExtensionNotFound, ValueError):
        return []

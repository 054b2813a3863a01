"""Callers without a users' file: everyone may read, and a change needs the token of this machine's user.

The token: ``mm2py/rest_token.py``. It is too long to be guessed, so attempts need not wait.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.once_code import VALID_MS, read_code
from mm2py.rest_token import PROVEN_USER, TokenUnusable, token_at, token_path
from mm2py.secret import Secret
from mm2py_rest.access.authentication import unauthorized
from mm2py_rest.access.callers import ANONYMOUS_READER, Caller, Role, User, network_of
from mm2py_rest.access.failures import Failures, is_told
from mm2py_rest.access.hashes import token_digest

READING: Final = frozenset({"GET", "OPTIONS"})
"""HEAD has become GET. All other methods need the token, also those that no route has today."""
_USER: Final = User(PROVEN_USER, Role.ADMIN, recovers=True)


class LocalToken:
    """Finds the caller of each request."""

    def __init__(self, named: Path | None, clock: Clock, log: FilteringBoundLogger) -> None:
        """``named``: the path in ``rest.token.file``."""
        self._named = named
        self._clock = clock
        self._log = log
        self._failures = Failures()
        self._begun_ms = clock.wall_ms()
        self._used: dict[str, int] = {}
        """When the codes were made that were used, by their nonces."""

    def caller(self, method: str, header: bytes | None, address: str) -> Caller:
        """Return the caller: the user ``mm2py``, or an anonymous reader.

        Args:
            header: ``Authorization``, if there is one. With a wrong one the caller may still read.
        Raises:
            RestError: 401 the request may change something, and it does not contain the token.
        """
        reader = Caller(ANONYMOUS_READER, address, "none")
        is_reading = method in READING
        if is_reading and header is None:
            return reader
        try:
            path = token_path(self._named, os.environ)
            token = token_at(path)
        except TokenUnusable as error:
            if is_reading:
                return reader
            raise unauthorized(f"Nothing can be changed over REST. {error} Or set rest.users.file.") from None
        given = None if header is None else _given(header)
        if given == token:
            return Caller(_USER, address, "token", token_digest(token))
        if is_reading:
            return reader
        if header is not None:
            self._tell_failure(address, path)
        raise unauthorized(
            f"Changes take a proven user{_what_is_wrong(header, given)}. Send the user {PROVEN_USER} with the token of"
            f" {path} as password, or that token as Bearer. See docs/rest-access.md."
        )

    def caller_of_code(self, code: str, address: str, port: int) -> Caller:
        """Return the user ``mm2py`` for a code of ``mm2py open``, which is used up by that.

        A code that was made before this process began is refused: it may have been used at the process before.

        Args:
            port: at which the request came in; a code is for one worker.
        Raises:
            RestError: 401 the code is not of this token and port, was used, or its time is over.
        """
        now_ms = self._clock.wall_ms()
        try:
            path = token_path(self._named, os.environ)
            token = token_at(path)
        except TokenUnusable as error:
            raise unauthorized(f"Nothing can be changed over REST. {error} Or set rest.users.file.") from None
        found = read_code(code, token, port)
        if found is None:
            self._tell_failure(address, path)
        elif found.is_valid(now_ms) and found.made_at_ms > self._begun_ms and found.nonce not in self._used:
            self._used = {nonce: at_ms for nonce, at_ms in self._used.items() if now_ms - at_ms <= VALID_MS}
            self._used[found.nonce] = found.made_at_ms
            return Caller(_USER, address, "once", token_digest(token))
        raise unauthorized(
            f"This address works once, for {VALID_MS // 60_000} minutes, at the worker that it is of, and not longer"
            " than that worker runs. For another one: mm2py open FILE."
        )

    def still(self, caller: Caller) -> Caller:
        """Return a caller that proved the token earlier. Raises: RestError 401, the token has been replaced since."""
        try:
            if token_digest(token_at(token_path(self._named, os.environ))) == caller.evidence:
                return caller
        except TokenUnusable:
            pass
        raise unauthorized("The token has been replaced.")

    def _tell_failure(self, address: str, path: Path) -> None:
        count = self._failures.failed(network_of(address), self._clock.monotonic())
        if is_told(count):
            self._log.warning("rest.login_failed", address=address, in_a_row=count, token_file=str(path))


def _what_is_wrong(header: bytes | None, given: Secret | None) -> str:
    """Return the end of a sentence: why a request proves no user."""
    if header is None:
        return ""
    if given is None:
        return ", and the request brings no token"
    return ", and the token of the request is wrong: it is another worker's, or was replaced since it was read"


def _given(header: bytes) -> Secret | None:
    """Return the token in an ``Authorization`` header; None: it contains none."""
    scheme, _, rest = header.decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return Secret(rest.strip()) if rest.strip() else None
    if scheme.lower() != "basic":
        return None
    try:
        name, _, password = base64.b64decode(rest.strip(), validate=True).decode("utf-8").partition(":")
    except ValueError:  # not base64, or not UTF-8
        return None
    return Secret(password) if name == PROVEN_USER and password else None

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
from mm2py.rest_token import PROVEN_USER, TokenUnusable, token_at, token_path
from mm2py.secret import Secret
from mm2py_rest.access.authentication import unauthorized
from mm2py_rest.access.callers import ANONYMOUS_READER, Caller, Role, User, network_of
from mm2py_rest.access.failures import Failures, is_told

READING: Final = frozenset({"GET", "OPTIONS"})
"""HEAD has become GET. All other methods need the token, also those that no route has today."""
_USER: Final = User(PROVEN_USER, Role.ADMIN)


class LocalToken:
    """Finds the caller of each request."""

    def __init__(self, named: Path | None, clock: Clock, log: FilteringBoundLogger) -> None:
        """``named``: the path in ``rest.token.file``."""
        self._named = named
        self._clock = clock
        self._log = log
        self._failures = Failures()

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
            return Caller(_USER, address, "token")
        if is_reading:
            return reader
        if header is not None:
            self._tell_failure(address, path)
        raise unauthorized(
            f"Changes take a proven user{_what_is_wrong(header, given)}. Send the user {PROVEN_USER} with the token of"
            f" {path} as password, or that token as Bearer. See docs/rest-access.md."
        )

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

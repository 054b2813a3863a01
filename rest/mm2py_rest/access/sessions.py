"""Sessions of the web page: a browser whose user was proved once, until the user logs out or a limit ends it.

A session lives in the memory of this process; the browser has its random name in a cookie that no script can read. A
cookie alone opens nothing. The request must also have the header ``Mm2py-Page``, which a page of another site cannot
send without asking first, and is never allowed to. A session has the rights that its user has now.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from mm2py.clock import Clock
from mm2py_rest.access.callers import Caller

SESSION_PATH: Final = "/session"
PAGE_HEADER: Final = b"mm2py-page"
IDLE_S: Final = 30 * 60.0
"""A page that is open and seen asks every few seconds."""
LONGEST_S: Final = 12 * 3600.0
SESSIONS_MOST: Final = 256
SESSIONS_MOST_OF_ONE: Final = 16
"""Of one user: then the one that was used longest ago ends, and those of other users stay."""


@dataclass(slots=True, eq=False)
class Session:
    """One session."""

    caller: Caller
    """Who logged in, and what proved it then."""
    begun_s: float
    used_s: float
    """Both by a clock that counts the time in which a machine sleeps."""

    def is_over(self, now_s: float) -> bool:
        """Whether a limit has ended it."""
        return now_s - self.used_s >= IDLE_S or now_s - self.begun_s >= LONGEST_S


class Sessions:
    """All sessions of a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        """By the digest of the name; the latest used last."""

    def begin(self, caller: Caller) -> str:
        """Begin a session and return its name, which is for the browser alone."""
        now_s = self._clock.boottime()
        self._sessions = OrderedDict((key, one) for key, one in self._sessions.items() if not one.is_over(now_s))
        own = [key for key, one in self._sessions.items() if one.caller.user.name == caller.user.name]
        if len(own) >= SESSIONS_MOST_OF_ONE:
            del self._sessions[own[0]]
        elif len(self._sessions) >= SESSIONS_MOST:
            self._sessions.popitem(last=False)
        name = secrets.token_urlsafe(32)
        self._sessions[_key(name)] = Session(caller, now_s, now_s)
        return name

    def used(self, names: Iterable[str]) -> Session | None:
        """Return the session of a request and note that it was used; None: it has none that goes on."""
        now_s = self._clock.boottime()
        for name in names:
            session = self._sessions.pop(key := _key(name), None)
            if session is not None and not session.is_over(now_s):
                session.used_s = now_s
                self._sessions[key] = session
                return session
        return None

    def goes_on(self, session: Session) -> bool:
        """Whether a session has not ended."""
        return session in self._sessions.values() and not session.is_over(self._clock.boottime())

    def end(self, session: Session) -> None:
        """End a session."""
        self._sessions = OrderedDict((key, one) for key, one in self._sessions.items() if one is not session)

    def left_s(self, session: Session) -> float:
        """Return after how many seconds a session ends, however much it is used."""
        return max(0.0, session.begun_s + LONGEST_S - self._clock.boottime())


def _key(name: str) -> bytes:
    return sha256(name.encode()).digest()


def cookie_name(host: str, *, is_tls: bool) -> str:
    """Return the name of the cookie. Browsers send a cookie to all ports of a host, so each worker has its own.

    Args:
        host: the ``Host`` header. Its port is that of the browser's address, also where ports are forwarded.
    """
    found = re.search(r":(\d{1,5})$", host)
    port = found[1] if found else 443 if is_tls else 80
    return f"__Host-mm2py-{port}" if is_tls else f"mm2py-{port}"


def cookie_of(name: str, value: str, *, is_tls: bool) -> str:
    """Return the ``Set-Cookie`` of a session; an empty value takes it back. The browser forgets it when it closes."""
    parts = [f"{name}={value}", "Path=/", "HttpOnly", "SameSite=Strict", *(["Secure"] if is_tls else [])]
    return "; ".join(parts if value else [*parts, "Max-Age=0"])


def names_of(headers: Mapping[bytes, bytes], cookie: str) -> list[str]:
    """Return the names of sessions that a request of our own page brings; none if another page sends it."""
    if PAGE_HEADER not in headers or headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        return []
    pairs = (part.strip().partition("=") for part in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    return [value for name, _, value in pairs if name == cookie and value]

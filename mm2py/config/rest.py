"""Where a worker serves REST, metrics and its health. Pure.

Answers to ``listeners`` of Kafka Connect's worker. MirrorMaker 2's dedicated mode serves only its own processes there.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from mm2py.config.settings import BadValue, Key, strings

_LISTENER: Final = re.compile(r"(https?)://(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-._]*)):([0-9]{1,5})/?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen at."""

    host: str
    """A name or an IP address; empty: all interfaces."""
    port: int
    """0: any free port."""
    is_tls: bool = False

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False

    def of_worker(self, number: int) -> Listener:
        """Return where worker 1, 2, ... of one machine listens: at this port, at the next one, and so on."""
        port = self.port + number - 1 if self.port else 0
        return Listener(self.host, port, self.is_tls)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


def listeners(text: str) -> tuple[Listener, ...]:
    """A list of ``http://host:port``; an empty one serves nothing."""
    found = tuple(map(_listener, strings(text)))
    ports = [(one.host, one.port) for one in found if one.port]
    if len(set(ports)) < len(ports):
        raise BadValue("wrong: an address is there twice")
    return found


def _listener(text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise BadValue(f"wrong at {text!r}: write http://host:port, as in http://127.0.0.1:8083")
    scheme, bracketed, plain, port = match.groups()
    if int(port) > 65535:
        raise BadValue(f"wrong at {text!r}: the port is not from 0 to 65535")
    return Listener(bracketed or plain, int(port), scheme.lower() == "https")


DEFAULT: Final = (Listener("127.0.0.1", 8083),)
LISTENERS: Key[tuple[Listener, ...]] = Key("listeners", listeners, DEFAULT)


@dataclass(frozen=True, slots=True)
class RestSettings:
    """How a worker serves REST."""

    listeners: tuple[Listener, ...] = DEFAULT
    is_explicit: bool = False
    """The file names them: a port that is taken is an error then. Else the worker copies without REST."""

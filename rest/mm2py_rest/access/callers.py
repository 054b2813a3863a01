"""Who asks, and what that user may do. Pure.

A role holds for the user's flows. What shows or changes anything beyond them takes a user with all flows.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import IntEnum

from mm2py.flow import Flow


class Role(IntEnum):
    """What a user may do; each role may do what those before it may."""

    NONE = 0
    """Ask for the health."""
    READER = 1
    """See everything, no secrets: they are never shown."""
    OPERATOR = 2
    """Pause, resume, stop and restart, move offsets."""
    ADMIN = 3
    """Change settings and log levels."""


@dataclass(frozen=True, slots=True)
class User:
    """One line of the users' file."""

    name: str
    role: Role
    flows: frozenset[str] | None = None
    """None: all."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The user who asks, and how that is known."""

    user: User
    address: str
    """From where the connection comes, without the port."""
    proof: str
    """``password``, ``token``, ``certificate``; ``none`` where no proof is asked for."""
    evidence: object = field(default=None, repr=False, compare=False)
    """What ``Authentication.still`` compares with the users' file: the hash there, or the certificate."""

    def may_see(self, flow: Flow | str) -> bool:
        """Whether a flow is one of this user's."""
        return self.user.flows is None or str(flow) in self.user.flows

    @property
    def sees_all(self) -> bool:
        """Whether all flows are this user's, those to come included."""
        return self.user.flows is None


EVERYONE = User("anonymous", Role.ADMIN)
"""All who reach a listener that asks for no proof, as with Connect."""
ANONYMOUS_READER = User("anonymous", Role.READER)
"""All who reach a listener for probes, or one that asks for a proof of those who change something."""
ANONYMOUS = User("anonymous", Role.NONE)


def network_of(address: str) -> str:
    """Return what one party has of addresses: an IPv4 address, or a /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped is not None else str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)

"""The caller of a request, and what this user may do. Pure.

A role applies to the user's flows. A request that shows or changes anything else needs a user with all flows.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import IntEnum

from mm2py.flow import Flow


class Role(IntEnum):
    """What a user may do. Each role includes the roles before it."""

    NONE = 0
    """Ask for the health."""
    READER = 1
    """See everything except secrets, which are never shown."""
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
    recovers: bool = False
    """May move producers and groups to another cluster, and back. No role includes it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a request, and how the user was proved."""

    user: User
    address: str
    """The client's address, without the port."""
    proof: str
    """``password``, ``token``, ``certificate``, ``once`` (an address of ``mm2py open``), ``session`` (of the page);
    ``none`` where no proof is asked for."""
    evidence: object = field(default=None, repr=False, compare=False)
    """What ``Authentication.still`` compares with the users' file: a hash, a token's digest, or a certificate."""

    def may_see(self, flow: Flow | str) -> bool:
        """Whether a flow is one of this user's."""
        return self.user.flows is None or str(flow) in self.user.flows

    @property
    def sees_all(self) -> bool:
        """Whether this user has all flows, including future ones."""
        return self.user.flows is None


EVERYONE = User("anonymous", Role.ADMIN)
"""Each client of a listener that asks for no proof, as in Connect."""
ANONYMOUS_READER = User("anonymous", Role.READER)
"""Each client of a listener for probes, and each client without proof where only changes need one."""
ANONYMOUS = User("anonymous", Role.NONE)


def network_of(address: str) -> str:
    """Return the range of addresses that one client may own: an IPv4 address, or a /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped is not None else str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)

"""Loopback ports that stay leased: chosen outside the kernel's ephemeral range, reserved by lock files.

If a process asks the kernel for a free port and closes it again, the next outgoing connection or the next test run may
get the same port. A lease is a locked file named after the port: other starters do not use that port as long as this
process lives, also while a broker is down between ``kill()`` and ``start()``.
"""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import MachineTooSmall

HOST = "127.0.0.1"
LOWEST_PORT = 15_000
HIGHEST_PORT = 65_535
FEWEST_CANDIDATES = 2_000


def candidate_ports(ephemeral_low: int, ephemeral_high: int) -> range:
    """Return ports that no outgoing connection gets.

    Args:
        ephemeral_low, ephemeral_high: the kernel's range for outgoing connections, both ends included.
    Returns:
        The ports below that range, or those above it; if both are too few, all ports from LOWEST_PORT on.
    """
    below = range(LOWEST_PORT, min(ephemeral_low, HIGHEST_PORT + 1))
    above = range(max(ephemeral_high + 1, LOWEST_PORT), HIGHEST_PORT + 1)
    for candidates in (below, above):
        if len(candidates) >= FEWEST_CANDIDATES:
            return candidates
    return range(LOWEST_PORT, HIGHEST_PORT + 1)


@dataclass(slots=True)
class PortLease:
    """The right to use one port on 127.0.0.1. No other starter on this machine uses the port meanwhile."""

    port: int
    _lock_file: int

    def release(self) -> None:
        """Release the port; a second call does nothing."""
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1


def lease_ports(count: int) -> list[PortLease]:
    """Lease that many free ports.

    Raises:
        MachineTooSmall: nearly all ports are taken.
    """
    leases: list[PortLease] = []
    for port in _shuffled(candidate_ports(*_ephemeral_range())):
        if len(leases) == count:
            break
        lease = _try_lease(port)
        if lease is not None:
            leases.append(lease)
    if len(leases) < count:
        for lease in leases:
            lease.release()
        raise MachineTooSmall(f"Not {count} free ports on {HOST}.", remedy="End what holds them: ss -ltnp")
    return leases


def _shuffled(ports: range) -> Iterator[int]:
    chosen = random.SystemRandom()  # a seeded test run must not choose the same ports as its twin
    yield from chosen.sample(ports, len(ports))


def _ephemeral_range() -> tuple[int, int]:
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(low), int(high)
    except OSError:
        return 32_768, 60_999  # Linux's own


def _try_lease(port: int) -> PortLease | None:
    directory = Path(tempfile.gettempdir()) / f"mm2py-ports-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    lock_file = os.open(directory / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: old connections do not count
            probe.bind((HOST, port))
    except OSError:
        os.close(lock_file)
        return None
    return PortLease(port, lock_file)

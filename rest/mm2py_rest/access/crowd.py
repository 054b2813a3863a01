"""Decides which connections of one listener stay. It counts them as soon as they are accepted, before TLS. Pure.

A connection waits (for its TLS, for its first request, for the next one) or is busy with a request. When too many wait,
one of the address with the most waiting connections is closed: the one that has waited longest. So a new connection is
always accepted, and a client that asks at once is answered, even if many others stay silent. A request for the health
does not make its connection busy, so it is answered however many requests there are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

WAITING_MOST: Final = 256
BUSY_MOST: Final = 400
DESCRIPTORS_KEPT: Final = 256
"""Reserved for everything except connections of listeners: brokers, files, the worker."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections one listener may have."""

    waiting: int = WAITING_MOST
    busy: int = BUSY_MOST

    @property
    def busy_of_one(self) -> int:
        """How many connections of one address may be busy: half, which leaves room for others."""
        return max(1, self.busy // 2)


def limits_of(descriptors: int, listeners: int) -> Limits:
    """Divide the descriptors of a process among its listeners."""
    each = max(8, (descriptors - DESCRIPTORS_KEPT) // max(1, listeners))
    waiting = min(WAITING_MOST, each * 2 // 5)
    return Limits(waiting, min(BUSY_MOST, each - waiting))


class Crowd(Generic[K]):
    """The connections of one listener, each identified by a key."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._networks: dict[K, str] = {}
        self._waiting: dict[str, dict[K, None]] = {}
        """By network; in each, the connection that has waited longest is first."""
        self._busy: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._networks)

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return sum(map(len, self._waiting.values()))

    def enter(self, key: K, network: str) -> K | None:
        """Add a new connection of a network (``network_of``). Returns the one to close instead; None: there is room."""
        self._networks[key] = network
        self._wait(key, network)
        return self.shed() if self.waiting > self.limits.waiting else None

    def shed(self) -> K | None:
        """Remove the connection to close when there are too many, and return it; None: none waits."""
        if not self._waiting:
            return None
        most = max(self._waiting, key=lambda network: len(self._waiting[network]))
        key = next(iter(self._waiting[most]))
        self.leave(key)
        return key

    def begins(self, key: K) -> bool:
        """Note that a connection has sent a request. Returns whether to serve it; if not, the client must ask later."""
        network = self._networks.get(key)
        if network is None or key not in self._waiting.get(network, ()):
            return network is not None  # it has left; or it is busy already
        if self._busy.total() >= self.limits.busy or self._busy[network] >= self.limits.busy_of_one:
            return False
        self._no_wait(key, network)
        self._busy[network] += 1
        return True

    def ends(self, key: K) -> K | None:
        """Note that a request is answered: its connection waits again. Returns the one to close, as ``enter`` does."""
        network = self._networks.get(key)
        if network is None or key in self._waiting.get(network, ()):
            return None
        self._not_busy(network)
        self._wait(key, network)
        return self.shed() if self.waiting > self.limits.waiting else None

    def leave(self, key: K) -> None:
        """Remove a connection that has ended. It may have been removed before."""
        network = self._networks.pop(key, None)
        if network is None:
            return
        if key in self._waiting.get(network, ()):
            self._no_wait(key, network)
        else:
            self._not_busy(network)

    def _wait(self, key: K, network: str) -> None:
        self._waiting.setdefault(network, {})[key] = None

    def _no_wait(self, key: K, network: str) -> None:
        del self._waiting[network][key]
        if not self._waiting[network]:
            del self._waiting[network]

    def _not_busy(self, network: str) -> None:
        self._busy[network] -= 1
        if not self._busy[network]:
            del self._busy[network]

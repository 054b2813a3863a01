"""Whose password is checked next: a bounded queue, in which each address has its turn. Pure.

A check is slow on purpose, so one runs at a time. After a wrong password its address rests for ``REST_S``: others go
before it, and guessing is bounded. A right one costs no rest. When the queue is full, the address that has most in it
gives way.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

WAITING_MOST: Final = 64
WAITING_MOST_OF_ONE: Final = 8
"""Of one address."""
REST_S: Final = 2.0
"""So an address tries 43,200 passwords a day at most."""

K = TypeVar("K")


class Turns(Generic[K]):
    """The checks that wait. Addresses are networks, as ``network_of`` returns them."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[K]] = {}
        """By network, the one whose turn is next first."""
        self._rests_until_s: dict[str, float] = {}
        self._is_checking = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def join(self, check: K, network: str) -> K | None:
        """Let a check wait. Returns the one that finds no place: it, or one of an address with more in the queue."""
        own = self._waiting.get(network, ())
        if len(own) >= WAITING_MOST_OF_ONE:
            return check
        turned_away = None
        if len(self) >= WAITING_MOST:
            most = max(self._waiting, key=lambda one: len(self._waiting[one]))
            if len(self._waiting[most]) <= len(own) + 1:
                return check
            turned_away = self._waiting[most].pop()
        self._waiting.setdefault(network, deque()).append(check)
        return turned_away

    def take(self, now_s: float) -> K | None:
        """Return the check to run now, if there is one; ``checked`` tells when it has ended."""
        self._rests_until_s = {one: until_s for one, until_s in self._rests_until_s.items() if until_s > now_s}
        if self._is_checking:
            return None
        network = next((one for one in self._waiting if one not in self._rests_until_s), None)
        if network is None:
            return None
        waiting = self._waiting.pop(network)
        check = waiting.popleft()
        if waiting:
            self._waiting[network] = waiting  # behind all others
        self._is_checking = True
        return check

    def checked(self, network: str, now_s: float, *, is_right: bool) -> None:
        """The check that was taken has ended."""
        self._is_checking = False
        if not is_right:
            self._rests_until_s[network] = now_s + REST_S

    def wait_s(self, now_s: float) -> float | None:
        """Return how long ``take`` finds nothing, unless something else happens; None: for ever."""
        if self._is_checking or not self._waiting:
            return None
        return max(0.0, min(self._rests_until_s.get(one, now_s) for one in self._waiting) - now_s)

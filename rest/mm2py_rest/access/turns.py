"""Chooses whose password is checked next: a bounded queue, in which each address has its turn. Pure.

A check is slow on purpose, so one runs at a time. After a wrong password its address waits for ``REST_S``: other
addresses go first, and the rate of guesses is bounded. After a right one it need not wait. When the queue is full, the
address with the most checks in it loses one.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

WAITING_MOST: Final = 64
WAITING_MOST_OF_ONE: Final = 8
"""For one address."""
REST_S: Final = 2.0
"""So an address can try at most 43,200 passwords a day."""

K = TypeVar("K")


class Turns(Generic[K]):
    """The waiting checks. An address is a network as ``network_of`` returns it."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[K]] = {}
        """By network; the network whose turn is next is first."""
        self._rests_until_s: dict[str, float] = {}
        self._is_checking = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def join(self, check: K, network: str) -> K | None:
        """Queue a check. Returns the check without a place: this one, or one of an address with more in the queue."""
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
        """Return the check to run now, if there is one. Call ``checked`` when it has ended."""
        self._rests_until_s = {one: until_s for one, until_s in self._rests_until_s.items() if until_s > now_s}
        if self._is_checking:
            return None
        network = next((one for one in self._waiting if one not in self._rests_until_s), None)
        if network is None:
            return None
        waiting = self._waiting.pop(network)
        check = waiting.popleft()
        if waiting:
            self._waiting[network] = waiting  # after all others
        self._is_checking = True
        return check

    def checked(self, network: str, now_s: float, *, is_right: bool) -> None:
        """Note that the check of ``take`` has ended."""
        self._is_checking = False
        if not is_right:
            self._rests_until_s[network] = now_s + REST_S

    def wait_s(self, now_s: float) -> float | None:
        """Return how long ``take`` will find nothing if nothing else happens; None: for ever."""
        if self._is_checking or not self._waiting:
            return None
        return max(0.0, min(self._rests_until_s.get(one, now_s) for one in self._waiting) - now_s)

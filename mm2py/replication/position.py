"""Where the copying of one partition stands. Pure.

How many position records a worker writes in a second, over all its flows. Pure; time is an argument.

Each flow has an account. What a flow asks for is remembered until it asks again: so those that want much share what is
left by those that want little, whoever comes first. Within any one second no more is given than the limit.

MirrorMaker 2 has no such limit: each of its workers writes the offsets of all partitions that changed, every
``offset.flush.interval.ms``.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

RANGES_MAX: Final = 100
"""So many ranges are told apart; a position is a record of some hundred bytes."""


class Position(NamedTuple):
    """Where the copying of a partition stands; offsets are the *next* ones. ``None`` where nobody can tell."""

    source_offset: int
    source_leader_epoch: int = -1
    target_offset: int | None = None
    target_leader_epoch: int | None = None
    sequence: int = 0
    skipped: tuple[tuple[int, int], ...] = ()
    """Ranges (first, last) left out since the last copied record."""

    def target_beyond(self, end: int) -> int:
        """Return how far the target offset is beyond where the remote partition really ends; 0 if it is not."""
        return 0 if self.target_offset is None else max(0, self.target_offset - end)

    def cut_back(self, offsets: int) -> Position:
        """Return the position with a target offset that is lower by so many."""
        return self._replace(target_offset=None if self.target_offset is None else self.target_offset - offsets)

    def behind(self, next_offset: int, leader_epoch: int) -> Position:
        """Return the position behind what is left out from here to before ``next_offset``.

        Ranges that touch become one. Beyond ``RANGES_MAX`` the two oldest do: between them nothing was copied either.
        """
        first, last = self.source_offset, next_offset - 1
        ranges = [*self.skipped]
        if ranges and ranges[-1][1] + 1 >= first:
            first = ranges.pop()[0]
        ranges.append((first, last))
        if len(ranges) > RANGES_MAX:
            ranges[:2] = [(ranges[0][0], ranges[1][1])]
        return self._replace(source_offset=next_offset, source_leader_epoch=leader_epoch, skipped=tuple(ranges))


PER_SECOND_MAX: Final = 1000
"""Records in a second. First and final positions do not count."""
WINDOW_S: Final = 1.0
AGAIN_LEAST_S: Final = 0.05


class PositionBudget:
    """The records that a worker may write in a second, divided among accounts."""

    def __init__(self, per_second_max: int = PER_SECOND_MAX) -> None:
        self.per_second_max = per_second_max
        self._accounts: list[PositionAccount] = []
        self._given: deque[tuple[float, PositionAccount, int]] = deque()
        """When how many were given to whom, within the last second."""

    def open(self) -> PositionAccount:
        """Return a new account; the shares of the others shrink as soon as it asks for something."""
        account = PositionAccount(self)
        self._accounts.append(account)
        return account

    def take(self, account: PositionAccount, now_s: float) -> int:
        """Give ``account`` as many of those it wants as are its due just now."""
        self._forget(now_s)
        used = dict.fromkeys(self._accounts, 0)
        total = 0
        for _, one, records in self._given:
            total += records  # one that is closed counts for the limit, and has no share any more
            if one in used:
                used[one] += records
        share = _fair_share(self.per_second_max, [used[one] + one.wanted for one in self._accounts])
        given = max(0, min(account.wanted, share - used[account], self.per_second_max - total))
        if given:
            self._given.append((now_s, account, given))
        return given

    def again_in_s(self, now_s: float) -> float:
        """Return when it is worth asking again for what was not given."""
        self._forget(now_s)
        over_s = self._given[0][0] + WINDOW_S if self._given else now_s
        return max(AGAIN_LEAST_S, over_s - now_s)

    def close(self, account: PositionAccount) -> None:
        if account in self._accounts:
            self._accounts.remove(account)

    def _forget(self, now_s: float) -> None:
        while self._given and self._given[0][0] + WINDOW_S <= now_s:
            self._given.popleft()


class PositionAccount:
    """What one flow writes."""

    def __init__(self, budget: PositionBudget) -> None:
        self.wanted = 0
        """So many were asked for and not given yet."""
        self._budget = budget

    def take(self, wanted: int, now_s: float) -> int:
        """Return how many of ``wanted`` records may be written now; the rest is to be asked for again."""
        self.wanted = wanted
        given = self._budget.take(self, now_s)
        self.wanted -= given
        return given

    def again_in_s(self, now_s: float) -> float:
        """Return when it is worth asking again for what was not given."""
        return self._budget.again_in_s(now_s)

    def close(self) -> None:
        """This flow's life is over."""
        self._budget.close(self)


def _fair_share(limit: int, demands: list[int]) -> int:
    """Return the most that each may have so that all together have ``limit``; who wants less leaves the others more."""
    left = limit
    for place, demand in enumerate(sorted(demands)):
        share = left // (len(demands) - place)
        if demand > share:
            return share
        left -= demand
    return limit

"""Where the copying of one partition stands, and how many positions a worker stores in a second. Pure.

Each flow has an account in a worker's budget. The budget remembers what each flow asked for last, so flows that want
much share what flows that want little leave, in any order. No second gets more than the limit. MirrorMaker 2 has no
such limit: each worker writes the offsets of all changed partitions every ``offset.flush.interval.ms``.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

RANGES_MAX: Final = 100
"""A position keeps at most so many ranges, as its record should have some hundred bytes."""


class Position(NamedTuple):
    """Where the copying of a partition stands. Offsets are the *next* ones; None if unknown."""

    source_offset: int
    source_leader_epoch: int = -1
    target_offset: int | None = None
    target_leader_epoch: int | None = None
    sequence: int = 0
    skipped: tuple[tuple[int, int], ...] = ()
    """Ranges (first, last) skipped since the last copied record."""

    def target_beyond(self, end: int) -> int:
        """Return how far the target offset is beyond the real end of the remote partition; at least 0."""
        return 0 if self.target_offset is None else max(0, self.target_offset - end)

    def cut_back(self, offsets: int) -> Position:
        """Return the position with a target offset lower by ``offsets``."""
        return self._replace(target_offset=None if self.target_offset is None else self.target_offset - offsets)

    def behind(self, next_offset: int, leader_epoch: int) -> Position:
        """Return the position at ``next_offset``, with the records before it skipped.

        Adjacent ranges become one. Beyond ``RANGES_MAX`` the two oldest do: nothing was copied between them.
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
        """Time, account and number of what was given within the last second."""

    def open(self) -> PositionAccount:
        """Return a new account. The parts of the others shrink when it asks for something."""
        account = PositionAccount(self)
        self._accounts.append(account)
        return account

    def take(self, account: PositionAccount, now_s: float) -> int:
        """Give ``account`` its fair part of what it wants, and return how many."""
        self._forget(now_s)
        used = dict.fromkeys(self._accounts, 0)
        total = 0
        for _, one, records in self._given:
            total += records  # a closed account still counts for the limit
            if one in used:
                used[one] += records
        share = _fair_share(self.per_second_max, [used[one] + one.wanted for one in self._accounts])
        given = max(0, min(account.wanted, share - used[account], self.per_second_max - total))
        if given:
            self._given.append((now_s, account, given))
        return given

    def again_in_s(self, now_s: float) -> float:
        """Return when to ask again for what was not given."""
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
    """The part of one flow."""

    def __init__(self, budget: PositionBudget) -> None:
        self.wanted = 0
        """How many were asked for and not given yet."""
        self._budget = budget

    def take(self, wanted: int, now_s: float) -> int:
        """Return how many of ``wanted`` records may be written now. Ask again for the rest."""
        self.wanted = wanted
        given = self._budget.take(self, now_s)
        self.wanted -= given
        return given

    def again_in_s(self, now_s: float) -> float:
        """Return when to ask again for what was not given."""
        return self._budget.again_in_s(now_s)

    def close(self) -> None:
        """The flow has ended."""
        self._budget.close(self)


def _fair_share(limit: int, demands: list[int]) -> int:
    """Return the most that each may have so that all have ``limit`` together."""
    left = limit
    for place, demand in enumerate(sorted(demands)):
        share = left // (len(demands) - place)
        if demand > share:
            return share
        left -= demand
    return limit

"""Where the copying of one partition stands. Pure."""

from __future__ import annotations

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

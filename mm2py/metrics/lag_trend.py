"""What a worker remembers of a partition's lag: how far it was a while ago, and since when it is behind. Pure.

A partition is *behind* when its safe time (``mm2py/copying/safe_time.py``) is older than ten seconds and records wait.
A partition to which records come all the time, and which is copied in time, is never behind, although a few records
wait at any moment.

MirrorMaker 2 has none of this.
"""

from __future__ import annotations

from typing import Final

from mm2py.records.lag_seen import LagSeen

KEEPS_UP_MS: Final = 10_000
"""What is safe to a moment that is not older keeps up."""
KEPT_EVERY_MS: Final = 15_000
"""How often an observation is kept."""
APART_MS: Final = 10_000
"""Two observations that are nearer to each other tell nothing: the lag of a moment depends on a single batch."""


class LagTrend:
    """The lag of one partition, from look to look."""

    __slots__ = ("_last", "_previous", "behind_since_ms")

    def __init__(self, behind_since_ms: int | None = None) -> None:
        """``behind_since_ms``: what the previous owner of the partition has stored."""
        self.behind_since_ms = behind_since_ms
        """All that the source held at this moment was copied then, and the partition is behind since. None: it keeps
        up."""
        self._last: LagSeen | None = None
        self._previous: LagSeen | None = None

    def look(self, at_ms: int, end: int | None, position: int, newest_ms: int | None, safe_ms: int | None) -> None:
        """Take what is known now.

        Args:
            end: the end of the source log; None: not known.
            safe_ms: the safe time of the partition; None: not known.
        """
        if self.keeps_up(at_ms, safe_ms) or (end is not None and end <= position):
            self.behind_since_ms = self._last = self._previous = None
            return
        if self.behind_since_ms is None and (end is not None or safe_ms is not None):
            self.behind_since_ms = at_ms if safe_ms is None else safe_ms
        if end is not None:
            self.keep(LagSeen(at_ms, end, position, newest_ms))

    def has_nothing_to_note(self, at_ms: int, safe_ms: int | None) -> bool:
        """Whether it has kept up and still does: ``look`` would change nothing. Almost all partitions do."""
        return self.behind_since_ms is None and self._last is None and self.keeps_up(at_ms, safe_ms)

    @staticmethod
    def keeps_up(at_ms: int, safe_ms: int | None) -> bool:
        """Whether its safe time is new enough."""
        return safe_ms is not None and at_ms - safe_ms <= KEEPS_UP_MS

    def keep(self, seen: LagSeen) -> None:
        """Keep an observation, if the last one that was kept is old enough."""
        last = self._last
        if last is None or seen.at_ms < last.at_ms or seen.position < last.position:
            self._last, self._previous = seen, None  # the clock was set back, or copying begins again
        elif seen.at_ms - last.at_ms >= KEPT_EVERY_MS:
            self._last, self._previous = seen, last

    def before(self, at_ms: int) -> LagSeen | None:
        """Return the newest observation that is old enough to be compared with one at this moment; None: there is
        none."""
        return None if self._last is None else newest_apart((self._last, self._previous), at_ms)


def newest_apart(seen: tuple[LagSeen | None, ...], at_ms: int) -> LagSeen | None:
    """Return the newest of several observations that is old enough to be compared with one at ``at_ms``."""
    apart = [one for one in seen if one is not None and at_ms - one.at_ms >= APART_MS]
    return max(apart, key=lambda one: one.at_ms, default=None)

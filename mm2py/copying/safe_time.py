"""Up to which moment a partition is copied: observed, not read from the timestamps of its records. Pure.

A partition is *safe to t* when the target has acknowledged everything that the source partition held at t. To find t, a
request to the source leader is dated when it is sent. Its answer names the end of the log, the high watermark. As soon
as the position has reached that end, the partition is safe to the date of the request. This holds under read_committed,
too: behind an open transaction there may be committed records, and they are not copied before it ends. The timestamps
of records cannot say this: producers set them, in any order, and an idle partition has none.

Two kinds of answers would make the safe time too new, so they do not count:

* The answer of a follower. Its high watermark is below that of the leader.
* The answer of a new leader to a read. For a moment its high watermark may be below records that the old leader has
  acknowledged. ListOffsets is refused until it has caught up (KIP-207). So under each leader epoch an answer to
  ListOffsets comes first (``learn_end``), and after it the answers to reads count, too (``learn_read``).

MirrorMaker 2 has none; it shows the age of the newest record (``replication-latency-ms``).
"""

from __future__ import annotations

from typing import Final

CLOCK_STEP_MS: Final = 10_000
"""A request that is older than another one by more was sent after the clock was set back."""


class SafeTime:
    """The safe time of one partition. Times are in ms by this worker's clock."""

    __slots__ = ("_due", "_end", "_end_epoch", "_epoch", "_newest", "at_ms")

    def __init__(self) -> None:
        self.at_ms: int | None = None
        """It is safe to this moment; None: no end that was named has been reached yet."""
        self._due: tuple[int, int] | None = None
        """The oldest request whose end is not reached yet, and that end."""
        self._newest: tuple[int, int] | None = None
        """The newest request that was answered, and the end that it named."""
        self._epoch: int | None = None
        """The leader epoch under which answers to reads count."""
        self._end = 0
        """The highest end that was named under ``_end_epoch``: answers come in another order than requests are sent."""
        self._end_epoch = -1

    def asked_ms(self) -> int:
        """Return when the last request was sent whose answer counted; 0 before the first."""
        return 0 if self._newest is None else self._newest[0]

    def counts_reads(self, leader_epoch: int) -> bool:
        """Return whether answers to reads count under this leader epoch."""
        return leader_epoch >= 0 and leader_epoch == self._epoch

    def learn_end(self, sent_ms: int, end: int, position: int, leader_epoch: int) -> None:
        """Take the answer of the leader to ListOffsets.

        Args:
            sent_ms: when the request was sent.
            end: the offset behind the last record that may be read.
            position: the next source offset to be copied; everything before it is acknowledged.
            leader_epoch: under which the leader has answered; -1: it was not asked to check it.
        """
        self._epoch = leader_epoch if leader_epoch >= 0 else None
        self._learn(sent_ms, self._highest(end, leader_epoch), position)

    def learn_read(self, sent_ms: int, end: int | None, position: int, leader_epoch: int) -> None:
        """Take the answer of the leader to a read. Args: see ``learn_end``; ``end`` None: as it was named last."""
        highest = self._end if end is None else self._highest(end, leader_epoch)
        if self.counts_reads(leader_epoch):
            self._learn(sent_ms, highest, position)

    def _highest(self, end: int, leader_epoch: int) -> int:
        """Note an end, and return the highest one of this leader epoch: a log is cut back under a new one only.

        The story: ListOffsets is sent, and then a read that is answered first, with a higher end. That read does not
        count yet; later reads do, and leave the partition out, because nothing is new to them.
        """
        self._end = max(end, self._end) if 0 <= leader_epoch == self._end_epoch else end
        self._end_epoch = leader_epoch
        return self._end

    def _learn(self, sent_ms: int, end: int, position: int) -> None:
        if position >= end:
            self._reach(sent_ms)
            self._due = None
        elif self._due is None:
            self._due = sent_ms, end
        elif position >= self._due[1]:
            reached, newest = self._due, self._newest
            if newest is not None and position >= newest[1]:
                self._reach(newest[0])
                self._due = sent_ms, end
            else:
                self._reach(reached[0])
                self._due = newest or (sent_ms, end)
        self._newest = sent_ms, end

    def _reach(self, sent_ms: int) -> None:
        """Answers may come in another order than their requests were sent. A clock that is set back is followed."""
        if self.at_ms is None or not self.at_ms - CLOCK_STEP_MS < sent_ms < self.at_ms:
            self.at_ms = sent_ms

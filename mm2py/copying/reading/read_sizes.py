"""How many reads a source broker gets at the same time, and how large they are. Pure.

A far broker sends little over one connection. So it gets more reads at once, and smaller ones: an answer that fits into
what a connection carries in a round trip takes one.
"""

from __future__ import annotations

from typing import Final, Literal

from mm2py.copying.reading.limits import IDLE_READS, TAIL_READS, MemoryAccount

Kind = Literal["backlog", "tail", "idle"]
"""Why partitions are read together: they have a backlog, they wait for new records, or they have waited for a while and
got none."""
_FAR_READS: Final = 16
"""The story: 1,000 records of 1 KB a second over 100 ms are 100 KB a round trip. One answer of that size took two."""
_READS_AT_ONCE: Final[dict[Kind, int]] = {"backlog": 1, "tail": TAIL_READS, "idle": IDLE_READS}
_FAR_READS_AT_ONCE: Final[dict[Kind, int]] = {"backlog": _FAR_READS, "tail": _FAR_READS, "idle": IDLE_READS}
"""Reads of backlogs are for partitions whose backlog is too small for the pool."""
_FAR_BACKLOG_BYTES: Final = 512 << 10
"""Most bytes of one read. It brings only small backlogs, and what the pool must know about larger ones."""
_FAR_PARTITION_BYTES: Final = 256 << 10
"""Most bytes of one partition in such a read. The read shows us how many bytes an offset takes. It shows the congestion
control of the sender (bbr) what the connection carries: after 64 KB it still sent an answer of 11 KB in 10 ms, after
256 KB in 5 ms."""


def reads_at_once(kind: Kind, *, is_far: bool) -> int:
    """Return how many reads of a kind may be under way."""
    return (_FAR_READS_AT_ONCE if is_far else _READS_AT_ONCE)[kind]


def are_spread(kind: Kind, *, is_far: bool) -> bool:
    """Whether partitions that may be read together are spread over all reads that may start."""
    return is_far and kind != "idle"


def read_bytes(account: MemoryAccount, *, waits: bool, is_far: bool) -> int:
    """Return how many bytes a read asks for at most.

    Args:
        waits: the read waits for new records, so there is no backlog.
    """
    if waits:
        return account.tail_bytes(_FAR_READS + IDLE_READS) if is_far else account.tail_bytes()
    return min(account.backlog_bytes(), _FAR_BACKLOG_BYTES) if is_far else account.backlog_bytes()


def partition_bytes(most: int, merged_bytes: int | None, *, waits: bool, is_far: bool) -> int:
    """Return how many bytes of a partition a read asks for at most.

    Args:
        most: the setting.
        merged_bytes: how many bytes become one merged batch, if they are merged; see ``Reading.merged_bytes``.
            The story: a read of a mebibyte became one batch of 900 KB, and one of what was left. Each batch costs.
    """
    if merged_bytes:
        most = most // merged_bytes * merged_bytes or most
    return min(most, _FAR_PARTITION_BYTES) if is_far and not waits else most

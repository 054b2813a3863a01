"""From which broker a partition is read: its leader, or a follower near us (KIP-392). Pure.

A fetch names the rack of its reader (``client.rack``). A leader that knows a better replica for this rack answers with
the replica and without records. The partition is then read there, as by the consumers of MirrorMaker 2's tasks.

A follower may lag, and its log may end before what was read already. So its errors prove nothing about a position: they
only end reading from it, and the leader is asked. Gaps are found only at leaders.

Source: SubscriptionState.updatePreferredReadReplica, FetchCollector.handleInitializeErrors, Apache Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mm2py.kafka.port import BrokerId, FetchedPartition

FOLLOWED_S: Final = 300.0
"""The leader is asked again after this time, as by Kafka's consumer (``metadata.max.age.ms``): by then another replica
may suit better."""
LEADER_ONLY_S: Final = 30.0
"""After a follower has failed, the partition is read from its leader for this long.

The story: a firewall separates worker and follower. The leader reaches the follower, and names it each time. A
partition that asked for a replica at once would move back and forth between the two, and nothing would be read."""


@dataclass(frozen=True, slots=True)
class ReadReplica:
    """Where a partition is read; with its defaults, from the leader."""

    follower: BrokerId | None = None
    until_s: float = 0.0
    """Until then it is read from the follower; or, without one, its leader is not asked for another replica."""

    def is_over(self, now_s: float) -> bool:
        """Whether it is time to ask the leader again."""
        return self.follower is not None and now_s >= self.until_s

    def may_ask(self, now_s: float) -> bool:
        """Whether the leader may name a follower."""
        return self.follower is not None or now_s >= self.until_s


LEADER: Final = ReadReplica()


def named_by_leader(fetched: FetchedPartition, *, leader: BrokerId, now_s: float) -> ReadReplica | None:
    """Return where to read next after a leader's answer; None: from the leader, as before.

    An answer with records is used as it is: the next one names the follower again.
    """
    named = fetched.preferred_replica
    if named < 0 or named == leader or fetched.error_code or len(fetched.records):
        return None
    return ReadReplica(BrokerId(named), now_s + FOLLOWED_S)


def after_failure(now_s: float) -> ReadReplica:
    """Return where to read next after a follower gave no answer, an error, or the end of another log."""
    return ReadReplica(None, now_s + LEADER_ONLY_S)

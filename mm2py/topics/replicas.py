"""How many replicas a topic is created with, given the number of brokers.

MM2 and Kafka Connect have fixed defaults, and fail on a cluster with fewer brokers.
"""

from __future__ import annotations


class AtMost(int):
    """A replication factor that no operator has set: on a cluster with fewer brokers, their number is used instead."""


def replicas_on(brokers: int, replication_factor: int) -> int:
    """Return with how many replicas to create a topic. A factor that an operator has set is used unchanged."""
    if isinstance(replication_factor, AtMost):
        return max(1, min(replication_factor, brokers))
    return replication_factor

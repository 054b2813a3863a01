"""How many replicas a topic is created with, on the brokers that are there.

MM2 and Kafka Connect have fixed defaults, and fail on a cluster with fewer brokers.
"""

from __future__ import annotations


class AtMost(int):
    """A replication factor that no operator has written: on a cluster with fewer brokers it is their number."""


def replicas_on(brokers: int, replication_factor: int) -> int:
    """Return with how many replicas to create a topic. What an operator has written counts as it is."""
    if isinstance(replication_factor, AtMost):
        return max(1, min(replication_factor, brokers))
    return replication_factor

"""What a connector offers to the worker that runs it, and what the worker hands to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.port import Brokers


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a flow: its brokers, and how to ask whose they are."""

    alias: ClusterAlias
    brokers: Brokers
    identify: Callable[[], Awaitable[str | None]]
    """Returns the cluster's id; raises as ``Brokers.send``, or ForeignCluster."""
    reads_topic_ids: Callable[[], bool | None] = lambda: True


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """What a topic's copying looks like, summed over its partitions."""

    topic: str
    remote_topic: str
    partitions: int
    records: int
    bytes: int
    passed: int
    rebuilt: dict[str, int]
    dropped: dict[str, int]
    lag_records: int | None
    lag_s: float | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """What a flow looks like from outside. ``state`` is a word, ``reason`` a sentence or empty."""

    flow: Flow
    state: str
    reason: str
    guarantee: str
    topics: tuple[TopicStatus, ...]
    refused: dict[str, str]


class Connector(Protocol):
    """One kind of work of one flow."""

    async def run(self) -> None:
        """Work until cancelled. Raises an Mm2Error when the flow cannot go on as it is."""
        ...

    async def drain(self) -> None:
        """Settle what is under way, so that cancelling ``run`` afterwards repeats nothing later."""
        ...

    def status(self) -> FlowStatus: ...

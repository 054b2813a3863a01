"""The interface of a flow's connectors, and the status that they report. MirrorMaker 2 has the same three."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mm2py.flow import ClusterAlias, Flow

if TYPE_CHECKING:  # it takes a second to import
    from mm2py.kafka.port import Brokers
    from mm2py.metrics.worker_numbers import ConnectorPart


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a flow: its brokers, and how to ask for the id of their cluster."""

    alias: ClusterAlias
    brokers: Brokers
    identify: Callable[[], Awaitable[str | None]]
    """Returns the cluster's id; raises as ``Brokers.send``, or ForeignCluster."""
    reads_topic_ids: Callable[[], bool | None] = lambda: True


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """The copying of a topic, summed over its partitions."""

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
    copy_modes: tuple[str, ...] = ()
    """How batches are copied now, with the reason; several if its partitions differ."""


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """A flow's status. ``state`` is a word, ``reason`` a sentence or empty."""

    flow: Flow
    state: str
    reason: str
    guarantee: str
    topics: tuple[TopicStatus, ...]
    refused: dict[str, str]
    positions_unstored_s: float = 0.0
    """How long the oldest change of a position has waited to be stored: after a crash this much is reconciled."""
    positions_problem: str = ""
    """Which positions could not be stored for a while, and why; empty if all can."""
    heartbeat_age_s: float | None = None
    """The age of the last heartbeat that was copied, by this machine's clock; None if none was seen."""
    path_latency_ms: float | None = None
    """How long that heartbeat took, from the emitter's clock to this machine's; below 0 if the clocks differ more."""


@dataclass(frozen=True, slots=True)
class PathStatus:
    """The path's part of a flow's status; see ``FlowStatus``."""

    heartbeat_age_s: float | None
    path_latency_ms: float | None


class Connector(Protocol):
    """One kind of work of one flow."""

    async def run(self) -> None:
        """Work until cancelled. Raises an Mm2Error when the flow cannot go on as it is."""
        ...

    async def drain(self) -> None:
        """Settle what is in flight, so that cancelling ``run`` afterwards repeats no record later."""
        ...

    @property
    def leaves_outcome_unknown(self) -> bool:
        """Whether a request that was sent may be stored later, although the connector was drained."""
        ...

    def status(self, *, with_topics: bool = True) -> FlowStatus | PathStatus | None:
        """Return the connector's part of the flow's status, None if it has none.

        Args:
            with_topics: also each topic, which takes as long as it has partitions.
        """
        ...

    def measure(self) -> Iterable[ConnectorPart]:
        """Yield what it counts, for ``/metrics``, if anything. The event loop waits for each part: be quick.

        The connector may go on, or end, between two parts.
        """
        ...

"""A flow, which is one direction of replication, written ``A->B``; and the protocol of its connectors.

Every setting and task belongs to one flow. MM2 has the same three connectors for each pair of clusters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NewType, Protocol

from mm2py.errors import ConfigError

if TYPE_CHECKING:  # it takes a second to import, and applications that use mm2py.client need names only
    from mm2py.kafka.port import Brokers
    from mm2py.metrics.snapshot import ConnectorPart

ClusterAlias = NewType("ClusterAlias", str)
TopicName = NewType("TopicName", str)

ARROW = "->"
PARTITION_MOST: Final = (1 << 31) - 1
"""The highest number that a partition can have."""


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One source cluster, one target cluster; they are never the same."""

    source: ClusterAlias
    target: ClusterAlias

    def __str__(self) -> str:
        return f"{self.source}{ARROW}{self.target}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let pydantic, which is not imported here, write a flow as its name."""
        return {"type": "is-instance", "cls": cls, "serialization": {"type": "to-string"}}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        return {"type": "string", "examples": [f"A{ARROW}B"]}


def check_quoted(text: str) -> None:
    """Look whether a command's argument may be the beginning of a flow that was not quoted.

    Raises:
        ConfigError: it ends where the shell would have taken ``>`` for a redirection.
    """
    if ARROW not in text and text.endswith("-"):
        raise ConfigError(
            f"{text!r} is not a flow.",
            remedy="Put the flow in quotes, as in 'A->B'. Without them the shell takes > for a redirection, and writes"
            " the output into a file.",
        )


def parse_flow(text: str) -> Flow:
    """Return the flow that ``A->B`` names.

    Raises:
        ConfigError: there is not exactly one arrow, an alias is empty or padded, or both are the same.
    """
    check_quoted(text)
    parts = text.split(ARROW)
    if len(parts) != 2 or not all(parts) or any(part != part.strip() for part in parts):
        raise ConfigError(f"{text!r} is not a flow.", remedy="Write it as A->B, without spaces, with two aliases.")
    if parts[0] == parts[1]:
        raise ConfigError(f"Flow {text} leads from a cluster to itself.", remedy="Name two different clusters.")
    return Flow(ClusterAlias(parts[0]), ClusterAlias(parts[1]))


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
    """How long the oldest change of a position has waited to be stored: after a crash so much is reconciled."""
    positions_problem: str = ""
    """Which positions cannot be stored for a while now, and why; empty if all can."""
    heartbeat_age_s: float | None = None
    """The age of the last heartbeat that was copied, by this machine's clock; None if none was seen."""
    path_latency_ms: float | None = None
    """How long that heartbeat took, from the emitter's clock to this machine's; below 0 if the clocks differ more."""


@dataclass(frozen=True, slots=True)
class PathStatus:
    """The path's part of a flow's status; see there."""

    heartbeat_age_s: float | None
    path_latency_ms: float | None


class Kind(StrEnum):
    """The kinds of work of a flow, named as MM2 names its connectors."""

    SOURCE = "MirrorSourceConnector"
    CHECKPOINT = "MirrorCheckpointConnector"
    HEARTBEAT = "MirrorHeartbeatConnector"
    PATH = "path"
    """Reads heartbeats back; MM2 has none of this kind."""
    OFF = "off"
    """Switches the flow off for all its workers, once; MM2 has none of this kind."""


@dataclass(frozen=True, slots=True, order=True)
class ConnectorName:
    """Names one connector of a worker, as ``A->B.MirrorSourceConnector``."""

    flow: Flow
    kind: Kind

    def __str__(self) -> str:
        return f"{self.flow}.{self.kind}"


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

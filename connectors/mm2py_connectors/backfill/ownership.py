"""The partitions of one attempt of a backfill's task: it has them alone, and there is no group.

The live flow leaves them to the backfill (``Holds``), and Spark gives each partition to one task. Two attempts of a
task may run at the same time; what keeps them apart is the fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from mm2py.config.settings import FlowSettings
from mm2py.flow import Flow
from mm2py.group.ownership import KnownProducers
from mm2py.kafka.port import ProducerIdentity, TopicPartition
from mm2py.records.control_record import NotStarted, TopicClaim
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse
from mm2py.records.safe_point import SafePoint


class TaskOwnership:
    """The ``OwnershipView`` of a backfill's task. Its answers do not change while the attempt runs."""

    is_coordinator = False
    """Tasks list no topics and sync no settings: the live flow does that when it continues."""
    source_cluster: str | None = None
    not_started: NotStarted | None = None

    def __init__(self, settings: FlowSettings, partitions: Collection[TopicPartition], producer_expiry_ms: int) -> None:
        self.producer_expiry_ms = producer_expiry_ms
        self.changed = asyncio.Event()
        self.known_producers = KnownProducers()
        self._settings = settings
        self._partitions = frozenset(partitions)
        widths: dict[str, int] = {}
        for topic, number in partitions:
            widths[topic] = max(widths.get(topic, 0), number + 1)
        self.listed: Mapping[str, int] = widths

    def uses(self, link: LinkUse | None) -> None:
        """Tell no group: Spark shows what its tasks do."""

    def waits_for(self, waits: FlowWaits | None) -> None:
        """Tell no group, likewise."""

    @property
    def version(self) -> tuple[int, int]:
        return 0, 0

    def is_safe_to(self, safe: SafePoint) -> None:
        """Tell no group: a task of Spark ends at a seam."""

    def cannot_store(self, why: str) -> None:
        """Tell no group: a task stores no standstills."""

    def cannot_start(self, why: NotStarted | None) -> None:
        """Tell no group: the driver sees that a task makes no progress."""

    def started(self) -> None:
        """Tell no group: the driver sees the progress."""

    def may_copy(self, key: TopicPartition) -> bool:
        return key in self._partitions

    def speaks_for(self, key: TopicPartition) -> bool:
        return key in self._partitions

    def mine(self) -> Collection[TopicPartition]:
        return self._partitions

    def to_release(self) -> Collection[TopicPartition]:
        return ()

    def width(self, topic: str) -> int | None:
        return self.listed.get(topic)

    def claim(self, topic: str) -> TopicClaim | None:
        if topic not in self.listed:
            return None
        return TopicClaim.of(topic, self._settings.remote_topic(topic), mixes=self._settings.many_to_one)

    def conflicting_flows(self, topic: str, claim: TopicClaim) -> frozenset[Flow]:
        return frozenset()

    def conflicting_topic(self, topic: str, claim: TopicClaim) -> str | None:
        return None

    def measure(self, bytes_per_s: Mapping[TopicPartition, float]) -> None:
        """The driver has spread the partitions before, so this is not used."""

    def load_of(self, key: TopicPartition) -> float | None:
        return None

    async def list_partitions(
        self,
        partitions: Mapping[str, int],
        widths: Mapping[str, int],
        claims: Mapping[str, TopicClaim],
        *,
        source_cluster: str | None = None,
    ) -> None:
        """There is no group to tell."""

    async def release(self, keys: Collection[TopicPartition]) -> None:
        """No worker waits for them."""

    async def announce(self, identity: ProducerIdentity) -> None:
        """The coordinator lists the id, and the first position names it."""

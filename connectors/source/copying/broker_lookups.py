"""What a copier has asked of brokers before it goes on: offsets of the source log, limits of the remote topic.

Answers to what MM2's consumer and producer settle out of sight, or not at all: there an offset out of range is reset,
and a record too large fails the task. Here the copier decides, on the answers that come back to it as events.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from mm2py.clock import Clock
from mm2py.kafka import admin
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import EARLIEST, LATEST, end_of
from mm2py.kafka.port import Brokers
from mm2py.replication.copying.copied_partition import CopiedPartition, Handler
from mm2py.replication.copying.events import LimitsFound, OffsetsFound, Poison, Quarantined, Tick


class Inquiries:
    """Of one flow's task, which sees to it that none is made twice at a time. Each raises KafkaError."""

    def __init__(
        self,
        source: Brokers,
        target: Brokers,
        partitions: Mapping[tuple[str, int], CopiedPartition],
        *,
        keep: Callable[[CopiedPartition, Poison], Awaitable[bool]],
        handle: Handler,
        clock: Clock,
    ) -> None:
        """``keep`` puts a record into quarantine and tells whether it is there."""
        self._source = source
        self._target = target
        self._partitions = partitions
        self._keep = keep
        self._handle = handle
        self._clock = clock
        self._looked_up: dict[CopiedPartition, int] = {}
        """For which source offset the limits were last looked up before it went into quarantine."""

    def forget(self, part: CopiedPartition) -> None:
        """It is copied no more."""
        self._looked_up.pop(part, None)

    async def find_offsets(self, part: CopiedPartition) -> None:
        """Tell the copier where the source log begins and ends."""
        if part.source_leader is None:
            return
        first = await end_of(self._source, part.source_leader, part.key, EARLIEST)
        last = await end_of(self._source, part.source_leader, part.key, LATEST)
        self._handle(part, OffsetsFound(first, last, self._clock.monotonic()))

    async def find_limits(self, part: CopiedPartition) -> None:
        """Look up how large a batch the remote topic takes; a refusal of less counts more than what is said."""
        topic = part.target_topic
        limit = part.rules.max_message_bytes
        found = (await admin.describe_topic_configs(self._target, [topic], keys=["max.message.bytes"]))[topic]
        if not isinstance(found, BrokerRefused):
            limit = next((int(entry.value or limit) for entry in found if entry.name == "max.message.bytes"), limit)
        for other in self._partitions.values():
            if other.target_topic == topic:
                refused = other.copier.refused_bytes
                allowed = min(limit, refused - 1) if refused else limit
                merged = min(other.rules.merged_max_bytes, refused // 2) if refused else other.rules.merged_max_bytes
                other.rules = replace(other.rules, max_message_bytes=allowed, merged_max_bytes=merged)
                if refused:
                    self._handle(other, LimitsFound())

    async def retry_blocked(self, part: CopiedPartition) -> None:
        """Look the limits up, as an operator may have raised them, and let the copier try again."""
        await self.find_limits(part)
        self._handle(part, Tick(self._clock.monotonic()))

    async def quarantine(self, part: CopiedPartition, poison: Poison) -> None:
        """Keep a record that the target refuses; one that was not sent, only if its settings are still the same."""
        if not poison.was_sent and self._looked_up.get(part) != poison.offset:
            self._looked_up[part] = poison.offset
            before = part.rules
            await self.find_limits(part)
            if part.rules != before:
                self._handle(part, Tick(part.copier.resume_at_s or self._clock.monotonic()))
                return
        if await self._keep(part, poison):
            self._handle(part, Quarantined(poison.offset, self._clock.monotonic()))

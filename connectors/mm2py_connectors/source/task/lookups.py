"""What a flow asks brokers about its partitions while it copies them.

* ``SourceEnds``: where source partitions end that are not read just now.
* ``TargetEnds``: whether remote partitions still hold all that was acknowledged. MirrorMaker 2 does not check that.
* ``BrokerLookups``: what a copier needs before it continues. MirrorMaker 2's consumer resets an offset out of range.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.events import (
    LimitsFound,
    OffsetsFound,
    Poison,
    Quarantined,
    TargetLost,
    TargetShort,
    TargetWhole,
    Tick,
)
from mm2py.copying.states import Copying, Drained, Draining
from mm2py.errors import FirstErrorGroup
from mm2py.kafka import admin
from mm2py.kafka.error_codes import INVALID_TIMESTAMP
from mm2py.kafka.list_offsets import EARLIEST, LATEST, end_of, find_offsets, list_offsets
from mm2py.kafka.port import BrokerId, TopicPartition
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.discovery.remote_topics import values_of
from mm2py_connectors.source.task.quarantine import Quarantine
from mm2py_connectors.source.timestamp_limits import TimestampLimits

LOOK_EVERY_S: Final = 5.0
"""How often the source is asked for the ends of partitions that are not read."""
_ENDING: Final = (Draining, Drained)


class SourceEnds:
    """Updates ``CopiedPartition.asked`` for partitions that are not read: notices their records, and keeps their lag
    right.

    The story: a partition is idle when its remote partition loses its leader. Reads are planned by target broker, so no
    read names the partition any more. New records are not seen then, and ``partition.stalled`` is never logged. The
    same happens to a partition that is being reconciled, or that waits for its first position.
    """

    def __init__(self, context: FlowContext, partitions: Mapping[TopicPartition, CopiedPartition]) -> None:
        """Make one; ``run`` starts it. ``partitions`` are the copied ones; the mapping may change meanwhile."""
        self._context = context
        self._source = context.source.brokers
        self._partitions = partitions
        self._clock = context.clock

    async def run(self) -> None:
        """Ask until cancelled. Raises: KafkaError that no retry mends."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            by_leader: dict[BrokerId | None, list[CopiedPartition]] = {}
            for part in self._unread():
                by_leader.setdefault(part.leaders.source, []).append(part)
            with contextlib.suppress(TimeoutError):  # a leader that is silent must not delay the ends of the others
                async with asyncio.timeout(LOOK_EVERY_S), FirstErrorGroup() as asking:
                    for leader, parts in by_leader.items():
                        asking.create_task(self._ask(parts), name=f"ends of {leader}")

    async def _ask(self, parts: list[CopiedPartition]) -> None:
        leaders = {part.key: part.leaders.source for part in parts}
        committed = self._context.settings.read_committed
        ends = await find_offsets(self._source, leaders, LATEST)
        readable = await find_offsets(self._source, leaders, LATEST, read_committed=True) if committed else ends
        now_s = self._clock.monotonic()
        for part in parts:
            part.asked.end = ends.get(part.key, part.asked.end)
            if part.key in readable:
                part.asked.readable_end, part.asked.at_s = readable[part.key], now_s

    def _unread(self) -> list[CopiedPartition]:
        """Return the partitions that were not read for a while."""
        found: list[CopiedPartition] = []
        now_s = self._clock.monotonic()
        unread_after_s = LOOK_EVERY_S + self._context.settings.fetch_max_wait_ms / 1000  # a read may wait that long
        for part in self._partitions.values():
            if now_s - part.reading.answered_at_s < unread_after_s:
                part.asked.end = 0
            elif not isinstance(part.copier.state, _ENDING):
                found.append(part)
        return found


IDLE_EVERY_S: Final = 60.0
"""How often partitions that got no acknowledgement meanwhile are checked."""
END_PATIENCE_S: Final = 3.0
"""How long a remote partition may seem shorter than what was stored in it before that is believed: right after an
election the new leader's high watermark may lag."""
GATHER_S: Final = 0.01
AGAIN_S: Final = (0.1, 0.2, 0.5, 1.0)
"""How soon a leader is asked again after its first, second, ... answer that left an end unverified."""


class TargetEnds:
    """Checks the ends of a task's remote partitions, many in one request to each leader.

    The story: a replica that lacks records is elected, or a topic is deleted and created again. The new leader may know
    no producer, and then accepts any sequence: the copy would continue after a hole (docs/broker-facts.md#m4). So the
    end is checked before a batch is sent under another leader epoch, and from time to time while nothing is sent.
    """

    def __init__(
        self,
        context: FlowContext,
        partitions: Mapping[TopicPartition, CopiedPartition],
    ) -> None:
        """Make one; ``run`` starts it.

        Args:
            partitions: the copied ones, by source topic; the mapping may change meanwhile.
        """
        self._context = context
        self._target = context.target.brokers
        self._partitions = partitions
        self._clock = context.clock
        self._wanted: dict[CopiedPartition, None] = {}
        self._asked: set[BrokerId | None] = set()
        """Leaders that are being asked."""
        self._in_vain: dict[BrokerId | None, int] = {}
        self._short_since_s: dict[CopiedPartition, float] = {}
        self._seen: dict[CopiedPartition, int | None] = {}
        self._news = asyncio.Event()

    def look(self, part: CopiedPartition) -> None:
        """Check whether this partition has all that was acknowledged; its copier sends nothing until then."""
        self._wanted[part] = None
        self._news.set()

    async def run(self) -> None:
        """Look until cancelled. Raises: KafkaError that no retry mends."""
        async with FirstErrorGroup() as tasks:
            tasks.create_task(self._look_at_idle(), name="ends of idle partitions")
            while True:
                await self._news.wait()
                await asyncio.sleep(GATHER_S)
                self._news.clear()
                for leader, parts in _by_leader(self._wanted).items():
                    if leader not in self._asked:  # a leader that does not answer delays its own partitions only
                        self._asked.add(leader)
                        for part in parts:
                            del self._wanted[part]
                        tasks.create_task(self._settle(leader, parts), name=f"ends on broker {leader}")

    async def _settle(self, leader: BrokerId | None, parts: Sequence[CopiedPartition]) -> None:
        """Ask about partitions whose end is unverified; soon ask again about those whose end still is."""
        try:
            await self._ask(leader, parts)
            again = [part for part in parts if part.copier.is_end_unverified and self._is_asked(part)]
            times = self._in_vain[leader] = self._in_vain.get(leader, -1) + 1 if again else -1
            if again:
                if leader is not None:  # while there is no leader, the connector asks for metadata anyway
                    self._context.state.metadata_wanted.set()
                await asyncio.sleep(AGAIN_S[min(times, len(AGAIN_S) - 1)])
        finally:
            self._asked.discard(leader)
        for part in again:
            self._wanted[part] = None
        self._news.set()

    async def _look_at_idle(self) -> None:
        """Check partitions that got no acknowledgement since the last check; an acknowledgement proves the same."""
        while True:
            await asyncio.sleep(IDLE_EVERY_S)
            before = self._seen
            self._seen = {part: part.copier.vouched_offset for part in self._partitions.values()}
            idle = [
                part
                for part, offset in self._seen.items()
                if offset is not None
                and before.get(part) == offset
                and isinstance(part.copier.state, Copying)
                and not part.copier.is_end_unverified
            ]
            for leader, parts in _by_leader(idle).items():
                await self._ask(leader, parts)
                for part in parts:
                    if part.copier.is_end_unverified:
                        self.look(part)

    def _is_asked(self, part: CopiedPartition) -> bool:
        return self._partitions.get(part.key) is part and part.copier.vouched_offset is not None

    async def _ask(self, leader: BrokerId | None, parts: Sequence[CopiedPartition]) -> None:
        """Ask a leader, and tell the copiers; the answer may lack some partitions."""
        if leader is None:
            return
        asked = {
            (part.target_topic, part.partition): (part, part.copier.vouched_offset or 0, part.copier.end_checks)
            for part in parts
            if self._is_asked(part)
        }
        epochs = {
            key: part.copier.target_leader_epoch
            for key, (part, _, _) in asked.items()
            if part.copier.target_leader_epoch is not None
        }
        leaders = dict.fromkeys(asked, leader)
        answers = await list_offsets(self._target, leaders, LATEST, leader_epochs=epochs, skip_silent=True)
        for key, answer in answers.items():
            part, expected, check = asked[key]
            if answer.error_code == 0 and self._is_asked(part):
                self._judge(part, expected, answer.offset, check)

    def _judge(self, part: CopiedPartition, expected: int, end: int, check: int) -> None:
        if end >= expected:
            self._short_since_s.pop(part, None)
            part.tell(TargetWhole(check))
            return
        now_s = self._clock.monotonic()
        if not part.copier.is_end_unverified:
            part.tell(TargetShort())
        if now_s - self._short_since_s.setdefault(part, now_s) < END_PATIENCE_S:
            return
        del self._short_since_s[part]
        part.tell(TargetLost(expected, end))


def _by_leader(parts: Iterable[CopiedPartition]) -> dict[BrokerId | None, list[CopiedPartition]]:
    found: dict[BrokerId | None, list[CopiedPartition]] = {}
    for part in parts:
        found.setdefault(part.leaders.target, []).append(part)
    return found


LIMITS_APPLIED_S: Final = 1.0
"""How long brokers may still apply the old limits of a topic after new ones were set."""


class BrokerLookups:
    """The look-ups that copiers ask for. The task makes each at most once at a time. Each raises KafkaError."""

    def __init__(
        self,
        context: FlowContext,
        partitions: Mapping[TopicPartition, CopiedPartition],
        quarantine: Quarantine,
    ) -> None:
        self._source = context.source.brokers
        self._target = context.target.brokers
        self._timestamp_limits = TimestampLimits(context)
        self._partitions = partitions
        self._quarantine = quarantine
        self._clock = context.clock
        self._looked_up: dict[CopiedPartition, int] = {}
        """The source offset of the last record for which limits were looked up before it went into quarantine."""

    def forget(self, part: CopiedPartition) -> None:
        """Forget a partition that is not copied any more."""
        self._looked_up.pop(part, None)

    async def find_offsets(self, part: CopiedPartition) -> None:
        """Tell the copier the first and the next offset of the source log."""
        if part.leaders.source is None:
            return
        first = await end_of(self._source, part.leaders.source, part.key, EARLIEST)
        last = await end_of(self._source, part.leaders.source, part.key, LATEST)
        part.tell(OffsetsFound(first, last, self._clock.monotonic()))

    async def find_limits(self, part: CopiedPartition) -> None:
        """Look up how large a batch the remote topic takes. A size that the target has refused is too large, whatever
        the settings say."""
        topic = part.target_topic
        found = await admin.describe_topic_configs(self._target, [topic], keys=["max.message.bytes"])
        limit = int(values_of(found.get(topic)).get("max.message.bytes", part.rules.max_message_bytes))
        for other in self._partitions.values():
            if other.target_topic == topic:
                refused = other.copier.refused_bytes
                allowed = min(limit, refused - 1) if refused else limit
                merged = min(other.rules.merged_max_bytes, refused // 2) if refused else other.rules.merged_max_bytes
                other.rules = replace(other.rules, max_message_bytes=allowed, merged_max_bytes=merged)
                if refused:
                    other.tell(LimitsFound())

    async def retry_blocked(self, part: CopiedPartition) -> None:
        """Look the limits up, as an operator may have raised them, and let the copier try again."""
        await self.find_limits(part)
        part.tell(Tick(self._clock.monotonic()))

    async def try_with_other_limits(self, part: CopiedPartition) -> None:
        """Let the remote topic accept the timestamps that its upstream topic accepts, and let the copier try again."""
        await self._has_other_limits(part)

    async def _has_other_limits(self, part: CopiedPartition) -> bool:
        """Do the same as ``try_with_other_limits``, and return whether the copier tries again."""
        if not await self._timestamp_limits.fit(part.source_topic, part.target_topic):
            return False
        await asyncio.sleep(LIMITS_APPLIED_S)
        self._try_again(part)
        return True

    async def quarantine(self, part: CopiedPartition, poison: Poison) -> None:
        """Keep a record that the target refuses. It is tried again if the limits that refuse it have changed."""
        if poison.code == INVALID_TIMESTAMP and await self._has_other_limits(part):
            return
        if not poison.was_sent and self._looked_up.get(part) != poison.offset:
            self._looked_up[part] = poison.offset
            before = part.rules
            await self.find_limits(part)
            if part.rules != before:
                self._try_again(part)
                return
        if await self._quarantine.keep(part, poison):
            part.tell(Quarantined(poison.offset, self._clock.monotonic()))

    def _try_again(self, part: CopiedPartition) -> None:
        part.tell(Tick(part.copier.resume_at_s or self._clock.monotonic()))

"""The producers of previous incarnations of a flow: which of them may still write, and how they are fenced.

The story: w1 freezes with a position in flight. w2 reads the positions and starts. Then w1 wakes, its older position is
stored after that of w2, and the next incarnation believes it (docs/broker-facts.md#h5). So every producer that may
still write is fenced in the offsets topic first, and only then the positions are read.

Three places name the producers: the group's control log, the positions, and the coordinators, which list the
transactional ids that they know (``docs/decisions/0014-no-records-of-incarnations.md``).

A successor can fence an id only while the target knows it. The target forgets an id that no transaction has used for a
week, even while its worker lives, as our batches never reach the coordinator (docs/broker-facts.md#c2). So
``KeepAlive`` starts and aborts an empty transaction now and then, in a topic that holds nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mm2py.config.internal_topics import fences_topic
from mm2py.copying.recovery import fence_and_prove
from mm2py.errors import for_each
from mm2py.kafka import admin
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.internal_topic import find_or_make
from mm2py.kafka.port import ProducerIdentity, TopicPartition
from mm2py.kafka.producer.fencing import FENCES_AT_ONCE, Fence, NotFenceable, PreviousProducer, is_another, parse
from mm2py.kafka.producer.incarnation import IncarnationFenced, OwnFence
from mm2py.records.source_offset import StoredPosition
from mm2py.topics.names import ledger_topic
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.refusals import ExactlyOnceImpossible

EVERY_S: Final = 3600.0
AGAIN_S: Final = 60.0
_EXPIRY_SETTING: Final = "transactional.id.expiration.ms"


class KeepAlive:
    """Uses the ids every hour, or four times within the time after which the target would forget them."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._target = context.target.brokers
        self._incarnation = context.incarnation
        self._log = context.log

    async def run(self) -> None:
        """Keep the ids alive until cancelled.

        Raises:
            IncarnationFenced, EpochRefused: this attempt is over.
        """
        said, failed, pause_s = False, 0, 0.0
        is_due = False
        while self._incarnation.degraded is None:
            try:
                if is_due:
                    await self._use()
                    if said:
                        self._log.info("keepalive.back")
                    said, failed = False, 0
                is_due = True
                pause_s = await self._interval_s()
            except KafkaError as error:
                if not error.may_be_mended:
                    raise
                failed += 1
                lasts = not error.retriable or failed > 1
                if isinstance(error, BrokerRefused) and lasts and not said:
                    said = True
                    self._log.warning(
                        "keepalive.failing",
                        why=str(error),
                        effect="if it goes on for days, a successor cannot fence this process",
                    )
                pause_s = min(AGAIN_S, pause_s or AGAIN_S)
            await asyncio.sleep(pause_s)

    async def _interval_s(self) -> float:
        brokers = (await fetch_metadata(self._target, [], channel="keepalive")).brokers
        value = (
            await admin.describe_broker_config(self._target, next(iter(brokers)), _EXPIRY_SETTING) if brokers else None
        )
        return EVERY_S if value is None or not value.isdecimal() else min(EVERY_S, int(value) / 4000)

    async def _use(self) -> None:
        wanted = fences_topic(self._context.settings)
        found = await find_or_make(
            self._target,
            wanted.topic,
            wanted.replication_factor,
            setting=wanted.setting,
            channel="keepalive",
        )
        await self._incarnation.keep_alive((found.name, 0))


PROOF_S: Final = 6.0
"""How long ``fence_in_partitions`` waits for markers in a topic; longer than it takes to log the wait. Each hundred
producers add as much."""


class PreviousProducers:
    """The previous producers that one attempt of a flow knows."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._target = context.target.brokers
        self._ownership = context.ownership
        self._incarnation = context.incarnation
        self._own = context.producer_name
        self._ended = context.ended
        self._expired: set[int] = set()
        """Producer ids of positions whose transactional ids no coordinator knows any more. Their processes have not
        used them for days, and the gate ended those incarnations long before."""
        self._named: set[int] = set()
        """Producer ids in positions of this flow."""
        self.unfenced: str | None = None
        """Why a producer could not be fenced or found; the flow is at-least-once then."""
        self._producers: dict[int, PreviousProducer] = {}

    @property
    def known_ids(self) -> frozenset[int]:
        """The producer ids of all known incarnations of this flow, also of this one."""
        group = self._ownership.known_producers.producers
        return frozenset({*self._incarnation.ids, *self._producers, *self._named, *self._ended, *group})

    def spares(self, transactional_id: str | None) -> bool:
        """Return whether another worker must fence a producer.

        The leader fences members of the group when it evicts them. The flow coordinator fences producers of processes
        that are not members any more, before it lists a partition. This process fences its own earlier attempts. A task
        of a backfill that runs is fenced by its next attempt only.
        """
        name = None if transactional_id is None else parse(transactional_id, self._own.group)
        if name is not None and name.process == self._own.process:
            return False
        if name is not None and self._context.state.holds.is_of_backfill(name.process):
            return True
        return not self._ownership.is_coordinator or (
            name is not None and name.process in self._ownership.known_producers.live
        )

    def meet(self, transactional_id: str | None, producer_id: int, epoch: int) -> PreviousProducer:
        """Remember a previous producer, or a higher epoch of it."""
        known = self._producers.get(producer_id)
        if known is None:
            known = PreviousProducer(self._target, transactional_id, producer_id, epoch, rng=self._context.rng)
            self._producers[producer_id] = known
        known.epoch = max(known.epoch, epoch)
        raised = self._ownership.known_producers.fence_epochs.get(producer_id)
        if raised is not None:
            known.learn_fence_epoch(raised)
        return known

    def fence_of(self, stored: StoredPosition) -> Fence | None:
        """Return the fence against the producer that a position names; None if that no longer writes to this partition.

        A member that still writes has released this partition: it would not be assigned to this worker otherwise.
        """
        if stored.producer_id is None or stored.producer_epoch is None:
            raise AssertionError("the position names no producer that could be fenced")
        if stored.drained or stored.producer_id in self._expired:
            return None
        name = stored.producer_name
        self._refuse_superseded(name)
        if stored.producer_id in self._incarnation.ids:
            return OwnFence(self._incarnation, ProducerIdentity(stored.producer_id, stored.producer_epoch, name))
        if stored.producer_id in self._ended or self._has_released(name, stored.producer_id):
            return None
        return self.meet(name, stored.producer_id, stored.producer_epoch)

    def _refuse_superseded(self, transactional_id: str | None) -> None:
        """Raise IncarnationFenced if a producer is of a later attempt of this process: Spark starts one beside a slow
        one.

        Two attempts that fenced each other would never end.
        """
        name = None if transactional_id is None else parse(transactional_id, self._own.group)
        if name is not None and name.process == self._own.process and name.attempt > self._own.attempt:
            raise IncarnationFenced(str(self._own))

    def _has_released(self, transactional_id: str | None, producer_id: int) -> bool:
        known_producers = self._ownership.known_producers
        if producer_id in known_producers.writing:
            return True
        name = None if transactional_id is None else parse(transactional_id, self._own.group)
        return name is not None and name.process in known_producers.drained

    def learn_asked(self, stored: StoredPosition | None) -> None:
        """Remember the producer of a position that an operator's position replaces, also one of another group."""
        if stored is not None and stored.producer_id is not None and stored.producer_epoch is not None:
            self.fence_of(stored)

    def learn(self, positions: Iterable[StoredPosition]) -> None:
        """Remember the producers that positions name.

        A process of another group may copy other topics of this flow; it is not fenced before one of its partitions is
        to be copied here. An expired producer is not fenced: positions of topics that are not copied any more name it
        for ever.
        """
        for stored in positions:
            if (
                stored.producer_id is None
                or stored.producer_epoch is None
                or is_another(stored.producer_name, self._own)
            ):
                continue
            self._named.add(stored.producer_id)
            if not self.spares(stored.producer_name):
                self.fence_of(stored)

    def learn_listed(self, listed: Mapping[str, int]) -> None:
        """Remember the producers that coordinators list, by transactional id, and that the group does not know.

        The story: the control log was deleted, and a worker froze before it had stored its first position.
        """
        for transactional_id, producer_id in listed.items():
            name = parse(transactional_id, self._own.group)
            if name is None or name.flow != self._own.flow:
                continue
            is_own = name.process == self._own.process
            if producer_id in self._incarnation.ids or producer_id in self._ended:
                continue
            self._refuse_superseded(transactional_id)
            if self.spares(transactional_id) or (not is_own and name.process in self._ownership.known_producers.known):
                continue
            self.meet(transactional_id, producer_id, -1)

    async def find_expired(self, positions: Iterable[StoredPosition], listed: Mapping[str, int]) -> None:
        """Find the producers in positions whose transactional ids have expired.

        A coordinator silently leaves out the ids that mm2py may not DESCRIBE, so that right is checked for each id.

        Raises: KafkaError; ask again after a retriable one.
        """
        unknown = {
            name_of_producer: stored.producer_id
            for stored in positions
            if (name_of_producer := stored.producer_name) is not None
            and stored.producer_id is not None
            and not stored.drained
            and (name := parse(name_of_producer, self._own.group)) is not None
            and name.flow == self._own.flow
            and listed.get(name_of_producer) != stored.producer_id
            and stored.producer_id not in self.known_ids
        }
        for transactional_id, producer_id in unknown.items():
            try:
                await admin.find_coordinator(self._target, transactional_id, transactions=True)
            except BrokerRefused:
                continue  # mm2py may not see it, or no coordinator answers
            self._expired.add(producer_id)

    async def fence_in(self, topic: TopicMetadata) -> bool:
        """Fence all previous producers in a topic. Returns, once that is proven, whether there are any.

        Args:
            topic: fresh metadata; every partition has a leader.
        Raises:
            ExactlyOnceImpossible: one of them cannot be fenced, and must be.
            KafkaError: a retriable one; ask again.
        """
        return await self._context.accompany(
            self._fence_in(topic),
            f"fencing previous producers in {topic.name}",
            "their markers have not come; it takes WRITE on that topic, and a transaction coordinator that answers",
        )

    async def _fence_in(self, topic: TopicMetadata) -> bool:
        context = self._context

        async def fence(producer: PreviousProducer) -> None:
            try:
                await fence_and_prove(self._target, producer, [topic], clock=context.clock, rng=context.rng)
            except NotFenceable as error:
                is_ours = topic.name in {context.settings.offsets_topic, ledger_topic(context.flow.source)}
                does = "its positions may replace ours" if is_ours else "records may be there twice"
                self.note_unfenced(str(error), does, topic=topic.name)

        await for_each(list(self._producers.values()), fence, at_once=FENCES_AT_ONCE, name="fencing")
        return bool(self._producers)

    def note_unfenced(self, why: str, does: str = "records may be there twice", **where: str | int) -> None:
        """Log that a producer cannot be fenced. Raises: ExactlyOnceImpossible, if the flow must be exactly-once."""
        self.unfenced = why
        if self._context.must_be_exactly_once:
            raise ExactlyOnceImpossible(self._context.flow, why)
        effect = f"if that process still runs, {does}"
        self._context.log.warning("producer.unfenced", **where, why=why, effect=effect)

    async def fence_in_partitions(self, remotes: Mapping[TopicPartition, TopicMetadata | None]) -> set[TopicPartition]:
        """Fence all previous producers in single partitions of remote topics.

        Args:
            remotes: remote topics by source partition. A remote partition that does not exist needs no fence.
        Returns:
            The source partitions where that is not proven: their remote partitions have no leader, or no marker came.
        Raises: as ``fence_in``.
        """
        wanted: dict[str, tuple[TopicMetadata, list[TopicPartition]]] = {}
        unproven: set[TopicPartition] = set()
        for key, remote in remotes.items():
            if remote is None or remote.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            part = remote.partitions.get(key[1])
            if remote.error_code or (part is not None and part.leader is None):
                unproven.add(key)
            elif part is not None:
                wanted.setdefault(remote.name, (remote, []))[1].append(key)
        for remote, keys in wanted.values():
            partitions = {number: remote.partitions[number] for _, number in keys}
            try:
                async with asyncio.timeout(PROOF_S * (1 + len(self._producers) / 100)):
                    await self.fence_in(replace(remote, partitions=partitions))
            except TimeoutError:
                unproven.update(keys)
        return unproven

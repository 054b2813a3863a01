"""Keeps a flow's transactional ids known to the target, so that a successor can still fence them (C2).

The target forgets an id that no transaction has used for a week, under a living worker as well: data batches of ours
never touch the coordinator. So an empty transaction is begun and aborted now and then, on a topic of its own that holds
nothing but these markers. The epoch stays as it is.

The producers of previous incarnations of a flow: which of them may still write, and how they are fenced.

The story: w1 freezes with a position on its way. w2 reads the positions and starts. Then w1 wakes, its older position
is stored behind that of w2, and the next incarnation believes it (H5 of docs/broker-facts.md). So every producer that
may still write is fenced in the offsets topic first, and only then the positions count.

Three places tell which producers there were: the group's control log, the positions, and the coordinators, which list
the transactional ids that they know (``docs/decisions/0014-no-records-of-incarnations.md``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from connectors.source.context import FlowContext
from connectors.source.errors import ExactlyOnceImpossible
from mm2py.errors import FirstErrorGroup
from mm2py.kafka import admin
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.internal_topic import find_or_make
from mm2py.kafka.port import ProducerIdentity, TopicPartition
from mm2py.kafka.producer.fencing import Fence, NotFenceable, PreviousProducer, is_another, parse
from mm2py.kafka.producer.incarnation import OwnFence
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.recovery import fence_and_prove
from mm2py.topics.names import fence_topic

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
            Fenced, EpochRefused: this life of the flow is over.
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
                if not error.worth_asking_again:
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
        found = await find_or_make(
            self._target,
            fence_topic(),
            self._context.settings.offsets_topic_replication_factor,
            setting="offset.storage.replication.factor",
            channel="keepalive",
        )
        await self._incarnation.keep_alive((found.name, 0))


SIDE_BY_SIDE: Final = 16
"""So many previous producers are fenced at once: each takes some round trips, and a bad weekend leaves thousands."""
PROOF_S: Final = 6.0
"""How long ``fence_and_prove_each`` waits for markers in a topic, until it was said that they are waited for; once more
as long for each hundred producers."""


class PreviousProducers:
    """Of one incarnation of a flow."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._target = context.target.brokers
        self._ownership = context.ownership
        self._incarnation = context.incarnation
        self._own = context.producer_name
        self._ended = context.ended
        self._expired: set[int] = set()
        """Producer ids of positions whose transactional ids no coordinator knows any more: the processes did not use
        them for days, and the gate has ended their incarnations long before."""
        self._named: set[int] = set()
        """Producer ids in positions of this flow."""
        self.unfenced: str | None = None
        """Why a producer could not be fenced, or looked for: then the flow is at-least-once."""
        self._producers: dict[int, PreviousProducer] = {}

    @property
    def known_ids(self) -> frozenset[int]:
        """Producer ids of all known incarnations of this flow, this one too."""
        group = self._ownership.known_producers.producers
        return frozenset({*self._incarnation.ids, *self._producers, *self._named, *self._ended, *group})

    def spares(self, transactional_id: str | None) -> bool:
        """Whether it is not for this life to shut somebody out on its own account.

        Members of our group are shut out by its leader, once they have fallen silent; who is in nobody's group any more
        by the flow's head, before it lists a partition. Lives of this process are always for the next one.
        """
        name = None if transactional_id is None else parse(transactional_id, self._own.group)
        if name is not None and name.process == self._own.process:
            return False
        return not self._ownership.is_coordinator or (
            name is not None and name.process in self._ownership.known_producers.live
        )

    def meet(self, transactional_id: str | None, producer_id: int, epoch: int) -> PreviousProducer:
        """Learn of an earlier producer, or more of one."""
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
        """Return what shuts out whoever stored a position, which names a producer; None if that one has stopped.

        A member of the group that still writes has stopped writing here: else the partition would not be ours.
        """
        if stored.producer_id is None or stored.producer_epoch is None:
            raise AssertionError("a position that names no producer has nobody to be shut out")
        if stored.drained or stored.producer_id in self._expired:
            return None
        if stored.producer_id in self._incarnation.ids:
            return OwnFence(self._incarnation, ProducerIdentity(stored.producer_id, stored.producer_epoch, stored.by))
        if stored.producer_id in self._ended or self._has_let_go(stored.by, stored.producer_id):
            return None
        return self.meet(stored.by, stored.producer_id, stored.producer_epoch)

    def _has_let_go(self, transactional_id: str | None, producer_id: int) -> bool:
        known_producers = self._ownership.known_producers
        if producer_id in known_producers.writing:
            return True
        name = None if transactional_id is None else parse(transactional_id, self._own.group)
        return name is not None and name.process in known_producers.drained

    def learn_asked(self, stored: StoredPosition | None) -> None:
        """Meet whom the position of a partition names that is to be copied from elsewhere, another group's too."""
        if stored is not None and stored.producer_id is not None and stored.producer_epoch is not None:
            self.fence_of(stored)

    def learn(self, positions: Iterable[StoredPosition]) -> None:
        """Meet the producers that positions name.

        Processes of another group may copy other topics of this flow: they are left alone until a partition of theirs
        is to be copied here. A producer that has expired is left alone too: positions of topics that are not copied any
        more name it for ever.
        """
        for stored in positions:
            if stored.producer_id is None or stored.producer_epoch is None or is_another(stored.by, self._own):
                continue
            self._named.add(stored.producer_id)
            if not self.spares(stored.by):
                self.fence_of(stored)

    def learn_listed(self, listed: Mapping[str, int]) -> None:
        """Meet the producers that coordinators list, by transactional id, as far as the group does not know them.

        The story: the control log was deleted, and a worker froze before it had stored its first position.
        """
        for transactional_id, producer_id in listed.items():
            name = parse(transactional_id, self._own.group)
            if name is None or name.flow != self._own.flow:
                continue
            is_own = name.process == self._own.process
            if producer_id in self._incarnation.ids or producer_id in self._ended:
                continue
            if self.spares(transactional_id) or (not is_own and name.process in self._ownership.known_producers.known):
                continue
            self.meet(transactional_id, producer_id, -1)

    async def find_expired(self, positions: Iterable[StoredPosition], listed: Mapping[str, int]) -> None:
        """Find the producers in positions whose transactional ids have expired.

        A coordinator leaves out silently what we may not see. So the right to DESCRIBE an id is looked at first.

        Raises: KafkaError; retriable ones: ask again.
        """
        unknown = {
            stored.by: stored.producer_id
            for stored in positions
            if stored.by is not None
            and stored.producer_id is not None
            and not stored.drained
            and (name := parse(stored.by, self._own.group)) is not None
            and name.flow == self._own.flow
            and listed.get(stored.by) != stored.producer_id
            and stored.producer_id not in self.known_ids
        }
        for transactional_id, producer_id in unknown.items():
            try:
                await admin.find_coordinator(self._target, transactional_id, transactions=True)
            except BrokerRefused:
                continue  # we may not see it, or there is no coordinator to ask
            self._expired.add(producer_id)

    async def fence_and_prove(self, topic: TopicMetadata) -> bool:
        """Shut all earlier producers out of a topic; returns when that is proven, and whether there are any.

        Args:
            topic: fresh metadata; every partition has a leader.
        Raises:
            ExactlyOnceImpossible: one of them cannot be fenced, and must be.
            KafkaError: retriable ones; ask again.
        """
        return await self._context.accompany(
            self._fence_and_prove(topic),
            f"fencing previous producers in {topic.name}",
            "their markers have not come; it takes WRITE on that topic, and a transaction coordinator that answers",
        )

    async def _fence_and_prove(self, topic: TopicMetadata) -> bool:
        context = self._context
        waiting = iter(list(self._producers.values()))

        async def take_turns() -> None:
            for producer in waiting:
                try:
                    await fence_and_prove(self._target, producer, [topic], clock=context.clock, rng=context.rng)
                except NotFenceable as error:
                    holds_positions = topic.name == context.settings.offsets_topic
                    does = "its positions may replace ours" if holds_positions else "records may be there twice"
                    self.note_unfenced(str(error), does, topic=topic.name)

        async with FirstErrorGroup() as tasks:
            for number in range(min(SIDE_BY_SIDE, len(self._producers))):
                tasks.create_task(take_turns(), name=f"shutting out {number}")
        return bool(self._producers)

    def note_unfenced(self, why: str, does: str = "records may be there twice", **where: str | int) -> None:
        """A producer cannot be fenced. Raises: ExactlyOnceImpossible, where that must not be."""
        self.unfenced = why
        if self._context.must_be_exactly_once:
            raise ExactlyOnceImpossible(self._context.flow, why)
        effect = f"if that process still runs, {does}"
        self._context.log.warning("writer.unfenced", **where, why=why, effect=effect)

    async def fence_and_prove_each(self, remotes: Mapping[TopicPartition, TopicMetadata | None]) -> set[TopicPartition]:
        """Shut earlier lives out of single partitions of remote topics.

        Args:
            remotes: remote topics by source partition. Nobody can write to a remote partition that is not there.
        Returns:
            The source partitions where that is not proven: their remote partitions have no leader, or no markers came.
        Raises: as ``fence_and_prove``.
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
                    await self.fence_and_prove(replace(remote, partitions=partitions))
            except TimeoutError:
                unproven.update(keys)
        return unproven

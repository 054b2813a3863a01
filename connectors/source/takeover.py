"""Taking a flow over from earlier lives: before positions are believed, nobody else may write them any more.

The story: w1 freezes with a position on its way. w2 reads the positions, begins, and w1 wakes: its older position lands
behind w2's, and the next life believes it (H5 of docs/broker-facts.md). So whoever may still write is shut out of the
offsets topic first, and only then positions are read for good.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from mm2py.clock import Clock
from mm2py.kafka import admin
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.fencing import EarlierProducer, Fence, NotFenceable
from mm2py.kafka.incarnation import Incarnation, OwnFence
from mm2py.kafka.port import BrokerId, Brokers, ProducerIdentity
from mm2py.kafka.retry import name_of
from mm2py.kafka.transactional_ids import TransactionalId, is_another
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.log_reader import LogReader
from mm2py.replication.reconcile import Tail, Writer
from mm2py.replication.tail_stretch import TailStretch


class EarlierLives:
    """Who may still be writing what this flow writes now."""

    def __init__(self, target: Brokers, incarnation: Incarnation, own: TransactionalId, *, rng: random.Random) -> None:
        self._target = target
        self._incarnation = incarnation
        self._own = own
        self._rng = rng
        self.drained: set[int] = set()
        """Producer ids of lives that have stopped for good: they need not be shut out."""
        self._producers: dict[int, EarlierProducer] = {}
        self.on_fenced: Callable[[tuple[str, int], EarlierProducer, int, int], None] = lambda *_: None
        """Told of each partition of an internal topic: who was shut out, by which epoch, and under which leader's."""

    @property
    def known_ids(self) -> frozenset[int]:
        """Producer ids of all lives of this flow, this one too."""
        return frozenset({*self._incarnation.ids, *self._producers, *self.drained})

    def meet(self, transactional_id: str | None, producer_id: int, epoch: int) -> EarlierProducer:
        """Learn of an earlier producer, or more of one."""
        known = self._producers.get(producer_id)
        if known is None:
            known = EarlierProducer(self._target, transactional_id, producer_id, epoch, rng=self._rng)
            self._producers[producer_id] = known
        known.epoch = max(known.epoch, epoch)
        return known

    def fence_of(self, stored: StoredPosition) -> Fence | None:
        """Return what shuts out whoever stored a position, which names a producer; None if that one has stopped."""
        if stored.producer_id is None or stored.producer_epoch is None:
            raise AssertionError("a position that names no producer has nobody to be shut out")
        if stored.producer_id in self._incarnation.ids:
            return OwnFence(self._incarnation, ProducerIdentity(stored.producer_id, stored.producer_epoch, stored.by))
        if stored.producer_id in self.drained:
            return None
        return self.meet(stored.by, stored.producer_id, stored.producer_epoch)

    def learn(self, positions: Iterable[StoredPosition]) -> None:
        """Meet those whom positions name.

        Processes of another group may copy other topics of this flow: they are let be as long as nobody asks for a
        partition of theirs.
        """
        for stored in positions:
            if stored.producer_id is None or stored.producer_epoch is None or is_another(stored.by, self._own):
                continue
            self.fence_of(stored)

    async def shut_out(self, topic: TopicMetadata, *, clock: Clock, unfenced: Callable[[str], None]) -> bool:
        """Shut all earlier producers out of an internal topic; returns when that is proven, and whether there are any.

        Args:
            topic: fresh metadata; every partition has a leader.
            unfenced: is told which of them cannot be shut out, and why.
        Raises:
            KafkaError: retriable ones; ask again.
        """
        for producer in list(self._producers.values()):
            left = ends = await self._ends(topic)
            writer = Writer(producer.producer_id, producer.epoch, 0)
            while left:  # once more if a partition's leader was away, and its marker was left out (C3)
                try:
                    epoch = await producer.shut_out([(topic.name, number) for number in left])
                except NotFenceable as error:
                    unfenced(str(error))
                    break
                stretches = [
                    TailStretch(topic.name, topic.topic_id, number, Tail(end, writer, fence_epoch=epoch), clock)
                    for number, end in left.items()
                ]
                await LogReader(self._target, read_committed=False, rng=self._rng, channel="reconcile").read(
                    stretches, lambda _: None
                )
                left = {part.partition: ends[part.partition] for part in stretches if not part.tail.is_whole}
                for number in (part.partition for part in stretches if part.tail.is_whole):
                    self.on_fenced((topic.name, number), producer, epoch, topic.partitions[number].leader_epoch)
        return bool(self._producers)

    async def _ends(self, topic: TopicMetadata) -> dict[int, int]:
        by_leader: dict[BrokerId, list[int]] = {}
        for number, part in topic.partitions.items():
            if part.leader is not None:
                by_leader.setdefault(part.leader, []).append(number)
        ends: dict[int, int] = {}
        for leader, numbers in by_leader.items():
            keys = [(topic.name, number) for number in numbers]
            answers = await admin.list_offsets(self._target, leader, keys, admin.LATEST)
            for (name, number), answer in answers.items():
                if answer.error_code:
                    what = f"Finding the end of {name}-{number}"
                    raise BrokerRefused(what, answer.error_code, name_of(answer.error_code))
                ends[number] = answer.offset
        return ends

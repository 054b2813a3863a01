"""Taking a flow over from earlier lives: before positions are believed, nobody else may write them any more.

The story: w1 freezes with a position on its way. w2 reads the positions, begins, and w1 wakes: its older position lands
behind w2's, and the next life believes it (H5 of docs/broker-facts.md). So whoever may still write is shut out of the
offsets topic first, and only then positions are read for good.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from mm2py.clock import Clock
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.port import Brokers, ProducerIdentity
from mm2py.kafka.producer.fencing import EarlierProducer, Fence, NotFenceable
from mm2py.kafka.producer.incarnation import Incarnation, OwnFence
from mm2py.kafka.producer.transactional_ids import TransactionalId, is_another, parse
from mm2py.records.source_offset import StoredPosition
from mm2py.replication import proven_fence
from mm2py.worker.ownership import Ownership

SIDE_BY_SIDE: Final = 16
"""So many earlier producers are shut out at once: each takes some round trips, and a bad weekend leaves thousands."""
PROOF_S: Final = 6.0
"""How long ``shut_out_of`` waits for markers in a topic, until it was said that they are waited for; once more as long
for each hundred lives."""


class EarlierLives:
    """Who may still be writing what this flow writes now."""

    def __init__(
        self,
        target: Brokers,
        incarnation: Incarnation,
        own: TransactionalId,
        *,
        ownership: Ownership,
        rng: random.Random,
    ) -> None:
        self._target = target
        self._ownership = ownership
        self._incarnation = incarnation
        self._own = own
        self._rng = rng
        self.drained: set[int] = set()
        """Producer ids of lives that have stopped for good: they need not be shut out."""
        self.forgotten: set[int] = set()
        """Producer ids that a life before this one has shut out of the positions, and that the target has forgotten
        since: their processes were out of touch for too long to write anything (H4)."""
        self.unfenced: str | None = None
        """Why one of them could not be shut out, if so: then the flow is no longer exactly-once."""
        self.proven: dict[int, EarlierProducer] = {}
        """Those that this life has shut out of an internal topic."""
        self._producers: dict[int, EarlierProducer] = {}

    @property
    def known_ids(self) -> frozenset[int]:
        """Producer ids of all lives of this flow, this one too."""
        group = self._ownership.fates.producers
        return frozenset({*self._incarnation.ids, *self._producers, *self.drained, *self.forgotten, *group})

    def spares(self, transactional_id: str | None) -> bool:
        """Whether it is not for this life to shut somebody out on its own account.

        Members of our group are shut out by its leader, once they have fallen silent; who is in nobody's group any more
        by the flow's head, before it lists a partition. Lives of this process are always for the next one.
        """
        if not self._ownership.is_shared:
            return False
        name = None if transactional_id is None else parse(transactional_id, self._own.group)
        if name is not None and name.process == self._own.process:
            return False
        return not self._ownership.is_head or (name is not None and name.process in self._ownership.fates.live)

    def meet(self, transactional_id: str | None, producer_id: int, epoch: int) -> EarlierProducer:
        """Learn of an earlier producer, or more of one."""
        known = self._producers.get(producer_id)
        if known is None:
            known = EarlierProducer(self._target, transactional_id, producer_id, epoch, rng=self._rng)
            self._producers[producer_id] = known
        known.epoch = max(known.epoch, epoch)
        raised = self._ownership.fates.fence_epochs.get(producer_id)
        if raised is not None:
            known.was_taken_over(raised)
        return known

    def fence_of(self, stored: StoredPosition) -> Fence | None:
        """Return what shuts out whoever stored a position, which names a producer; None if that one has stopped.

        A member of the group that still writes has stopped writing here: else the partition would not be ours.
        """
        if stored.producer_id is None or stored.producer_epoch is None:
            raise AssertionError("a position that names no producer has nobody to be shut out")
        if stored.producer_id in self._incarnation.ids:
            return OwnFence(self._incarnation, ProducerIdentity(stored.producer_id, stored.producer_epoch, stored.by))
        if stored.producer_id in self.drained or self._has_let_go(stored.by, stored.producer_id):
            return None
        return self.meet(stored.by, stored.producer_id, stored.producer_epoch)

    def _has_let_go(self, transactional_id: str | None, producer_id: int) -> bool:
        fates = self._ownership.fates
        if producer_id in fates.writing:
            return True
        name = None if transactional_id is None else parse(transactional_id, self._own.group)
        return name is not None and name.process in fates.drained

    def learn_asked(self, stored: StoredPosition | None) -> None:
        """Meet whom the position of a partition names that is to be copied from elsewhere, another group's too."""
        if stored is not None and stored.producer_id is not None and stored.producer_epoch is not None:
            self.fence_of(stored)

    def learn(self, positions: Iterable[StoredPosition]) -> None:
        """Meet those whom positions name.

        Processes of another group may copy other topics of this flow: they are let be as long as nobody asks for a
        partition of theirs. So are those that are ``forgotten``: topics that are copied no more name them for ever.
        """
        for stored in positions:
            if stored.producer_id is None or stored.producer_epoch is None or is_another(stored.by, self._own):
                continue
            if stored.producer_id in self.forgotten or self.spares(stored.by):
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
        waiting = iter([one for one in self._producers.values() if one.producer_id not in self.forgotten])

        async def take_turns() -> None:
            for producer in waiting:
                try:
                    await proven_fence.shut_out(self._target, producer, [topic], clock=clock, rng=self._rng)
                except NotFenceable as error:
                    self.unfenced = str(error)
                    unfenced(self.unfenced)
                else:
                    self.proven[producer.producer_id] = producer

        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(min(SIDE_BY_SIDE, len(self._producers))):
                    tasks.create_task(take_turns(), name=f"shutting out {number}")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return bool(self._producers)

    async def shut_out_of(
        self,
        remotes: Mapping[tuple[str, int], TopicMetadata | None],
        shut_out: Callable[[TopicMetadata], Awaitable[bool]],
    ) -> set[tuple[str, int]]:
        """Shut earlier lives out of single partitions of remote topics.

        Args:
            remotes: remote topics by source partition. Nobody can write to a remote partition that is not there.
            shut_out: does it in all partitions of a topic that it is given, see ``shut_out`` above.
        Returns:
            The source partitions where that is not proven: their remote partitions have no leader, or no markers came.
        Raises: as ``shut_out``.
        """
        wanted: dict[str, tuple[TopicMetadata, list[tuple[str, int]]]] = {}
        unproven: set[tuple[str, int]] = set()
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
                    await shut_out(replace(remote, partitions=partitions))
            except TimeoutError:
                unproven.update(keys)
        return unproven

"""The fences that this life has put up, and whether they still stand (H4 of docs/broker-facts.md).

A fence is what a partition's leader remembers of a marker. An unclean election may lose the marker, and a replica that
was rebuilt from a cleaned log may lack it: the earlier writer is then let in again. So wherever a partition gets
another leader epoch while that writer would still be shut out, its leader is asked, and the marker written once more.
MirrorMaker 2 has no fences to look after.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.kafka import transactions
from mm2py.kafka.cluster import ClusterMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.fencing import EarlierProducer, NotFenceable
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.kafka.retry import Backoff, Reaction, reaction_to

GATHER_S: Final = 0.05
PROOF_S: Final = 1.0
"""How soon the leader is asked whether it has got the marker that was written once more (C3)."""

Key = tuple[str, int]


@dataclass(slots=True)
class _Fence:
    """One earlier producer shut out of one partition."""

    producer: EarlierProducer
    epoch: int
    """What its leader must know of the producer, at least."""
    at_s: float
    leader_epoch: int | None
    """Under which the fence was last seen to stand."""
    records_end: int
    """Where the last record ended when it was put up, and ..."""
    end: int
    """... where the log did: what was between them was markers. -1 where nobody looked."""


class Fences:
    """Keeps fences up. ``note`` them, tell who ``led`` their partitions since; ``run`` does the rest."""

    def __init__(self, target: Brokers, *, clock: Clock, rng: random.Random, log: FilteringBoundLogger) -> None:
        self.unfenced: Callable[[str, int], None] = lambda *_: None
        """Is told why a fence cannot be put up again, and in how many partitions."""
        self.lasting_s = float("inf")
        """How long the target remembers a marker, in seconds; no fence need stand longer than that."""
        self._target = target
        self._clock = clock
        self._rng = rng
        self._log = log
        self._fences: dict[Key, dict[int, _Fence]] = {}
        self._due: dict[Key, int] = {}
        """Partitions that are to be looked at, by the leader epoch that they have got."""
        self._news = asyncio.Event()

    @property
    def topics(self) -> Collection[str]:
        """Topics whose leaders matter."""
        return {topic for topic, _ in self._fences}

    def note(
        self,
        key: Key,
        producer: EarlierProducer,
        epoch: int,
        *,
        leader_epoch: int | None,
        records_end: int = -1,
        end: int = -1,
    ) -> None:
        """A marker of ``epoch`` that shuts ``producer`` out of a partition was read back."""
        fence = _Fence(producer, epoch, self._clock.boottime(), leader_epoch, records_end, end)
        self._fences.setdefault(key, {})[producer.producer_id] = fence

    def learn(self, metadata: ClusterMetadata, *, doubtful: Collection[Key]) -> None:
        """Take in who leads now. ``doubtful``: whose end may be gone, which another marker would hide."""
        for key in list(self._fences):
            topic = metadata.topics.get(key[0])
            found = None if topic is None else topic.partitions.get(key[1])
            if found is not None and found.leader is not None and key not in doubtful:
                self.led(key, found.leader_epoch)

    def led(self, key: Key, leader_epoch: int | None) -> None:
        """A partition, all of whose records are there, is led under this epoch."""
        standing = self._standing(key)
        if leader_epoch is not None and any(fence.leader_epoch != leader_epoch for fence in standing):
            self._due[key] = leader_epoch
            self._news.set()

    def are_all_that_is_lost(self, key: Key, expected: int, end: int) -> bool:
        """Whether a partition that ends at ``end``, and ended at ``expected``, has lost only markers of fences."""
        return any(fence.end == expected and fence.records_end <= end for fence in self._standing(key))

    def _standing(self, key: Key) -> Collection[_Fence]:
        fences = self._fences.get(key)
        if not fences:
            return ()
        now_s = self._clock.boottime()
        for producer_id in [one for one, fence in fences.items() if now_s - fence.at_s >= self.lasting_s]:
            del fences[producer_id]
        if not fences:
            del self._fences[key]
        return fences.values()

    async def run(self) -> None:
        """Look after fences until cancelled. Raises: KafkaError; what no repetition mends."""
        backoff = Backoff(self._rng, first_s=0.2, most_s=5.0)
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER_S)
            self._news.clear()
            due, self._due = self._due, {}
            try:
                left = await self._look(due)
                backoff.reset()
            except KafkaError as error:
                if not (error.retriable or isinstance(error, BrokerRefused)):
                    raise
                left = due
                await asyncio.sleep(backoff.next_s())
            if left:
                await asyncio.sleep(PROOF_S)
                self._due = left | self._due
                self._news.set()

    async def _look(self, due: dict[Key, int]) -> dict[Key, int]:
        """Write markers once more where they are gone. Returns the partitions that are to be looked at again."""
        left: dict[Key, int] = {}
        gone: dict[EarlierProducer, list[Key]] = {}
        unknown = set(due)
        for leader, keys in (await self._leaders(due)).items():
            found = await transactions.describe_producers(self._target, leader, keys)
            for key, active in found.items():
                if isinstance(active, int) and reaction_to(active) is not Reaction.DENIED:
                    continue
                unknown.discard(key)
                for fence in self._standing(key):
                    if isinstance(active, int) or not _stands(fence, active):
                        gone.setdefault(fence.producer, []).append(key)
                        if not isinstance(active, int):  # who may not look does not know when it is there
                            left[key] = due[key]
                            continue
                    fence.leader_epoch = due[key]
        for producer, keys in gone.items():
            await self._renew(producer, keys)
        return left | {key: due[key] for key in unknown if self._standing(key)}

    async def _leaders(self, keys: Iterable[Key]) -> dict[BrokerId, list[Key]]:
        metadata = await fetch_metadata(self._target, sorted({topic for topic, _ in keys}), channel="watch")
        found: dict[BrokerId, list[Key]] = {}
        for key in keys:
            topic = metadata.topics.get(key[0])
            part = None if topic is None else topic.partitions.get(key[1])
            if part is not None and part.leader is not None:
                found.setdefault(part.leader, []).append(key)
        return found

    async def _renew(self, producer: EarlierProducer, keys: list[Key]) -> None:
        topic, partition = keys[0]
        try:
            epoch = await producer.shut_out(keys)
        except NotFenceable as error:
            for key in keys:
                self._fences.get(key, {}).pop(producer.producer_id, None)
            self.unfenced(str(error), len(keys))
            return
        for key in keys:
            fence = self._fences.get(key, {}).get(producer.producer_id)
            if fence is not None:
                fence.epoch, fence.at_s, fence.end = epoch, self._clock.boottime(), -1
        self._log.warning(
            "fences.renewed",
            partitions=len(keys),
            first=f"{topic}-{partition}",
            why="another leader did not know of them: an unclean election, or a replica made from a cleaned log",
        )


def _stands(fence: _Fence, active: Iterable[transactions.ActiveProducer]) -> bool:
    return any(one.producer_id == fence.producer.producer_id and one.epoch >= fence.epoch for one in active)

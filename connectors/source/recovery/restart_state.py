"""Partitions that were copied in this life and are not any more: under which producer id they begin again.

Their sequences start anew at 0. The story: a right is taken away and given back, so a topic vanishes and returns; under
its old id and epoch the target would know 0 from before, acknowledge the new records as repeats and drop them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from connectors.source.recovery.reconciler import find_bounds
from mm2py.clock import Clock
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.port import Brokers, ProducerIdentity
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.reading.log_reader import LogReader
from mm2py.replication.recovery.tail import Tail, Writer
from mm2py.replication.recovery.tail_stretch import TailStretch

PROOF_S: Final = 5.0
"""How long a round waits for markers; partitions where they have not come by then begin in a later one."""

Key = tuple[str, int]


class StoppedPartitions:
    """Remembers what each may have been written under."""

    def __init__(self, incarnation: Incarnation, target: Brokers, *, clock: Clock, rng: random.Random) -> None:
        self._incarnation = incarnation
        self._target = target
        self._clock = clock
        self._rng = rng
        self._written_under: dict[Key, set[ProducerIdentity]] = {}

    def add(self, parts: Iterable[CopiedPartition]) -> None:
        for part in parts:
            self._written_under.setdefault(part.key, set()).add(part.copier.identity)

    def begun(self, parts: Iterable[CopiedPartition]) -> None:
        """These begin again; one that is reconciled first has not come so far yet."""
        for part in parts:
            if part.copier.owns_position:
                self._written_under.pop(part.key, None)

    async def identity_for(self, topics: Collection[str]) -> ProducerIdentity:
        """Return under what partitions of topics begin: a producer id that none of them has been written under.

        Raises: as ``Incarnation.further``.
        """
        used = {one for key, identities in self._written_under.items() if key[0] in topics for one in identities}
        if not used:
            return self._incarnation.identity
        return await self._incarnation.further(self._incarnation.latest(used))

    async def shut_out(self, remotes: Mapping[Key, TopicMetadata]) -> set[Key]:
        """Shut what may still be on its way out of remote partitions that nobody compares with their source.

        Args:
            remotes: remote topics by source partition; those that were not stopped in this life are passed over.
        Returns:
            The source partitions where no marker proves it yet (C3): they must not begin, and are tried once more.
        Raises: as ``Incarnation.fence_itself``.
        """
        by_identity: dict[ProducerIdentity, list[Key]] = {}
        for key in remotes:
            for identity in self._written_under.get(key, ()):
                by_identity.setdefault(identity, []).append(key)
        unproven: set[Key] = set()
        for identity, keys in by_identity.items():
            unproven |= await self._shut_out(identity, {key: remotes[key] for key in keys})
        return unproven

    async def _shut_out(self, identity: ProducerIdentity, remotes: Mapping[Key, TopicMetadata]) -> set[Key]:
        bounds = await find_bounds(self._target, [(remote.name, key[1]) for key, remote in remotes.items()])
        led = {key: remote for key, remote in remotes.items() if (remote.name, key[1]) in bounds}
        if not led:
            return set(remotes)
        epoch = await self._incarnation.fence_itself(identity, [(remote.name, key[1]) for key, remote in led.items()])
        if epoch is None:
            return set()  # a plain producer id: nothing shuts it out, and the guarantee says so
        writer = Writer(identity.producer_id, identity.epoch, 0)
        stretches = {}
        for key, remote in led.items():
            _, end = bounds[remote.name, key[1]]
            tail = Tail(end, writer, fence_epoch=epoch)
            stretches[key] = TailStretch(remote.name, remote.topic_id, key[1], tail, self._clock)
        reader = LogReader(self._target, read_committed=False, rng=self._rng, channel="reconcile")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROOF_S):
                await reader.read(stretches.values(), lambda _: None)
        return {key for key in remotes if key not in stretches or not stretches[key].tail.is_whole}

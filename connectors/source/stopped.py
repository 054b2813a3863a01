"""Partitions that were copied in this life and are not any more: under which producer id they begin again.

Their sequences start anew at 0. The story: a right is taken away and given back, so a topic vanishes and returns; under
its old id and epoch the target would know 0 from before, acknowledge the new records as repeats and drop them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from mm2py.kafka.incarnation import Incarnation
from mm2py.kafka.port import ProducerIdentity
from mm2py.replication.lane import CopiedPartition

Key = tuple[str, int]


class StoppedPartitions:
    """Remembers what each may have been written under."""

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
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

    async def shut_out(self, places: Mapping[Key, Key]) -> None:
        """Shut what may still be on its way out of remote partitions that nobody compares with their source.

        Args:
            places: remote partitions by source partition; those that were not stopped in this life are passed over.
        Raises: as ``Incarnation.fence_itself``.
        """
        by_identity: dict[ProducerIdentity, list[Key]] = {}
        for key, place in places.items():
            for identity in self._written_under.get(key, ()):
                by_identity.setdefault(identity, []).append(place)
        for identity, remote in by_identity.items():
            await self._incarnation.fence_itself(identity, remote)

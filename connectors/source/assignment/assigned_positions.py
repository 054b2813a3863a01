"""Positions of partitions that other workers may have copied: what they stored is read before a partition begins here.

Answers to nothing in MM2, whose tasks read all their offsets when they start, and are all begun anew when one moves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from connectors.source.discovery.starting_offsets import Beginning, Key
from connectors.source.gaps.gap_keeper import GapKeeper
from connectors.source.recovery.previous_producers import PreviousProducers
from mm2py.config.settings import FlowSettings
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.positions.store import PositionTable


class HandedDown:
    """Of one life of a flow. What this life itself has begun, and not let go since, it knows better than the topic."""

    def __init__(
        self,
        settings: FlowSettings,
        target: Brokers,
        *,
        beginning: Beginning,
        gaps: GapKeeper,
        previous: PreviousProducers,
    ) -> None:
        self._settings = settings
        self._target = target
        self._beginning = beginning
        self._gaps = gaps
        self._previous = previous
        self._table = PositionTable(settings.source.alias)
        self._held: set[Key] = set()

    async def receive(self, keys: Collection[Key]) -> None:
        """Learn where partitions stand that are ours now, and what their earlier owners met there.

        Raises:
            KafkaError: nothing is known of those that were not known before; call it again.
        """
        new = [key for key in keys if key not in self._held]
        if not new:
            return
        await self._read()
        await self._gaps.read_again(new)
        for key in {*self._table.positions, *self._beginning.positions} - self._held:
            if key in self._table.positions:
                self._beginning.positions[key] = self._table.positions[key]
            else:
                del self._beginning.positions[key]
        for key in new:  # an operator's word may replace the position, and nobody would know any more whom it named
            self._previous.learn_asked(self._beginning.positions.get(key))
        self._held.update(new)

    async def positions_of(self, topics: Collection[str]) -> dict[str, dict[int, StoredPosition]]:
        """Return what anybody has stored of topics. Raises: KafkaError."""
        await self._read()
        found: dict[str, dict[int, StoredPosition]] = {name: {} for name in topics}
        for (name, number), stored in self._table.positions.items():
            if name in found:
                found[name][number] = stored
        return found

    async def _read(self) -> None:
        name = self._settings.offsets_topic
        topic = (await fetch_metadata(self._target, [name])).topics.get(name)
        if topic is None or topic.error_code:
            code = UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
            raise BrokerRefused(f"Reading {name}", code)
        await self._table.read(self._target, topic)

    def let_go(self, keys: Iterable[Key]) -> None:
        """These are no longer ours."""
        keys = list(keys)
        self._held.difference_update(keys)
        self._gaps.let_go(keys)

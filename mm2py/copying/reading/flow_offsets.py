"""What a flow knows of offsets: its ledgers, and its offset syncs, if it emits any.

Counterpart: OffsetSyncStore of Apache Kafka's Connect, mirror, as far as it reads a topic.
"""

from __future__ import annotations

from collections.abc import Collection

from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.copying.reading.offset_tables import OffsetSyncTable
from mm2py.kafka.port import TopicPartition
from mm2py.offsets import translation
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.sync_store import SyncStore
from mm2py.offsets.translation import Translation


class FlowOffsets:
    """Translates offsets of one flow. Keys are source partitions."""

    def __init__(self, ledgers: LedgerTable, syncs: OffsetSyncTable | None) -> None:
        self.ledgers = ledgers
        self._syncs = syncs

    def topics(self) -> set[str]:
        """Return the topics of the source of which the ledger knows offsets."""
        return self.ledgers.topics()

    @property
    def syncs(self) -> SyncStore | None:
        return None if self._syncs is None else self._syncs.store

    async def follow(self, keys: Collection[TopicPartition], *, with_syncs: bool = True) -> None:
        """Read what is new, and prepare the ledgers of ``keys``, which the caller is about to ask for.

        Args:
            with_syncs: False: offset syncs are not read, because the cluster that keeps them does not answer.
        Raises:
            NewerLedgerFormat: a newer mm2py has written a record that must not be ignored.
            BrokerRefused, DamagedTopic, KafkaError: as ``FollowedTopic.follow``.
        """
        if self._syncs is not None and with_syncs:
            await self._syncs.follow()
        await self.ledgers.follow()
        await self.ledgers.prepare(keys)

    def ledger(self, key: TopicPartition) -> PartitionLedger:
        """Return the ledger of a partition; an empty one if there is none."""
        return self.ledgers.of(key)

    def forward(self, key: TopicPartition, source_offset: int) -> Translation:
        """See ``translation.forward``."""
        return translation.forward(self.ledgers.of(key), self.syncs, key, source_offset)

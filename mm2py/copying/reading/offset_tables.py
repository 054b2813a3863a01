"""Offset syncs and checkpoints, as stored in their topics.

Both topics are followed. So if a late request of another worker has overwritten our checkpoint, we notice it and write
the checkpoint once more. MM2 reads checkpoints only at its start.

Counterpart: OffsetSyncStore and CheckpointStore of Apache Kafka's Connect, mirror, as far as they read topics.
"""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.copying.reading.internal_table import TopicTable
from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.sync_store import SyncStore
from mm2py.records import checkpoint, offset_sync
from mm2py.records.checkpoint import Checkpoint
from mm2py.records.java_struct import MalformedRecord

SYNCED_PARTITIONS_MOST: Final = 100_000
"""Twice what ``remote.partitions.max`` allows by default. Offset syncs are mostly on the source, where others may write
them, also for partitions that do not exist, or no longer exist."""


class FollowedTopic(TopicTable):
    """A topic that is followed. Malformed records are skipped, and the first one is logged."""

    def __init__(
        self, brokers: Brokers, topic: str, log: FilteringBoundLogger, *, may_be_missing: bool = False
    ) -> None:
        """``may_be_missing``: while the topic does not exist, it counts as empty."""
        super().__init__()
        self.malformed = 0
        self._may_be_missing = may_be_missing
        self._brokers = brokers
        self._name = topic
        self._log = log

    async def follow(self) -> None:
        """Read what was stored since the last call. Cancelling loses nothing.

        Raises:
            BrokerRefused: there is no such topic yet, or we may not read it.
            DamagedTopic, KafkaError: as ``read_table``.
        """
        found = (await fetch_metadata(self._brokers, [self._name])).topics.get(self._name)
        code = UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error_code
        if code == UNKNOWN_TOPIC_OR_PARTITION and self._may_be_missing:
            self._forget()
            return
        if found is None or code:
            raise BrokerRefused(f"Reading {self._name}", code, remedy=f"mm2py needs READ on {self._name}.")
        await self._follow(self._brokers, found)

    def _pass_over(self, error: Mm2Error) -> None:
        self.malformed += 1
        if self.malformed == 1:
            self._log.warning("checkpoints.malformed_record", topic=self._name, why=str(error))


class OffsetSyncTable(FollowedTopic):
    """The newest offset syncs of each partition."""

    def __init__(
        self, brokers: Brokers, topic: str, log: FilteringBoundLogger, *, may_be_missing: bool = False
    ) -> None:
        super().__init__(brokers, topic, log, may_be_missing=may_be_missing)
        self.store = SyncStore(keeps_history=True)

    async def follow(self) -> None:
        """Read what is new; see ``FollowedTopic.follow``."""
        await super().follow()
        self.store.loaded()

    def _clear(self) -> None:
        self.store = SyncStore(keeps_history=True)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        try:
            sync = offset_sync.decode(key, value)
        except MalformedRecord as error:
            self._pass_over(error)
            return
        at = sync.topic, sync.partition
        if not self.store.has_room(at, SYNCED_PARTITIONS_MOST):
            why = f"{self._name} has syncs of more than {SYNCED_PARTITIONS_MOST} partitions."
            self._pass_over(Mm2Error(why, remedy="Find out who writes to it besides the flow."))
            return
        self.store.add(at, sync.upstream_offset, sync.downstream_offset)


class CheckpointTable(FollowedTopic):
    """The last checkpoint of each group and remote partition."""

    def __init__(
        self, brokers: Brokers, topic: str, log: FilteringBoundLogger, *, may_be_missing: bool = False
    ) -> None:
        super().__init__(brokers, topic, log, may_be_missing=may_be_missing)
        self.last: dict[tuple[str, TopicPartition], Checkpoint] = {}

    def _clear(self) -> None:
        self.last.clear()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        try:
            found = checkpoint.decode(key, value)
        except MalformedRecord as error:
            self._pass_over(error)
        else:
            self.last[found.group, (found.topic, found.partition)] = found

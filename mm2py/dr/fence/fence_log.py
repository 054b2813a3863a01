"""The records of fences on one cluster, and the store of both clusters of a flow.

A record is written to the source first: its log decides between two operators. It is written to the target as well
before anything is changed, so that a fence is also found if the source has lost its topic.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Protocol

from mm2py.copying.reading.internal_table import each_record
from mm2py.dr.fence.record import FenceRecord, counting, decode_fence, encode_fence, fence_key
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias
from mm2py.group.control_topic import with_min_in_sync
from mm2py.kafka import internal_topic
from mm2py.kafka.cluster import fetch_metadata, until_answered
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.internal_topic import find_or_make, open_writer
from mm2py.kafka.port import Brokers
from mm2py.records.batch import NewRecord
from mm2py.topics.names import dr_fences_topic
from mm2py.topics.replicas import replicas_on

SETTING: Final = "config.storage.replication.factor"
WRITE_TIMEOUT_MS: Final = 30_000
_MUST_BE: Final = ("cleanup.policy", "retention.ms", "retention.bytes")


class FenceChangedMeanwhile(Mm2Error):
    """Another process has written a record of the same fence at the same time."""

    def __init__(self, cluster: str, flow: str, other: FenceRecord | None) -> None:
        who = "nobody" if other is None else f"{other.who_and_why}, which {other.state} it"
        super().__init__(
            f"The record of the fence on {cluster} is by now that of {who}. This command has stopped.",
            remedy=f"See what stands (mm2py dr fence FILE '{flow}' --plan), and begin again.",
        )


class FenceRecords(Protocol):
    """The records of fences on one cluster."""

    @property
    def alias(self) -> str: ...

    async def read(self, flow: str) -> FenceRecord | None:
        """Return the record that counts for a flow; None: it has no fence there."""
        ...

    async def write(self, record: FenceRecord) -> None:
        """Append a record, and wait until it is replicated. Raises: FenceChangedMeanwhile, it does not count."""
        ...


async def read_fences(alias: str, brokers: Brokers, *, channel: str = "control") -> list[FenceRecord]:
    """Return all records of fences on a cluster, of all flows, in the order of the log.

    Raises:
        FenceTooNew, FenceUnreadable: what stands is not known.
        KafkaError: as ``each_record``; BrokerRefused: we may not read the topic.
    """
    name = str(dr_fences_topic().name)
    topic = (await fetch_metadata(brokers, [name], channel=channel)).topics.get(name)
    if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if topic.error_code:
        raise BrokerRefused(f"Reading {name} on {alias}", topic.error_code, remedy=f"Grant READ on {name}.")
    return [decode_fence(one.value) async for one in each_record(brokers, topic) if one.value is not None]


class FenceLog:
    """The topic ``mm2-dr-fences.internal`` of one cluster."""

    def __init__(self, alias: ClusterAlias, brokers: Brokers, *, replication_factor: int, rng: random.Random) -> None:
        self._alias = alias
        self._brokers = brokers
        self._replication_factor = replication_factor
        self._rng = rng

    @property
    def alias(self) -> str:
        return str(self._alias)

    async def read(self, flow: str) -> FenceRecord | None:
        """See ``FenceRecords.read``. Raises: as ``read_fences``; errors that may pass are waited for."""
        found = await until_answered(lambda: read_fences(self._alias, self._brokers), rng=self._rng)
        return counting(one for one in found if one.flow == flow)

    async def write(self, record: FenceRecord) -> None:
        """See ``FenceRecords.write``. Raises: as ``find_or_make``, ``TopicWriter.write``, ``read``.

        After cancelling, or an error, the record may be stored. It is found by whoever reads next.
        """
        writer = await until_answered(self._writer, rng=self._rng)
        await writer.write({0: [NewRecord(fence_key(record.flow), encode_fence(record), record.at_ms)]})
        counts = await self.read(record.flow)
        if counts is None or counts.mark != record.mark or counts.serial != record.serial:
            raise FenceChangedMeanwhile(self.alias, record.flow, counts)

    async def _writer(self) -> internal_topic.TopicWriter:
        brokers = len((await fetch_metadata(self._brokers, [])).brokers)
        topic = with_min_in_sync(dr_fences_topic(), replicas_on(brokers, self._replication_factor))
        await find_or_make(self._brokers, topic, self._replication_factor, setting=SETTING)
        found = await internal_topic.read_settings(self._brokers, topic, must_be=_MUST_BE)
        if isinstance(found, BrokerRefused):
            raise found  # whether it keeps its records is not known
        return await open_writer(
            self._brokers,
            topic,
            self._replication_factor,
            setting=SETTING,
            made=lambda: None,
            rng=self._rng,
            timeout_ms=WRITE_TIMEOUT_MS,
            channel="dr",
        )


@dataclass(frozen=True, slots=True)
class FenceStore:
    """The records of one flow's fence on both clusters. Of two records the one with the higher serial counts."""

    flow: str
    source: FenceRecords
    target: FenceRecords | None
    """None: the target is away. Then the source alone knows its fence, and nothing new may be raised."""

    async def read(self) -> FenceRecord | None:
        """Return the record that counts. Raises: as ``FenceLog.read``."""
        found = [await side.read(self.flow) for side in self._sides]
        return max((one for one in found if one is not None), key=lambda one: one.serial, default=None)

    async def write(self, record: FenceRecord, *, after: FenceRecord | None) -> FenceRecord:
        """Store the record that follows ``after``, and return it. Raises: as ``FenceLog.write``."""
        record = replace(record, serial=1 if after is None else after.serial + 1)
        for side in self._sides:
            await side.write(record)
        return record

    async def heal(self, record: FenceRecord) -> None:
        """Write the record that counts where an older one counts: that cluster was away, or has lost its topic."""
        for side in self._sides:
            there = await side.read(self.flow)
            if there is None or there.serial < record.serial:
                await side.write(record)

    @property
    def _sides(self) -> list[FenceRecords]:
        return [self.source] if self.target is None else [self.source, self.target]

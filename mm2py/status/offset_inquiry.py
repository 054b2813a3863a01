"""Asks both clusters of a flow where offsets are in the other log. It asks no worker, and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import FlowSettings
from mm2py.copying.gap_log import GapTable
from mm2py.copying.reading.flow_offsets import FlowOffsets
from mm2py.copying.reading.internal_table import DamagedTopic, each_record
from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.copying.reading.offset_tables import OffsetSyncTable
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.list_offsets import EARLIEST, LATEST, end_of
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.answers import AnswerKind
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.translation import Basis, Translation, forward, reverse
from mm2py.records.batch import NewRecord, Record
from mm2py.records.gap_record import Gap
from mm2py.records.quarantined import NotQuarantined, QuarantineEntry, Replayed, decode
from mm2py.status.ledger_topics import missing, recreated, side_of, unknown_side
from mm2py.status.offset_report import (
    MAY_BE_REPLAYED,
    OffsetReport,
    WayBack,
    is_behind_copies,
    may_be_lost,
    report_of,
    with_gaps,
    with_log_start,
    with_way_back,
)
from mm2py.topics.names import ledger_topic, quarantine

REPLAYED_NOTE = "mm2py replay has appended it since"
LOOK_S: Final = 5.0
"""How long the target is read to find the first record in stretches without copies."""
STRETCHES_READ: Final = 20
"""How many stretches without copies are read on the target, to tell markers from records that others wrote."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about offsets of one partition."""

    key: TopicPartition
    """Named as on the source."""
    offsets: Sequence[int]
    is_reverse: bool
    """They are offsets of the remote partition."""


def are_syncs_on_source(settings: FlowSettings) -> bool:
    """Whether the flow's offset syncs cannot be read without the source."""
    return settings.offset_syncs is not None and settings.offset_syncs.on_source


def offsets_of(settings: FlowSettings, source: Brokers, target: Brokers, log: FilteringBoundLogger) -> FlowOffsets:
    """Return the tables of a flow that translate its offsets; a topic that is not there counts as empty."""
    syncs = settings.offset_syncs
    return FlowOffsets(
        LedgerTable(target, ledger_topic(settings.flow.source), log),
        None
        if syncs is None
        else OffsetSyncTable(source if syncs.on_source else target, syncs.topic, log, may_be_missing=True),
    )


async def ask_where(
    settings: FlowSettings,
    question: Question,
    source: Brokers,
    target: Brokers,
    log: FilteringBoundLogger,
    *,
    offsets: FlowOffsets | None = None,
    is_target_alone: bool = False,
) -> list[OffsetReport]:
    """Return where each offset is in the other log, in the order in which they were asked.

    Args:
        offsets: the flow's tables that were read before; they are read further, by one caller at a time. None: new.
        is_target_alone: the source does not answer, and is not asked. Whether its topic was recreated, and where its
            log starts, is then not known. Offset syncs on the source are not used.
    Raises:
        BrokerRefused: a right is missing; the error names it.
        NewerLedgerFormat: a newer mm2py has written the ledger.
        DamagedTopic, KafkaError: as ``read_table``.
    """
    offsets, key = offsets or offsets_of(settings, source, target, log), question.key
    syncs_unread = is_target_alone and are_syncs_on_source(settings)
    await offsets.follow([key], with_syncs=not syncs_unread)
    syncs = None if syncs_unread else offsets.syncs
    remote = settings.remote_topic(key[0])
    there = (remote, key[1])
    source_topic = None if is_target_alone else await _topic(source, key[0])  # after the ledger
    target_topic = await _topic(target, remote)
    alias = settings.flow.source
    source_side = unknown_side(key, alias) if is_target_alone else side_of(key, alias, source_topic)
    target_side = side_of(there, settings.flow.target, target_topic)
    asked, other = (there, key) if question.is_reverse else (key, there)
    if why := missing(source_side, target_side):
        nothing = Translation(AnswerKind.BEFORE_LEDGER, None, False, Basis.NOTHING)
        return [report_of(*asked, offset, other[0], nothing, why=why) for offset in question.offsets]
    ledger = offsets.ledger(key)
    why = recreated(ledger, source_side, target_side)
    translate = reverse if question.is_reverse else forward
    ledger = PartitionLedger() if why else ledger
    found = {offset: translate(ledger, syncs, key, offset) for offset in question.offsets}
    target_log = _TargetLog(settings, key, remote, target)
    replayed: set[int] = set()
    if question.is_reverse:
        found = await target_log.with_replayed(found)
        log_start = 0 if is_target_alone else await _end_of(source, key, source_topic, EARLIEST)
    else:
        if any(map(may_be_lost, found.values())):
            gaps = await target_log.gaps()
            found = {offset: with_gaps(one, gaps, offset) for offset, one in found.items()}
        found, replayed = await target_log.with_quarantine(found)
        log_start = await _end_of(target, there, target_topic, EARLIEST)
    behind = {offset for offset, one in found.items() if is_behind_copies(one, is_reverse=question.is_reverse)}
    found = {offset: with_log_start(one, log_start) for offset, one in found.items()}
    reports = [
        report_of(
            *asked,
            offset,
            other[0],
            found[offset],
            note=REPLAYED_NOTE if offset in replayed else "",
            why=why,
            syncs_unread=syncs_unread,
        )
        for offset in question.offsets
    ]
    way_back = await target_log.way_back(ledger, target_topic) if behind and remote == key[0] else None
    if way_back is None:
        return reports
    return [with_way_back(one, way_back, alias) if one.offset in behind else one for one in reports]


class _TargetLog:
    """Reads what the target keeps of one partition, apart from its ledger: gaps, quarantine, remote records."""

    def __init__(self, settings: FlowSettings, key: TopicPartition, remote: str, target: Brokers) -> None:
        self._settings = settings
        self._key = key
        self._remote = remote
        self._target = target

    async def gaps(self) -> list[Gap]:
        table = GapTable(self._target, self._settings.status_topic)
        await table.read()
        return [gap for gap in table.gaps() if (gap.topic, gap.partition) == self._key]

    async def with_quarantine(self, found: dict[int, Translation]) -> tuple[dict[int, Translation], set[int]]:
        """Return the translations, those in quarantine marked; and which of the latter were replayed."""
        asked = {offset for offset, one in found.items() if may_be_lost(one) or one.kind is AnswerKind.QUARANTINED}
        kept, replayed = await self._in_quarantine(asked)
        changed = {
            offset: one._replace(kind=AnswerKind.QUARANTINED) if offset in kept else one
            for offset, one in found.items()
        }
        return changed, replayed & kept

    async def with_replayed(self, found: dict[int, Translation]) -> dict[int, Translation]:
        """Return the translations, those of records that ``mm2py replay`` has appended marked.

        A mark in quarantine says that a record was appended, but not where. So a record that the ledger does not know
        is compared with the records that have a mark.
        """
        changed = dict(found)
        for offset, one in found.items():
            if one.kind not in MAY_BE_REPLAYED:
                continue
            record = await self._record_at(offset)
            if record is not None:
                kept, replayed = await self._in_quarantine(None, like=record)
                if kept & replayed:
                    changed[offset] = Translation(AnswerKind.REPLAYED, min(kept & replayed), True, Basis.LEDGER)
        return changed

    async def _in_quarantine(
        self, offsets: Collection[int] | None, *, like: Record | None = None
    ) -> tuple[set[int], set[int]]:
        """Return the source offsets of records in quarantine, and of those that were replayed.

        Args:
            offsets: only these; None: all.
            like: only those with the same key, value and headers; marks have none of these, and all count.
        """
        kept: set[int] = set()
        replayed: set[int] = set()
        name = quarantine(self._settings.flow.source).name
        topic = await _topic(self._target, name) if offsets is None or offsets else None
        if topic is None:
            return kept, replayed
        async for record in each_record(self._target, topic):
            try:
                entry = decode(record)
            except NotQuarantined:
                continue
            origin = entry.origin if isinstance(entry, Replayed) else entry.provenance.origin
            if (origin.topic, origin.partition) != self._key or (offsets is not None and origin.offset not in offsets):
                continue
            if isinstance(entry, Replayed):
                if entry.remote_topic == self._remote:
                    replayed.add(origin.offset)
            elif like is None or _is_like(entry, like):
                kept.add(origin.offset)
        return kept, replayed

    async def way_back(self, ledger: PartitionLedger, topic: TopicMetadata | None) -> WayBack | None:
        """Return where a flow that copies the remote partition back begins; None: the ledger is empty."""
        if ledger.newest is None:
            return None
        begins_at, there = ledger.newest.target_end, (self._remote, self._key[1])
        log_start = await _end_of(self._target, there, topic, EARLIEST)
        log_end = await _end_of(self._target, there, topic, LATEST)
        left_out, looked_at = 0, list[tuple[int, int]]()
        for start, end in ledger.without_copy():
            if end > log_start:
                left_out += end - max(start, log_start)
                if len(looked_at) <= STRETCHES_READ:
                    looked_at.append((max(start, log_start), end))
        first, is_seen = await self._first_record(looked_at)
        return WayBack(begins_at, left_out, first, is_seen, log_end)

    async def _first_record(self, stretches: Sequence[tuple[int, int]]) -> tuple[int | None, bool]:
        """Return the offset of the first record in stretches of the remote partition, and whether it was read.

        If it was not read, it may be later: reading takes too long, fails, or there are too many stretches.
        """
        at = None
        try:
            async with asyncio.timeout(LOOK_S):
                for at, end in stretches[:STRETCHES_READ]:
                    record = await self._record_from(at)
                    if record is not None and record.offset < end:
                        return record.offset, True
        except (KafkaError, DamagedTopic, TimeoutError):
            return at, False
        return (stretches[STRETCHES_READ][0], False) if len(stretches) > STRETCHES_READ else (None, True)

    async def _record_at(self, target_offset: int) -> Record | None:
        record = await self._record_from(target_offset)
        return record if record is not None and record.offset == target_offset else None

    async def _record_from(self, target_offset: int) -> Record | None:
        """Return the next record of the remote partition from an offset on; None: there is none."""
        topic = await _topic(self._target, self._remote)
        partition = None if topic is None else topic.partitions.get(self._key[1])
        if topic is None or partition is None:
            return None
        only = replace(topic, partitions={self._key[1]: partition})
        try:
            async for record in each_record(self._target, only, {self._key[1]: target_offset}):
                return record
        except BrokerRefused as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
        return None


async def _topic(brokers: Brokers, name: str) -> TopicMetadata | None:
    """Return what a topic is; None if it does not exist."""
    found = (await fetch_metadata(brokers, [name])).topics.get(name)
    if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if found.error_code:
        raise BrokerRefused(f"Reading {name}", found.error_code, remedy=f"mm2py needs READ on {name}.")
    return found


async def _end_of(brokers: Brokers, key: TopicPartition, topic: TopicMetadata | None, when: int) -> int:
    """Return the first or the next offset of a partition that exists."""
    if topic is None:
        raise AssertionError("the topic does not exist")
    partition = topic.partitions[key[1]]
    if partition.leader is None:
        raise BrokerRefused(f"Finding where {key[0]}-{key[1]} begins", partition.error_code or LEADER_NOT_AVAILABLE)
    return await end_of(brokers, partition.leader, key, when)


def _is_like(kept: QuarantineEntry, record: Record) -> bool:
    one: NewRecord = kept.record
    return (one.key, one.value, list(one.headers)) == (record.key, record.value, list(record.headers))

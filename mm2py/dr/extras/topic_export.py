"""Exports extra records to a topic of the new side, each with its origin, in the layout of a quarantine topic.

So whatever reads a quarantine topic reads this one (``records/quarantined.py``). A record that is there already, from a
call that was killed, is not written again: its origin is its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from mm2py.copying.reading.internal_table import each_record
from mm2py.dr.cutover.pair import RecoveryPair
from mm2py.dr.extras.extras_inquiry import CHANNEL, ExtrasInquiry
from mm2py.dr.extras.found import PartitionExtras
from mm2py.flow import Flow, TopicName
from mm2py.kafka.cluster import fetch_metadata, until_answered
from mm2py.kafka.internal_topic import BATCH_RECORDS, TopicWriter, find_or_make
from mm2py.kafka.producer.incarnation import OwnProducer
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.batch import NewRecord
from mm2py.records.quarantined import (
    NotQuarantined,
    Provenance,
    QuarantineEntry,
    RecordOrigin,
    decode,
    encode_quarantined,
)
from mm2py.topics.names import quarantine
from mm2py.topics.replicas import AtMost

REPLICAS_MOST: Final = 3
TIMEOUT_MS: Final = 15_000
WHY: Final = "only the old side of a failover had it"


class TopicExport:
    """Writes to one topic."""

    def __init__(self, pair: RecoveryPair, flow: Flow, inquiry: ExtrasInquiry, name: str) -> None:
        self._pair = pair
        self._flow = flow
        self._inquiry = inquiry
        self._name = name
        self._brokers = gated_alone(pair.brokers[flow.target], pair.clock)

    async def run(self, parts: Sequence[PartitionExtras]) -> int:
        """Export the records that are not there yet, and return how many are there then.

        Raises: TopicNotMade; KafkaError, the new side refuses a record, or a cluster does not answer.
        Cancelling leaves what was written.
        """
        pair, rng = self._pair, self._pair.rng
        topic = replace(quarantine(self._flow.source), name=TopicName(self._name))
        made = await until_answered(
            lambda: find_or_make(self._brokers, topic, AtMost(REPLICAS_MOST), setting="the number of replicas"), rng=rng
        )
        there: set[RecordOrigin] = set()
        async for record in each_record(self._brokers, made):
            with suppress(NotQuarantined):
                if isinstance(entry := decode(record), QuarantineEntry):
                    there.add(entry.provenance.origin)
        source = await until_answered(
            lambda: fetch_metadata(pair.brokers[self._flow.source], sorted({one.topic for one in parts})), rng=rng
        )
        producer = OwnProducer(self._brokers, None, rng=rng)
        await until_answered(producer.ask, rng=rng)
        writer = TopicWriter(
            self._brokers, self._name, producer, rng=rng, timeout_ms=TIMEOUT_MS, channel=CHANNEL, waits_for_topic=False
        )
        count = 0
        for part in parts:
            topic_id = source.topics[part.topic].topic_id if part.topic in source.topics else None
            some: list[NewRecord] = []
            async for record in self._inquiry.records(part):
                count += 1
                at = RecordOrigin(part.topic, part.number, record.offset, None if topic_id is None else str(topic_id))
                if at in there:
                    continue
                whole = NewRecord(record.key, record.value, record.timestamp_ms, record.headers)
                now_ms = pair.clock.wall_ms()
                told = Provenance(str(self._flow), source.cluster_id, at, record.timestamp_ms, 0, WHY, now_ms)
                some.append(encode_quarantined(QuarantineEntry(told, whole)))
                if len(some) == BATCH_RECORDS:
                    await writer.write({0: some})
                    some = []
            if some:
                await writer.write({0: some})
        return count

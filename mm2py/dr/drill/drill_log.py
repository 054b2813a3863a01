"""The topic ``mm2-drills.A.B.internal`` on each cluster of a pair: what is kept of drills."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Final

from mm2py import __version__
from mm2py.copying.reading.internal_table import DamagedTopic, each_record
from mm2py.dr.drill.entry import DrillEntry, decode_drill, encode_drill, merged
from mm2py.dr.drill.report import DrillReport
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.cluster import fetch_metadata, until_answered
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.internal_topic import TopicUnsuitable, TopicWriter, open_writer
from mm2py.kafka.port import Brokers
from mm2py.records.batch import NewRecord
from mm2py.topics.names import drills_topic
from mm2py.topics.replicas import AtMost

REPLICAS_MOST: Final = 3
WRITE_MOST_S: Final = 30.0


async def read_drills(
    flow: Flow, clusters: Mapping[ClusterAlias, Brokers]
) -> tuple[list[DrillEntry], dict[ClusterAlias, str]]:
    """Return the drills of a pair of clusters, and why a cluster does not tell its own."""
    kept, unread = list[list[DrillEntry]](), dict[ClusterAlias, str]()
    for alias, brokers in clusters.items():
        try:
            kept.append(await _read(flow, brokers))
        except (KafkaError, DamagedTopic) as error:
            unread[alias] = str(error)
    return merged(kept), unread


async def _read(flow: Flow, brokers: Brokers) -> list[DrillEntry]:
    name = str(drills_topic(flow).name)
    topic = (await fetch_metadata(brokers, [name])).topics.get(name)
    if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if topic.error_code:
        raise BrokerRefused(f"Reading {name}", topic.error_code, remedy=f"mm2py dr needs DESCRIBE and READ on {name}.")
    found = [decode_drill(record.value) async for record in each_record(brokers, topic)]
    return [entry for entry in found if entry is not None]


async def keep_drill(
    report: DrillReport, flow: Flow, clusters: Mapping[ClusterAlias, Brokers], rng: random.Random
) -> dict[ClusterAlias, str]:
    """Store a drill on both clusters; return why a cluster has not stored it."""
    failed: dict[ClusterAlias, str] = {}
    value = encode_drill(report, __version__)
    for alias, brokers in clusters.items():
        try:
            async with asyncio.timeout(WRITE_MOST_S):
                await _write(flow, brokers, NewRecord(report.run.encode(), value, report.ended_ms), rng)
        except (KafkaError, TopicUnsuitable) as error:
            failed[alias] = str(error)
        except TimeoutError:
            failed[alias] = f"{alias} does not answer."
    return failed


async def _write(flow: Flow, brokers: Brokers, record: NewRecord, rng: random.Random) -> None:
    async def open_log() -> TopicWriter:
        return await open_writer(
            brokers,
            drills_topic(flow),
            AtMost(REPLICAS_MOST),
            setting="the number of replicas",
            made=lambda: None,
            rng=rng,
            timeout_ms=int(WRITE_MOST_S * 1000),
            channel="dr",
        )

    writer = await until_answered(open_log, rng=rng)
    await writer.write({0: [record]})

"""The recovery journal as a topic on each cluster: read, and written under the producer id of one process at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from mm2py import __version__
from mm2py.clock import Clock
from mm2py.copying.reading.internal_table import DamagedTopic, each_record
from mm2py.dr.journal import AgreedJournal, JournalRecord, agreed, decode_journal, encode_journal
from mm2py.dr.journal_writer import JournalNotStored, JournalTakenOver, KeptJournal
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.cluster import fetch_metadata, until_answered
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.internal_topic import TopicUnsuitable, TopicWriter, find_or_make, read_settings
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.incarnation import IncarnationFenced, OwnProducer
from mm2py.records.batch import NewRecord
from mm2py.topics.names import recovery_topic
from mm2py.topics.replicas import AtMost

REPLICAS_MOST: Final = 3
WRITE_MOST_S: Final = 30.0
OPTIONAL_MOST_S: Final = 5.0
"""How long a cluster may take to store what counts without it."""


def transactional_id_of(flow: Flow) -> str:
    """Return the id under which a process writes the journal of a pair of clusters: it shuts the previous one out."""
    first, second = sorted((flow.source, flow.target))
    return f"mm2py-dr.{first}.{second}"


async def read_journal(alias: ClusterAlias, brokers: Brokers, flow: Flow) -> KeptJournal:
    """Return the journal that a cluster has.

    Raises:
        JournalUnreadable: a record is not what this mm2py can read.
        BrokerRefused, DamagedTopic: as ``read_table``.
        KafkaError: as ``Brokers.send``.
    """
    name = str(recovery_topic(flow).name)
    where = f"{name} on {alias}"
    found = (await fetch_metadata(brokers, [name])).topics.get(name)
    if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        return KeptJournal((), "", where)
    if found.error_code:
        remedy = f"mm2py dr needs DESCRIBE and READ on {name}."
        raise BrokerRefused(f"Reading {name}", found.error_code, remedy=remedy)
    records = [
        decode_journal(record.value, where=f"{where}, offset {record.offset}")
        async for record in each_record(brokers, found)
    ]
    return KeptJournal(tuple(records), "" if found.topic_id is None else str(found.topic_id), where)


class JournalTopics:
    """The journals of one pair of clusters, on those that answer. The caller closes the connections."""

    def __init__(
        self, flow: Flow, clusters: Mapping[ClusterAlias, Brokers], *, clock: Clock, rng: random.Random
    ) -> None:
        self.clusters: Sequence[ClusterAlias] = tuple(clusters)
        self._flow = flow
        self._brokers = clusters
        self._clock = clock
        self._rng = rng
        self._writers: dict[ClusterAlias, TopicWriter] = {}

    async def begin(self, alias: ClusterAlias) -> None:
        brokers, topic, transactional_id = (
            self._brokers[alias],
            recovery_topic(self._flow),
            transactional_id_of(self._flow),
        )
        remedy = f"mm2py dr needs WRITE on {topic.name}, and on the transactional id {transactional_id}."
        producer = OwnProducer(brokers, transactional_id, rng=self._rng)

        async def prepare() -> None:
            await find_or_make(brokers, topic, AtMost(REPLICAS_MOST), setting="the number of replicas")
            await read_settings(brokers, topic, must_be=("cleanup.policy", "retention.ms", "retention.bytes"))
            await producer.ask()

        try:
            async with asyncio.timeout(WRITE_MOST_S):
                await until_answered(prepare, rng=self._rng)
        except (KafkaError, TopicUnsuitable, TimeoutError) as error:
            raise _not_stored(alias, error, remedy) from error
        self._writers[alias] = TopicWriter(
            brokers,
            str(topic.name),
            producer,
            rng=self._rng,
            timeout_ms=int(WRITE_MOST_S * 1000),
            remedy=remedy,
            waits_for_topic=False,
        )

    async def read(self, alias: ClusterAlias) -> KeptJournal:
        try:
            async with asyncio.timeout(WRITE_MOST_S):
                # A topic that was just made may have no leader yet.
                return await until_answered(
                    lambda: read_journal(alias, self._brokers[alias], self._flow), rng=self._rng
                )
        except (KafkaError, DamagedTopic, TimeoutError) as error:
            raise _not_stored(alias, error, "mm2py dr needs READ on its journal.") from error

    async def write(self, alias: ClusterAlias, records: Sequence[JournalRecord], *, is_optional: bool = False) -> None:
        new = [NewRecord(None, encode_journal(one, __version__), self._clock.wall_ms()) for one in records]
        try:
            async with asyncio.timeout(OPTIONAL_MOST_S if is_optional else WRITE_MOST_S):
                await self._writers[alias].write({0: new})
        except IncarnationFenced as error:
            raise JournalTakenOver from error
        except (KafkaError, TimeoutError) as error:
            raise _not_stored(alias, error, "Call the same verb again: it reads what was stored.") from error


def _not_stored(alias: ClusterAlias, error: Exception, remedy: str) -> JournalNotStored:
    if isinstance(error, TimeoutError):
        return JournalNotStored(f"{alias} does not answer: the recovery journal is not read or stored.", remedy=remedy)
    return JournalNotStored(f"The recovery journal on {alias}: {error}", remedy="" if remedy in str(error) else remedy)


async def read_agreed(flow: Flow, clusters: Mapping[ClusterAlias, Brokers]) -> AgreedJournal:
    """Return what the journals of the clusters that answer say together. Nothing is written.

    Raises:
        JournalsDisagree: they do not say what was done.
        JournalUnreadable, DamagedTopic, KafkaError: as ``read_journal``.
    """
    found = {alias: await read_journal(alias, brokers, flow) for alias, brokers in clusters.items()}
    return agreed(
        {alias: one.entries for alias, one in found.items()}, {alias: one.topic_id for alias, one in found.items()}
    )

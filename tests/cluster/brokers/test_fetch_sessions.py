"""Fetch sessions on real brokers: idle partitions cost nothing, no news is lost, nobody waits in vain."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.kafka.cluster import Cluster, TopicMetadata, fetch_metadata
from mm2py.kafka.port import FetchReply, FetchRequest, PartitionFetch, TopicFetch
from mm2py.kafka.transport import wire
from mm2py.kafka.transport.connection import Connection
from mm2py.kafka.transport.opening import ConnectionOptions, connect
from tests.checker.traffic import Traffic
from tests.cluster.copies import add_partitions, assert_copied, make_topic, new_topic, send
from tests.cluster.kafka_client import create_topic, delete_topic, new_name, write
from tests.cluster.running import PATIENCE, Mm2py, one_way_properties, within

TIMEOUT_S = 60.0
OFFSET_OUT_OF_RANGE = 1
IDLE_ROUND_BYTES = 100
"""What a read and its answer may cost together while nothing happens, whatever the number of partitions."""

by_name_and_by_id = pytest.mark.parametrize("version", [12, 13, 17])


async def run(work: Coroutine[Any, Any, None]) -> None:
    async with within(4 * TIMEOUT_S * PATIENCE):
        await work


@dataclass
class Reading:
    """A connection, and what is wanted over it of one topic."""

    connection: Connection
    topic: TopicMetadata
    offsets: dict[int, int] = field(default_factory=dict)

    async def read(self, *, max_wait_ms: int = 100, answer_all: bool = False) -> FetchReply:
        wanted = [PartitionFetch(number, offset, 1 << 20) for number, offset in self.offsets.items()]
        topics = [TopicFetch(self.topic.name, self.topic.topic_id, wanted)]
        request = FetchRequest(
            topics, max_wait_ms, 1 if max_wait_ms else 0, 1 << 24, read_committed=False, answer_all=answer_all
        )
        reply = await self.connection.request(request, TIMEOUT_S)
        assert isinstance(reply, FetchReply)
        assert reply.error_code == 0
        return reply

    async def answers(self, *, max_wait_ms: int = 100) -> dict[int, tuple[int, int, bool]]:
        """Read. Returns error, log end, and if there were records, of each partition that was answered."""
        reply = await self.read(max_wait_ms=max_wait_ms)
        return {part.partition: (part.error_code, part.high_watermark, bool(part.records)) for part in reply.partitions}

    async def settle(self) -> None:
        """Wait until the broker leads all partitions: those of a new topic it learns of one by one."""
        while any(part.error_code for part in (await self.read(answer_all=True)).partitions):
            pass

    async def cost(self) -> int:
        """Read. Returns the bytes of request and answer."""
        before = sum(self.connection.traffic_bytes)
        await self.read()
        return sum(self.connection.traffic_bytes) - before


def address(cluster: KafkaCluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap.rpartition(":")
    return host, int(port)


async def metadata(cluster: KafkaCluster, topic: str) -> TopicMetadata:
    brokers = Cluster("X", [address(cluster)], rng=random.Random(1), client_id="sessions")
    try:
        return (await fetch_metadata(brokers, [topic])).topics[topic]
    finally:
        await brokers.close()


async def open_reading(
    cluster: KafkaCluster, topic: str, *, version: int = 17, report_no_session: Callable[[str], None] = lambda _: None
) -> Reading:
    about = await metadata(cluster, topic)
    connection = await connect(
        *address(cluster),
        client_id="sessions",
        timeout_s=TIMEOUT_S,
        options=ConnectionOptions(report_no_session=report_no_session, version_caps={wire.FETCH_KEY: version}),
    )
    one = Reading(connection, about, dict.fromkeys(about.partitions, 0))
    await one.settle()
    return one


@asynccontextmanager
async def reading(cluster: KafkaCluster, topic: str, *, version: int = 17) -> AsyncIterator[Reading]:
    """Read all partitions of a topic from offset 0."""
    one = await open_reading(cluster, topic, version=version)
    try:
        yield one
    finally:
        one.connection.close()


# What it saves


@by_name_and_by_id
async def test_a_thousand_idle_partitions_cost_a_few_bytes(source_cluster: KafkaCluster, version: int) -> None:
    topic = new_topic(source_cluster, "idle", 1_000)

    async def main() -> None:
        async with reading(source_cluster, topic, version=version) as one:
            in_full = await one.cost()
            assert in_full > 50_000
            assert [await one.cost() < IDLE_ROUND_BYTES for _ in range(3)] == [True] * 3
            await asyncio.to_thread(write, source_cluster, topic, ["a record"], partition=500)
            assert await one.answers() == {500: (0, 1, True)}
            one.offsets[500] = 1
            assert await one.cost() < 2 * IDLE_ROUND_BYTES
            assert await one.cost() < IDLE_ROUND_BYTES

    await run(main())
    delete_topic(source_cluster, topic)  # other tests look at all topics of this cluster, many times a second


# What is told


@by_name_and_by_id
async def test_records_come_again_until_their_reader_moves_on(source_cluster: KafkaCluster, version: int) -> None:
    topic = new_topic(source_cluster, "again", 3)

    async def main() -> None:
        async with reading(source_cluster, topic, version=version) as one:
            await one.read()
            await asyncio.to_thread(write, source_cluster, topic, ["1", "2"], partition=1)
            assert [await one.answers() for _ in range(3)] == [{1: (0, 2, True)}] * 3
            one.offsets[1] = 2
            assert await one.answers() == {}
            one.offsets[1] = 1  # and once more, as after a failed write
            assert await one.answers() == {1: (0, 2, True)}

    await run(main())


@by_name_and_by_id
async def test_what_is_not_wanted_for_a_while_is_answered_when_it_is_wanted_again(
    source_cluster: KafkaCluster, version: int
) -> None:
    topic = new_topic(source_cluster, "resting", 3)

    async def main() -> None:
        async with reading(source_cluster, topic, version=version) as one:
            await one.read()
            del one.offsets[1]
            await asyncio.to_thread(write, source_cluster, topic, ["1"], partition=1)
            assert await one.answers() == {}
            one.offsets[1] = 1
            assert await one.answers() == {1: (0, 1, False)}

    await run(main())


async def test_who_does_not_wait_is_told_of_every_partition_each_time(source_cluster: KafkaCluster) -> None:
    topic = new_topic(source_cluster, "impatient", 3)

    async def main() -> None:
        async with reading(source_cluster, topic) as one:
            everything = dict.fromkeys(range(3), (0, 0, False))
            assert [await one.answers(max_wait_ms=0) for _ in range(3)] == [everything] * 3

    await run(main())


@by_name_and_by_id
async def test_an_error_of_a_partition_is_told_until_it_is_mended(source_cluster: KafkaCluster, version: int) -> None:
    topic = new_topic(source_cluster, "mended", 3)

    async def main() -> None:
        async with reading(source_cluster, topic, version=version) as one:
            await one.read()
            one.offsets[2] = 7
            told = [await one.answers() for _ in range(3)]
            assert [{number: answer[0] for number, answer in answers.items()} for answers in told] == [
                {2: OFFSET_OUT_OF_RANGE}
            ] * 3
            one.offsets[2] = 0
            assert await one.answers() == {2: (0, 0, False)}
            assert await one.answers() == {}

    await run(main())


@by_name_and_by_id
async def test_a_topic_that_is_deleted_and_recreated_is_noticed(source_cluster: KafkaCluster, version: int) -> None:
    topic, other = new_topic(source_cluster, "anew", 2), new_topic(source_cluster, "other", 1)

    async def main() -> None:
        async with reading(source_cluster, topic, version=version) as one, reading(source_cluster, other) as two:
            await one.read()
            await two.read()
            await asyncio.to_thread(delete_topic, source_cluster, topic)
            gone = await one.answers()
            assert {answer[0] for answer in gone.values()} <= {3, 6, 100, 103}, gone
            assert len(gone) == 2
            await asyncio.to_thread(create_topic, source_cluster, topic, 2)
            await asyncio.to_thread(write, source_cluster, topic, ["1"], partition=1)
            one.topic = await metadata(source_cluster, topic)
            await one.settle()
            answers = await one.answers()
            assert answers[1] == (0, 1, True)
            assert await two.answers() == {}

    await run(main())


# Where a broker grants no session, or forgets it


async def test_a_broker_that_grants_no_session_answers_everything_each_time(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    cluster = make_cluster(settings={"max.incremental.fetch.session.cache.slots": 0})
    topic = new_topic(cluster, "refused", 20)

    async def main() -> None:
        said: list[str] = []
        one = await open_reading(cluster, topic, report_no_session=said.append)
        everything = dict.fromkeys(range(20), (0, 0, False))
        assert [await one.answers() for _ in range(3)] == [everything] * 3
        await asyncio.to_thread(write, cluster, topic, ["1"], partition=4)
        assert await one.answers() == {**everything, 4: (0, 1, True)}
        assert set(said) == {one.connection.peer}
        one.connection.close()

    await run(main())


async def test_where_sessions_are_few_some_have_one_and_all_read_right(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    cluster = make_cluster(settings={"max.incremental.fetch.session.cache.slots": 8})
    topic = new_topic(cluster, "few", 20)

    async def main() -> None:
        readers = [await open_reading(cluster, topic) for _ in range(24)]
        for one in readers:
            await one.read()
        costs = [await one.cost() for one in readers]
        cheap = [cost for cost in costs if cost < IDLE_ROUND_BYTES]
        assert 0 < len(cheap) <= 8
        await asyncio.to_thread(write, cluster, topic, ["1"], partition=4)
        for one in readers:
            assert (await one.answers())[4] == (0, 1, True)
            one.connection.close()

    await run(main())


def test_copies_stay_exact_whatever_ends_a_session(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster
) -> None:
    """A restarted broker knows no sessions, a topic grows, another is deleted and recreated, most partitions rest."""
    source = make_cluster("lost")
    stem = new_name("sessions")
    wide, grown, anew = (f"{stem}.{name}" for name in ("wide", "grown", "anew"))
    for topic, partitions in ((wide, 300), (grown, 3), (anew, 3)):
        make_topic(source, topic, partitions)
    traffic = Traffic(seed=51, partitions=3).records()

    def send_everywhere(*topics: str) -> None:
        for topic in topics:
            send(source, topic, islice(traffic, 300))

    def judge(*topics: str) -> None:
        for topic in topics:
            assert_copied(source, target_cluster, topic, f"A.{topic}", run=running)

    properties = one_way_properties(source, target_cluster, **{"A->B.topics": rf"{stem}\..*"})
    with Mm2py(properties) as running:
        running.wait_until(
            lambda: sum(event["partitions"] for event in running.events("topics.copying")) >= 306, "all are copied"
        )
        send_everywhere(wide, grown, anew)
        judge(wide, grown, anew)
        send(source, wide, (one._replace(partition=290 + one.partition) for one in islice(traffic, 300)))
        source.brokers[0].restart()
        send_everywhere(wide, grown, anew)
        judge(wide, grown, anew)
        add_partitions(source, grown, 6)
        send(source, grown, islice(Traffic(seed=52, partitions=6).records(), 600))
        delete_topic(source, anew)
        make_topic(source, anew, 3)
        send_everywhere(anew, wide)
        judge(wide, grown)
        running.wait_for_event("topic.refused", topic=anew)
        assert running.terminate() == 0
        assert not running.events("flow.crashed"), running.tail()

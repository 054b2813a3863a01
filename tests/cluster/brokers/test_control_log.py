"""The control log on real brokers: made as designed, in log-append time, the same for all readers, lost when cut."""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from mm2py.clock import SystemClock
from mm2py.flow import parse_flow
from mm2py.group.control_log import ControlLog, ControlLogLost, ControlLogUnusable
from mm2py.kafka.cluster import Cluster, fetch_metadata
from mm2py.kafka.transport import wire
from mm2py.kafka.transport.opening import ConnectionOptions
from mm2py.logs import make_logger
from mm2py.records.control_record import Beat, ControlRecord, Entry, MemberId, Snapshot
from mm2py.topics.names import InternalTopic, control_log
from tests.cluster.copies import without_right
from tests.cluster.kafka_client import admin, create_topic, delete_topic, new_name, read, write
from tests.cluster.running import ANSWER_S, PATIENCE, within

FLOW = parse_flow("A->B")
DEADLINE_S = 60.0 * PATIENCE


@dataclass(frozen=True)
class Open:
    """A log with what it is made of."""

    log: ControlLog
    brokers: Cluster
    text: io.StringIO


def new_topic() -> InternalTopic:
    return control_log(new_name("g"), producer_expiry_ms=86_400_000)


@asynccontextmanager
async def logs(
    cluster: KafkaCluster, topic: InternalTopic, count: int = 1, *, caps: Mapping[int, int] | None = None
) -> AsyncIterator[list[Open]]:
    """Make readers of one topic, each with connections of its own, and close them."""
    made = []
    addresses = [(host, int(port)) for host, _, port in (at.rpartition(":") for at in cluster.bootstrap.split(","))]
    for number in range(count):
        text = io.StringIO()
        brokers = Cluster(
            "B",
            addresses,
            rng=random.Random(number),
            client_id="control",
            request_timeout_s=4.0,
            options=ConnectionOptions(version_caps=caps or {}),
        )
        log = ControlLog(
            brokers,
            topic,
            poll_s=1.0,
            append_timeout_s=3.0,
            clock=SystemClock(),
            rng=random.Random(number),
            log=make_logger("info", "text", text),
        )
        made.append(Open(log, brokers, text))
    try:
        yield made
    finally:
        for one in made:
            await one.brokers.close()


async def run(scenario: Coroutine[Any, Any, None]) -> None:
    async with within(2 * DEADLINE_S):
        await scenario


def beat(number: int, member: str = "w1") -> Beat:
    return Beat(MemberId(member), {FLOW: number})


async def read_to(log: ControlLog, offset: int) -> list[Entry]:
    entries: list[Entry] = []
    async with within(DEADLINE_S):
        while log.next_offset < offset:
            entries += await log.read()
    return entries


def settings(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    client, resource = admin(cluster), ConfigResource(ResourceType.TOPIC, topic)  # answers are lost with the client
    found = client.describe_configs([resource])[resource].result(ANSWER_S)
    return {name: entry.value for name, entry in found.items()}


def alter(cluster: KafkaCluster, topic: str, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    client, resource = admin(cluster), ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    client.incremental_alter_configs([resource])[resource].result(ANSWER_S)


async def test_it_is_made_on_three_brokers_as_the_design_says(three_node_cluster: KafkaCluster) -> None:
    topic = new_topic()

    async def scenario() -> None:
        async with logs(three_node_cluster, topic, 3) as made:
            openings = await asyncio.gather(*(one.log.open() for one in made))
            assert all((opening.state, opening.entries) == (None, []) for opening in openings)
            assert all("few_replicas" not in one.text.getvalue() for one in made)

    await run(scenario())
    has = settings(three_node_cluster, str(topic.name))
    assert has.items() >= {**topic.configs, "min.insync.replicas": "2"}.items()
    (partition,) = admin(three_node_cluster).list_topics(str(topic.name)).topics[str(topic.name)].partitions.values()
    assert len(partition.replicas) == 3


@pytest.mark.parametrize("caps", [{}, {wire.FETCH_KEY: 12, wire.PRODUCE_KEY: 9}], ids=["newest", "by name"])
async def test_all_read_the_same_soon_and_every_time_is_that_of_its_append(
    target_cluster: KafkaCluster, caps: dict[int, int]
) -> None:
    topic = new_topic()

    async def scenario() -> None:
        async with logs(target_cluster, topic, 4, caps=caps) as made:
            await asyncio.gather(*(one.log.open() for one in made))
            reading = [asyncio.create_task(read_to(one.log, 200)) for one in made]

            async def beats(number: int, log: ControlLog) -> None:
                for count in range(50):
                    before_ms = time.time_ns() // 1_000_000
                    offset = await log.append([beat(count, f"w{number}")])
                    spans[offset] = before_ms, time.time_ns() // 1_000_000

            spans: dict[int, tuple[int, int]] = {}
            await asyncio.gather(*(beats(number, one.log) for number, one in enumerate(made)))
            async with within(10 * PATIENCE):
                first, *others = await asyncio.gather(*reading)
            assert all(entries == first for entries in others)
            assert [entry.offset for entry in first] == list(range(200))
            for entry in first:
                least_ms, most_ms = spans[entry.offset]
                assert least_ms - 1 <= entry.time_ms <= most_ms + 1

    await run(scenario())
    stored = read(target_cluster, str(topic.name))
    assert {message.timestamp()[0] for message in stored} == {2}  # log append time
    assert {message.key() for message in stored} == {None}


async def test_a_joiner_finds_the_snapshot_and_strangers_disturb_nobody(target_cluster: KafkaCluster) -> None:
    topic = new_topic()

    async def scenario() -> None:
        async with logs(target_cluster, topic, 2) as (first, second):
            await first.log.open()
            await first.log.append([beat(number) for number in range(9000)])
            await read_to(first.log, 9000)
            parts: Sequence[ControlRecord] = [
                Snapshot(MemberId("w1"), 1, 8990, "s", letter * (500 << 10), part, 3)
                for part, letter in enumerate("abc")
            ]
            await first.log.append(parts)
            write(target_cluster, str(topic.name), ["junk", "{}"])
            await first.log.append([beat(1)])
            opening = await second.log.open()
            assert opening.state == "".join(letter * (500 << 10) for letter in "abc")
            assert [entry.offset for entry in opening.entries] == [*range(8990, 9003), 9005]
            assert second.log.skipped == 2
            assert second.text.getvalue().count("control_log.foreign_record") == 1
            assert [entry.record for entry in await read_to(first.log, 9006)] == [*parts, beat(1)]

    await run(scenario())


@pytest.mark.parametrize(
    ("configs", "remedy"),
    [
        ({"cleanup.policy": "compact"}, "--add-config cleanup.policy=delete"),
        ({"message.timestamp.type": "CreateTime"}, "--add-config message.timestamp.type=LogAppendTime"),
    ],
)
async def test_wrong_settings_are_turned_down_and_the_remedy_mends_them(
    target_cluster: KafkaCluster, configs: dict[str, str], remedy: str
) -> None:
    topic = new_topic()
    create_topic(target_cluster, str(topic.name), 1, {**topic.configs, **configs})

    async def scenario() -> None:
        async with logs(target_cluster, topic) as (one,):
            with pytest.raises(ControlLogUnusable) as refused:
                await one.log.open()
            assert remedy in refused.value.remedy

    await run(scenario())


async def test_a_log_that_is_compacted_or_in_create_time_later_is_noticed_at_the_next_append(
    target_cluster: KafkaCluster,
) -> None:
    async def scenario() -> None:
        for name, value in (("cleanup.policy", "compact"), ("message.timestamp.type", "CreateTime")):
            topic = new_topic()
            async with logs(target_cluster, topic) as (one,):
                await one.log.open()
                await one.log.append([beat(1)])
                await asyncio.to_thread(alter, target_cluster, str(topic.name), name, value)
                with pytest.raises(ControlLogUnusable, match=name):
                    async with within(DEADLINE_S):
                        while True:  # brokers hear of settings a moment later
                            await one.log.append([beat(2)])

    await run(scenario())


@pytest.mark.parametrize("right", [AclOperation.READ, AclOperation.DESCRIBE_CONFIGS])
async def test_a_right_that_is_missing_is_named(guarded_cluster: KafkaCluster, right: AclOperation) -> None:
    topic = new_topic()
    create_topic(guarded_cluster, str(topic.name), 1, topic.configs)
    write(guarded_cluster, str(topic.name), ["junk"])

    async def scenario() -> None:
        async with logs(guarded_cluster, topic) as (one,):
            if right is AclOperation.DESCRIBE_CONFIGS:
                await one.log.open()
                assert "DESCRIBE_CONFIGS" in one.text.getvalue()
                assert await one.log.append([beat(1)]) == 1
            else:
                with pytest.raises(ControlLogUnusable, match="READ and WRITE"):
                    await one.log.open()

    with without_right(guarded_cluster, str(topic.name), right):
        await run(scenario())


async def test_a_recreated_topic_is_lost_for_its_readers(target_cluster: KafkaCluster) -> None:
    topic = new_topic()

    async def scenario() -> None:
        async with logs(target_cluster, topic) as (one,):
            await one.log.open()
            await one.log.append([beat(number) for number in range(5)])
            await read_to(one.log, 5)
            await asyncio.to_thread(delete_topic, target_cluster, str(topic.name))
            await asyncio.to_thread(create_topic, target_cluster, str(topic.name), 1, topic.configs)
            await asyncio.to_thread(write, target_cluster, str(topic.name), ["x"] * 20)
            with pytest.raises(ControlLogLost):
                await read_to(one.log, 100)
            assert (await one.log.open()).entries == []
            assert await one.log.append([beat(1)]) == 20

    await run(scenario())


async def test_a_killed_leader_costs_the_time_until_it_is_noticed(three_node_cluster: KafkaCluster) -> None:
    topic = new_topic()

    async def scenario() -> None:
        async with logs(three_node_cluster, topic, 2) as (one, other):
            await one.log.open()
            await other.log.open()
            await one.log.append([beat(0)])
            assert len(await read_to(other.log, 1)) == 1
            found = (await fetch_metadata(one.brokers, [str(topic.name)])).topics[str(topic.name)]
            leader = found.partitions[0].leader
            assert leader is not None
            await asyncio.to_thread(three_node_cluster.broker(leader).kill)
            async with within(DEADLINE_S):
                last = await one.log.append([beat(1)])
                entries = await read_to(other.log, last + 1)
            assert {str(entry.record) for entry in entries} == {str(beat(1))}

    three = new_name("three")
    try:
        await run(scenario())
        create_topic(three_node_cluster, three, replicas=3)  # as the broker model: one that is away counts
        (partition,) = admin(three_node_cluster).list_topics(three).topics[three].partitions.values()
        assert (len(partition.replicas), len(partition.isrs)) == (3, 2)
    finally:
        three_node_cluster.start()


async def test_a_log_that_an_unclean_election_cut_back_is_lost_for_its_readers(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    """H7. One broker has the last records alone and dies with them; the other comes back without, and leads."""
    cluster = make_cluster("cut", nodes=3)
    topic = new_topic()
    unclean = {**topic.configs, "unclean.leader.election.enable": "true", "min.insync.replicas": "1"}

    async def scenario() -> None:
        async with logs(cluster, topic) as (one,):
            create_topic(cluster, str(topic.name), 1, unclean, replicas=2)
            await one.log.open()
            await one.log.append([beat(0)])
            part = admin(cluster).list_topics(str(topic.name)).topics[str(topic.name)].partitions[0]
            (follower,) = set(part.replicas) - {part.leader}
            await asyncio.to_thread(cluster.broker(follower).stop)
            last = await one.log.append([beat(1)])
            await read_to(one.log, last + 1)
            await asyncio.to_thread(cluster.broker(part.leader).kill)
            cluster.broker(follower).start(wait=False)
            with pytest.raises(ControlLogLost):
                await read_to(one.log, 1000)
            entries = (await one.log.open()).entries
            assert {str(entry.record) for entry in entries} == {str(beat(0))}

    await run(scenario())

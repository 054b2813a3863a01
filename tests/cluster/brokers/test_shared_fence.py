"""Several workers shut one dead producer out of partitions at once, with the epoch that their leader has raised."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.clock import SystemClock
from mm2py.copying.recovery import fence_and_prove
from mm2py.kafka.cluster import Cluster, fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.producer.fencing import PreviousProducer
from mm2py.kafka.producer.incarnation import OwnProducer
from tests.cluster import kafka_client
from tests.cluster.running import DEADLINE_S, until, within

PARTITIONS = 50
WORKERS = 6


def connect(kafka: KafkaCluster, number: int) -> Cluster:
    addresses = [address.split(":") for address in kafka.bootstrap.split(",")]
    places = [(host, int(port)) for host, port in addresses]
    return Cluster("target", places, rng=random.Random(number), client_id=f"worker-{number}")


async def begin(cluster: Cluster, transactional_id: str) -> OwnProducer:
    dead = OwnProducer(cluster, transactional_id, rng=random.Random(1))

    async def has_begun() -> bool:
        with contextlib.suppress(BrokerRefused):
            await dead.ask()
            return True
        return False

    await until(has_begun, "the coordinator lets it begin")
    return dead


@pytest.mark.slow
async def test_workers_that_fence_one_dead_producer_with_the_same_epoch_at_once_all_read_their_markers(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    """Each has topics of its own; all share one transactional id, its epoch, and so its transactions."""
    kafka = make_cluster(nodes=3)
    name = f"dead-{uuid.uuid4().hex[:8]}"
    topics = [f"{name}.{number}" for number in range(WORKERS)]
    for topic in topics:
        kafka_client.create_topic(kafka, topic, PARTITIONS, {})
    clusters = [connect(kafka, number) for number in range(WORKERS)]
    try:
        dead = (await begin(clusters[0], name)).identity
        producers = [
            PreviousProducer(cluster, name, dead.producer_id, dead.epoch, rng=random.Random(number))
            for number, cluster in enumerate(clusters)
        ]
        epoch = await producers[0].fence([])

        async def fence_at(number: int) -> int:
            cluster, topic = clusters[number], topics[number]
            producers[number].learn_fence_epoch(epoch)
            found = (await fetch_metadata(cluster, [topic])).topics[topic]
            return await fence_and_prove(
                cluster, producers[number], [found], clock=SystemClock(), rng=random.Random(number)
            )

        for _ in range(3):
            async with within(DEADLINE_S):
                assert await asyncio.gather(*map(fence_at, range(WORKERS))) == [epoch] * WORKERS
        another = PreviousProducer(clusters[0], name, dead.producer_id, dead.epoch, rng=random.Random(1))
        assert await another.fence([]) == epoch + 1, "nobody has raised it meanwhile"
    finally:
        await asyncio.gather(*(cluster.close() for cluster in clusters))

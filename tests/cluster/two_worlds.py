"""The same steps on the broker model and on a real broker, each giving answers that can be compared.

Both stand behind ``mm2py.kafka.port.Brokers``: the real one through mm2py's own wire layer. What the port has no
request for (transactions, DeleteRecords, deleting a topic) the real side does through librdkafka.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.list_offsets import LATEST, list_offsets
from mm2py.kafka.port import BrokerId, Brokers, FetchRequest, PartitionFetch, TopicFetch
from tests.cluster import kafka_client
from tests.cluster.running import ANSWER_S, paused, until
from tests.fakes.broker.broker_model import ClusterModel, Record, Transaction
from tests.fakes.broker.record_batch import parse_batches
from tests.fakes.virtual_time import VirtualClock, run_virtual

NODE: Final = BrokerId(1)
"""Both sides have a broker of this id, mostly no other."""

ResultT = TypeVar("ResultT")


class World(Protocol):
    """One side. Topics go by the names of the schedule; ``name_of`` tells what a side calls them."""

    @property
    def brokers(self) -> Brokers: ...
    def name_of(self, topic: str) -> str: ...
    async def create_topic(self, topic: str, configs: Mapping[str, str]) -> None: ...
    async def recreate_topic(self, topic: str) -> None: ...
    async def delete_records(self, topic: str, before_offset: int) -> None: ...
    async def write_in_transaction(self, client: str, topic: str, values: list[bytes]) -> None: ...
    async def end_transaction(self, client: str, *, commit: bool) -> None: ...
    async def clean(self, topic: str) -> None: ...
    async def restart(self, *, clean: bool) -> None: ...
    async def stop(self, node: int) -> None: ...
    async def start(self, node: int) -> None: ...


class ModelWorld:
    """The broker model."""

    def __init__(
        self, *, now_ms: int, seed: int = 1, nodes: int = 1, broker_config: Mapping[str, str] | None = None
    ) -> None:
        self.clock = VirtualClock(epoch_ms=now_ms)
        self.cluster = ClusterModel("model", self.clock, random.Random(seed), nodes=nodes, broker_config=broker_config)
        self._transactions: dict[str, Transaction] = {}

    @property
    def brokers(self) -> Brokers:
        return self.cluster

    def name_of(self, topic: str) -> str:
        return topic

    async def create_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        self.cluster.create_topic(topic, configs=configs)

    async def recreate_topic(self, topic: str) -> None:
        self.cluster.recreate_topic(topic)

    async def delete_records(self, topic: str, before_offset: int) -> None:
        self.cluster.delete_records(topic, 0, before_offset)

    async def write_in_transaction(self, client: str, topic: str, values: list[bytes]) -> None:
        transaction = self._transactions.setdefault(client, self.cluster.transaction())
        transaction.append(topic, 0, [Record(value) for value in values])

    async def end_transaction(self, client: str, *, commit: bool) -> None:
        if commit:
            self._transactions[client].commit()
        else:
            self._transactions[client].abort()

    async def clean(self, topic: str) -> None:
        self.cluster.compact(topic)

    async def restart(self, *, clean: bool) -> None:
        self.cluster.stop_broker(NODE, clean=clean)
        await paused(20, "the broker is away")
        self.cluster.start_broker(NODE)
        await paused(1, "it is there")

    async def stop(self, node: int) -> None:
        self.cluster.stop_broker(node)

    async def start(self, node: int) -> None:
        self.cluster.start_broker(node)


class RealWorld:
    """A real broker of one node, whose topics get names of their own."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self._kafka = kafka
        self._suffix = uuid.uuid4().hex[:8]
        addresses = [address.split(":") for address in kafka.bootstrap.split(",")]
        self._cluster = Cluster(
            "real", [(host, int(port)) for host, port in addresses], rng=random.Random(1), client_id="two-worlds"
        )
        self._producers: dict[str, Producer] = {}
        self._touched: dict[str, dict[str, None]] = {}
        self._configs: dict[str, dict[str, str]] = {}

    @property
    def brokers(self) -> Brokers:
        return self._cluster

    def name_of(self, topic: str) -> str:
        return f"{topic}-{self._suffix}"

    async def create_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        self._configs[topic] = dict(configs)
        await asyncio.to_thread(kafka_client.create_topic, self._kafka, self.name_of(topic), 1, configs)
        await self._until_led(topic)

    async def recreate_topic(self, topic: str) -> None:
        await asyncio.to_thread(kafka_client.delete_topic, self._kafka, self.name_of(topic))
        await self.create_topic(topic, self._configs[topic])

    async def delete_records(self, topic: str, before_offset: int) -> None:
        place = TopicPartition(self.name_of(topic), 0, before_offset)
        client = kafka_client.admin(self._kafka)
        await asyncio.to_thread(lambda: client.delete_records([place])[place].result(ANSWER_S))

    async def write_in_transaction(self, client: str, topic: str, values: list[bytes]) -> None:
        self._touched.setdefault(client, {})[topic] = None
        await asyncio.to_thread(self._write, client, topic, values)

    def _write(self, client: str, topic: str, values: list[bytes]) -> None:
        producer = self._producers.get(client)
        if producer is None:
            producer = self._producers[client] = Producer(
                {
                    "bootstrap.servers": self._kafka.internal_bootstrap,
                    "transactional.id": self.name_of(client),
                    "linger.ms": 50,
                    "log_level": 0,
                }
            )
            producer.init_transactions(ANSWER_S)
            producer.begin_transaction()
        for value in values:
            producer.produce(self.name_of(topic), value, partition=0)
        assert producer.flush(ANSWER_S) == 0

    async def end_transaction(self, client: str, *, commit: bool) -> None:
        producer, touched = self._producers[client], self._touched.pop(client)
        before = {topic: await self._high_watermark(topic) for topic in touched}
        await asyncio.to_thread(producer.commit_transaction if commit else producer.abort_transaction, ANSWER_S)
        producer.begin_transaction()
        for topic in touched:  # the coordinator answers before the markers are written

            async def has_marker(topic: str = topic) -> bool:
                return await self._high_watermark(topic) > before[topic]

            await until(has_marker, f"a marker is in {topic}")

    async def stop(self, node: int) -> None:
        await asyncio.to_thread(self._kafka.broker(node).stop)

    async def start(self, node: int) -> None:
        await asyncio.to_thread(self._kafka.broker(node).start)

    async def _until_led(self, topic: str) -> None:
        """Ask what only a leader answers until it does; a fetch would not do, for a follower answers that too."""
        place = self.name_of(topic), 0

        async def is_led() -> bool:
            return not (await list_offsets(self.brokers, {place: NODE}, LATEST))[place].error_code

        await until(is_led, f"somebody leads {topic}")

    async def _high_watermark(self, topic: str) -> int:
        want = TopicFetch(self.name_of(topic), None, [PartitionFetch(0, 0, 1)])
        reply = await self.brokers.send(NODE, FetchRequest([want], 0, 0, 1, read_committed=False))
        return reply.partitions[0].high_watermark

    async def clean(self, topic: str) -> None:
        """Let the cleaner go over all in one pass; it is done when it has changed the log and left it for a while."""
        resource = ConfigResource(
            ConfigResource.Type.TOPIC,
            self.name_of(topic),
            incremental_configs=[
                ConfigEntry("min.cleanable.dirty.ratio", "0.001", incremental_operation=AlterConfigOpType.SET)
            ],
        )
        client = kafka_client.admin(self._kafka)
        untouched = await self._all_bytes(topic)
        await asyncio.to_thread(lambda: client.incremental_alter_configs([resource])[resource].result(ANSWER_S))
        before: list[bytes] = []

        async def is_cleaned() -> bool:
            nonlocal before
            await paused(1, "it is left alone for a while")
            last, before = before, await self._all_bytes(topic)
            return before == last != untouched

        await until(is_cleaned, f"{topic} is cleaned")

    async def _all_bytes(self, topic: str) -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while True:
            want = TopicFetch(self.name_of(topic), None, [PartitionFetch(0, offset, 1 << 20)])
            reply = await self.brokers.send(NODE, FetchRequest([want], 0, 0, 1 << 20, read_committed=False))
            batches = parse_batches(reply.partitions[0].records)
            if not batches:
                return found
            found += [batch.raw for batch in batches]
            offset = batches[-1].last_offset + 1

    async def restart(self, *, clean: bool) -> None:
        def bounce() -> None:
            if clean:
                self._kafka.brokers[0].stop()
            else:
                self._kafka.brokers[0].kill()
            self._kafka.brokers[0].start()

        await asyncio.to_thread(bounce)
        for topic in self._configs:
            await self._until_led(topic)

    async def close(self) -> None:
        await self._cluster.close()


def on_model(steps: Callable[[World], Awaitable[ResultT]], *, now_ms: int, **arguments: Any) -> ResultT:
    """Play the steps on a new model whose clock shows ``now_ms``."""

    async def play() -> ResultT:
        return await steps(ModelWorld(now_ms=now_ms, **arguments))

    return run_virtual(play())


def on_broker(steps: Callable[[World], Awaitable[ResultT]], kafka: KafkaCluster) -> ResultT:
    """Play the steps on a real broker."""

    async def play() -> ResultT:
        world = RealWorld(kafka)
        try:
            return await steps(world)
        finally:
            await world.close()

    return asyncio.run(play())


def on_both(
    steps: Callable[[World], Awaitable[ResultT]], kafka: KafkaCluster, *, now_ms: int, **arguments: Any
) -> tuple[ResultT, ResultT]:
    """Play the steps on both sides; return what the model and what the broker answered."""
    return on_model(steps, now_ms=now_ms, **arguments), on_broker(steps, kafka)

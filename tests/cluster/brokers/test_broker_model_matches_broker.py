"""The broker model gives the answers of a real broker, and keeps the log that a real broker keeps.

Scenario tests believe the model; this is why they may. Each schedule is generated from a seed and played on both sides
through the same port; producer ids that brokers give out, topic ids and times of appending are compared by role, all
else literally. A model that is found wrong here is to be mended, not the schedule.
"""

from __future__ import annotations

import datetime
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from kio.schema.types import BrokerId as KioBrokerId
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from deploy.local.broker_settings import COMPACT_AT_ONCE
from deploy.local.kafka import KafkaCluster
from mm2py.kafka import messages
from mm2py.kafka.port import (
    ANY_BROKER,
    BrokerId,
    FetchRequest,
    PartitionFetch,
    PartitionProduce,
    ProduceRequest,
    TopicFetch,
    TopicProduce,
)
from tests.cluster.running import until
from tests.cluster.two_worlds import NODE, World, on_both
from tests.fakes.broker.record_batch import (
    CODECS,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    SEQUENCES,
    Batch,
    Record,
    build_batch,
    encode_records,
    has_valid_crc,
    parse_batch,
    parse_batches,
    read_records,
    rewrite,
)

_KEPT: Final = {"retention.ms": "-1"}
"""Half of the records are two years old; neither retention nor the cleaner may strike while a schedule is played."""
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": _KEPT,
    "small": {**_KEPT, "max.message.bytes": "200"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"},
    "gzip": {**_KEPT, "compression.type": "gzip"},
    "unpacked": {**_KEPT, "compression.type": "uncompressed"},
    "appended": {**_KEPT, "message.timestamp.type": "LogAppendTime"},
}
RECOMPRESSED: Final = frozenset({"gzip", "unpacked"})
HOUR_MS: Final = 3_600_000
YEAR_MS: Final = 365 * 24 * HOUR_MS

Answer = tuple[Any, ...]
Step = Callable[[World], "Any"]


@dataclass
class Names:
    """Turns what a side made up (producer ids, topic ids) into the order in which it did."""

    known: dict[Any, int] = field(default_factory=dict)

    def __call__(self, thing: Any) -> int:
        return self.known.setdefault(thing, len(self.known))


async def ask(world: World, request: Any, *, anywhere: bool = False, node: BrokerId = NODE) -> Any:
    return await world.brokers.send(ANY_BROKER if anywhere else node, request)


async def topic_id(world: World, topic: str) -> uuid.UUID | None:
    found = (await describe(world, topic)).topic_id
    assert found is None or isinstance(found, uuid.UUID)
    return found


async def describe(world: World, topic: str) -> messages.MetadataResponseTopic:
    request = messages.MetadataRequest(
        topics=(messages.MetadataRequestTopic(topic_id=None, name=TopicName(world.name_of(topic))),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    found: messages.MetadataResponseTopic = (await ask(world, request, anywhere=True)).topics[0]
    return found


async def produce(
    world: World, topic: str, raw: bytes, by_id: uuid.UUID | None = None, *, node: BrokerId = NODE
) -> Answer:
    request = ProduceRequest([TopicProduce(world.name_of(topic), by_id, [PartitionProduce(0, raw)])], 10_000)
    part = (await world.brokers.send(node, request)).partitions[0]
    time_ms = part.log_append_time_ms
    if topic == "appended":
        time_ms = min(time_ms, 0)
    return "produce", topic, part.error_code, part.base_offset, time_ms, part.log_start_offset


async def fetch(
    world: World,
    topic: str,
    offset: int,
    *,
    max_bytes: int = 1 << 20,
    committed: bool = False,
    epoch: int = -1,
    last_fetched_epoch: int = -1,
    by_id: uuid.UUID | None = None,
    node: BrokerId = NODE,
) -> Answer:
    want = PartitionFetch(0, offset, max_bytes, epoch, last_fetched_epoch)
    request = FetchRequest([TopicFetch(world.name_of(topic), by_id, [want])], 0, 1, 1 << 24, committed)
    part = (await world.brokers.send(node, request)).partitions[0]
    batches = parse_batches(part.records, allow_cut=True)
    return (
        "fetch",
        topic,
        offset,
        part.error_code,
        part.high_watermark,
        part.last_stable_offset,
        part.log_start_offset,
        part.diverging_epoch,
        len(part.aborted),
        None if topic in RECOMPRESSED else part.records.nbytes,
        [seen(batch, topic) for batch in batches],
    )


def seen(batch: Batch, topic: str) -> Answer:
    """Return all that two brokers should agree on."""
    assert has_valid_crc(batch)
    return (
        batch.base_offset,
        batch.partition_leader_epoch,
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        0 if batch.log_append_time else batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.count,
        [(record.offset, *record.content[: 3 if batch.log_append_time else 4]) for record in read_records(batch)],
        None if topic in RECOMPRESSED else batch.raw[61:],
    )


async def list_offset(
    world: World, topic: str, timestamp: int, *, committed: bool = False, epoch: int = -1, node: BrokerId = NODE
) -> Answer:
    request = messages.ListOffsetsRequest(
        replica_id=KioBrokerId(-1),
        isolation_level=i8(int(committed)),
        topics=(
            messages.ListOffsetsTopic(
                name=TopicName(world.name_of(topic)),
                partitions=(
                    messages.ListOffsetsPartition(
                        partition_index=i32(0), current_leader_epoch=i32(epoch), timestamp=i64(timestamp)
                    ),
                ),
            ),
        ),
    )
    part = (await ask(world, request, node=node)).topics[0].partitions[0]
    found_ms, offset = int(part.timestamp), int(part.offset)
    if topic == "appended":
        found_ms = min(found_ms, 0)
        offset = -1 if timestamp == -3 else offset  # which batches share a millisecond is chance
    return "list", topic, timestamp, int(part.error_code), found_ms, offset, int(part.leader_epoch)


async def epoch_end(world: World, topic: str, epoch: int, current: int = -1, *, node: BrokerId = NODE) -> Answer:
    request = messages.OffsetForLeaderEpochRequest(
        replica_id=KioBrokerId(-1),
        topics=(
            messages.OffsetForLeaderTopic(
                topic=TopicName(world.name_of(topic)),
                partitions=(
                    messages.OffsetForLeaderPartition(
                        partition=i32(0), current_leader_epoch=i32(current), leader_epoch=i32(epoch)
                    ),
                ),
            ),
        ),
    )
    part = (await ask(world, request, node=node)).topics[0].partitions[0]
    return "epoch", topic, epoch, int(part.error_code), int(part.leader_epoch), int(part.end_offset)


async def create(
    world: World, topic: str, partitions: int, factor: int, configs: Mapping[str, str], *, validate_only: bool
) -> Answer:
    request = messages.CreateTopicsRequest(
        topics=(
            messages.CreatableTopic(
                name=TopicName(world.name_of(topic)),
                num_partitions=i32(partitions),
                replication_factor=i16(factor),
                assignments=(),
                configs=tuple(messages.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()),
            ),
        ),
        validate_only=validate_only,
    )
    made = (await ask(world, request, anywhere=True)).topics[0]
    return "create", topic, int(made.error_code), int(made.num_partitions), int(made.replication_factor)


async def widen(world: World, topic: str, count: int) -> Answer:
    request = messages.CreatePartitionsRequest(
        topics=(
            messages.CreatePartitionsTopic(name=TopicName(world.name_of(topic)), count=i32(count), assignments=None),
        ),
        timeout=i32Timedelta.parse(datetime.timedelta(seconds=10)),
        validate_only=False,
    )
    return "widen", topic, count, int((await ask(world, request, anywhere=True)).results[0].error_code)


async def configs_of(world: World, topic: str, keys: Sequence[str]) -> Answer:
    request = messages.DescribeConfigsRequest(
        resources=(
            messages.DescribeConfigsResource(
                resource_type=i8(2), resource_name=world.name_of(topic), configuration_keys=tuple(keys)
            ),
        )
    )
    result = (await ask(world, request)).results[0]
    entries = sorted((entry.name, entry.value, int(entry.config_source)) for entry in result.configs)
    return "configs", topic, int(result.error_code), entries


async def init_producer_id(
    world: World, names: Names, name: str | None, expected: tuple[int, int] = (-1, -1)
) -> tuple[Answer, tuple[int, int]]:
    request = messages.InitProducerIdRequest(
        transactional_id=None if name is None else TransactionalId(name and world.name_of(name)),
        transaction_timeout=i32Timedelta.parse(datetime.timedelta(seconds=10)),
        producer_id=ProducerId(expected[0]),
        producer_epoch=i16(expected[1]),
    )

    async def given() -> messages.InitProducerIdResponse | None:
        reply = await ask(world, request)
        return None if int(reply.error_code) in {14, 15, 16, 51} else reply

    reply = await until(given, "a new broker has a coordinator")
    got = int(reply.producer_id), int(reply.producer_epoch)
    return ("init", name, int(reply.error_code), names(got[0]) if got[0] >= 0 else -1, got[1]), got


# ---- generated schedules


class Schedule:
    """Steps drawn from a seed, mostly such as a correct client takes, some of them wrong."""

    def __init__(self, seed: int, now_ms: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = now_ms
        self._sequences: dict[tuple[str, int, int], int] = {}
        self._sent: list[tuple[str, bytes]] = []

    def batch(self, topic: str) -> bytes:
        """Return a batch to produce, and remember the sequence a correct client would continue with."""
        rng = self.rng
        count = rng.randint(1, 4)
        at_ms = self.now_ms - rng.choice([0, 0, 1000, 2 * YEAR_MS]) + (2 * HOUR_MS if rng.random() < 0.05 else 0)
        records = [
            Record(
                value=None if rng.random() < 0.1 else rng.randbytes(rng.choice([0, 5, 40, 90])),
                key=None if rng.random() < 0.15 else b"k%d" % rng.randrange(4),
                headers=tuple((f"h{n}", rng.choice([None, b"", b"x"])) for n in range(rng.randrange(3))),
                timestamp_ms=at_ms + rng.randrange(-50, 50),
            )
            for _ in range(count)
        ]
        producer_id = rng.choice([-1, 9_000_001, 9_000_002])
        epoch = rng.choice([0, 0, 0, 1, 2])
        sequence = -1
        if producer_id >= 0:
            key = topic, producer_id, epoch
            sequence = self._sequences.get(key, rng.choice([0, 0, 7, SEQUENCES - 2]))
            if rng.random() < 0.15:
                sequence = (sequence + rng.choice([-count, -1, 1, 5])) % SEQUENCES
            self._sequences[key] = (sequence + count) % SEQUENCES
        else:
            epoch = -1
        raw = build_batch(
            records, codec=rng.choice(CODECS), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        return self._spoil(raw) if rng.random() < 0.15 else raw

    def _spoil(self, raw: bytes) -> bytes:
        batch = parse_batch(raw)
        flipped = bytearray(raw)
        flipped[self.rng.randrange(21, len(raw))] ^= 1 << self.rng.randrange(8)
        wide = encode_records([(0, self.now_ms, b"k", b"v", ())], last_offset_delta=3)
        return self.rng.choice(
            [
                rewrite(batch, base_offset=3).raw,
                rewrite(batch, partition_leader_epoch=77).raw,
                rewrite(batch, attributes=batch.attributes | CONTROL).raw,
                rewrite(batch, attributes=batch.attributes | LOG_APPEND_TIME).raw,
                rewrite(batch, attributes=batch.attributes | DELETE_HORIZON).raw,
                rewrite(batch, attributes=batch.attributes | 0x10).raw,
                rewrite(batch, attributes=batch.attributes & ~7 | 6).raw,
                rewrite(batch, max_timestamp=batch.max_timestamp + 5000).raw,
                bytes(flipped),
                wide,
                raw * 2,
                raw + b"\x00" * 30,
                raw[: len(raw) // 2],
                b"",
            ]
        )

    def steps(self, length: int) -> list[Callable[[World], Any]]:
        return [self._step() for _ in range(length)]

    def _step(self) -> Callable[[World], Any]:
        rng = self.rng
        topic = rng.choice([*TOPICS, "missing"]) if rng.random() < 0.9 else "plain"
        kind = rng.random()
        if kind < 0.5:
            if self._sent and rng.random() < 0.2:
                topic, raw = rng.choice(self._sent[-8:])
            else:
                raw = self.batch(topic)
                self._sent.append((topic, raw))
            return lambda world: produce(world, topic, raw)
        offset = rng.choice([rng.randrange(60), rng.randrange(10), -1, 100_000])
        epoch = rng.choice([-1, -1, -1, 0, 1])
        last = rng.choice([-1, -1, 0, 1])
        committed = rng.random() < 0.5
        if kind < 0.75:
            max_bytes = rng.choice([0, 1, 100, 250, 1000, 1 << 20])
            return lambda world: fetch(
                world,
                topic,
                offset,
                max_bytes=max_bytes,
                committed=committed,
                epoch=epoch,
                last_fetched_epoch=last,
            )
        if kind < 0.9:
            at_ms = rng.choice([-1, -2, -3, 0, self.now_ms - 500, self.now_ms - YEAR_MS, self.now_ms + 9 * HOUR_MS])
            return lambda world: list_offset(world, topic, at_ms, committed=committed, epoch=epoch)
        if kind < 0.96:
            return lambda world: epoch_end(world, topic, last, epoch)
        before = rng.randrange(30)

        async def trim(world: World) -> Answer:
            """Delete records, if so many are there: a real broker refuses to delete what does not exist."""
            name = "plain"
            end = (await list_offset(world, name, -1))[-2]
            if before <= end:
                await world.delete_records(name, before)
            return "trim", before, end

        return trim


@pytest.mark.parametrize("seed", range(8))
def test_generated_schedules_get_the_same_answers_and_leave_the_same_logs(
    target_cluster: KafkaCluster, seed: int
) -> None:
    now_ms = time.time_ns() // 1_000_000
    steps = Schedule(seed, now_ms).steps(300)

    async def play(world: World) -> list[Answer]:
        for topic, configs in TOPICS.items():
            await world.create_topic(topic, configs)
        answers = [await step(world) for step in steps]
        return answers + [await fetch(world, topic, await first_offset(world, topic)) for topic in TOPICS]

    expected, got = on_both(play, target_cluster, now_ms=now_ms)
    for number, (model, broker) in enumerate(zip(expected, got, strict=True)):
        assert model == broker, f"seed {seed}, step {number} of {len(expected)}"


async def first_offset(world: World, topic: str) -> int:
    return int((await list_offset(world, topic, -2))[-2])


# ---- what needs a story


def test_transactions_look_the_same_to_readers_of_both_kinds(target_cluster: KafkaCluster) -> None:
    async def play(world: World) -> list[Answer]:
        await world.create_topic("tx", {})
        answers: list[Answer] = []
        names = Names()

        async def look() -> None:
            answers.extend(
                [await _shape(world, "tx", offset, committed) for offset in range(12) for committed in (0, 1)]
            )

        async def _shape(world: World, topic: str, offset: int, committed: int) -> Answer:
            want = PartitionFetch(0, offset, 1 << 20)
            request = FetchRequest([TopicFetch(world.name_of(topic), None, [want])], 0, 1, 1 << 20, bool(committed))
            part = (await world.brokers.send(NODE, request)).partitions[0]
            return (
                offset,
                committed,
                part.error_code,
                part.high_watermark,
                part.last_stable_offset,
                [(names(producer_id), first) for producer_id, first in part.aborted],
                [
                    (names(batch.producer_id), batch.base_offset, batch.count, batch.attributes, batch.base_sequence)
                    for batch in parse_batches(part.records)
                ],
                await list_offset(world, topic, -1, committed=bool(committed)),
            )

        await world.write_in_transaction("one", "tx", [b"1", b"2"])
        await world.write_in_transaction("two", "tx", [b"3"])
        await look()
        await world.end_transaction("one", commit=False)
        await look()
        await produce(world, "tx", build_batch([Record(b"plain", timestamp_ms=0)]))
        await world.write_in_transaction("one", "tx", [b"4"])
        await world.end_transaction("two", commit=True)
        await look()
        await world.end_transaction("one", commit=True)
        await world.write_in_transaction("two", "tx", [b"5"])
        await world.end_transaction("two", commit=False)
        await look()
        return answers

    expected, got = on_both(play, target_cluster, now_ms=time.time_ns() // 1_000_000)
    for model, broker in zip(expected, got, strict=True):
        assert model == broker


def test_topics_are_created_widened_described_and_recreated_alike(target_cluster: KafkaCluster) -> None:
    async def play(world: World) -> list[Answer]:
        answers = [
            await create(world, "a", 2, 1, {"retention.ms": "1000"}, validate_only=False),
            await create(world, "a", 1, 1, {}, validate_only=False),
            await create(world, "b", 0, 1, {}, validate_only=False),
            await create(world, "b", 1, 2, {}, validate_only=False),
            await create(world, "b", 1, 0, {}, validate_only=False),
            await create(world, "b", -1, -1, {}, validate_only=True),
            await create(world, "b", 1, 1, {"no.such": "1"}, validate_only=False),
            await create(world, "b", 1, 1, {"cleanup.policy": "burn"}, validate_only=False),
            await create(world, "b", 1, 1, {"max.message.bytes": "-5"}, validate_only=False),
            await create(world, "b/c", 1, 1, {}, validate_only=False),
            await create(world, "b" * 250, 1, 1, {}, validate_only=False),
            await create(world, "dot.ted", 1, 1, {}, validate_only=False),
            await create(world, "dot_ted", 1, 1, {}, validate_only=False),
            await widen(world, "a", 2),
            await widen(world, "a", 1),
            await widen(world, "a", 4),
            await widen(world, "missing", 4),
            await configs_of(world, "a", ["retention.ms", "segment.bytes", "compression.type"]),
            await configs_of(world, "missing", ["retention.ms"]),
        ]
        await world.create_topic("r", {})
        for topic in ("a", "r", "missing", "b/c"):
            found = await _settled(world, topic, 4 if topic == "a" else 1)
            answers.append(
                (
                    topic,
                    int(found.error_code),
                    found.topic_id is None,
                    found.is_internal,
                    sorted(
                        (int(part.partition_index), int(part.error_code), int(part.leader_id), int(part.leader_epoch))
                        for part in found.partitions
                    ),
                )
            )
        old_id = await topic_id(world, "r")
        raw = build_batch([Record(b"v", timestamp_ms=0)])
        answers.append(await produce(world, "r", raw, old_id))
        await world.recreate_topic("r")
        new_id = await topic_id(world, "r")
        assert new_id != old_id
        for by_id in (old_id, new_id, None):
            answers.append(await produce(world, "r", raw, by_id))
            answers.append(await fetch(world, "r", 0, by_id=by_id))
        return answers

    async def _settled(world: World, topic: str, partitions: int) -> messages.MetadataResponseTopic:
        async def seen() -> messages.MetadataResponseTopic | None:
            found = await describe(world, topic)
            return found if len(found.partitions) == partitions or int(found.error_code) else None

        return await until(seen, f"{topic} has {partitions} partitions, or is refused")

    expected, got = on_both(play, target_cluster, now_ms=time.time_ns() // 1_000_000)
    for model, broker in zip(expected, got, strict=True):
        assert model == broker


def test_producer_ids_and_epochs_are_given_out_alike(target_cluster: KafkaCluster) -> None:
    async def play(world: World) -> list[Answer]:
        names = Names()
        answers: list[Answer] = []

        async def init(name: str | None, expected: tuple[int, int] = (-1, -1)) -> tuple[int, int]:
            answer, got = await init_producer_id(world, names, name, expected)
            answers.append(answer)
            return got

        producer_id, _ = await init("x")
        await init("x", (producer_id, 0))
        await init("x", (producer_id, 0))
        await init("x")
        await init("x", (producer_id, 0))
        await init("x", (producer_id, 1))
        await init("x", (producer_id, 2))
        await init("x", (producer_id + 1000, 3))
        await init("x", (producer_id, 9))
        await init("y", (producer_id, 3))
        await init("")
        await init(None)
        await init(None)
        await init(None, (producer_id, 3))
        return answers

    expected, got = on_both(play, target_cluster, now_ms=time.time_ns() // 1_000_000)
    for model, broker in zip(expected, got, strict=True):
        assert model == broker


def test_groups_that_nobody_knows_are_dead(target_cluster: KafkaCluster) -> None:
    async def play(world: World) -> list[Answer]:
        request = messages.DescribeGroupsRequest(groups=(GroupId("nobody"),), include_authorized_operations=False)
        found = messages.FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("nobody",))

        async def answers() -> list[Answer] | None:
            reply = await ask(world, found)
            group = (await ask(world, request)).groups[0]
            if reply.coordinators[0].error_code or group.error_code:
                return None
            return [
                (int(reply.coordinators[0].error_code), int(reply.coordinators[0].node_id)),
                (int(group.error_code), group.group_state, group.protocol_type, len(group.members)),
            ]

        return await until(answers, "a new broker has a coordinator")

    expected, got = on_both(play, target_cluster, now_ms=time.time_ns() // 1_000_000)
    assert expected == got


def test_the_cleaner_leaves_the_same_records_in_batches_of_the_same_shape(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    """Every kind of batch that a cleaned source holds: thinned, emptied, with a delete horizon, and untouched."""
    now_ms = time.time_ns() // 1_000_000
    rng = random.Random(4)
    batches = []
    sequences = {-1: 0, 9_000_001: 0, 9_000_002: 0}
    for number in range(60):
        producer_id = rng.choice(list(sequences))
        records = [
            Record(
                None if rng.random() < 0.2 else rng.randbytes(10),
                key=b"k%d" % rng.randrange(3 if number < 40 else 12),
                timestamp_ms=now_ms - 1_000_000 + 1000 * number + part,
            )
            for part in range(rng.randint(1, 4))
        ]
        sequence = sequences[producer_id]
        sequences[producer_id] += len(records)
        known = producer_id >= 0
        batches.append(
            build_batch(
                records,
                codec=rng.choice(CODECS),
                producer_id=producer_id,
                producer_epoch=0 if known else -1,
                base_sequence=sequence if known else -1,
            )
        )
    overwritten = [Record(b"", key=b"k0", timestamp_ms=now_ms - 1_000_000) for _ in range(2)]
    batches.insert(0, build_batch(overwritten, producer_id=9_000_003, producer_epoch=0, base_sequence=0))
    last = build_batch([Record(b"last", key=b"alone", timestamp_ms=now_ms)])

    async def play(world: World) -> list[Answer]:
        await world.create_topic(
            "cleaned", {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "1.0"}
        )
        for raw in [*batches, last]:
            assert (await produce(world, "cleaned", raw))[2] == 0
        await world.clean("cleaned")
        found: list[Answer] = []
        offset = 0
        while batches_from := (await fetch(world, "cleaned", offset))[-1]:
            for batch in batches_from:
                base, epoch, attributes, delta, base_ms, max_ms, *rest = batch[:-1]
                found.append(
                    (base, epoch, attributes, delta, None if attributes & DELETE_HORIZON else base_ms, max_ms, *rest)
                )
                offset = base + delta + 1
        return found

    kafka = make_cluster(settings=COMPACT_AT_ONCE)
    expected, got = on_both(play, kafka, now_ms=now_ms)
    assert {bool(batch[2] & DELETE_HORIZON) for batch in got} == {True, False}
    assert {"thinned", "emptied", "whole"} == {
        "emptied" if batch[9] == 0 else "whole" if batch[9] == batch[3] + 1 else "thinned" for batch in got
    }
    for model, broker in zip(expected, got, strict=True):
        assert model == broker


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_restart_forgets_the_same_and_counts_the_same_epochs(
    make_cluster: Callable[..., KafkaCluster], clean: bool
) -> None:
    """H1 and C1: what a restarted broker still recognises, batch by batch, new records and old."""
    now_ms = time.time_ns() // 1_000_000

    async def play(world: World) -> list[Answer]:
        answers: list[Answer] = []
        await world.create_topic("r", {})
        for age_ms, producer_id in ((0, 9_000_001), (2 * YEAR_MS, 9_000_002)):
            for number in range(7):
                answers.append(await produce(world, "r", _one(now_ms - age_ms, producer_id, number)))
        await world.restart(clean=clean)
        for age_ms, producer_id in ((0, 9_000_001), (2 * YEAR_MS, 9_000_002)):
            for number in (0, 1, 2, 3, 4, 5, 6, 7):
                answers.append(await produce(world, "r", _one(now_ms - age_ms, producer_id, number)))
        led = (await describe(world, "r")).partitions[0]
        answers.append((int(led.leader_id), int(led.leader_epoch)))
        for epoch in range(-1, 4):
            answers.append(await epoch_end(world, "r", epoch))
            answers.append(await fetch(world, "r", 14, epoch=epoch))
            answers.append(await fetch(world, "r", 14, last_fetched_epoch=epoch))
        answers.append(await list_offset(world, "r", -1))
        answers.append(await list_offset(world, "r", -2))
        return answers

    def _one(at_ms: int, producer_id: int, number: int) -> bytes:
        record = Record(b"%d" % number, timestamp_ms=at_ms)
        return build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=number)

    expected, got = on_both(play, make_cluster(), now_ms=now_ms)
    for number, (model, broker) in enumerate(zip(expected, got, strict=True)):
        assert model == broker, f"answer {number} of {len(expected)}"


def test_three_brokers_lead_follow_and_take_over_alike(make_cluster: Callable[..., KafkaCluster]) -> None:
    """Followers answer fetches and nothing else; a new leader knows the producers, old records and all (C1)."""
    now_ms = time.time_ns() // 1_000_000
    sent = [
        build_batch([Record(b"%d" % n, timestamp_ms=now_ms - age)], producer_id=pid, producer_epoch=0, base_sequence=n)
        for age, pid in ((0, 9_000_001), (2 * YEAR_MS, 9_000_002))
        for n in range(7)
    ]

    async def leader_of(world: World, topic: str, *, but: int = -1) -> tuple[BrokerId, int]:
        async def leader() -> tuple[BrokerId, int] | None:
            for part in (await describe(world, topic)).partitions:
                node = BrokerId(part.leader_id)
                if node not in {-1, but} and not (await list_offset(world, topic, -1, node=node))[3]:
                    return node, int(part.leader_epoch)
            return None

        return await until(leader, f"{topic} has a leader")

    async def play(world: World) -> list[Answer]:
        answers = [
            await create(world, "three", 1, 3, {"retention.ms": "-1"}, validate_only=False),
            await create(world, "one", 1, 1, {}, validate_only=False),
        ]
        (leader, _), (home, _) = await leader_of(world, "three"), await leader_of(world, "one")
        follower = next(BrokerId(node) for node in (1, 2, 3) if node != leader)
        stranger = next(BrokerId(node) for node in (1, 2, 3) if node != home)
        answers += [await produce(world, "three", raw, node=leader) for raw in sent]

        async def has_followed() -> bool:
            return bool((await fetch(world, "three", 0, node=follower))[4] >= 14)

        await until(has_followed, "the follower has all")
        for topic, node in (("three", follower), ("one", stranger)):
            answers.append(await produce(world, topic, sent[0], node=node))
            answers.append(await list_offset(world, topic, -1, node=node))
            answers.append(await epoch_end(world, topic, 0, node=node))
            answers += [await fetch(world, topic, 0, epoch=epoch, node=node) for epoch in (-1, 0, 1)]
            answers += [await fetch(world, topic, 14, last_fetched_epoch=epoch, node=node) for epoch in (-1, 0, 1)]
            answers.append(await fetch(world, topic, 15, node=node))
        await world.stop(leader)
        successor, epoch = await leader_of(world, "three", but=leader)
        answers.append(("elected", epoch))
        answers += [await produce(world, "three", raw, node=successor) for raw in sent]
        answers += [await epoch_end(world, "three", number, node=successor) for number in range(3)]
        answers += [await fetch(world, "three", 14, epoch=number, node=successor) for number in range(3)]
        return answers

    expected, got = on_both(play, make_cluster(nodes=3), now_ms=now_ms, nodes=3)
    for number, (model, broker) in enumerate(zip(expected, got, strict=True)):
        assert model == broker, f"answer {number} of {len(expected)}"

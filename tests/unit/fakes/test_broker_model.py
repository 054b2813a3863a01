"""The broker model against what docs/broker-facts.md says of real brokers; E numbers are its experiments.

``tests/cluster/brokers/test_broker_model_matches_broker.py`` holds the same model against a real broker.
"""

from __future__ import annotations

import asyncio
import datetime
import random
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import cramjam
import pytest
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId as KioBrokerId
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from mm2py.kafka import messages
from mm2py.kafka.errors import BrokerUnreachable, RequestTimedOut
from mm2py.kafka.port import (
    ANY_BROKER,
    BrokerId,
    Brokers,
    FetchedPartition,
    FetchRequest,
    PartitionFetch,
    PartitionProduce,
    ProducedPartition,
    ProduceRequest,
    TopicFetch,
    TopicProduce,
)
from tests.fakes.broker.broker_model import ClusterModel, Faults, Record
from tests.fakes.broker.produce_rules import WouldCorrupt
from tests.fakes.broker.record_batch import (
    DELETE_HORIZON,
    build_batch,
    encode_records,
    has_valid_crc,
    parse_batch,
    parse_batches,
    read_records,
    rewrite,
)
from tests.fakes.virtual_time import VirtualClock, run_virtual

YEAR_2023_MS = 1_680_000_000_000
DAY_S = 86_400.0
pytestmark = pytest.mark.virtual_time(limit_s=40 * DAY_S)


def make(nodes: int = 1, seed: int = 1, **arguments: Any) -> ClusterModel:
    cluster = ClusterModel("k", VirtualClock(), random.Random(seed), nodes=nodes, **arguments)
    cluster.create_topic("t")
    return cluster


def run(scenario: Coroutine[Any, Any, None], *, limit_s: float = 40 * DAY_S) -> None:
    run_virtual(scenario, limit_s=limit_s)


def three(cluster: ClusterModel, producer_id: int, epoch: int, sequence: int, *, at_ms: int | None = None) -> bytes:
    """Return a batch of three records, as in the experiments."""
    return build_batch(
        [Record(b"v%d" % number, key=b"k", timestamp_ms=at_ms) for number in range(3)],
        now_ms=cluster.clock.wall_ms(),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def leader_of(cluster: ClusterModel, topic: str = "t", partition: int = 0) -> BrokerId:
    return BrokerId(cluster.partition(topic, partition).leader)


async def produce(
    cluster: ClusterModel,
    raw: bytes | bytearray,
    *,
    topic: str = "t",
    topic_id: uuid.UUID | None = None,
    broker: BrokerId | None = None,
    timeout_ms: int = 1000,
    channel: str = "produce",
) -> ProducedPartition:
    request = ProduceRequest([TopicProduce(topic, topic_id, [PartitionProduce(0, raw)])], timeout_ms)
    reply = await cluster.send(leader_of(cluster, topic) if broker is None else broker, request, channel=channel)
    return reply.partitions[0]


async def answer(cluster: ClusterModel, raw: bytes | bytearray, **arguments: Any) -> tuple[int, int]:
    produced = await produce(cluster, raw, **arguments)
    return produced.error_code, produced.base_offset


async def fetch(
    cluster: ClusterModel,
    offset: int,
    *,
    topic: str = "t",
    topic_id: uuid.UUID | None = None,
    broker: BrokerId | None = None,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    committed: bool = False,
    epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchedPartition:
    want = PartitionFetch(0, offset, max_bytes, epoch, last_fetched_epoch)
    request = FetchRequest([TopicFetch(topic, topic_id, [want])], max_wait_ms, min_bytes, 1 << 24, committed)
    reply = await cluster.send(leader_of(cluster, topic) if broker is None else broker, request, channel="fetch")
    return reply.partitions[0]


def values(cluster: ClusterModel, topic: str = "t", **arguments: Any) -> list[bytes | None]:
    found = cluster.records(topic, 0, **arguments)
    for count in (1, 2, len(found) + 1):
        assert cluster.newest(topic, 0, count=count, **arguments) == found[-count:]
    return [record.value for record in found]


# ---- producers


async def test_e2_the_tick_forgets_old_records_and_then_takes_any_gap() -> None:
    cluster = make()
    old = three(cluster, 7, 0, 0, at_ms=YEAR_2023_MS)
    assert await answer(cluster, old) == (0, 0)
    assert await answer(cluster, old) == (0, 0)
    await asyncio.sleep(601)
    assert await answer(cluster, old) == (0, 3)
    await asyncio.sleep(601)
    assert await answer(cluster, three(cluster, 7, 0, 3000, at_ms=YEAR_2023_MS)) == (0, 6)
    new = three(cluster, 8, 0, 0)
    assert await answer(cluster, new) == (0, 9)
    await asyncio.sleep(601)
    assert await answer(cluster, new) == (0, 9)


async def test_e3_a_marker_shuts_the_old_epoch_out_for_a_day() -> None:
    cluster = make()
    assert await answer(cluster, three(cluster, 7, 0, 0)) == (0, 0)
    assert cluster.write_marker("t", 0, 7, 1) == 3
    assert await answer(cluster, three(cluster, 7, 0, 3)) == (47, -1)
    await asyncio.sleep(DAY_S + 601)
    assert await answer(cluster, three(cluster, 7, 0, 3)) == (0, 4)


async def test_followers_remember_what_a_restarted_leader_forgot() -> None:
    """C1 with three replicas: the new leader still knows the producer, so the window is narrower."""
    cluster = make(nodes=3)
    old = three(cluster, 7, 0, 0, at_ms=YEAR_2023_MS)
    assert await answer(cluster, old) == (0, 0)
    first = leader_of(cluster)
    cluster.stop_broker(first)
    assert leader_of(cluster) != first
    assert await answer(cluster, old) == (0, 0)
    cluster.start_broker(first)
    await asyncio.sleep(5)
    cluster.move_leader("t", 0, first)
    assert await answer(cluster, old) == (0, 3)


# ---- what is accepted, and how it is stored


def test_e8b_a_copied_delete_horizon_removes_the_tombstone_at_the_first_cleaning() -> None:
    cluster = make()
    cluster.create_topic("compacted", configs={"cleanup.policy": "compact"})
    now_ms = cluster.clock.wall_ms()
    rows = [(0, now_ms, b"a", b"v", ()), (1, now_ms, b"b", None, ())]
    for attributes, left in ((0, [b"v", None]), (DELETE_HORIZON, [b"v"])):
        cluster.recreate_topic("compacted")
        cluster.append("compacted", 0, encode_records(rows, attributes=attributes, base_timestamp=YEAR_2023_MS))
        cluster.compact("compacted")
        assert values(cluster, "compacted") == left


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_e7b_log_append_time_changes_nothing_from_byte_61_on(codec: str) -> None:
    cluster = make()
    cluster.create_topic("appended", configs={"message.timestamp.type": "LogAppendTime"})
    raw = build_batch([Record(b"v", timestamp_ms=YEAR_2023_MS)], codec=codec)
    cluster.append("appended", 0, raw)
    stored = cluster.batches("appended", 0)[0]
    assert stored.raw[61:] == raw[61:]
    assert read_records(stored)[0].timestamp_ms == cluster.clock.wall_ms()
    assert has_valid_crc(stored)


def _with_body(raw: bytes, body: bytes) -> bytes:
    return raw[:8] + (49 + len(body)).to_bytes(4, "big") + raw[12:61] + body


async def test_e14_and_others_what_a_broker_refuses() -> None:
    cluster = make()
    cluster.create_topic("compacted", configs={"cleanup.policy": "compact"})
    now_ms = cluster.clock.wall_ms()
    good = parse_batch(build_batch([Record(b"1", key=b"k"), Record(b"2", key=b"k")], now_ms=now_ms))
    flipped = bytearray(good.raw)
    flipped[-1] ^= 1
    future = bytearray(good.raw)
    future[16] = 3
    packed = bytes(cramjam.lz4.compress(good.raw[61:]))
    linked_lz4 = rewrite(parse_batch(_with_body(good.raw, packed)), attributes=3).raw
    wide = encode_records([(0, 1, b"k", b"v", ()), (1, 1, b"k", b"v", ())], last_offset_delta=4)
    cases: list[tuple[str, bytes, int]] = [
        ("a base offset", rewrite(good, base_offset=5).raw, 87),
        ("a flipped bit", bytes(flipped), 2),
        ("fewer records than offsets", wide, 87),
        ("a control batch", rewrite(good, attributes=0x20).raw, 87),
        ("two batches", good.raw * 2, 87),
        ("nothing", b"", 87),
        ("an unknown codec", rewrite(good, attributes=5).raw, -1),
        ("lz4 blocks that depend on each other", linked_lz4, -1),
        ("a piece of something behind the batch", good.raw + bytes(30), 2),
        ("a magic number of the future", bytes(future), 2),
        ("a transactional batch without the id", rewrite(good, attributes=0x10).raw, 53),
        ("two hours ahead", build_batch([Record(b"", timestamp_ms=now_ms + 7_200_000)]), 32),
        ("a producer id without sequence", build_batch([Record()], producer_id=7, producer_epoch=0), 87),
    ]
    for why, raw, code in cases:
        assert (await produce(cluster, raw)).error_code == code, why
    null_key = build_batch([Record(b"v", timestamp_ms=1)])
    assert (await produce(cluster, null_key, topic="compacted")).error_code == 87
    assert cluster.records("t", 0) == cluster.records("compacted", 0) == []
    assert await answer(cluster, good.raw) == (0, 0)


async def test_offsets_inside_a_batch_that_no_broker_checks_are_a_complaint() -> None:
    cluster = make()
    with pytest.raises(WouldCorrupt):
        await produce(cluster, encode_records([(1, 1, b"k", b"a", ()), (0, 1, b"k", b"b", ())], last_offset_delta=1))
    assert len(cluster.complaints) == 1


async def test_one_refused_partition_leaves_the_others_of_the_request_alone() -> None:
    cluster = make()
    cluster.create_topic("u")
    cluster.create_topic("denied")
    cluster.deny("denied")
    topics = [
        TopicProduce(name, topic_id, [PartitionProduce(0, three(cluster, 7, 0, 0))])
        for name, topic_id in (("t", None), ("missing", None), ("u", uuid.UUID(int=5)), ("denied", None))
    ]
    reply = await cluster.send(BrokerId(1), ProduceRequest(topics, 1000))
    assert [(part.topic, part.error_code) for part in reply.partitions] == [
        ("t", 0),
        ("missing", 3),
        ("u", 100),
        ("denied", 29),
    ]


def test_m4_a_recreated_topic_is_found_by_name_unless_the_id_is_asked_for() -> None:
    async def scenario(cluster: ClusterModel, expected: tuple[int, int]) -> None:
        old_id = cluster.topics["t"].id
        cluster.append("t", 0, [b"lost"])
        cluster.recreate_topic("t")
        assert await answer(cluster, three(cluster, 7, 0, 0), topic_id=old_id) == expected

    cluster = make()
    run(scenario(cluster, (100, -1)))
    cluster = make(produce_by_topic_id=False)
    run(scenario(cluster, (0, 0)))


# ---- fetch


async def test_what_the_receiver_writes_into_a_reply_does_not_reach_the_log() -> None:
    cluster = make()
    cluster.append("t", 0, [b"0"])
    first = (await fetch(cluster, 0)).records
    intact = bytes(first)
    first[:] = bytes(len(first))
    assert bytes((await fetch(cluster, 0)).records) == intact


async def test_limits_cut_the_last_batch_but_never_the_first() -> None:
    cluster = make()
    cluster.create_topic("u")
    for topic in ("t", "u"):
        for _ in range(3):
            cluster.append(topic, 0, [bytes(100)])
    size = len(cluster.batches("t", 0)[0].raw)
    assert (await fetch(cluster, 0, max_bytes=1)).records.nbytes == size
    cut = await fetch(cluster, 0, max_bytes=size + 20)
    assert cut.records.nbytes == size + 20
    assert len(parse_batches(cut.records, allow_cut=True)) == 1
    topics = [TopicFetch(name, None, [PartitionFetch(0, 0, 1 << 20)]) for name in ("t", "u")]
    for max_bytes, sizes in ((1, [size, 0]), (3 * size + 5, [3 * size, 0]), (5 * size, [3 * size, 2 * size])):
        reply = await cluster.send(BrokerId(1), FetchRequest(topics, 0, 1, max_bytes, read_committed=False))
        assert [part.records.nbytes for part in reply.partitions] == sizes


async def test_a_fetch_waits_for_enough_bytes_or_for_its_time() -> None:
    cluster = make()
    size = len(build_batch([Record(b"v")]))
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    assert (await fetch(cluster, 0, max_wait_ms=500)).records.nbytes == 0
    assert 0.5 <= loop.time() - begun_s < 0.52
    loop.call_later(2, cluster.append, "t", 0, [b"v"])
    loop.call_later(3, cluster.append, "t", 0, [b"v"])
    begun_s = loop.time()
    part = await fetch(cluster, 0, max_wait_ms=10_000, min_bytes=size + 1)
    assert part.records.nbytes == 2 * size
    assert 3 <= loop.time() - begun_s < 3.02


async def test_a_waiting_fetch_is_answered_when_its_leader_or_its_topic_goes() -> None:
    cluster = make(nodes=3)
    cluster.create_topic("gone")
    loop = asyncio.get_running_loop()
    loop.call_later(1, cluster.delete_topic, "gone")
    gone_id = cluster.topics["gone"].id
    part = await fetch(cluster, 0, topic="gone", topic_id=gone_id, max_wait_ms=60_000)
    assert part.error_code == 100
    loop.call_later(1, cluster.move_leader, "t", 0)
    part = await fetch(cluster, 0, epoch=0, max_wait_ms=60_000)
    assert part.error_code == 74
    assert loop.time() < 3


async def test_truncation_answers_where_the_logs_part() -> None:
    cluster = make(nodes=3)
    for number in range(4):
        cluster.append("t", 0, [b"%d" % number])
    cluster.truncate("t", 0, 2)
    cluster.append("t", 0, [b"other"])
    epoch = cluster.partition("t", 0).leader_epoch
    part = await fetch(cluster, 4, last_fetched_epoch=0)
    assert (part.error_code, part.diverging_epoch, part.records.nbytes) == (0, (0, 2), 0)
    assert (await fetch(cluster, 2, last_fetched_epoch=0)).diverging_epoch is None
    assert (await fetch(cluster, 3, last_fetched_epoch=0)).diverging_epoch == (0, 2)
    assert (await fetch(cluster, 3, last_fetched_epoch=epoch)).diverging_epoch is None
    assert (await fetch(cluster, 3, last_fetched_epoch=epoch + 1)).error_code == 1
    assert values(cluster) == [b"0", b"1", b"other"]
    asked = messages.OffsetForLeaderEpochRequest(
        replica_id=KioBrokerId(-1),
        topics=(
            messages.OffsetForLeaderTopic(
                topic=TopicName("t"),
                partitions=(messages.OffsetForLeaderPartition(partition=i32(0), leader_epoch=i32(0)),),
            ),
        ),
    )
    reply = await cluster.send(leader_of(cluster), asked)
    assert isinstance(reply, messages.OffsetForLeaderEpochResponse)
    found = reply.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.none, 0, 2)


async def test_read_committed_stops_at_open_transactions_and_lists_aborted_ones() -> None:
    cluster = make()
    aborted, committed, still_open = cluster.transaction(), cluster.transaction(), cluster.transaction()
    aborted.append("t", 0, [b"a0"])
    committed.append("t", 0, [b"c0", b"c1"])
    aborted.abort()
    committed.commit()
    still_open.append("t", 0, [b"o0"])
    cluster.append("t", 0, [b"plain"])
    part = await fetch(cluster, 0, committed=True)
    assert (part.high_watermark, part.last_stable_offset) == (7, 5)
    assert list(part.aborted) == [(aborted.producer_id, 0)]
    assert [batch.base_offset for batch in parse_batches(part.records)] == [0, 1, 3, 4]
    assert values(cluster, committed=True) == [b"c0", b"c1"]
    assert values(cluster) == [b"a0", b"c0", b"c1", b"o0", b"plain"]
    part = await fetch(cluster, 4, committed=True)
    assert list(part.aborted) == []
    asyncio.get_running_loop().call_later(1, still_open.commit)
    part = await fetch(cluster, 5, committed=True, max_wait_ms=5000)
    assert part.last_stable_offset == 8
    assert values(cluster, committed=True) == [b"c0", b"c1", b"o0", b"plain"]


async def test_a_log_may_begin_anywhere() -> None:
    cluster = make()
    cluster.append("t", 0, [b"far"], at_offset=10**15)
    cluster.append("t", 0, [b"farther"], at_offset=10**15 + 7)
    part = await fetch(cluster, 10**15 + 1)
    assert (part.log_start_offset, part.high_watermark) == (10**15, 10**15 + 8)
    assert [batch.base_offset for batch in parse_batches(part.records)] == [10**15 + 7]


def test_retention_takes_whole_segments_by_the_time_of_their_records() -> None:
    cluster = make()
    cluster.create_topic("old")
    for topic in ("t", "old"):
        cluster.append(topic, 0, [Record(b"old", timestamp_ms=YEAR_2023_MS)])
    cluster.append("t", 0, [Record(b"new", timestamp_ms=cluster.clock.wall_ms())])
    cluster.expire("t")
    cluster.expire("old")
    assert values(cluster) == [b"new"]
    assert values(cluster, "old") == []
    assert cluster.append("old", 0, [b"next"]) == 1
    cluster.expire("old")
    assert values(cluster, "old") == [b"next"]


async def test_a_resent_batch_can_begin_a_segment_although_it_is_not_stored_again() -> None:
    cluster = make()
    old = three(cluster, 7, 0, 0, at_ms=YEAR_2023_MS)
    new = three(cluster, 7, 0, 3)
    await produce(cluster, old)
    assert await answer(cluster, three(cluster, 7, 0, 9)) == (45, -1)  # refused, and yet
    assert cluster.partition("t", 0).log.segments == [0, 3]
    assert await answer(cluster, new) == (0, 3)


async def test_cleaning_keeps_last_records_spans_and_each_producers_last_batch() -> None:
    cluster = make()
    cluster.create_topic("compacted", configs={"cleanup.policy": "compact"})
    one, two = cluster.producer(), cluster.producer()
    one.append("compacted", 0, [Record(b"1", key=b"a"), Record(b"2", key=b"b")])
    one.append("compacted", 0, [Record(b"3", key=b"a")])
    two.append("compacted", 0, [Record(b"4", key=b"a"), Record(None, key=b"b"), Record(b"5", key=b"c")])
    cluster.compact("compacted")
    assert [(record.offset, record.value) for record in cluster.records("compacted", 0)] == [
        (3, b"4"),
        (4, None),
        (5, b"5"),
    ]
    emptied, last = cluster.batches("compacted", 0)
    assert (emptied.base_offset, emptied.count, emptied.base_sequence) == (2, 0, 2)
    assert last.delete_horizon_ms == cluster.clock.wall_ms() + 86_400_000
    before = cluster.records("compacted", 0)
    await asyncio.sleep(2 * DAY_S)
    cluster.compact("compacted")
    cleaned = cluster.batches("compacted", 0)[-1]
    assert (cleaned.base_offset, cleaned.last_offset_delta, cleaned.count) == (3, 2, 2)
    assert [record.timestamp_ms for record in cluster.records("compacted", 0)] == [
        record.timestamp_ms for record in before if record.value is not None
    ]


async def test_followers_answer_fetches_too_and_know_less() -> None:
    cluster = make(nodes=3)
    cluster.append("t", 0, [b"0"])
    leader = leader_of(cluster)
    follower = BrokerId(next(node for node in cluster.nodes if node != leader))
    assert (await fetch(cluster, 0, broker=follower)).high_watermark == 1
    cluster.stop_broker(follower)
    cluster.append("t", 0, [b"1"])
    cluster.start_broker(follower)
    assert (await fetch(cluster, 2, broker=follower)).error_code == 1  # it has not caught up
    await asyncio.sleep(5)
    assert (await fetch(cluster, 0, broker=follower)).high_watermark == 2


# ---- replication and leaders


async def test_a_produce_is_answered_when_every_replica_in_sync_has_it() -> None:
    cluster = make(nodes=3, replication_s=(1.0, 1.0))
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(produce(cluster, three(cluster, 7, 0, 0), timeout_ms=5000))
    await asyncio.sleep(0.5)
    assert cluster.partition("t", 0).log.end_offset == 3
    assert cluster.records("t", 0) == []
    assert (await task).error_code == 0
    assert 1 <= loop.time() < 1.1
    assert len(cluster.records("t", 0)) == 3


async def test_an_unanswered_record_may_vanish_with_its_leader_and_its_producer_state_with_it() -> None:
    cluster = make(nodes=3, replication_s=(1.0, 1.0))
    first = leader_of(cluster)
    task = asyncio.create_task(produce(cluster, three(cluster, 7, 0, 0), timeout_ms=5000))
    await asyncio.sleep(0.5)
    cluster.move_leader("t", 0)
    assert (await task).error_code == 6
    assert leader_of(cluster) != first
    assert cluster.partition("t", 0).log.end_offset == 0
    assert await answer(cluster, three(cluster, 7, 0, 3), timeout_ms=5000) == (0, 0)  # H2: no state, any sequence


async def test_a_dead_follower_holds_the_high_watermark_until_the_controller_notices() -> None:
    cluster = make(nodes=3)
    follower = next(node for node in cluster.nodes if node != leader_of(cluster))
    cluster.stop_broker(follower, clean=False)
    assert await answer(cluster, three(cluster, 7, 0, 0), timeout_ms=1000) == (7, -1)
    await asyncio.sleep(9)
    assert await answer(cluster, three(cluster, 7, 0, 0)) == (0, 0)
    assert follower not in cluster.partition("t", 0).isr


async def test_too_few_in_sync_replicas_refuse_before_or_after_the_append() -> None:
    cluster = make(nodes=2)
    cluster.create_topic("safe", configs={"min.insync.replicas": "2"})
    follower = next(node for node in cluster.nodes if node != leader_of(cluster, "safe"))
    cluster.stop_broker(follower, clean=False)
    task = asyncio.create_task(produce(cluster, three(cluster, 7, 0, 0), topic="safe", timeout_ms=60_000))
    assert (await task).error_code == 20
    assert len(cluster.records("safe", 0)) == 3
    assert (await produce(cluster, three(cluster, 7, 0, 3), topic="safe")).error_code == 19


async def test_a_partition_without_living_replica_has_no_leader_until_one_comes_back() -> None:
    cluster = make(nodes=2)
    cluster.create_topic("single", replication_factor=1)
    home = leader_of(cluster, "single")
    other = BrokerId(3 - home)
    cluster.stop_broker(home)
    await asyncio.sleep(1)
    described = await describe(cluster, "single", broker=other)
    assert described.partitions[0].error_code is ErrorCode.leader_not_available
    assert described.partitions[0].leader_id == -1
    cluster.start_broker(home)
    await asyncio.sleep(1)
    described = await describe(cluster, "single", broker=other)
    assert (described.partitions[0].leader_id, described.partitions[0].leader_epoch) == (KioBrokerId(home), 2)


async def test_a_new_leader_does_not_tell_the_latest_offset_before_its_followers_have_fetched() -> None:
    cluster = make(nodes=3, replication_s=(0.5, 0.5))
    assert (await produce(cluster, three(cluster, 7, 0, 0), timeout_ms=5000)).error_code == 0
    cluster.move_leader("t", 0)
    assert (await latest(cluster))[0] == 78
    await asyncio.sleep(2)
    assert await latest(cluster) == (0, 3)


# ---- metadata, topics, producer ids


async def ask(cluster: Brokers, request: Any, *, broker: BrokerId = ANY_BROKER) -> Any:
    reply = await cluster.send(broker, request)
    assert type(reply) is messages.REPLY_TO[type(request)]
    return reply


async def describe(
    cluster: ClusterModel, topic: str, *, broker: BrokerId = ANY_BROKER
) -> messages.MetadataResponseTopic:
    request = messages.MetadataRequest(
        topics=(messages.MetadataRequestTopic(topic_id=None, name=TopicName(topic)),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    found: messages.MetadataResponseTopic = (await ask(cluster, request, broker=broker)).topics[0]
    return found


async def latest(cluster: ClusterModel, timestamp: int = -1) -> tuple[int, int]:
    request = messages.ListOffsetsRequest(
        replica_id=KioBrokerId(-1),
        isolation_level=i8(0),
        topics=(
            messages.ListOffsetsTopic(
                name=TopicName("t"),
                partitions=(messages.ListOffsetsPartition(partition_index=i32(0), timestamp=i64(timestamp)),),
            ),
        ),
    )
    found = (await ask(cluster, request, broker=leader_of(cluster))).topics[0].partitions[0]
    return int(found.error_code), int(found.offset)


async def create(cluster: ClusterModel, name: str, partitions: int = 1, factor: int = 1, **configs: str) -> int:
    request = messages.CreateTopicsRequest(
        topics=(
            messages.CreatableTopic(
                name=TopicName(name),
                num_partitions=i32(partitions),
                replication_factor=i16(factor),
                assignments=(),
                configs=tuple(
                    messages.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ),
            ),
        ),
        validate_only=False,
    )
    return int((await ask(cluster, request)).topics[0].error_code)


async def test_topics_are_made_widened_and_refused() -> None:
    cluster = make(nodes=3)
    assert await create(cluster, "made", 2, 3, retention_ms="1000") == 0
    assert await create(cluster, "made") == 36
    assert await create(cluster, "a.b") == 0
    assert await create(cluster, "a_b") == 17
    assert await create(cluster, "no/such") == 17
    assert await create(cluster, "x" * 250) == 17
    assert await create(cluster, "wide", 0) == 37
    assert await create(cluster, "many", 1, 4) == 38
    assert await create(cluster, "odd", no_such="1") == 40
    cluster.stop_broker(3)
    assert await create(cluster, "away", 1, 3) == 0, "brokers that are away count"
    cluster.start_broker(3)
    await asyncio.sleep(0.1)  # metadata lag
    assert len((await describe(cluster, "made")).partitions) == 2
    widen = messages.CreatePartitionsRequest(
        topics=(messages.CreatePartitionsTopic(name=TopicName("made"), count=i32(5), assignments=None),),
        timeout=i32Timedelta.parse(datetime.timedelta(seconds=5)),
        validate_only=False,
    )
    assert (await ask(cluster, widen)).results[0].error_code is ErrorCode.none
    assert (await ask(cluster, widen)).results[0].error_code is ErrorCode.invalid_partitions
    await asyncio.sleep(0.1)
    assert len((await describe(cluster, "made")).partitions) == 5
    asked = messages.DescribeConfigsRequest(
        resources=(
            messages.DescribeConfigsResource(
                resource_type=i8(2), resource_name="made", configuration_keys=("retention.ms", "segment.bytes")
            ),
        )
    )
    entries = (await ask(cluster, asked)).results[0].configs
    assert {(entry.name, entry.value, int(entry.config_source)) for entry in entries} == {
        ("retention.ms", "1000", 1),
        ("segment.bytes", "1073741824", 5),
    }


async def test_metadata_tell_what_is_missing_denied_or_new() -> None:
    cluster = make()
    cluster.create_topic("denied")
    cluster.deny("denied")
    assert (await describe(cluster, "missing")).error_code is ErrorCode.unknown_topic_or_partition
    assert (await describe(cluster, "denied")).error_code is ErrorCode.topic_authorization_failed
    everything = messages.MetadataRequest(topics=None, include_topic_authorized_operations=False)
    reply = await ask(cluster, everything)
    assert [topic.name for topic in reply.topics] == ["t"]
    assert reply.cluster_id == cluster.cluster_id
    old_id = reply.topics[0].topic_id
    assert old_id == cluster.topics["t"].id
    cluster.recreate_topic("t")
    assert (await describe(cluster, "t")).topic_id not in {None, old_id}


async def test_metadata_are_a_little_behind() -> None:
    cluster = make(nodes=3, metadata_lag_s=1.0)
    await asyncio.sleep(10)
    before = leader_of(cluster)
    cluster.move_leader("t", 0)
    lagging = max(cluster.nodes.values(), key=lambda node: node.metadata_lag_s)
    seen = await describe(cluster, "t", broker=BrokerId(lagging.id))
    assert (seen.partitions[0].leader_id, seen.partitions[0].leader_epoch) == (KioBrokerId(before), 0)
    await asyncio.sleep(1)
    seen = await describe(cluster, "t", broker=BrokerId(lagging.id))
    assert (seen.partitions[0].leader_id, seen.partitions[0].leader_epoch) == (KioBrokerId(leader_of(cluster)), 1)


async def test_offsets_by_time() -> None:
    cluster = make()
    cluster.append("t", 0, [Record(b"", timestamp_ms=time_ms) for time_ms in (10, 30, 20)])
    cluster.append("t", 0, [Record(b"", timestamp_ms=40)])
    assert [await latest(cluster, at) for at in (0, 11, 31, 41)] == [(0, 0), (0, 1), (0, 3), (0, -1)]
    assert [await latest(cluster, at) for at in (-1, -2, -3)] == [(0, 4), (0, 0), (0, 3)]


async def init_producer_id(
    cluster: ClusterModel, name: str | None, expected: tuple[int, int] = (-1, -1)
) -> tuple[int, int, int]:
    request = messages.InitProducerIdRequest(
        transactional_id=None if name is None else TransactionalId(name),
        transaction_timeout=i32Timedelta.parse(datetime.timedelta(seconds=10)),
        producer_id=ProducerId(expected[0]),
        producer_epoch=i16(expected[1]),
    )
    broker = ANY_BROKER if name is None else BrokerId(cluster.coordinator_of(name) or -1)
    reply = await ask(cluster, request, broker=broker)
    return int(reply.error_code), int(reply.producer_id), int(reply.producer_epoch)


async def test_e1_an_unused_transactional_id_is_forgotten_after_a_week() -> None:
    cluster = make()
    _, producer_id, _ = await init_producer_id(cluster, "owner")
    await asyncio.sleep(8 * DAY_S)
    assert await init_producer_id(cluster, "owner") != (0, producer_id, 1)


async def test_e10_a_used_up_epoch_brings_a_new_producer_id() -> None:
    cluster = make()
    _, producer_id, _ = await init_producer_id(cluster, "owner")
    cluster.coordinator.transactional_ids["owner"].producer_epoch = 32_765
    assert await init_producer_id(cluster, "owner") == (0, producer_id, 32_766)
    assert await init_producer_id(cluster, "owner") == (0, producer_id + 1, 0)


async def test_coordinators_and_groups() -> None:
    cluster = make(nodes=3)
    cluster.groups.activate("busy", members=2)
    cluster.transactions_available = False
    found = await ask(cluster, messages.FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("busy",)))
    node = found.coordinators[0].node_id
    assert node == cluster.coordinator_of("busy")
    found = await ask(cluster, messages.FindCoordinatorRequest(key_type=i8(1), coordinator_keys=("owner",)))
    assert found.coordinators[0].error_code is ErrorCode.coordinator_not_available
    groups = messages.DescribeGroupsRequest(
        groups=(GroupId("busy"), GroupId("none")), include_authorized_operations=False
    )
    reply = await ask(cluster, groups, broker=BrokerId(node))
    assert (reply.groups[0].group_state, len(reply.groups[0].members)) == ("Stable", 2)
    other = await ask(cluster, groups, broker=BrokerId(node % 3 + 1))
    assert other.groups[0].error_code is ErrorCode.not_coordinator


# ---- connections and faults


async def test_one_channel_is_answered_in_order_and_another_does_not_wait() -> None:
    cluster = make()
    loop = asyncio.get_running_loop()
    order: list[str] = []

    async def asks(name: str, channel: str, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        await work()
        order.append(name)

    def waiting() -> Coroutine[Any, Any, object]:
        request = FetchRequest([TopicFetch("t", None, [PartitionFetch(0, 0, 100)])], 5000, 1, 100, False)
        return cluster.send(BrokerId(1), request, channel="one")

    def quick(channel: str) -> Callable[[], Coroutine[Any, Any, object]]:
        request = messages.MetadataRequest(topics=(), include_topic_authorized_operations=False)
        return lambda: cluster.send(BrokerId(1), request, channel=channel)

    await asyncio.gather(
        asks("wait", "one", waiting), asks("behind", "one", quick("one")), asks("beside", "two", quick("two"))
    )
    assert order == ["beside", "wait", "behind"]
    assert loop.time() >= 5


async def test_a_dead_broker_refuses_and_a_cut_one_is_silent() -> None:
    cluster = make(nodes=2)
    loop = asyncio.get_running_loop()
    request = messages.MetadataRequest(topics=(), include_topic_authorized_operations=False)
    await cluster.send(BrokerId(1), request)
    cluster.cut_broker(1)
    begun_s = loop.time()
    with pytest.raises(RequestTimedOut):
        await cluster.send(BrokerId(1), request)
    assert loop.time() - begun_s == pytest.approx(30)
    with pytest.raises(BrokerUnreachable):
        await cluster.send(BrokerId(1), request)
    assert loop.time() - begun_s == pytest.approx(40)
    cluster.join_broker(1)
    await cluster.send(BrokerId(1), request)
    cluster.stop_broker(1, clean=False)
    begun_s = loop.time()
    with pytest.raises(BrokerUnreachable):
        await cluster.send(BrokerId(1), request)
    assert loop.time() - begun_s < 0.1
    await cluster.send(ANY_BROKER, request)
    with pytest.raises(BrokerUnreachable):
        await cluster.send(BrokerId(9), request)


async def test_a_dying_broker_fails_what_waits_at_it() -> None:
    cluster = make(nodes=2)
    asyncio.get_running_loop().call_later(1, lambda: cluster.stop_broker(leader_of(cluster), clean=False))
    with pytest.raises(BrokerUnreachable):
        await fetch(cluster, 0, max_wait_ms=5000)


async def test_cancelling_leaves_the_request_under_way() -> None:
    cluster = make()
    task = asyncio.create_task(produce(cluster, three(cluster, 7, 0, 0)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await answer(cluster, three(cluster, 7, 0, 3)) == (0, 3)


def test_a_lost_request_is_not_carried_out_and_a_lost_reply_is() -> None:
    for faults, stored in ((Faults(drop_request=1.0), 0), (Faults(drop_reply=1.0), 3)):
        cluster = make(request_timeout_s=2.0)

        async def scenario(cluster: ClusterModel = cluster, faults: Faults = faults, stored: int = stored) -> None:
            cluster.inject(faults)
            with pytest.raises(RequestTimedOut):
                await produce(cluster, three(cluster, 7, 0, 0))
            assert len(cluster.records("t", 0)) == stored
            cluster.heal()
            assert await answer(cluster, three(cluster, 7, 0, 0)) == (0, 0)

        run(scenario())


async def test_a_request_delivered_twice_is_recognised() -> None:
    cluster = make()
    cluster.inject(Faults(duplicate_produce=1.0, duplicate_s=(1.0, 1.0)))
    assert await answer(cluster, three(cluster, 7, 0, 0)) == (0, 0)
    assert await answer(cluster, build_batch([Record(b"plain")])) == (0, 3)
    await asyncio.sleep(2)
    assert values(cluster) == [b"v0", b"v1", b"v2", b"plain", b"plain"]
    assert cluster.counts["duplicate_produce"] == 2


async def test_injected_errors_may_have_stored_the_batch() -> None:
    cluster = make(seed=3)
    cluster.inject(Faults(produce_error=1.0, fetch_error=1.0))
    codes = set()
    for sequence in range(0, 300, 3):
        before = len(cluster.records("t", 0))
        code, _ = await answer(cluster, three(cluster, 7 + sequence, 0, 0))
        stored = len(cluster.records("t", 0)) > before
        codes.add((code, stored))
    assert codes == {(6, False), (19, False), (56, False), (20, True), (7, True), (7, False)}
    assert (await fetch(cluster, 0)).error_code in {6, 56}


async def test_a_flipped_bit_is_in_the_reply_only() -> None:
    cluster = make()
    cluster.append("t", 0, [b"value"])
    cluster.inject(Faults(flip_bit=1.0))
    flipped = bytes((await fetch(cluster, 0)).records)
    cluster.heal()
    intact = bytes((await fetch(cluster, 0)).records)
    assert sum((one ^ other).bit_count() for one, other in zip(flipped, intact, strict=True)) == 1


async def _writer(cluster: ClusterModel, batches: int) -> None:
    """Write idempotently, one batch at a time, until each is acknowledged: what any correct producer does."""
    sequence = 0
    while sequence < 3 * batches:
        try:
            topic = await describe(cluster, "t")
            leader = topic.partitions[0].leader_id if topic.partitions else -1
            if leader < 0:
                await asyncio.sleep(0.05)
                continue
            code, _ = await answer(cluster, three(cluster, 7, 0, sequence), broker=BrokerId(leader))
        except (BrokerUnreachable, RequestTimedOut):
            code = -2
        if code == 0:
            sequence += 3
        else:
            await asyncio.sleep(0.1)


STORM = Faults(
    delay=0.05,
    drop_request=0.02,
    drop_reply=0.02,
    reset=0.05,
    duplicate_produce=0.1,
    produce_error=0.05,
    throttle=0.05,
    leader_move_every_s=2.0,
    broker_stop_every_s=10.0,
)


def _storm(seed: int) -> tuple[ClusterModel, list[tuple[float, int, str, str, str]]]:
    cluster = make(nodes=3, seed=seed, request_timeout_s=3.0)

    async def scenario() -> None:
        cluster.inject(STORM)
        await _writer(cluster, 60)
        cluster.heal()
        await asyncio.sleep(30)

    run_virtual(scenario(), seed=seed)
    return cluster, list(cluster.trace)


@pytest.mark.walk(range(5))
def test_a_correct_producer_survives_every_fault(seed: int) -> None:
    """Covered batches, written one at a time: exactly once, whatever the cluster does."""
    cluster, _ = _storm(seed)
    assert [record.sequence for record in cluster.records("t", 0)] == list(range(180)), f"seed {seed}"
    assert not cluster.complaints
    assert len({record.offset for record in cluster.records("t", 0)}) == 180


def test_the_same_seed_gives_the_same_run_and_another_gives_another() -> None:
    (first, one), (second, again), (_, other) = _storm(5), _storm(5), _storm(6)
    assert one == again != other
    assert first.counts == second.counts
    assert [batch.raw for batch in first.batches("t", 0)] == [batch.raw for batch in second.batches("t", 0)]
    assert {"broker_kill", "leader_move", "drop_reply", "duplicate_produce", "reset"} <= set(first.counts)

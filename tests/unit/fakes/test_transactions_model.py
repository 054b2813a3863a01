"""The broker model's transactions, and the functions that ask for them; E numbers are docs/broker-facts.md's.

``tests/cluster/brokers/test_transactions_model_matches_broker.py`` holds the same model against a real broker.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from mm2py.kafka import messages
from mm2py.kafka.admin import find_coordinator, init_producer_id
from mm2py.kafka.errors import BrokerRefused, CorruptReply
from mm2py.kafka.port import ANY_BROKER, BrokerId, Brokers, PartitionProduce, ProduceRequest, TopicProduce
from mm2py.kafka.producer.transactions import (
    ActiveProducer,
    add_partitions_to_txn,
    describe_producers,
    end_txn,
    list_transactions,
    write_txn_markers,
)
from tests.fakes.broker.broker_model import ClusterModel, Record
from tests.fakes.broker.record_batch import build_batch
from tests.fakes.virtual_time import VirtualClock

DAY_S = 86_400.0
pytestmark = pytest.mark.virtual_time(limit_s=40 * DAY_S)
Owner = tuple[int, int]
T0 = ("t", 0)


def make(nodes: int = 1, seed: int = 1, *, factor: int | None = None, **arguments: Any) -> ClusterModel:
    cluster = ClusterModel("k", VirtualClock(), random.Random(seed), nodes=nodes, **arguments)
    cluster.create_topic("t", 3, replication_factor=factor)
    return cluster


async def coordinator_of(cluster: ClusterModel, name: str) -> BrokerId:
    return await find_coordinator(cluster, name, transactions=True)


async def init(cluster: ClusterModel, name: str = "w1", expected: Owner = (-1, -1), **arguments: Any) -> Owner:
    return await init_producer_id(cluster, await coordinator_of(cluster, name), name, expected=expected, **arguments)


async def add(cluster: ClusterModel, owner: Owner, *places: tuple[str, int], name: str = "w1") -> list[int]:
    codes = await add_partitions_to_txn(cluster, await coordinator_of(cluster, name), name, *owner, partitions=places)
    return [codes[place] for place in places]


async def end(cluster: ClusterModel, owner: Owner, *, name: str = "w1") -> None:
    await end_txn(cluster, await coordinator_of(cluster, name), name, *owner)


async def write(cluster: ClusterModel, owner: Owner, sequence: int, *, partition: int = 0) -> int:
    record = Record(b"v", timestamp_ms=cluster.clock.wall_ms())
    raw = build_batch([record], producer_id=owner[0], producer_epoch=owner[1], base_sequence=sequence)
    request = ProduceRequest([TopicProduce("t", None, [PartitionProduce(partition, raw)])], 1000)
    leader = BrokerId(cluster.partition("t", partition).leader)
    return (await cluster.send(leader, request, channel="produce")).partitions[0].error_code


def markers(cluster: ClusterModel, partition: int = 0) -> list[Owner]:
    """Return producer id and epoch of each marker, whether it is replicated or not."""
    return [(batch.producer_id, batch.producer_epoch) for batch in cluster.batches("t", partition) if batch.control]


def code_of(refused: pytest.ExceptionInfo[BrokerRefused]) -> int:
    return refused.value.code


async def until_free(cluster: ClusterModel, name: str = "w1") -> tuple[Owner, float]:
    """Ask plainly until no transaction is in the way; return the id and how long it took."""
    loop = asyncio.get_running_loop()
    since_s = loop.time()
    while True:
        try:
            return await init(cluster, name), loop.time() - since_s
        except BrokerRefused as error:
            assert error.code == 51
            assert loop.time() - since_s < 60.0, "the transaction does not end"
            await asyncio.sleep(0.01)


# ---- the functions, against the model


async def test_only_the_coordinator_answers_for_a_transactional_id() -> None:
    cluster = make(nodes=3)
    owner = await init(cluster)
    coordinator = await coordinator_of(cluster, "w1")
    for node in (BrokerId(1), BrokerId(2), BrokerId(3)):
        listed = await list_transactions(cluster, node)
        assert [one.transactional_id for one in listed] == (["w1"] if node == coordinator else [])
        if node == coordinator:
            continue
        with pytest.raises(BrokerRefused) as refused:
            await add_partitions_to_txn(cluster, node, "w1", *owner, partitions=[T0])
        assert code_of(refused) == 16
        with pytest.raises(BrokerRefused) as refused:
            await end_txn(cluster, node, "w1", *owner)
        assert code_of(refused) == 16


class Forgetful:
    """Brokers whose answers leave out the last topic."""

    def __init__(self, cluster: ClusterModel) -> None:
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        reply = await self._cluster.send(broker, request, channel=channel)
        match reply:
            case messages.AddPartitionsToTxnResponse():
                return replace(reply, results_by_topic_v3_and_below=reply.results_by_topic_v3_and_below[:-1])
            case messages.DescribeProducersResponse():
                return replace(reply, topics=reply.topics[:-1])
            case messages.WriteTxnMarkersResponse():
                return replace(reply, markers=())
        return reply


async def test_a_partition_that_an_answer_leaves_out_does_not_pass_for_fenced() -> None:
    cluster = make()
    forgetful: Brokers = Forgetful(cluster)
    owner = await init(cluster)
    node = BrokerId(1)
    with pytest.raises(CorruptReply):
        await add_partitions_to_txn(forgetful, node, "w1", *owner, partitions=[T0])
    with pytest.raises(CorruptReply):
        await describe_producers(forgetful, node, [T0])
    with pytest.raises(CorruptReply):
        await write_txn_markers(forgetful, node, *owner, partitions=[T0])


@pytest.mark.parametrize("missing", ["ALTER", "CLUSTER_ACTION"])
async def test_markers_past_the_coordinator_need_one_of_two_rights_on_the_cluster(missing: str) -> None:
    cluster = make()
    cluster.denied_on_cluster = {missing}
    assert await write_txn_markers(cluster, BrokerId(1), 7, 1, [T0]) == {T0: 0}
    cluster.denied_on_cluster = {"ALTER", "CLUSTER_ACTION"}
    with pytest.raises(BrokerRefused) as refused:
        await write_txn_markers(cluster, BrokerId(1), 7, 1, [T0])
    assert code_of(refused) == 31
    assert markers(cluster) == [(7, 1)]


# ---- markers


async def test_the_end_is_answered_before_the_markers_are_written() -> None:
    cluster = make()
    owner = await init(cluster)
    assert await write(cluster, owner, 0) == 0
    fence = await init(cluster)
    await add(cluster, fence, T0, ("t", 1))
    end_txn_now = asyncio.create_task(end(cluster, fence))
    while (await list_transactions(cluster, ANY_BROKER))[0].state == "Ongoing":
        assert markers(cluster) == []
    await end_txn_now
    again, _ = await until_free(cluster)
    assert again == (owner[0], 2)
    assert markers(cluster) == markers(cluster, 1) == [(owner[0], 1)]
    assert markers(cluster, 2) == []
    assert await write(cluster, owner, 1) == await write(cluster, owner, 0, partition=1) == 47
    assert await write(cluster, owner, 0, partition=2) == 0


async def test_e16_a_partition_is_left_out_once_it_has_no_leader_and_holds_everything_up_before() -> None:
    """Killed, its broker leads for another nine seconds; then the fence completes without it."""
    cluster = make(nodes=3, factor=1)
    owner = await init(cluster)
    coordinator = await coordinator_of(cluster, "w1")
    lost = next(index for index in range(3) if cluster.partition("t", index).leader != coordinator)
    there = next(index for index in range(3) if index != lost)
    assert await write(cluster, owner, 0, partition=lost) == 0
    fence = await init(cluster)
    gone = cluster.partition("t", lost).leader
    cluster.stop_broker(gone, clean=False)
    assert await add(cluster, fence, ("t", lost), ("t", there)) == [0, 0]
    await end(cluster, fence)
    _, took_s = await until_free(cluster)
    assert 8.0 < took_s < 10.0
    cluster.start_broker(gone)
    assert markers(cluster, there) == [fence]
    assert markers(cluster, lost) == []
    assert await write(cluster, owner, 1, partition=lost) == 0


async def test_partitions_of_a_deleted_topic_do_not_hold_a_fence_up() -> None:
    cluster = make()
    cluster.create_topic("gone")
    owner = await init(cluster)
    await add(cluster, owner, T0, ("gone", 0))
    cluster.delete_topic("gone")
    await end(cluster, owner)
    await until_free(cluster)
    assert markers(cluster) == [owner]


async def test_m1_a_marker_whose_leader_goes_before_it_is_replicated_is_written_again() -> None:
    cluster = make(nodes=3, replication_s=(0.5, 0.5))
    owner = await init(cluster)
    await add(cluster, owner, T0)
    await end(cluster, owner)
    while not markers(cluster):
        await asyncio.sleep(0.001)
    cluster.move_leader("t", 0)
    assert markers(cluster) == []
    await until_free(cluster)
    assert markers(cluster) == [owner]


async def test_markers_wait_for_enough_replicas_in_sync() -> None:
    cluster = make(nodes=3)
    cluster.configure_topic("t", {"min.insync.replicas": "3"})
    owner = await init(cluster)
    coordinator = await coordinator_of(cluster, "w1")
    cluster.stop_broker(
        next(node for node in cluster.alive if node not in {coordinator, cluster.partition(*T0).leader})
    )
    await add(cluster, owner, T0)
    await end(cluster, owner)
    await asyncio.sleep(60)
    assert markers(cluster) == []
    by_request = await write_txn_markers(cluster, BrokerId(cluster.partition(*T0).leader), owner[0], 1, [T0])
    assert by_request == {T0: 19}
    for node in cluster.nodes:
        cluster.start_broker(node)
    await until_free(cluster)
    assert markers(cluster) == [owner]


async def test_markers_by_request_are_answered_when_every_replica_in_sync_has_them() -> None:
    cluster = make(nodes=3, replication_s=(0.5, 0.5))
    leader = BrokerId(cluster.partition(*T0).leader)
    follower = next(BrokerId(node) for node in cluster.nodes if node != leader)
    since_s = asyncio.get_running_loop().time()
    assert await write_txn_markers(cluster, leader, 7, 1, [T0, ("missing", 0)]) == {T0: 0, ("missing", 0): 3}
    assert asyncio.get_running_loop().time() - since_s >= 0.5
    assert await write_txn_markers(cluster, follower, 7, 1, [T0]) == {T0: 6}
    waiting = asyncio.create_task(write_txn_markers(cluster, leader, 7, 1, [T0]))
    await asyncio.sleep(0.1)
    cluster.move_leader("t", 0, follower)
    assert await waiting == {T0: 6}
    cluster.stop_broker(leader, clean=False)
    since_s = asyncio.get_running_loop().time()
    assert await write_txn_markers(cluster, follower, 7, 1, [T0]) == {T0: 0}
    assert asyncio.get_running_loop().time() - since_s > 8.0  # until the controller notices


async def test_a_follower_describes_the_producers_that_it_has_heard_of() -> None:
    cluster = make(nodes=3, factor=2, replication_s=(0.5, 0.5))
    leader, follower = (BrokerId(node) for node in cluster.partition(*T0).replicas)
    stranger = next(BrokerId(node) for node in cluster.nodes if node not in {leader, follower})
    writing = asyncio.create_task(write(cluster, (7, 2), 5))
    await asyncio.sleep(0.1)
    known = [ActiveProducer(7, 2, 5, cluster.clock.wall_ms() - 100, -1)]
    (found,) = (await describe_producers(cluster, leader, [T0])).values()
    assert not isinstance(found, int)
    assert [replace(one, last_timestamp_ms=known[0].last_timestamp_ms) for one in found] == known
    assert await describe_producers(cluster, follower, [T0]) == {T0: []}
    assert await writing == 0
    assert await describe_producers(cluster, follower, [T0]) == {T0: found}
    assert await describe_producers(cluster, stranger, [T0, ("t", 9)]) == {T0: 6, ("t", 9): 3}
    cluster.deny("t")
    assert await describe_producers(cluster, leader, [T0]) == {T0: 29}


# ---- whose transaction it is


async def test_a_transaction_left_open_is_aborted_at_the_first_check_after_its_time() -> None:
    cluster = make()
    owner = await init(cluster, transaction_timeout_ms=12_000)
    await add(cluster, owner, T0)
    await asyncio.sleep(19)
    assert (await list_transactions(cluster, ANY_BROKER))[0].state == "Ongoing"
    await asyncio.sleep(2)
    assert (await list_transactions(cluster, ANY_BROKER))[0].state == "CompleteAbort"
    assert markers(cluster) == [(owner[0], 1)]
    with pytest.raises(BrokerRefused) as refused:
        await end(cluster, owner)
    assert code_of(refused) == 90


async def test_one_that_was_ended_in_time_is_not_aborted_for_the_one_before() -> None:
    cluster = make()
    owner = await init(cluster, transaction_timeout_ms=12_000)
    await asyncio.sleep(5)  # so that each is open when the one before would have been checked
    for _ in range(5):
        await add(cluster, owner, T0)
        await asyncio.sleep(9)
        await end(cluster, owner)
        await asyncio.sleep(1)
    assert markers(cluster) == [owner] * 5

"""The gate before every request that changes the target."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest

from mm2py.kafka import messages
from mm2py.kafka.list_offsets import LATEST, list_offsets
from mm2py.kafka.port import BrokerId, FetchRequest, PartitionProduce, ProduceRequest, TopicProduce
from mm2py.kafka.write_gate import LIMIT_LEAST_S, READS, Gate, GatedBrokers, IncarnationEnded, gated_alone
from mm2py.records.batch import NewRecord, build_batch
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import DozingClock, VirtualClock

DAY_MS: Final = 86_400_000
SESSION_S: Final = 3.0
CHANGES: Final = {
    "AddPartitionsToTxnRequest",
    "CreateAclsRequest",
    "DeleteAclsRequest",
    "DeleteGroupsRequest",
    "DeleteTopicsRequest",
    "CreatePartitionsRequest",
    "CreateTopicsRequest",
    "EndTxnRequest",
    "IncrementalAlterConfigsRequest",
    "InitProducerIdRequest",
    "OffsetCommitRequest",
    "WriteTxnMarkersRequest",
}
BELOW_THE_PORT: Final = {"SaslAuthenticateRequest", "SaslHandshakeRequest"}


class Told:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def make(clock: VirtualClock | DozingClock | None = None, *, told: Told | None = None) -> Gate:
    clock = clock or VirtualClock()
    return Gate(clock, producer_expiry_ms=DAY_MS, session_timeout_s=SESSION_S, on_wait=told or Told())


def a_cluster() -> ClusterModel:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic("t", 1)
    return cluster


def a_write() -> ProduceRequest:
    records = build_batch([NewRecord(None, b"x", 1)])
    return ProduceRequest([TopicProduce("t", None, [PartitionProduce(0, records)])], 1000)


def a_topic() -> messages.CreateTopicsRequest:
    return messages.CreateTopicsRequest(topics=(), timeout=1000, validate_only=False)  # type: ignore[arg-type]


def test_every_request_is_either_a_read_or_waits_at_the_gate() -> None:
    known = {name for name in messages.__all__ if name.endswith("Request")} - BELOW_THE_PORT
    reads = {read.__name__ for read in READS} - {FetchRequest.__name__}
    assert reads | CHANGES == known
    assert not reads & CHANGES


async def test_the_gate_opens_with_the_first_acknowledged_beat_and_for_one_session_time_out() -> None:
    gate = make()
    assert not gate.is_open
    gate.renew(0.0)
    await asyncio.sleep(2.99)
    assert gate.is_open
    await asyncio.sleep(0.01)
    assert not gate.is_open


async def test_what_counts_is_when_the_beat_was_sent_not_when_the_answer_came() -> None:
    """It was appended at some time in between, and from then on the other members count our silence."""
    gate = make()
    await asyncio.sleep(2)
    gate.renew(0.5)
    await asyncio.sleep(1.49)
    assert gate.is_open
    await asyncio.sleep(0.02)
    assert not gate.is_open


async def test_an_older_beat_that_is_acknowledged_late_shortens_nothing() -> None:
    gate = make()
    await asyncio.sleep(2)
    gate.renew(2.0)
    gate.renew(0.5)
    await asyncio.sleep(2)
    assert gate.is_open


@pytest.mark.parametrize("lone", [False, True])
@pytest.mark.parametrize("suspended", [True, False], ids=["suspended machine", "stopped process"])
@pytest.mark.virtual_time(limit_s=DAY_MS)
async def test_a_worker_that_slept_over_a_weekend_sends_nothing_under_its_id(lone: bool, suspended: bool) -> None:
    """The target may have forgotten the fence of its successor (H4). That it is alone in its own view says nothing."""
    clock, cluster = DozingClock(VirtualClock()), a_cluster()
    gate = make(clock)
    brokers = GatedBrokers(cluster, lambda: gate, clock)
    gate.renew(clock.boottime())
    gate.is_exempt = lone
    await brokers.send(BrokerId(1), a_write())
    clock.doze(60 * 3600.0, suspended=suspended)
    for request in (a_write(), a_topic()):
        with pytest.raises(IncarnationEnded, match="no heartbeat for 216000 s"):
            await brokers.send(BrokerId(1), request)
    with pytest.raises(IncarnationEnded):
        gate.renew(clock.boottime())
    with pytest.raises(IncarnationEnded):
        await brokers.send(BrokerId(1), a_write())
    assert len(cluster.records("t", 0)) == 1


@pytest.mark.virtual_time(limit_s=DAY_MS)
async def test_a_quarter_of_the_producer_expiry_without_a_beat_ends_the_incarnation() -> None:
    gate = make()
    await asyncio.sleep(DAY_MS / 4000)
    gate.check()
    await asyncio.sleep(1)
    with pytest.raises(IncarnationEnded):
        gate.check()
    with pytest.raises(IncarnationEnded):
        gate.renew(asyncio.get_running_loop().time())


async def test_a_busy_machine_is_not_asleep() -> None:
    gate = Gate(VirtualClock(), producer_expiry_ms=1000, session_timeout_s=SESSION_S)
    await asyncio.sleep(LIMIT_LEAST_S)
    gate.check()
    await asyncio.sleep(0.1)
    with pytest.raises(IncarnationEnded):
        gate.check()


async def test_every_write_waits_at_a_closed_gate_and_reads_do_not() -> None:
    told, cluster = Told(), a_cluster()
    gate = make(told=told)
    brokers = GatedBrokers(cluster, lambda: gate, VirtualClock())
    writing = [asyncio.create_task(brokers.send(BrokerId(1), one)) for one in (a_write(), a_topic())]
    await list_offsets(brokers, {("t", 0): BrokerId(1)}, LATEST)
    await asyncio.sleep(10)
    assert (gate.waits, told.times, cluster.records("t", 0)) == (2, 2, [])
    gate.renew(10.0)
    produced, _ = await asyncio.gather(*writing)
    assert [answer.error_code for answer in produced.partitions] == [0]  # type: ignore[attr-defined]
    assert gate.waits == 0


async def test_a_request_that_waits_when_the_incarnation_ends_fails_and_was_not_sent() -> None:
    cluster = a_cluster()
    gate = make()
    brokers = GatedBrokers(cluster, lambda: gate, VirtualClock())
    writing = asyncio.create_task(brokers.send(BrokerId(1), a_write()))
    await asyncio.sleep(0.1)
    gate.end("the group has evicted it")
    with pytest.raises(IncarnationEnded, match="the group has evicted it"):
        await writing
    with pytest.raises(IncarnationEnded):
        gate.renew(asyncio.get_running_loop().time())
    with pytest.raises(IncarnationEnded):
        await brokers.send(BrokerId(1), a_write())
    assert cluster.records("t", 0) == []


async def test_a_gate_that_closed_again_before_a_waiting_request_ran_is_waited_for_once_more() -> None:
    clock = DozingClock(VirtualClock())
    gate = make(clock)
    waiting = asyncio.create_task(gate.passed())
    await asyncio.sleep(1)
    gate.renew(clock.boottime())
    clock.doze(4, suspended=True)
    await asyncio.sleep(1)
    assert not waiting.done()
    gate.renew(clock.boottime())
    await waiting


async def test_a_lone_member_that_can_be_fenced_writes_on_while_the_control_log_takes_nothing() -> None:
    """Of three brokers one dies: for nine seconds nothing is acknowledged, and no other member counts the silence."""
    gate = make()
    gate.renew(0.0)
    gate.is_exempt = True
    await asyncio.sleep(9)
    assert gate.is_open
    assert not gate.is_fresh
    gate.is_exempt = False
    assert not gate.is_open


@pytest.mark.virtual_time(limit_s=DAY_MS)
async def test_without_a_group_answers_of_the_target_keep_the_gate_open() -> None:
    clock, cluster = DozingClock(VirtualClock()), a_cluster()
    brokers = gated_alone(cluster, clock)
    for _ in range(5):
        clock.doze(5 * 3600.0, suspended=True)
        await brokers.send(BrokerId(1), a_write())
    clock.doze(7 * 3600.0, suspended=True)
    with pytest.raises(IncarnationEnded, match="no request for 25200 s"):
        await brokers.send(BrokerId(1), a_write())
    assert len(cluster.records("t", 0)) == 5


@pytest.mark.virtual_time(limit_s=DAY_MS)
async def test_without_a_group_an_answer_that_came_after_a_long_sleep_opens_nothing() -> None:
    """The request went out before the sleep, and its answer waited in the socket."""
    clock = DozingClock(VirtualClock())
    gate = Gate(clock, producer_expiry_ms=DAY_MS)
    sent_at_s = clock.boottime()
    clock.doze(7 * 3600.0, suspended=True)
    with pytest.raises(IncarnationEnded):
        gate.renew(sent_at_s)
    with pytest.raises(IncarnationEnded):
        gate.check()

"""A member's leave to write."""

from __future__ import annotations

import asyncio
import random

import pytest

from mm2py.kafka import admin
from mm2py.kafka.port import BrokerId, PartitionProduce, ProduceRequest, TopicProduce
from mm2py.kafka.pulse import OutOfTouch
from mm2py.records.batch import NewRecord, build_batch
from mm2py.worker.lease import Lease, Leased, PutOutError
from tests.fakes.broker_model import ClusterModel
from tests.fakes.virtual_time import DozingClock, VirtualClock, run_virtual

DAY_MS = 86_400_000


class Told:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def make(clock: VirtualClock | DozingClock | None = None, *, told: Told | None = None) -> Lease:
    return Lease(3.0, DAY_MS, clock or VirtualClock(), waiting=told or Told())


def test_a_lease_begins_with_the_first_beat_that_was_acknowledged_and_lasts_a_session_time_out() -> None:
    async def scenario() -> None:
        lease = make()
        assert not lease.is_valid
        lease.acknowledged(0.0)
        await asyncio.sleep(2.99)
        assert lease.is_valid
        await asyncio.sleep(0.01)
        assert not lease.is_valid

    run_virtual(scenario())


def test_what_counts_is_when_the_beat_was_sent_not_when_the_answer_came() -> None:
    """It was appended at some time in between, and from then on others count our silence."""

    async def scenario() -> None:
        lease = make()
        await asyncio.sleep(2)
        lease.acknowledged(0.5)
        await asyncio.sleep(1.49)
        assert lease.is_valid
        await asyncio.sleep(0.02)
        assert not lease.is_valid

    run_virtual(scenario())


def test_an_older_beat_that_is_acknowledged_late_shortens_nothing() -> None:
    async def scenario() -> None:
        lease = make()
        await asyncio.sleep(2)
        lease.acknowledged(2.0)
        lease.acknowledged(0.5)
        await asyncio.sleep(2.9)
        assert lease.is_valid

    run_virtual(scenario())


def test_a_machine_that_was_suspended_wakes_without_a_lease() -> None:
    async def scenario() -> None:
        clock = DozingClock(VirtualClock())
        lease = make(clock)
        lease.acknowledged(0.0)
        clock.doze(3.0, suspended=True)
        assert not lease.is_valid

    run_virtual(scenario())


def test_who_was_without_a_lease_for_a_quarter_of_the_producer_expiry_is_over() -> None:
    """H4: a fence against it may be forgotten by then."""

    async def scenario() -> None:
        lease = make()
        await asyncio.sleep(DAY_MS / 4000)
        lease.check()
        await asyncio.sleep(1)
        with pytest.raises(OutOfTouch):
            lease.check()
        with pytest.raises(OutOfTouch):
            lease.acknowledged(asyncio.get_running_loop().time())

    run_virtual(scenario(), limit_s=DAY_MS)


def a_write() -> ProduceRequest:
    records = build_batch([NewRecord(None, b"x", 1)])
    return ProduceRequest([TopicProduce("t", None, [PartitionProduce(0, records)])], 1000)


def test_what_writes_waits_for_the_lease_and_what_reads_does_not() -> None:
    async def scenario() -> None:
        told = Told()
        cluster = ClusterModel("B", VirtualClock(), random.Random(1))
        cluster.create_topic("t", 1)
        lease = make(told=told)
        leased = Leased(cluster, lease)
        writing = [asyncio.create_task(leased.send(BrokerId(1), a_write())) for _ in range(2)]
        await admin.list_offsets(leased, BrokerId(1), [("t", 0)], admin.LATEST)
        await asyncio.sleep(10)
        assert (lease.waits, told.times, cluster.records("t", 0)) == (2, 2, [])
        lease.acknowledged(10.0)
        replies = await asyncio.gather(*writing)
        assert [reply.partitions[0].error_code for reply in replies] == [0, 0]
        assert lease.waits == 0

    run_virtual(scenario())


def test_whoever_waits_for_a_lease_that_is_over_is_told_and_nothing_was_sent() -> None:
    async def scenario() -> None:
        cluster = ClusterModel("B", VirtualClock(), random.Random(1))
        cluster.create_topic("t", 1)
        lease = make()
        leased = Leased(cluster, lease)
        writing = asyncio.create_task(leased.send(BrokerId(1), a_write()))
        await asyncio.sleep(0.1)
        lease.end("the group has put it out")
        with pytest.raises(PutOutError, match="the group has put it out"):
            await writing
        lease.acknowledged(asyncio.get_running_loop().time())
        with pytest.raises(PutOutError):
            await leased.send(BrokerId(1), a_write())
        assert cluster.records("t", 0) == [] and lease.is_over

    run_virtual(scenario())


def test_a_lease_that_ran_out_again_before_the_waiting_one_got_its_turn_is_waited_for_once_more() -> None:
    async def scenario() -> None:
        clock = DozingClock(VirtualClock())
        lease = make(clock)
        waiting = asyncio.create_task(lease.hold())
        await asyncio.sleep(1)
        lease.acknowledged(clock.boottime())
        clock.doze(4, suspended=True)
        await asyncio.sleep(1)
        assert not waiting.done()
        lease.acknowledged(clock.boottime())
        await waiting

    run_virtual(scenario())


def test_a_lone_member_that_can_be_fenced_writes_on_while_the_control_log_takes_nothing() -> None:
    """Of three brokers one dies: for nine seconds nothing is acknowledged, and nobody is there to call it silent."""

    async def scenario() -> None:
        lease = make()
        lease.acknowledged(0.0)
        lease.is_exempt = True
        await asyncio.sleep(9)
        assert lease.is_valid
        assert not lease.is_fresh
        lease.is_exempt = False
        assert not lease.is_valid

    run_virtual(scenario())

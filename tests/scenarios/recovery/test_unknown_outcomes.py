"""A batch is stored, its answer is lost, and it cannot be resent before the target has forgotten its producer.

Producer state expires by record time (docs/broker-facts.md#c1). Other brokers answer meanwhile, so the worker stays in
touch; only this partition waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from kio.static.protocol import Payload

from mm2py.kafka.errors import RequestTimedOut
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, ProduceReply, ProduceRequest
from mm2py.records.gap_record import Done, Gap, GapKind
from tests.fakes.near_brokers import NearBrokers
from tests.fakes.network_model import frozen
from tests.scenarios.gaps.test_gaps import accept, counted, kept
from tests.scenarios.gate import Request
from tests.scenarios.recovery.test_late_requests import OLD_MS, goes_to
from tests.scenarios.two_incarnations import Source, all_copied, make, said, until
from tests.scenarios.witness import Witness
from tests.scenarios.world import BEATS_SELDOM, World

pytestmark = pytest.mark.virtual_time(limit_s=4000)

EXPIRY_S = 600
"""The target forgets the producer of a batch once its records are this old; a resend is safe for half of that time."""


class LostAnswers:
    """Stands between a worker and a cluster (``World.worker``). Loses the answers to the next ``wanted`` batches of the
    first partition, and calls ``then``.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self.wanted = 0
        self._then = then

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Losing(self, cluster))

    def lose(self, request: Request) -> bool:
        if not self.wanted or not goes_to(0, request):
            return False
        self.wanted -= 1
        self._then()
        return True


class _Losing(NearBrokers):
    def __init__(self, answers: LostAnswers, cluster: Brokers) -> None:
        self._answers = answers
        self._cluster = cluster

    async def send(
        self, broker: BrokerId, request: Request, *, channel: str = "control"
    ) -> FetchReply | ProduceReply | Payload:
        reply = await self._cluster.send(broker, request, channel=channel)
        if self._answers.lose(request):
            raise RequestTimedOut("the broker", "Produce", 1.0)
        return reply


class Doubled:
    """A network that keeps a copy of each batch of the first partition, and can deliver the last one again."""

    def __init__(self) -> None:
        self._last: tuple[Brokers, BrokerId, ProduceRequest] | None = None

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Doubling(self, cluster))

    def keep(self, cluster: Brokers, broker: BrokerId, request: Request) -> None:
        if goes_to(0, request) and isinstance(request, ProduceRequest):
            self._last = cluster, broker, frozen(request)

    async def deliver_again(self) -> list[int]:
        assert self._last is not None
        cluster, broker, request = self._last
        reply = await cluster.send(broker, request, channel="late")
        return [answer.error_code for answer in reply.partitions]


class _Doubling(NearBrokers):
    def __init__(self, doubled: Doubled, cluster: Brokers) -> None:
        self._doubled = doubled
        self._cluster = cluster

    async def send(
        self, broker: BrokerId, request: Request, *, channel: str = "control"
    ) -> FetchReply | ProduceReply | Payload:
        self._doubled.keep(self._cluster, broker, request)
        return await self._cluster.send(broker, request, channel=channel)


def three_brokers() -> tuple[World, Source, Witness]:
    """Return two clusters of three brokers each; each partition has one replica."""
    world = World(
        1,
        nodes=3,
        extra={
            **BEATS_SELDOM,
            "replication.factor": "1",
            "offset.storage.replication.factor": "3",
            "status.storage.replication.factor": "3",
        },
        broker_config={"producer.id.expiration.ms": str(EXPIRY_S * 1000), "offsets.topic.replication.factor": "3"},
    )
    world.source.create_topic("orders", 3, replication_factor=1)
    source = Source(world)
    for number in range(3):
        source.fill(4, partition=number)
    return world, source, Witness(world, "orders")


@pytest.mark.parametrize(("away", "for_s"), [("target", 30), ("target", 900), ("source", 30), ("source", 1900)])
@pytest.mark.virtual_time(limit_s=6000)
async def test_a_batch_of_unknown_outcome_is_resent_only_while_the_target_surely_knows_its_producer(
    away: str, for_s: int
) -> None:
    """The broker that leads the remote partition stops with the answer, or the source broker stops before the batch was
    read again. After half a minute a resend settles the batch; after hours it would be stored twice.
    """
    world, source, witness = three_brokers()
    cluster, topic = (world.target, "A.orders") if away == "target" else (world.source, "orders")
    stopped: list[int] = []

    def stop_leader() -> None:
        leader = cluster.topics[topic].partitions[0].leader
        assert leader is not None
        stopped.append(leader)
        cluster.stop_broker(leader)

    answers = LostAnswers(stop_leader)
    async with world.worker(through=answers):
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(3)
        answers.wanted = 1
        source.fill(3)
        await until(lambda: answers.wanted == 0, world)
        await asyncio.sleep(for_s)
        cluster.start_broker(stopped[0])
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
        source.fill(3)
        await world.copied({"orders": "A.orders"})
    assert witness.findings() == [], world.log_text.getvalue()[-3000:]
    assert len(said(world, "partitions.reconciled")) == (for_s > EXPIRY_S / 2)
    assert not said(world, "copy.repeated")


@pytest.mark.parametrize("foreign", [False, True])
async def test_own_records_at_unexpected_offsets_are_named(foreign: bool) -> None:
    """A batch of old records is acknowledged, the target forgets its producer, and the network delivers the request
    again. No fence prevents that (docs/broker-facts.md#c1); the offset of the next batch reveals it.
    """
    world, source, witness = make(3, **BEATS_SELDOM)
    source.fill(4, age_ms=OLD_MS)
    doubled = Doubled()
    async with world.worker(through=doubled) as worker:
        await all_copied(world)
        await asyncio.sleep(1260)
        if foreign:
            world.target.producer().append("A.orders", 0, [b"foreign"])
        before = world.target.records("A.orders", 0)[-1].offset
        assert await doubled.deliver_again() == [0]
        first, last = before + 1, world.target.records("A.orders", 0)[-1].offset
        assert last >= first
        source.fill(2, age_ms=OLD_MS)
        await all_copied(world)
        await asyncio.sleep(3)
        assert worker.status()[0].guarantee == "at-least-once (records of A.orders may be there twice)"
    where = f"records to A.orders-0, at offsets {first} to {last}, without getting an answer"
    assert len(said(world, "copy.repeated", "topic=orders", "partition=0", "done=continued", where)) == 1
    assert [counted(world, kind) for kind in (GapKind.REPEATED, GapKind.FOREIGN)] == [1, foreign]
    assert len(said(world, "copy.repeated")) == 1
    assert len(said(world, "foreign.writer")) == foreign
    assert len(witness.findings(foreign=foreign)) == last - before


async def test_exactly_once_enabled_stops_a_partition_that_has_duplicate_records() -> None:
    """As above. No restart resumes the partition, only an operator who accepts the gap. The duplicates stay."""
    world, source, witness = make(3, **BEATS_SELDOM, **{"B.exactly.once.source.support": "enabled"})
    source.fill(4, age_ms=OLD_MS)
    doubled = Doubled()
    async with world.worker(through=doubled):
        await all_copied(world)
        await asyncio.sleep(1260)
        assert await doubled.deliver_again() == [0]
        source.fill(2, age_ms=OLD_MS)
        await until(lambda: bool(said(world, "copy.repeated", "done=stopped")), world)
        stands_at = len(world.target.records("A.orders", 0))
        source.fill(2, age_ms=OLD_MS)
        await asyncio.sleep(30)
        assert len(world.target.records("A.orders", 0)) == stands_at
    for _ in range(2):
        async with world.worker():
            source.fill(2, age_ms=OLD_MS)
            await asyncio.sleep(30)
            assert len(world.target.records("A.orders", 0)) == stands_at
            (stop,) = [gap for gap in kept(world) if isinstance(gap, Gap)]
            assert (stop.kind, stop.done) == (GapKind.REPEATED, Done.STOPPED)
    async with world.worker():
        await asyncio.sleep(5)
        assert (await accept(world, stop.position)).carried_out
        await all_copied(world)
    assert all("comes again" in finding for finding in witness.findings())

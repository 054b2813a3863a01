"""How much is read to find where a previous incarnation stopped: its records after the position, and no more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from mm2py.copying.reading.log_reader import READ_BYTES
from mm2py.kafka.port import BrokerId, FetchReply, FetchRequest
from mm2py.records.batch import read_header, split
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.gate import Request
from tests.scenarios.two_incarnations import all_copied, copies, killed_ahead, make, said, until
from tests.scenarios.witness import stored_positions

pytestmark = pytest.mark.virtual_time(limit_s=600)

LONG = 1300
"""Batches, of some 3,000 records, that were copied long before."""
FEW = 10
TIMES_MOST = 3
"""Records of unknown outcome are read twice, and once more to compare trimmed logs (docs/decisions/0008)."""


@dataclass
class Reads:
    """Stands between a worker and its clusters; records what is read of a topic to reconcile it."""

    begun_at: dict[str, list[int]] = field(default_factory=dict)
    """The offset at which each read started, by topic."""
    offsets: dict[str, int] = field(default_factory=dict)
    """The number of offsets read, by topic."""
    read_bytes: dict[str, int] = field(default_factory=dict)

    def __call__(self, cluster: ClusterModel) -> ClusterModel:
        return _Watched(self, cluster)  # type: ignore[return-value]

    def note(self, request: FetchRequest, reply: FetchReply) -> None:
        for topic in request.topics:
            self.begun_at.setdefault(topic.name, []).extend(part.fetch_offset for part in topic.partitions)
        for fetched in reply.partitions:
            self.read_bytes[fetched.topic] = self.read_bytes.get(fetched.topic, 0) + len(fetched.records)
            for header in map(read_header, split(fetched.records)):
                self.offsets[fetched.topic] = self.offsets.get(fetched.topic, 0) + header.last_offset_delta + 1

    def check(self, topic: str, begin: int, end: int) -> None:
        """Assert that the topic was read between these offsets only, and not too often."""
        assert self.begun_at[topic], "it was read"
        assert begin <= min(self.begun_at[topic]) and max(self.begun_at[topic]) <= end, self.begun_at[topic]
        assert 0 < self.offsets[topic] <= TIMES_MOST * (end - begin), self.offsets
        assert len(self.begun_at[topic]) < 20


class _Watched(NearBrokers):
    def __init__(self, reads: Reads, cluster: ClusterModel) -> None:
        self._reads = reads
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        reply = await self._cluster.send(broker, request, channel=channel)
        if channel == "reconcile" and isinstance(request, FetchRequest):
            assert isinstance(reply, FetchReply)
            self._reads.note(request, reply)
        return reply


@pytest.mark.parametrize("by_content", [False, True])
async def test_after_a_kill_only_the_records_after_the_stored_position_are_read(by_content: bool) -> None:
    """This holds for any length of the logs: a hundred times as many records were copied before."""
    world, source, witness = make(1)
    await killed_ahead(world, source, LONG, FEW)
    witness.look()
    position = (await stored_positions(world))["orders", 0]
    assert position.next_source > 3000 and position.next_target is not None
    if by_content:
        world.source.delete_records("orders", 0, world.source.partition("orders", 0).high_watermark - 5)
    reads = Reads()
    async with world.worker(through=reads):
        await until(lambda: bool(said(world, "partitions.reconciled", f"by_content={int(by_content)}")), world)
        await asyncio.sleep(2)
    reads.check("orders", position.next_source, world.source.partition("orders", 0).high_watermark)
    reads.check("A.orders", position.next_target, world.target.partition("A.orders", 0).high_watermark)
    assert len(copies(world)) == source.number


async def test_of_new_source_records_no_more_than_one_read_is_taken_to_reconcile() -> None:
    """They are to be copied, not compared."""
    world, source, _ = make(2)
    await killed_ahead(world, source, LONG, FEW)
    position = (await stored_positions(world))["orders", 0]
    copied_to = world.source.partition("orders", 0).high_watermark
    for _ in range(10 * TIMES_MOST):
        world.source.append("orders", 0, source.records(1, size=READ_BYTES // 3))
    reads = Reads()
    async with world.worker(through=reads):
        await all_copied(world)
    assert set(reads.begun_at["orders"]) == {position.next_source}
    assert position.next_source < copied_to
    assert 0 < reads.read_bytes["orders"] <= TIMES_MOST * READ_BYTES

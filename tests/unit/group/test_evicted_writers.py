"""The leader shuts the producers of dead members out of the positions."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable
from typing import cast

import pytest

from mm2py.flow import Flow, parse_flow
from mm2py.group.leader_loop import EvictedWriters, FenceOutcome
from mm2py.kafka.messages import AddPartitionsToTxnRequest, ListOffsetsRequest
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.kafka.producer.incarnation import OwnProducer
from mm2py.logs import make_logger
from mm2py.records.control_record import Writer
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock
from tests.scenarios.gate import Gate, Request

A_B, C_B = parse_flow("A->B"), parse_flow("C->B")


class Scene:
    def __init__(self, *, nodes: int = 1) -> None:
        self.cluster = ClusterModel("B", VirtualClock(), random.Random(1), nodes=nodes)
        for source in ("A", "C"):
            self.cluster.create_topic(f"offsets.{source}", 3, replication_factor=1)
            self.cluster.create_topic(f"status.{source}", 1)
        self.log_text = io.StringIO()

    def evicted_writers(self, brokers: Brokers | None = None) -> EvictedWriters:
        return EvictedWriters(
            brokers or self.cluster,
            topics_of,
            clock=self.cluster.clock,
            rng=random.Random(2),
            log=make_logger("info", "text", self.log_text),
        )

    async def writer(self, number: int, flow: Flow = A_B) -> Writer:
        name = f"mm2py-{number}"
        identity = await OwnProducer(self.cluster, name, rng=random.Random(number)).begin()
        return Writer(flow, name, identity.producer_id, identity.epoch)

    def epochs(self, topic: str, writer: Writer) -> list[list[int]]:
        """Return the epochs of a producer's markers in each partition of a topic."""
        return [
            [
                batch.producer_epoch
                for batch in self.cluster.batches(topic, number)
                if batch.control and batch.producer_id == writer.producer_id
            ]
            for number in range(len(self.cluster.topics[topic].partitions))
        ]

    def said(self, text: str) -> int:
        return self.log_text.getvalue().count(text)


def topics_of(flow: Flow) -> list[str]:
    return [f"offsets.{flow.source}", f"status.{flow.source}"]


async def test_each_producer_is_shut_out_of_the_topics_of_its_own_flow() -> None:
    scene = Scene()
    first, second = await scene.writer(1), await scene.writer(2, C_B)
    outcome = await scene.evicted_writers().fence([first, second], {})
    assert outcome == FenceOutcome({first.producer_id: 1, second.producer_id: 1}, {})
    assert scene.epochs("offsets.A", first) == [[1], [1], [1]] and scene.epochs("status.A", first) == [[1]]
    assert scene.epochs("offsets.C", first) == [[], [], []] and scene.epochs("offsets.C", second) == [[1]] * 3


async def test_an_epoch_that_another_leader_has_raised_is_gone_on_with() -> None:
    scene = Scene()
    writer = await scene.writer(1)
    before = await scene.evicted_writers().fence([writer], {})
    after = await scene.evicted_writers().fence([writer], before.epochs)
    assert after == before
    assert scene.epochs("status.A", writer) == [[1, 1]]


async def test_a_topic_that_is_not_there_needs_no_fence() -> None:
    scene = Scene()
    scene.cluster.delete_topic("status.A")
    writer = await scene.writer(1)
    async with asyncio.timeout(5):
        assert (await scene.evicted_writers().fence([writer], {})).epochs == {writer.producer_id: 1}


async def test_many_producers_are_shut_out_side_by_side() -> None:
    scene = Scene()
    writers = [await scene.writer(number) for number in range(40)]
    begun_s = scene.cluster.clock.monotonic()
    outcome = await scene.evicted_writers().fence(writers, {})
    assert len(outcome.epochs) == 40
    assert scene.cluster.clock.monotonic() - begun_s < 0.5


async def test_what_cannot_be_fenced_is_named_with_the_reason_and_keeps_nobody_else() -> None:
    scene = Scene()
    fine, forgotten = await scene.writer(1), await scene.writer(2)
    del scene.cluster.coordinator.transactional_ids["mm2py-2"]
    scene.cluster.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
    outcome = await scene.evicted_writers().fence([forgotten, fine], {})
    assert outcome.epochs == {fine.producer_id: 1}
    assert outcome.unfenced.keys() == {forgotten.producer_id}
    assert "ALTER on the cluster" in outcome.unfenced[forgotten.producer_id]


async def test_while_the_target_does_not_answer_it_asks_again_and_says_so_seldom() -> None:
    scene = Scene()
    writer = await scene.writer(1)
    for node in list(scene.cluster.nodes):
        scene.cluster.stop_broker(node)
    fencing = asyncio.create_task(scene.evicted_writers().fence([writer], {}))
    await asyncio.sleep(100)
    assert not fencing.done()
    assert scene.said("member.fencing") == 2
    for node in list(scene.cluster.nodes):
        scene.cluster.start_broker(node)
    await asyncio.wait_for(fencing, 30)
    assert scene.epochs("offsets.A", writer) == [[1]] * 3


async def test_partitions_without_a_leader_are_waited_for() -> None:
    """A coordinator leaves them out of a fence without a word (C3)."""
    scene = Scene(nodes=3)
    writer = await scene.writer(1)
    gone = scene.cluster.partition("offsets.A", 0).leader
    scene.cluster.stop_broker(gone, clean=False)
    await asyncio.sleep(20)
    fencing = asyncio.create_task(scene.evicted_writers().fence([writer], {}))
    await asyncio.sleep(20)
    assert not fencing.done() and scene.said("Finding the leaders of offsets.A") == 1
    scene.cluster.start_broker(gone)
    await asyncio.wait_for(fencing, 30)
    assert all(scene.epochs("offsets.A", writer))


async def test_markers_that_do_not_come_are_written_once_more_and_named() -> None:
    """The coordinator has answered; whether it ever writes them, only the partition tells."""
    scene = Scene()
    writer = await scene.writer(1)
    scene.cluster.unwritable_topics.add("status.A")
    fencing = asyncio.create_task(scene.evicted_writers().fence([writer], {}))
    await asyncio.sleep(30)
    assert not fencing.done() and scene.said("its markers have not come") == 1
    scene.cluster.unwritable_topics.clear()
    assert (await asyncio.wait_for(fencing, 60)).epochs == {writer.producer_id: 1}
    assert scene.epochs("status.A", writer)[0]


class Breaks:
    """Stands before the cluster, and raises what nobody expects at some requests."""

    def __init__(self, cluster: ClusterModel, breaks: Callable[[Request], bool]) -> None:
        self.left = 3
        self._cluster = cluster
        self._breaks = breaks

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        if self.left and self._breaks(request):
            self.left -= 1
            raise ZeroDivisionError
        return await self._cluster.send(broker, request, channel=channel)


@pytest.mark.parametrize("api", [ListOffsetsRequest, AddPartitionsToTxnRequest])
async def test_a_defect_is_said_and_tried_again(api: type) -> None:
    scene = Scene()
    writers = [await scene.writer(1), await scene.writer(2)]
    breaks = Breaks(scene.cluster, lambda request: isinstance(request, api))
    outcome = await scene.evicted_writers(cast("Brokers", breaks)).fence(writers, {})
    assert len(outcome.epochs) == 2 and not breaks.left
    assert scene.said("ZeroDivisionError") >= 1 and scene.said("please report it") >= 1


async def test_a_fence_that_was_cancelled_is_started_again_by_the_next_leader() -> None:
    scene = Scene()
    writer = await scene.writer(1)
    gate = Gate(lambda request: isinstance(request, AddPartitionsToTxnRequest))
    gate.shut()
    fencing = asyncio.create_task(scene.evicted_writers(gate(scene.cluster)).fence([writer], {}))
    await asyncio.sleep(1)
    fencing.cancel()
    await asyncio.gather(fencing, return_exceptions=True)
    assert (await scene.evicted_writers().fence([writer], {})).epochs == {writer.producer_id: 2}

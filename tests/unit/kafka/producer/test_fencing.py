"""Shutting an earlier producer out, on the broker model: what counts as a fence, and what does not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from mm2py.kafka import admin
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.messages import AddPartitionsToTxnRequest, EndTxnRequest
from mm2py.kafka.port import BrokerId, Brokers, ProducerIdentity, TopicPartition
from mm2py.kafka.producer.fencing import NotFenceable, PreviousProducer
from mm2py.kafka.producer.incarnation import EpochRefused, Incarnation, IncarnationFenced, OwnFence
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock
from tests.scenarios.gate import Gate, Request

ID = "mm2py-test"
PLACES: list[TopicPartition] = [("t", 0), ("t", 1)]


def make() -> ClusterModel:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic("t", 2)
    return cluster


async def _announce(_: ProducerIdentity) -> None:
    """Nobody listens."""


async def begin(
    cluster: ClusterModel,
    transactional_id: str | None = ID,
    announce: Callable[[ProducerIdentity], Awaitable[None]] = _announce,
) -> tuple[Incarnation, PreviousProducer]:
    incarnation = Incarnation(
        cluster,
        None
        if transactional_id is None
        else lambda number: f"{transactional_id}.{number}" if number else transactional_id,
        clock=cluster.clock,
        rng=random.Random(2),
        report=lambda _: None,
        waiting=lambda _: None,
        announce=announce,
    )
    identity = await incarnation.start()
    earlier = PreviousProducer(cluster, transactional_id, identity.producer_id, identity.epoch, rng=random.Random(3))
    return incarnation, earlier


async def epochs_of_markers(cluster: ClusterModel, number: int) -> list[int]:
    await asyncio.sleep(1)
    return [batch.producer_epoch for batch in cluster.batches("t", number) if batch.control]


async def test_an_id_that_answers_another_producer_fences_nothing_so_the_leaders_are_asked() -> None:
    """C2: the target has forgotten the transactional id, its owner lives on."""
    cluster = make()
    incarnation, earlier = await begin(cluster)
    cluster.coordinator.transactional_ids.clear()
    assert await earlier.fence(PLACES) == 1
    assert await epochs_of_markers(cluster, 0) == [1]
    marker = cluster.batches("t", 0)[0]
    assert marker.producer_id == incarnation.identity.producer_id


async def test_without_the_right_to_ask_the_leaders_a_producer_is_not_fenced_and_that_is_reported() -> None:
    cluster = make()
    _, earlier = await begin(cluster)
    cluster.coordinator.transactional_ids.clear()
    cluster.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
    with pytest.raises(NotFenceable, match="ALTER"):
        await earlier.fence(PLACES)


async def test_one_unknown_topic_does_not_keep_the_marker_from_the_others() -> None:
    """H8: AddPartitionsToTxn is all or nothing."""
    cluster = make()
    _, earlier = await begin(cluster)
    await asyncio.wait_for(earlier.fence([("gone", 0), *PLACES]), 20)
    assert await epochs_of_markers(cluster, 1) == [1]


async def test_a_topic_that_may_be_written_to_no_more_does_not_keep_the_marker_from_the_others() -> None:
    """H8: so it is with a right that was taken away."""
    cluster = make()
    cluster.create_topic("locked", 1)
    _, earlier = await begin(cluster)
    cluster.unwritable_topics.add("locked")
    assert await asyncio.wait_for(earlier.fence([("locked", 0), *PLACES]), 20) == 1
    assert [await epochs_of_markers(cluster, number) for number in (0, 1)] == [[1], [1]]
    assert cluster.batches("locked", 0) == []


async def test_many_partitions_are_added_to_a_transaction_by_a_thousand() -> None:
    """H8: a request for all partitions of a large flow at once would hold the coordinator up for long."""
    cluster = make()
    cluster.create_topic("wide", 2001)
    sizes: list[int] = []

    def watch(request: Request) -> bool:
        if isinstance(request, AddPartitionsToTxnRequest):
            sizes.append(sum(len(topic.partitions) for topic in request.v3_and_below_topics))
        return False

    incarnation, _ = await begin(cluster)
    producer_id = incarnation.identity.producer_id
    earlier = PreviousProducer(Gate(watch)(cluster), ID, producer_id, 0, rng=random.Random(7))
    await earlier.fence([("wide", number) for number in range(2001)])
    assert sorted(set(sizes)) == [1, 1000], "some come again while the markers before them are written"
    await asyncio.sleep(5)
    assert all(len(cluster.batches("wide", number)) == 1 for number in range(2001)), "a marker in each"


async def test_one_who_was_fenced_cannot_raise_its_epoch_again() -> None:
    """H3: asking plainly would un-fence it."""
    cluster = make()
    incarnation, earlier = await begin(cluster)
    seen = incarnation.identity
    await earlier.fence(PLACES)
    await asyncio.sleep(1)
    with pytest.raises(IncarnationFenced):
        await OwnFence(incarnation, seen).fence(PLACES)


async def test_many_partitions_of_unknown_outcome_raise_the_own_epoch_once() -> None:
    cluster = make()
    incarnation, _ = await begin(cluster)
    seen = incarnation.identity
    epochs = await asyncio.gather(*(OwnFence(incarnation, seen).fence([place]) for place in PLACES))
    assert epochs == [1, 1]
    assert await epochs_of_markers(cluster, 1) == [1]


async def test_two_who_fence_the_same_producer_both_get_there() -> None:
    cluster = make()
    incarnation, first = await begin(cluster)
    second = PreviousProducer(cluster, ID, incarnation.identity.producer_id, 0, rng=random.Random(4))
    epochs = await asyncio.gather(first.fence(PLACES), second.fence(PLACES))
    highest = max(await epochs_of_markers(cluster, 0))
    assert all(0 < epoch <= highest for epoch in epochs)


@pytest.mark.walk(range(2))
async def test_many_who_fence_the_same_producer_with_the_epoch_of_one_raise_it_no_more(seed: int) -> None:
    """A worker with many partitions dies, and others take them over: each writes markers into those that it gets."""
    cluster = make()
    cluster.create_topic("wide", 100)
    incarnation, leader = await begin(cluster)
    epoch = await leader.fence([])
    others = [
        PreviousProducer(cluster, ID, incarnation.identity.producer_id, 0, rng=random.Random(10 * seed + number))
        for number in range(10)
    ]
    for other in others:
        other.learn_fence_epoch(epoch)
    parts: list[list[TopicPartition]] = [[("wide", number) for number in range(first, 100, 10)] for first in range(10)]
    epochs = await asyncio.gather(*(other.fence(part) for other, part in zip(others, parts, strict=True)))
    assert set(epochs) == {epoch} == {1}
    await asyncio.sleep(1)
    for number in range(100):
        assert {batch.producer_epoch for batch in cluster.batches("wide", number)} == {1}


async def test_a_worker_that_is_overtaken_in_the_epoch_of_another_raises_it_again() -> None:
    cluster = make()
    incarnation, leader = await begin(cluster)
    other = PreviousProducer(cluster, ID, incarnation.identity.producer_id, 0, rng=random.Random(4))
    other.learn_fence_epoch(await leader.fence([]))
    coordinator = await admin.find_coordinator(cluster, ID, transactions=True)
    await admin.init_producer_id(cluster, coordinator, ID)
    assert await other.fence(PLACES) == 3
    assert await epochs_of_markers(cluster, 0) == [3]
    other.learn_fence_epoch(2)
    assert await other.fence(PLACES) == 3, "an older one is no news"


async def test_an_epoch_raised_by_another_worker_past_a_coordinator_that_had_forgotten_the_id_is_surpassed() -> None:
    """C2: the coordinator does not know this producer id any more, and the leaders of partitions write the markers."""
    cluster = make()
    incarnation, leader = await begin(cluster)
    cluster.coordinator.transactional_ids.clear()
    other = PreviousProducer(cluster, ID, incarnation.identity.producer_id, 0, rng=random.Random(4))
    other.learn_fence_epoch(await leader.fence([PLACES[0]]))
    assert await asyncio.wait_for(other.fence(PLACES), 5) == 2
    assert await epochs_of_markers(cluster, 1) == [2]


@pytest.mark.parametrize("transactional_id", [None, ID])
async def test_an_epoch_raised_by_another_worker_serves_without_coordinators(transactional_id: str | None) -> None:
    cluster = make()
    cluster.transactions_available = False
    incarnation = (await begin(cluster, None))[0].identity
    other = PreviousProducer(cluster, transactional_id, incarnation.producer_id, 0, rng=random.Random(4))
    other.learn_fence_epoch(1)
    assert await asyncio.wait_for(other.fence(PLACES), 5) == 1
    assert await epochs_of_markers(cluster, 1) == [1]


async def test_an_overtaken_worker_continues_with_the_epoch_that_it_was_told() -> None:
    cluster = make()
    incarnation, leader = await begin(cluster)
    gate = Gate(lambda request: isinstance(request, AddPartitionsToTxnRequest))
    other = PreviousProducer(gate(cluster), ID, incarnation.identity.producer_id, 0, rng=random.Random(4))
    other.learn_fence_epoch(await leader.fence([]))
    gate.shut()
    fencing = asyncio.create_task(other.fence(PLACES))
    await asyncio.sleep(1)
    again = PreviousProducer(cluster, ID, incarnation.identity.producer_id, 0, rng=random.Random(5))
    other.learn_fence_epoch(await again.fence([]))
    gate.open()
    assert await fencing == 2
    assert await epochs_of_markers(cluster, 0) == [2]


class Answers:
    """Stands before a cluster, and answers some requests with errors before they get there."""

    def __init__(self, cluster: ClusterModel, codes: list[int]) -> None:
        self.left = codes
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        if self.left and isinstance(request, AddPartitionsToTxnRequest | EndTxnRequest):
            code = self.left.pop(0)
            raise BrokerRefused("A transaction", code)
        return await self._cluster.send(broker, request, channel=channel)


@pytest.mark.parametrize("codes", [[51, 51], [48], [51, 48]])
async def test_a_transaction_that_others_are_ending_or_have_ended_is_waited_for(codes: list[int]) -> None:
    cluster = make()
    incarnation, leader = await begin(cluster)
    answers = Answers(cluster, codes)
    other = PreviousProducer(cast("Brokers", answers), ID, incarnation.identity.producer_id, 0, rng=random.Random(4))
    other.learn_fence_epoch(await leader.fence([]))
    assert await asyncio.wait_for(other.fence(PLACES), 5) == 1
    assert await epochs_of_markers(cluster, 0) == [1]


async def test_two_who_fence_a_producer_by_the_leaders_of_partitions_both_get_there() -> None:
    """One of them asks who is there before the other's marker is written, and would ask for a lower one for ever."""
    cluster = make()
    incarnation, _ = await begin(cluster, None)
    other = PreviousProducer(cluster, None, incarnation.identity.producer_id, 0, rng=random.Random(4))
    other.learn_fence_epoch(1)
    cluster.write_marker("t", 1, incarnation.identity.producer_id, 4)
    assert await other.fence(PLACES) == 5


async def test_fences_of_our_own_raise_the_epoch_of_an_id_once_and_partitions_from_it_share_the_next() -> None:
    announced: list[ProducerIdentity] = []

    async def announce(identity: ProducerIdentity) -> None:
        announced.append(identity)

    cluster = make()
    incarnation, _ = await begin(cluster, announce=announce)
    first = incarnation.identity
    for place in [*PLACES, PLACES[0]]:
        assert await OwnFence(incarnation, first).fence([place]) == 1
    second = incarnation.behind(first.producer_id)
    assert second is not None
    assert (second.epoch, second.transactional_id) == (0, f"{ID}.1")
    assert announced == [first, second]
    assert incarnation.identity == first, "our own records go on under the first"
    assert await OwnFence(incarnation, second).fence([PLACES[0]]) == 1
    assert len(incarnation.ids) == 3
    assert await epochs_of_markers(cluster, 0) == [1, 1, 1]


async def test_one_who_was_fenced_gets_no_further_id() -> None:
    cluster = make()
    incarnation, earlier = await begin(cluster)
    assert await OwnFence(incarnation, incarnation.identity).fence(PLACES) == 1
    second = incarnation.behind(incarnation.identity.producer_id)
    assert second is not None
    await PreviousProducer(cluster, second.transactional_id, second.producer_id, 0, rng=random.Random(6)).fence(PLACES)
    await earlier.fence(PLACES)
    for fenced in (incarnation.identity, second):
        with pytest.raises(IncarnationFenced):
            await OwnFence(incarnation, fenced).fence(PLACES)
    assert list(cluster.coordinator.transactional_ids) == [ID, f"{ID}.1"]


async def test_without_a_transactional_id_a_partition_goes_on_under_another_plain_producer_id() -> None:
    cluster = make()
    incarnation, _ = await begin(cluster, None)
    assert await OwnFence(incarnation, incarnation.identity).fence(PLACES) is None
    further = incarnation.behind(incarnation.identity.producer_id)
    assert further is not None
    assert further.transactional_id is None
    assert incarnation.ids == {incarnation.identity.producer_id, further.producer_id}


async def test_an_own_id_that_the_target_has_forgotten_ends_this_incarnation() -> None:
    """C2: a marker of the id that comes in its place would shut nobody out."""
    cluster = make()
    incarnation, _ = await begin(cluster)
    cluster.coordinator.transactional_ids.clear()
    with pytest.raises((EpochRefused, IncarnationFenced)):
        await OwnFence(incarnation, incarnation.identity).fence(PLACES)


async def test_an_id_that_no_coordinator_has_ever_granted_is_not_waited_for() -> None:
    """M8: its owner asked for it in vain, and wrote under a plain producer id."""
    cluster = make()
    cluster.transactions_available = False
    incarnation = (await begin(cluster, None))[0].identity
    earlier = PreviousProducer(cluster, ID, incarnation.producer_id, incarnation.epoch, rng=random.Random(3))
    assert await asyncio.wait_for(earlier.fence(PLACES), 5) == 1
    assert await epochs_of_markers(cluster, 0) == [1]


@pytest.mark.virtual_time(limit_s=600)
async def test_coordinators_that_are_away_are_waited_for_before_anybody_is_fenced_past_them() -> None:
    """H11: once they are back, a marker that ran ahead of them would lock them up."""
    cluster = make()
    _, earlier = await begin(cluster)
    cluster.transactions_available = False
    fencing = asyncio.create_task(earlier.fence(PLACES))
    await asyncio.sleep(120)
    assert not fencing.done() and await epochs_of_markers(cluster, 0) == []
    cluster.transactions_available = True
    assert await fencing == 1
    assert await epochs_of_markers(cluster, 0) == [1]

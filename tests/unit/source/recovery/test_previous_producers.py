"""Which producers of previous incarnations may still write, and which need no fence."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from kio.static.protocol import Payload

from mm2py.group.ownership import KnownProducers
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.messages import FindCoordinatorRequest
from mm2py.kafka.port import BrokerId
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.records.source_offset import StoredPosition
from mm2py_connectors.source.recovery.previous_producers import PreviousProducers
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.flow_context import make_context
from tests.fakes.virtual_time import VirtualClock

OWN = TransactionalId("mm2py", "a" * 12, 1, "A->B")
OTHER = TransactionalId("mm2py", "b" * 12, 1, "A->B")


@dataclass
class Head:
    """A flow's head, whose group knows what it is told."""

    known_producers: KnownProducers = field(default_factory=KnownProducers)
    is_coordinator: bool = True
    is_shared: bool = True


@dataclass
class Hidden:
    """A target on which we may not DESCRIBE transactional ids."""

    cluster: ClusterModel
    hides: bool = True

    async def send(self, broker: BrokerId, request: Payload, *, channel: str = "control") -> object:
        if self.hides and isinstance(request, FindCoordinatorRequest):
            raise BrokerRefused("Finding the coordinator", 53)
        return await self.cluster.send(broker, request, channel=channel)


def make_cluster() -> ClusterModel:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic("A.orders", 1)
    return cluster


def make_incarnation(cluster: ClusterModel, name: TransactionalId) -> Incarnation:
    return Incarnation(
        cluster, name.at, clock=cluster.clock, rng=random.Random(2), report=lambda _: None, waiting=lambda _: None
    )


def make(
    cluster: ClusterModel, own: Incarnation, *, ended: tuple[int, ...] = (), **group: KnownProducers | bool
) -> PreviousProducers:
    head = Head(**group)  # type: ignore[arg-type]
    context = make_context(
        target=cluster,
        incarnation=own,
        producer_name=OWN,
        ended=frozenset(ended),
        ownership=head,
        rng=random.Random(3),
    )
    return PreviousProducers(context)


async def fenced(cluster: ClusterModel, previous: PreviousProducers) -> int:
    """Fence all that are known in one topic; returns how many markers that took."""
    before = len(cluster.batches("A.orders", 0))
    topic = (await fetch_metadata(cluster, ["A.orders"])).topics["A.orders"]
    await previous.fence_in(topic)
    assert previous.unfenced is None
    return len(cluster.batches("A.orders", 0)) - before


def stored_by(incarnation: Incarnation) -> StoredPosition:
    one = incarnation.identity
    return StoredPosition(10, producer_id=one.producer_id, producer_epoch=one.epoch, by=one.transactional_id)


async def test_all_ids_of_this_incarnation_and_of_previous_ones_are_known() -> None:
    cluster = make_cluster()
    incarnation = make_incarnation(cluster, OWN)
    first = await incarnation.start()
    previous = make(cluster, incarnation, ended=(7002,), known_producers=KnownProducers(producers=frozenset({7004})))
    further = await incarnation.next_identity(first)
    previous.meet(str(OTHER), 7001, 0)
    previous.learn([StoredPosition(10, producer_id=7003, producer_epoch=0, by=str(OTHER), drained=True)])
    assert previous.known_ids == {first.producer_id, further.producer_id, 7001, 7002, 7003, 7004}


@pytest.mark.parametrize("drained", [False, True])
async def test_a_final_position_that_says_drained_needs_no_fence(drained: bool) -> None:
    cluster = make_cluster()
    earlier, own = make_incarnation(cluster, OTHER), make_incarnation(cluster, OWN)
    await earlier.start()
    await own.start()
    previous = make(cluster, own)
    stored = replace(stored_by(earlier), drained=drained)
    previous.learn([stored])
    assert (previous.fence_of(stored) is None) is drained
    assert await fenced(cluster, previous) == (not drained)


async def test_a_producer_that_drained_one_partition_and_not_another_is_fenced() -> None:
    cluster = make_cluster()
    earlier, own = make_incarnation(cluster, OTHER), make_incarnation(cluster, OWN)
    await earlier.start()
    await own.start()
    previous = make(cluster, own)
    previous.learn([replace(stored_by(earlier), drained=True), stored_by(earlier)])
    assert await fenced(cluster, previous) == 1


@pytest.mark.parametrize(("listed", "may_describe", "markers"), [(True, True, 1), (False, True, 0), (False, False, 1)])
async def test_an_id_that_no_coordinator_lists_has_expired_unless_we_may_not_see_it(
    listed: bool, may_describe: bool, markers: int
) -> None:
    """A coordinator leaves out silently what we may not DESCRIBE."""
    cluster = make_cluster()
    earlier, own = make_incarnation(cluster, OTHER), make_incarnation(cluster, OWN)
    await earlier.start()
    await own.start()
    asked = cluster if may_describe else cast("ClusterModel", Hidden(cluster))
    previous = make(asked, own)
    stored = stored_by(earlier)
    known = {str(OTHER): earlier.identity.producer_id} if listed else {}
    await previous.find_expired([stored], known)
    if isinstance(asked, Hidden):
        asked.hides = False
    previous.learn([stored])
    assert (previous.fence_of(stored) is None) is (markers == 0)
    assert await fenced(cluster, previous) == markers


async def test_an_id_that_was_asked_for_again_under_another_producer_id_has_expired_before() -> None:
    cluster = make_cluster()
    own = make_incarnation(cluster, OWN)
    await own.start()
    previous = make(cluster, own)
    stored = StoredPosition(10, producer_id=7001, producer_epoch=0, by=str(OTHER))
    await previous.find_expired([stored], {str(OTHER): 7002})
    assert previous.fence_of(stored) is None


async def test_listed_ids_of_other_flows_of_the_group_s_members_and_our_own_are_left_alone() -> None:
    cluster = make_cluster()
    own, other_flow = make_incarnation(cluster, OWN), OTHER._replace(flow="A->C")
    identity = await own.start()
    members = KnownProducers(live=frozenset({"c" * 12}), known=frozenset({"c" * 12, "d" * 12}))
    previous = make(cluster, own, ended=(7005,), known_producers=members)
    previous.learn_listed(
        {
            str(OWN): identity.producer_id,
            str(other_flow): 7001,
            str(OTHER._replace(process="c" * 12)): 7002,
            str(OTHER._replace(process="d" * 12)): 7003,
            str(OWN._replace(attempt=0)): 7005,
            "somebody-else": 7006,
        }
    )
    assert previous.known_ids == {identity.producer_id, 7005}


async def test_a_process_that_the_group_does_not_know_and_a_previous_attempt_of_our_own_are_fenced() -> None:
    cluster = make_cluster()
    unknown, attempt = make_incarnation(cluster, OTHER), make_incarnation(cluster, OWN._replace(attempt=0))
    own = make_incarnation(cluster, OWN)
    ids = [(await one.start()).producer_id for one in (unknown, attempt, own)]
    previous = make(cluster, own)
    previous.learn_listed({str(OTHER): ids[0], str(OWN._replace(attempt=0)): ids[1], str(OWN): ids[2]})
    assert await fenced(cluster, previous) == 2


async def test_a_worker_that_is_not_the_coordinator_fences_only_its_own_previous_attempts() -> None:
    cluster = make_cluster()
    own = make_incarnation(cluster, OWN)
    identity = await own.start()
    previous = make(cluster, own, is_coordinator=False)
    previous.learn_listed({str(OTHER): 7001, str(OWN._replace(attempt=0)): 7002})
    assert previous.known_ids == {identity.producer_id, 7002}

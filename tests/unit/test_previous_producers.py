"""Who is known to have written for this flow: nobody of these is a foreign writer (M1, M6)."""

from __future__ import annotations

import random

import pytest

from connectors.source.previous_producers import PreviousProducers
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.kafka.producer.transactional_ids import TransactionalId
from mm2py.worker.ownership import Alone
from tests.fakes.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock, run_virtual


def test_all_ids_of_this_life_and_of_earlier_ones_are_known() -> None:
    async def scenario() -> None:
        cluster = ClusterModel("B", VirtualClock(), random.Random(1))
        own = TransactionalId("mm2py", "a" * 12, 1, "A->B")
        incarnation = Incarnation(
            cluster,
            own.at,
            clock=cluster.clock,
            rng=random.Random(2),
            report=lambda _: None,
            waiting=lambda _: None,
        )
        first = await incarnation.start()
        lives = PreviousProducers(cluster, incarnation, own, ownership=Alone(), rng=random.Random(3))
        further = await incarnation.further(first)
        lives.meet("mm2py-mm2py-" + "b" * 12 + "-1-A->B", 7001, 0)
        lives.drained.add(7002)
        assert lives.known_ids == {first.producer_id, further.producer_id, 7001, 7002}

    run_virtual(scenario())


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_whom_the_target_has_forgotten_is_not_shut_out_once_more(is_forgotten: bool) -> None:
    async def scenario() -> None:
        cluster = ClusterModel("B", VirtualClock(), random.Random(1))
        cluster.create_topic("A.orders", 1)
        own = TransactionalId("mm2py", "a" * 12, 1, "A->B")
        earlier = TransactionalId("mm2py", "b" * 12, 1, "A->B")
        first, second = (
            Incarnation(
                cluster,
                name.at,
                clock=cluster.clock,
                rng=random.Random(2),
                report=lambda _: None,
                waiting=lambda _: None,
            )
            for name in (earlier, own)
        )
        identity = await first.start()
        await second.start()
        lives = PreviousProducers(cluster, second, own, ownership=Alone(), rng=random.Random(3))
        lives.meet(str(earlier), identity.producer_id, identity.epoch)
        if is_forgotten:
            lives.forgotten.add(identity.producer_id)
        topic = (await fetch_metadata(cluster, ["A.orders"])).topics["A.orders"]
        unfenced: list[str] = []
        await lives.shut_out(topic, clock=cluster.clock, unfenced=unfenced.append)
        assert len(cluster.batches("A.orders", 0)) == (not is_forgotten)
        assert not unfenced

    run_virtual(scenario())

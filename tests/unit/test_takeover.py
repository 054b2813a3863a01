"""Who is known to have written for this flow: nobody of these is a foreign writer (M1, M6)."""

from __future__ import annotations

import random

from connectors.source.takeover import EarlierLives
from mm2py.kafka.incarnation import Incarnation
from mm2py.kafka.transactional_ids import TransactionalId
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
        lives = EarlierLives(cluster, incarnation, own, rng=random.Random(3))
        further = await incarnation.further(first)
        lives.meet("mm2py-mm2py-" + "b" * 12 + "-1-A->B", 7001, 0)
        lives.drained.add(7002)
        assert lives.known_ids == {first.producer_id, further.producer_id, 7001, 7002}

    run_virtual(scenario())

"""Which producer id a life begins with, and when it must not go on with it."""

from __future__ import annotations

import asyncio
import random

import pytest

from mm2py.kafka.producer import transactions
from mm2py.kafka.producer.incarnation import COORDINATOR_PATIENCE_S, EpochRefused, Incarnation
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock

pytestmark = pytest.mark.virtual_time(limit_s=600)


def make(said: list[str]) -> tuple[ClusterModel, Incarnation]:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    incarnation = Incarnation(
        cluster,
        lambda number: f"mm2py-test.{number}",
        clock=cluster.clock,
        rng=random.Random(2),
        report=said.append,
        waiting=lambda _: None,
    )
    return cluster, incarnation


async def test_coordinators_that_are_away_are_waited_for_and_not_done_without() -> None:
    """Earlier lives have their ids there: a plain producer id could shut none of them out."""
    said: list[str] = []
    cluster, incarnation = make(said)
    cluster.create_topic(transactions.TOPIC, 1)
    cluster.transactions_available = False
    starting = asyncio.create_task(incarnation.start())
    await asyncio.sleep(10 * COORDINATOR_PATIENCE_S)
    assert not starting.done()
    cluster.transactions_available = True
    assert (await starting).transactional_id == "mm2py-test.0"
    assert said == []


async def test_a_target_that_makes_no_topic_for_transactional_ids_is_written_to_under_a_plain_one() -> None:
    said: list[str] = []
    cluster, incarnation = make(said)
    cluster.transactions_available = False
    assert (await incarnation.start()).transactional_id is None
    assert incarnation.degraded
    (text,) = said
    assert "has no transaction coordinator" in text


async def test_an_incarnation_whose_id_was_forgotten_is_over() -> None:
    """Nobody could shut it out by that id any more; the next life has one of its own (C2)."""
    cluster, incarnation = make([])
    cluster.create_topic("fences", 1)
    await incarnation.start()
    await incarnation.keep_alive(("fences", 0))
    cluster.coordinator.transactional_ids.clear()
    with pytest.raises(EpochRefused, match="forgotten mm2py-test"):
        await incarnation.keep_alive(("fences", 0))

"""A transactional id that was only used to get a producer id expires after a week, under a running worker.

See docs/broker-facts.md#c2.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.copying.test_copying_under_faults import assert_legal, fill
from tests.scenarios.world import BEATS_SELDOM, World

EXPIRY_S = 120.0
"""Replaces the week."""
FENCES = "mm2-fence.internal"


@pytest.mark.virtual_time(limit_s=2000)
async def test_a_deleted_keep_alive_topic_is_recreated_and_the_worker_can_still_be_fenced() -> None:
    world = World(2, extra=BEATS_SELDOM, broker_config={"transactional.id.expiration.ms": str(int(EXPIRY_S * 1000))})
    world.source.create_topic("orders", 1)
    fill(world, "orders", world.rng, 30)
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        owner = world.target.batches("A.orders", 0)[-1].producer_id
        for _ in range(3):
            await asyncio.sleep(EXPIRY_S)
            assert world.target.batches(FENCES, 0), "it was recreated, and used"
            world.target.delete_topic(FENCES)
        fill(world, "orders", world.rng, 10)
        await world.copied({"orders": "A.orders"})
        (status,) = herder.status()
        assert (status.state, status.guarantee) == ("running", "exactly-once")
        assert world.target.batches("A.orders", 0)[-1].producer_id == owner, "the worker kept its incarnation"
        assert "keepalive.failing" not in world.log_text.getvalue()
        await asyncio.sleep(EXPIRY_S)
    assert owner in {known.producer_id for known in world.target.coordinator.transactional_ids.values()}
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
    assert "producer.unfenced" not in world.log_text.getvalue()
    assert world.target.counts["request WriteTxnMarkers"] == 0, "its id was known: no marker had to be written directly"
    assert_legal(world, {"orders": "A.orders"}, exact=True)

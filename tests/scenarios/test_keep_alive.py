"""A transactional id that only ever asked for its producer id is forgotten after a week, under a living worker (C2)."""

from __future__ import annotations

import asyncio

from tests.fakes.virtual_time import run_virtual
from tests.scenarios.test_copying_under_faults import assert_legal, fill
from tests.scenarios.world import World

EXPIRY_S = 120.0
"""In place of a week."""


def test_a_worker_can_still_be_fenced_long_after_its_id_would_have_been_forgotten() -> None:
    async def scenario() -> None:
        world = World(1, broker_config={"transactional.id.expiration.ms": str(int(EXPIRY_S * 1000))})
        world.source.create_topic("orders", 2)
        fill(world, "orders", world.rng, 30)
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            owner = world.target.batches("A.orders", 0)[-1].producer_id
            await asyncio.sleep(3 * EXPIRY_S)
            fill(world, "orders", world.rng, 10)
            await world.copied({"orders": "A.orders"})
            last = world.target.batches("A.orders", 0)[-1]
            assert (last.producer_id, last.producer_epoch) == (owner, 0), "neither id nor epoch has changed"
            fences = world.target.batches("mm2-fence.internal", 0)
            assert len(fences) >= 3 * 4 - 1
            assert all(batch.control for batch in fences), "nobody produces data there"
            fill(world, "orders", world.rng, 10)
            await asyncio.sleep(0.05)
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(5)
        assert "writer.unfenced" not in world.log_text.getvalue()
        assert any(batch.control and batch.producer_id == owner for batch in world.target.batches("A.orders", 0)), (
            "the marker is that of the first owner's id"
        )
        assert_legal(world, {"orders": "A.orders"}, exact=True)

    run_virtual(scenario(), limit_s=1000)

"""Short, overlapping incarnations in hard storms: old records, transactions, compaction, missing leaders."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.scenarios.copying.test_copying_under_faults import CODECS
from tests.scenarios.gate import Gate
from tests.scenarios.witness import Witness
from tests.scenarios.world import World

HARD_STORM = Faults(
    delay=0.03,
    delay_s=(0.01, 1.0),
    drop_request=0.01,
    drop_reply=0.02,
    reset=0.03,
    duplicate_produce=0.03,
    produce_error=0.08,
    fetch_error=0.03,
    flip_bit=0.01,
    throttle=0.01,
    leader_move_every_s=1.5,
    broker_stop_every_s=12.0,
    broker_down_s=(0.1, 5.0),
)
DAY_MS = 86_400_000


class Storm:
    """The run of one seed."""

    def __init__(self, seed: int, *, zombies: float = 0.4) -> None:
        self.zombies = zombies
        rng = self.rng = random.Random(seed)
        replicas = rng.choice(["1", "3", "3"])
        extra = {
            "replication.factor": replicas,
            "offset.storage.replication.factor": replicas,
            "offset.flush.interval.ms": rng.choice(["200", "1000", "60000"]),
            "A.consumer.isolation.level": rng.choice(["read_committed", "read_uncommitted"]),
            "A->B.copy.mode": rng.choice(["auto", "pass", "repack"]),
        }
        if rng.random() < 0.2:
            extra["B.producer.compression.type"] = rng.choice(["zstd", "gzip", "none"])
        self.world = World(seed, nodes=3, extra=extra)
        for cluster in (self.world.source, self.world.target):
            cluster.request_timeout_s = cluster.connect_timeout_s = 1.5  # otherwise a short incarnation would only wait
        self.number = 0
        self.witnesses = [Witness(self.world, name) for name in ("orders", "table", "old")]

    def fill(self, topic: str, batches: int) -> None:
        rng, source = self.rng, self.world.source
        for _ in range(batches):
            records = []
            for _ in range(rng.choice([1, 1, 2, 5, 12])):
                self.number += 1
                age_ms = rng.choice([0, 0, DAY_MS, 30 * DAY_MS]) if topic == "old" else 0
                records.append(
                    Record(
                        value=None
                        if topic == "table" and rng.random() < 0.2
                        else rng.randbytes(rng.choice([3, 60, 900])),
                        key=b"k%d" % rng.randrange(8) if topic == "table" else rng.choice([None, b"k"]),
                        headers=(("id", b"%d" % self.number),),
                        timestamp_ms=self.world.clock.wall_ms() - age_ms,
                    )
                )
            partition = rng.randrange(2)
            try:
                if rng.random() < 0.1:
                    transaction = source.transaction()
                    transaction.append(topic, partition, records, codec=rng.choice(CODECS))
                    transaction.abort() if rng.random() < 0.5 else transaction.commit()
                else:
                    source.append(topic, partition, records, codec=rng.choice(CODECS))
            except Exception as refused:  # the source partition may have no leader at this moment
                assert "leader" in str(refused), refused

    async def some_time(self, most_s: float) -> None:
        _, table, old = self.witnesses
        rng, end_s = self.rng, self.world.clock.monotonic() + self.rng.uniform(0.2, most_s)
        while self.world.clock.monotonic() < end_s:
            await asyncio.sleep(rng.uniform(0.02, 0.5))
            for witness in self.witnesses:
                if rng.random() < 0.7:
                    self.fill(witness.topic, rng.randint(1, 8))
            if rng.random() < 0.15:
                rng.choice([table.compact_source, table.compact_target, old.expire_target])()

    async def run(self) -> None:
        world, rng = self.world, self.rng
        world.source.create_topic("orders", 2)
        world.source.create_topic("table", 2, {"cleanup.policy": "compact"})
        world.source.create_topic("old", 2, {"retention.ms": str(10 * DAY_MS)})
        for witness in self.witnesses:
            self.fill(witness.topic, 20)
        async with AsyncExitStack() as zombies:
            for _ in range(rng.randint(4, 9)):
                for cluster in (world.source, world.target):
                    cluster.heal() if rng.random() < 0.3 else cluster.inject(HARD_STORM)
                gate = Gate()
                if rng.random() < self.zombies:  # it freezes, and wakes while others run
                    await zombies.enter_async_context(world.worker(through=gate))
                    await self.some_time(2.0)
                    gate.shut()
                    asyncio.get_running_loop().call_later(rng.uniform(0.5, 6.0), gate.open)
                else:
                    async with world.worker(through=gate):
                        await self.some_time(3.0)
            await self.some_time(8.0)
        world.source.heal()
        world.target.heal()
        async with world.worker():
            await world.copied({witness.topic: witness.remote for witness in self.witnesses}, deadline_s=900)
            await asyncio.sleep(5)
        wrong = [text for witness in self.witnesses for text in witness.findings()]
        assert not wrong, f"seed {world.seed}: {wrong[:10]}\n{world.log_text.getvalue()[-3000:]}"
        assert world.target.complaints == [], f"seed {world.seed}"


@pytest.mark.walk(range(110, 114))
async def test_short_and_overlapping_incarnations_in_hard_storms_lose_and_repeat_nothing(seed: int) -> None:
    await Storm(seed).run()

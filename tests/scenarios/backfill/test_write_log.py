"""The log of writes on a cluster whose brokers do not all know yet who leads it."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from mm2py.backfill.frames.patience import PATIENCE_S
from mm2py.backfill.frames.write_log import NAME, committed_batch, log_partition, log_record, make_log
from mm2py.kafka.errors import BrokerRefused, BrokerUnreachable
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.scenarios.world import World

JOB = "nightly"
MOVED = Faults(fetch_error=1.0, fetch_errors=(ErrorCode.not_leader_or_follower,))


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds of one seed give their topics the same ids."""
    monkeypatch.setattr("mm2py.backfill.frames.write_log._views", {})


async def begin(cluster: ClusterModel) -> int:
    """Do what a task does before it writes. Return the batch that was committed before."""
    await make_log(cluster, 1)
    return await committed_batch(cluster, JOB, 0)


async def commit(cluster: ClusterModel, batch: int) -> None:
    """Write what a task writes at its end."""
    record = log_record(JOB, 0, batch, records=1, now_ms=cluster.clock.wall_ms())
    transaction = cluster.transaction()
    transaction.append(NAME, log_partition(JOB, 0, await make_log(cluster, 1)), [Record(record.value, record.key)])
    transaction.commit()


@pytest.mark.parametrize("seed", range(8))
async def test_the_first_task_waits_until_the_brokers_know_the_log_that_it_has_made(seed: int) -> None:
    """One broker names the leaders of the new topic, and these learn a moment later that they lead it."""
    target = World(seed, nodes=3).target
    for node in target.nodes.values():
        node.metadata_lag_s = 1.0 if node.id > 1 else 0.0
    assert await begin(target) == -1
    await commit(target, 0)
    assert await begin(target) == 0


async def test_a_leader_that_has_moved_is_looked_up_again() -> None:
    target = World(1, nodes=3).target
    assert await begin(target) == -1
    await commit(target, 0)
    target.inject(MOVED)
    asyncio.get_running_loop().call_later(5.0, target.inject, Faults())
    assert await begin(target) == 0


async def test_a_log_that_no_broker_leads_fails_the_task_after_a_minute() -> None:
    target = World(1).target
    assert await begin(target) == -1
    await commit(target, 0)
    target.inject(MOVED)
    begun_s = asyncio.get_running_loop().time()
    with pytest.raises(BrokerRefused, match=rf"Reading {NAME}-\d+ was refused with NOT_LEADER_OR_FOLLOWER"):
        await begin(target)
    assert PATIENCE_S <= asyncio.get_running_loop().time() - begun_s < PATIENCE_S + 10


async def test_a_cluster_that_is_gone_fails_the_task_and_does_not_let_it_wait_for_ever() -> None:
    target = World(1).target
    target.stop_broker(1)
    async with asyncio.timeout(3 * PATIENCE_S):
        with pytest.raises(BrokerUnreachable):
            await begin(target)

"""An operator alters the offsets of a stopped source connector, and it goes on there; KIP-875."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from mm2py.connector_offsets.altering import (
    RESET,
    Clusters,
    ConnectorOffsets,
    NotStopped,
    StillRunning,
)
from mm2py.connector_offsets.offsets_body import OffsetsInvalid, body_of
from mm2py.copying.positions import read_positions
from mm2py.flow import Kind
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import ProduceRequest
from mm2py.records.operator_request import RestartConnector, RestartPartitions, TargetState
from mm2py.records.source_offset import SourcePartition, StoredPosition, decode_key, decode_value
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.status.cluster_inquiry import GroupInquiry, InquirySide
from mm2py.status.offset_inquiry import Question, ask_where
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.scenarios.config_world import FLOW, TOPIC
from tests.scenarios.gate import Request
from tests.scenarios.paused_world import direct, held, restart, states, under_load
from tests.scenarios.shared_world import SharedWorld
from tests.scenarios.true_ledger import wrong_answers
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)


def offsets(world: SharedWorld) -> ConnectorOffsets:
    group = world.file({}).configuration().groups[FLOW.target]
    rng = random.Random(world.rng.random())
    inquiry = GroupInquiry(group, InquirySide(FLOW.target, world.target), clock=world.clock, rng=rng)
    configs = ConfigTable(world.target, TOPIC)
    return ConnectorOffsets(world.settings, Clusters(world.source, world.target, configs, inquiry, world.clock, rng))


def body(*entries: tuple[str, int, int | None]) -> dict[str, Any]:
    return {
        "offsets": [
            {
                "partition": {"cluster": "A", "topic": topic, "partition": partition},
                "offset": None if at is None else {"offset": at},
            }
            for topic, partition, at in entries
        ]
    }


async def shown(world: SharedWorld) -> dict[tuple[str, int], int]:
    topic = (await fetch_metadata(world.target, [world.settings.offsets_topic])).topics[world.settings.offsets_topic]
    found = body_of((await read_positions(world.target, topic, FLOW.source))[0], FLOW.source)
    return {
        (one["partition"]["topic"], one["partition"]["partition"]): one["offset"]["offset"] for one in found["offsets"]
    }


def values(cluster: ClusterModel, name: str, partition: int) -> list[bytes | None]:
    return [record.value for record in cluster.records(name, partition)]


async def stopped_world(workers: int = 2, records: int = 10) -> SharedWorld:
    """Return a flow that has copied some records of topic t0, and is stopped."""
    world = SharedWorld(1, extra={"config.storage.replication.factor": "1"})
    world.make_topics(1, 2)
    world.write("t0", records - 3)
    for _ in range(workers):
        world.start()
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    await held(world, TargetState.STOPPED)
    return world


async def resumed_and_copied(world: SharedWorld) -> None:
    await direct(world, TargetState.STARTED)
    world.write("t0")
    await world.until(world.is_copied, within_s=20)
    await asyncio.sleep(3)
    wrong = wrong_answers(world.source, world.target, "t0", "A.t0", committed=False)
    assert not wrong, wrong[:5]
    assert not [process.events for process in world.processes if process.said("flow.crashed")]


async def test_offset_0_skips_record_0_and_an_offset_ahead_skips_what_is_before_it() -> None:
    world = await stopped_world()
    world.write("t0", 5)
    await offsets(world).alter(Kind.SOURCE, body(("t0", 0, 0), ("t0", 1, 12)))
    await resumed_and_copied(world)
    source = values(world.source, "t0", 0)
    assert values(world.target, "A.t0", 0) == source[:10] + source[1:]
    source = values(world.source, "t0", 1)
    assert values(world.target, "A.t0", 1) == source[:10] + source[13:]


async def test_deleted_offsets_are_copied_once_more_from_the_start_once() -> None:
    world = await stopped_world()
    assert await offsets(world).reset(Kind.SOURCE) == RESET
    assert await shown(world) == {}
    await resumed_and_copied(world)
    for partition in (0, 1):
        source = values(world.source, "t0", partition)
        assert values(world.target, "A.t0", partition) == source[:10] + source
    world.processes[0].kill()
    world.start()
    world.write("t0")
    await world.until(lambda: world.is_fully_assigned() and world.is_copied(), within_s=20)
    source = values(world.source, "t0", 0)
    assert values(world.target, "A.t0", 0) == source[:10] + source
    (line, *_) = [line for process in world.processes for line in process.said("topic.recopied")]
    assert line["effect"].endswith("as an operator says, who deleted its offsets")


async def test_one_deleted_offset_leaves_the_other_partitions_alone_and_garbage_may_be_deleted() -> None:
    world = await stopped_world()
    await offsets(world).alter(Kind.SOURCE, body(("t0", 1, None), ("gone", 7, None)))
    assert (await shown(world)).keys() == {("t0", 0)}
    await resumed_and_copied(world)
    assert values(world.target, "A.t0", 0) == values(world.source, "t0", 0)
    source = values(world.source, "t0", 1)
    assert values(world.target, "A.t0", 1) == source[:10] + source


async def test_records_that_expired_before_a_deleted_offset_is_used_are_no_gap() -> None:
    world = await stopped_world()
    await offsets(world).alter(Kind.SOURCE, body(("t0", 0, None)))
    world.source.delete_records("t0", 0, 4)
    await direct(world, TargetState.STARTED)
    world.write("t0")
    await world.until(world.is_copied, within_s=20)
    assert values(world.target, "A.t0", 0)[10:] == values(world.source, "t0", 0)
    assert not [line for process in world.processes for line in process.events if line["event"].startswith("gap")]


@pytest.mark.parametrize("entry", [("t0", 0, 10), ("t0", 2, 1), ("t9", 0, 1), ("t0", 0, 1 << 40)])
async def test_offsets_beyond_the_end_and_absent_partitions_are_refused_and_nothing_changes(
    entry: tuple[str, int, int],
) -> None:
    world = await stopped_world()
    there = await shown(world)
    with pytest.raises(OffsetsInvalid):
        await offsets(world).alter(Kind.SOURCE, body(("t0", 1, 3), entry))
    assert await shown(world) == there


@pytest.mark.parametrize("state", [TargetState.STARTED, TargetState.PAUSED])
async def test_offsets_of_a_connector_that_is_not_stopped_stay(state: TargetState) -> None:
    world = await stopped_world()
    await direct(world, state)
    await world.until(lambda: "stopped" not in states(world))
    there = await shown(world)
    for work in (offsets(world).alter(Kind.SOURCE, body(("t0", 0, 1))), offsets(world).reset(Kind.SOURCE)):
        with pytest.raises(NotStopped, match=r"STOPPED state.*/connectors/A->B.MirrorSourceConnector/stop"):
            await work
    assert await shown(world) == there


async def test_a_worker_that_is_frozen_while_it_should_drain_keeps_the_offsets_as_they_are() -> None:
    async with under_load(1) as (world, (worker,)):
        worker.freeze()
        await direct(world, TargetState.STOPPED)
        with pytest.raises(StillRunning, match="has not said that A->B is drained"):
            await offsets(world).alter(Kind.SOURCE, body(("t0", 0, 1)))
        worker.thaw()
        await world.until(lambda: states(world) == {"stopped"})
        await direct(world, TargetState.STARTED)


async def test_offsets_can_be_set_while_no_worker_runs_and_before_the_flow_ever_ran() -> None:
    world = SharedWorld(1, extra={"config.storage.replication.factor": "1"})
    world.make_topics(1, 2)
    await direct(world, TargetState.STOPPED)
    await offsets(world).alter(Kind.SOURCE, body(("t0", 0, 1)))
    world.start()
    await world.until(lambda: states(world) == {"stopped"})
    await direct(world, TargetState.STARTED)
    await world.until(world.is_copied, within_s=20)
    assert values(world.target, "A.t0", 0) == values(world.source, "t0", 0)[2:]
    assert values(world.target, "A.t0", 1) == values(world.source, "t0", 1)


async def test_a_producer_of_a_killed_worker_is_fenced_before_an_altered_offset_is_used() -> None:
    """A request of it arrives late: it must not stand among the records that are copied from the altered offset on."""
    world = SharedWorld(1, extra={"config.storage.replication.factor": "1"})
    world.make_topics(1, 2)
    first = world.start()
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    await asyncio.sleep(3)

    def late(cluster: str, request: Request) -> float:
        to_copy = isinstance(request, ProduceRequest) and request.topics[0].name == "A.t0"
        return 40.0 if cluster == "B" and to_copy else 0.0

    first.late_s = late
    world.write("t0")
    await asyncio.sleep(1)
    first.kill()
    await direct(world, TargetState.STOPPED)
    world.start()
    await world.until(lambda: states(world) == {"stopped"}, within_s=20)
    copied = values(world.target, "A.t0", 0)
    await world.until(lambda: not world.up[0].member.view.to_fence, within_s=20)  # type: ignore[union-attr]
    await offsets(world).alter(Kind.SOURCE, body(("t0", 0, 1)))
    await direct(world, TargetState.STARTED)
    await world.until(world.is_copied, within_s=20)
    expected = copied + values(world.source, "t0", 0)[2:]
    assert values(world.target, "A.t0", 0) == expected
    await asyncio.sleep(60)
    assert values(world.target, "A.t0", 0) == expected
    assert values(world.target, "A.t0", 1) == values(world.source, "t0", 1)


@pytest.mark.parametrize("seed", range(1, 4))
async def test_whatever_operators_ask_while_workers_come_and_die_loses_and_repeats_nothing(seed: int) -> None:
    """F73, B36. Offsets are set to what is shown, where a worker has drained: else more may be copied than is shown."""
    rng = random.Random(seed)
    async with under_load(3, seed=seed) as (world, _):
        for _ in range(10):
            await asyncio.sleep(rng.uniform(0.1, 3.0))
            match rng.randrange(7):
                case 0:
                    await direct(world, TargetState.PAUSED)
                case 1 | 2:
                    await direct(world, TargetState.STARTED)
                case 3:
                    await restart(world, RestartConnector(Kind.SOURCE))
                case 4:
                    await restart(world, RestartPartitions(rng.choice(["t0", "t1"]), rng.choice([None, 1])))
                case 5:
                    rng.choice(world.up).kill()
                    world.start()
                case _:
                    await direct(world, TargetState.STOPPED)
                    with contextlib.suppress(StillRunning):  # a killed one is not evicted yet
                        await asyncio.sleep(rng.choice([0.0, 8.0]))
                        await offsets(world).alter(Kind.SOURCE, body(("gone", 0, None)))
                        there = await shown(world)
                        drained = [(*key, at) for key, at in there.items() if is_drained(world, key)]
                        await offsets(world).alter(Kind.SOURCE, body(("gone", 0, None), *drained))
        await direct(world, TargetState.STARTED)


def is_drained(world: SharedWorld, key: tuple[str, int]) -> bool:
    """Whether the last position of a partition says that nothing stands behind it."""
    last: dict[SourcePartition, StoredPosition | None] = {}
    for part in world.target.topics["mm2-offsets.A.internal"].partitions:
        for record in world.target.records("mm2-offsets.A.internal", part.index):
            partition = decode_key(record.key)
            if partition is not None:
                last[partition] = decode_value(record.value)
    stored = last[SourcePartition("A", *key)]
    return stored is not None and stored.drained


async def test_nothing_is_stored_of_checkpoints_and_heartbeats_and_that_is_said() -> None:
    world = await stopped_world(1)
    end = [len(part.log.batches) for part in world.target.topics["mm2-offsets.A.internal"].partitions]
    for kind, partition in (
        (Kind.CHECKPOINT, {"group": "g", "topic": "t0", "partition": 0}),
        (Kind.HEARTBEAT, {"sourceClusterAlias": "A", "targetClusterAlias": "B"}),
    ):
        wanted = {"offsets": [{"partition": partition, "offset": {"offset": 0}}]}
        with pytest.raises(NotStopped):
            await offsets(world).alter(kind, wanted)
        await direct(world, TargetState.STOPPED, kind)
        assert "mm2py keeps none" in await offsets(world).alter(kind, wanted)
        assert "mm2py keeps none" in await offsets(world).reset(kind)
    assert end == [len(part.log.batches) for part in world.target.topics["mm2-offsets.A.internal"].partitions]


async def test_a_copy_that_has_lost_its_end_gets_what_is_missing_behind_what_is_there_as_its_remedy_says() -> None:
    world = await stopped_world()
    await direct(world, TargetState.STARTED)
    for _ in range(3):  # three batches
        world.write("t0")
        await world.until(world.is_copied, within_s=20)
        await asyncio.sleep(2)
    world.target.truncate("A.t0", 0, 11)
    end = world.target.partition("A.t0", 0).log.end_offset
    assert end == 11
    world.write("t0")
    await world.until(lambda: any(one.said("target.truncated") for one in world.processes), within_s=60)
    (event,) = (event for one in world.processes for event in one.said("target.truncated"))
    assert "translate FILE 'A->B' --topic t0 --partition 0 --reverse --offset END" in event["remedy"]
    assert "recopy" not in event["remedy"]
    (answer,) = await ask_where(world.settings, Question(("t0", 0), [end], True), world.source, world.target, world.log)
    assert (answer.other_offset, answer.is_exact) == (end, True)
    await held(world, TargetState.STOPPED, within_s=60)
    await offsets(world).alter(Kind.SOURCE, body(("t0", 0, end - 1)))
    await resumed_and_copied(world)
    assert values(world.target, "A.t0", 0) == values(world.source, "t0", 0)
    assert values(world.target, "A.t0", 1) == values(world.source, "t0", 1)


async def test_an_offset_that_is_set_counts_for_the_cluster_that_is_the_source_now() -> None:
    """The source was replaced by another cluster with the same records: its topics are refused until that."""
    world = await stopped_world()
    world.source.cluster_id = "another"
    await offsets(world).alter(Kind.SOURCE, body(("t0", 0, 9)))
    topic = (await fetch_metadata(world.target, [world.settings.offsets_topic])).topics
    found, _ = await read_positions(world.target, topic[world.settings.offsets_topic], FLOW.source)
    assert found["t0", 0].source_cluster == "another"


async def test_an_operator_says_how_far_mirrormaker_2_copied_where_that_cannot_be_told() -> None:
    """With exactly-once enabled the flow is refused, and its worker, which has no other flow, waits for the offset."""
    world = SharedWorld(1, extra={"B.exactly.once.source.support": "enabled"})
    records = [Record(b"same", timestamp_ms=world.clock.wall_ms())] * 10
    world.source.create_topic("t0", 1)
    world.source.append("t0", 0, records)
    world.target.create_topic("A.t0", 1)
    world.target.append("A.t0", 0, records[:7])
    world.target.create_topic(world.settings.offsets_topic, 1, {"cleanup.policy": "compact"})
    of_mm2 = Record(b'{"offset":3}', key=b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t0"}]')
    world.target.append(world.settings.offsets_topic, 0, [of_mm2])
    worker = world.start()
    await world.until(lambda: bool(worker.said("flow.refused")))
    await asyncio.sleep(10)
    assert worker.is_up and len(values(world.target, "A.t0", 0)) == 7
    await held(world, TargetState.STOPPED)
    await offsets(world).alter(Kind.SOURCE, body(("t0", 0, 6)))
    await direct(world, TargetState.STARTED)
    await world.until(lambda: len(values(world.target, "A.t0", 0)) > 7)
    await asyncio.sleep(3)
    assert len(values(world.target, "A.t0", 0)) == 10

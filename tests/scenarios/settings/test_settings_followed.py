"""Workers of a group run a flow by its stored settings: what a change affects, when, and what continues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import pytest

from mm2py.flow import Flow
from mm2py.kafka.errors import BrokerUnreachable
from mm2py.kafka.port import FetchRequest
from mm2py.records.connector_config import FLOW_KEY, DecidedBy, FlowConfig
from mm2py.shared_settings.config_log import SettingsWritten
from mm2py.shared_settings.flow_config import changed
from mm2py_connectors.source.discovery import remote_topics
from tests.fakes.broker.record_batch import Record
from tests.scenarios.config_world import BY_MM2, FLOW, TOPIC, log_of, put, put_as_mm2, stored_in
from tests.scenarios.gate import Request
from tests.scenarios.shared_world import SESSION_S, Process, SharedWorld
from tests.scenarios.world import World
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

HEARD_S = 2.0


def world_of(extra: Mapping[str, str] | None = None, *, seed: int = 1) -> SharedWorld:
    return SharedWorld(seed, extra={"config.storage.replication.factor": "1", **(extra or {})})


async def apply(world: SharedWorld, flow: Flow = FLOW, **settings: str) -> int:
    """Change some settings as ``mm2py apply`` does; return the version."""
    log = await log_of(world, f"operator-{world.rng.random()}", flow=flow)
    await log.read_patiently(world.rng)
    stored = log.config
    assert stored is not None
    outcome = await log.write(changed(stored, {**stored.properties, **settings}, DecidedBy.APPLY), instead_of=stored)
    assert isinstance(outcome, SettingsWritten)
    return outcome.config.version


def applied(world: SharedWorld) -> list[int]:
    """Return the versions that the workers have announced to their group, as one of them reads it."""
    member = world.up[0].member
    assert member is not None
    return [one.applied.get(FLOW, 0) for one in member.view.members.values()]


async def reach_all(world: SharedWorld, version: int, *, within_s: float = HEARD_S) -> None:
    await world.until(lambda: applied(world) == [version] * len(world.up), within_s=within_s)


@contextlib.asynccontextmanager
async def traffic(world: SharedWorld, names: Collection[str]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(world.traffic(names, 0.05)), asyncio.ensure_future(world.watch())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def stored(world: SharedWorld) -> FlowConfig:
    found = await stored_in(world)
    assert found is not None
    return found


def starts(world: SharedWorld) -> list[int]:
    return [len(process.said("flow.ready")) for process in world.processes]


def copies(world: SharedWorld, name: str) -> int:
    return sum(len(partition.log.batches) for partition in world.target.topics[f"A.{name}"].partitions)


async def started(world: SharedWorld, workers: int, **extra: str) -> list[Process]:
    found = [world.start(extra) for _ in range(workers)]
    await world.until(lambda: all(process.said("flow.ready") for process in found))
    await reach_all(world, applied(world)[0])
    return found


# -- in place ----------------------------------------------------------------------------------------------------------


async def test_newly_included_topics_are_copied_within_two_seconds_and_nothing_else_pauses() -> None:
    world = world_of()
    names = world.make_topics(3, 4)
    await started(world, 2, topics="t0,t1")
    await world.until(lambda: {"A.t0", "A.t1"} <= world.target.topics.keys())
    async with traffic(world, names):
        await asyncio.sleep(5)
        world.pauses.clear()
        await reach_all(world, await apply(world, topics="t1,t2"))
        await world.until(lambda: "A.t2" in world.target.topics and copies(world, "t2") > 0, within_s=HEARD_S)
        before = copies(world, "t0")
        await asyncio.sleep(10)
        assert copies(world, "t0") == before
        assert max(pause_s for (name, _), pause_s in world.pauses.items() if name == "A.t1") < 0.3
        await reach_all(world, await apply(world, topics="t0,t1,t2"))
        await world.until(lambda: copies(world, "t0") > before, within_s=HEARD_S)
    assert starts(world) == [1, 1]
    await world.finish()
    assert not [line for process in world.processes for line in process.events if "gap" in line["event"]]
    assert not [
        process.said("partitions.not_started") for process in world.processes if process.said("partitions.not_started")
    ]


async def test_after_a_failed_refresh_refused_topics_are_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, the failed round counted as a check, and without refresh there was no other."""
    ensure, failures = remote_topics.ensure, [1]

    async def fails_once(*positional: Any, **named: Any) -> remote_topics.RemoteTopics:
        if "t1" in positional[3] and failures and failures.pop():
            raise BrokerUnreachable("B", "no way there")
        return await ensure(*positional, **named)

    monkeypatch.setattr(remote_topics, "ensure", fails_once)
    world = world_of({"refresh.topics.enabled": "false"})
    names = world.make_topics(2, 2)
    world.target.denied_topics.add("A.t0")
    (worker,) = await started(world, 1, topics="t0")
    await world.until(lambda: bool(worker.said("topic.refused")))
    world.target.denied_topics.clear()
    await reach_all(world, await apply(world, topics="t0,t1"))
    for name in names:
        world.write(name)
    await world.until(world.is_copied)
    assert not failures


async def test_a_changed_rate_applies_at_once_to_waiting_reads() -> None:
    world = world_of({"bytes.per.second.max": "200"})
    world.make_topics(1, 2)
    await started(world, 2)
    world.write("t0", 500)
    await asyncio.sleep(30)
    assert not world.is_copied()
    await reach_all(world, await apply(world, **{"bytes.per.second.max": "50000000"}))
    await world.until(world.is_copied, within_s=HEARD_S)
    assert starts(world) == [1, 1]
    await world.finish()


async def test_the_next_reads_use_the_applied_settings() -> None:
    waits: list[int] = []

    def note(cluster: str, request: Request) -> float:
        if cluster == "A" and isinstance(request, FetchRequest):
            waits.append(request.max_wait_ms)
        return 0.0

    world = world_of()
    world.make_topics(1, 2)
    (worker,) = await started(world, 1)
    await world.until(world.is_copied)
    worker.late_s = note
    await asyncio.sleep(5)
    assert 123 not in waits
    await reach_all(world, await apply(world, **{"source.consumer.fetch.max.wait.ms": "123"}))
    await asyncio.sleep(1)
    waits.clear()
    await asyncio.sleep(5)
    assert set(waits) <= {0, 50, 123}
    assert 123 in waits
    assert starts(world) == [1]


async def test_heartbeats_start_and_stop_with_their_setting_and_copying_is_not_disturbed() -> None:
    def beats(world: SharedWorld) -> int:
        return len(world.target.records("heartbeats", 0)) if "heartbeats" in world.target.topics else 0

    world = world_of({"heartbeats.topic.replication.factor": "1"})
    world.make_topics(1, 2)
    await started(world, 2)
    assert beats(world) == 0
    await reach_all(world, await apply(world, **{"emit.heartbeats.enabled": "true"}))
    await world.until(lambda: beats(world) > 0, within_s=4)
    before = beats(world)
    await asyncio.sleep(10)
    assert 9 <= beats(world) - before <= 11  # one worker emits one heartbeat a second
    await reach_all(world, await apply(world, **{"emit.heartbeats.interval.seconds": "5"}))
    before = beats(world)
    await asyncio.sleep(20)
    assert 3 <= beats(world) - before <= 5
    await reach_all(world, await apply(world, **{"emit.heartbeats.enabled": "false"}))
    before = beats(world)
    await asyncio.sleep(20)
    assert beats(world) == before
    assert starts(world) == [1, 1]


async def test_a_changed_number_of_tasks_moves_partitions_and_restarts_no_flow() -> None:
    world = world_of()
    world.make_topics(2, 3)
    workers = await started(world, 2)
    await world.until(world.is_fully_assigned)
    assert all(process.owns(FLOW) for process in workers)
    await reach_all(world, await apply(world, **{"tasks.max": "1"}))
    await world.until(lambda: sorted(len(process.owns(FLOW)) for process in workers) == [0, 6], within_s=5)
    await reach_all(world, await apply(world, **{"tasks.max": "2"}))
    await world.until(lambda: all(process.owns(FLOW) for process in workers), within_s=5)
    assert starts(world) == [1, 1]
    await world.finish()


async def test_the_topic_settings_sync_restarts_its_schedule_when_it_covers_more_settings() -> None:
    world = world_of({"config.properties.exclude": r"retention\\.ms"})
    world.make_topics(1, 2)
    world.source.topics["t0"].overrides["retention.ms"] = "777000"
    await started(world, 2)
    await world.until(lambda: "A.t0" in world.target.topics)
    await asyncio.sleep(5)
    assert "retention.ms" not in world.target.topics["A.t0"].overrides
    await reach_all(world, await apply(world, **{"config.properties.exclude": "flush.ms"}))
    await world.until(lambda: world.target.topics["A.t0"].overrides.get("retention.ms") == "777000", within_s=HEARD_S)
    assert starts(world) == [1, 1]


async def test_positions_are_stored_as_often_as_applied() -> None:
    def positions(world: World) -> int:
        return sum(len(one.log.batches) for one in world.target.topics["mm2-offsets.A.internal"].partitions)

    world = world_of()
    names = world.make_topics(1, 2)
    await started(world, 1)
    async with traffic(world, names):
        await asyncio.sleep(10)
        before = positions(world)
        await asyncio.sleep(10)
        in_ten_s = positions(world) - before
        await reach_all(world, await apply(world, **{"offset.flush.interval.ms": "100"}))
        before = positions(world)
        await asyncio.sleep(10)
        assert positions(world) - before > 5 * in_ten_s > 0
    assert starts(world) == [1]
    await world.finish()


async def test_a_partition_that_waits_at_a_refused_record_resumes_once_the_quarantine_is_applied() -> None:
    world = world_of({"sync.topic.configs.enabled": "false"})
    world.source.create_topic("t0", 1, {"message.timestamp.after.max.ms": str(1 << 62)})
    world.target.create_topic("A.t0", 1)
    (worker,) = await started(world, 1)
    world.source.append("t0", 0, [Record(value=b"late", timestamp_ms=4_000_000_000_000)])
    world.write("t0")
    await asyncio.sleep(60)
    assert copies(world, "t0") == 0
    await reach_all(world, await apply(world, **{"on.poison.record": "quarantine"}))
    await world.until(lambda: copies(world, "t0") == 1, within_s=31)
    assert len(world.target.records("mm2-quarantine.A.internal", 0)) == 1
    await reach_all(world, await apply(world, **{"on.poison.record": "stop"}))
    world.source.append("t0", 0, [Record(value=b"late", timestamp_ms=4_000_000_000_000)])
    world.write("t0")
    await asyncio.sleep(60)
    assert copies(world, "t0") == 1
    assert len(world.target.records("mm2-quarantine.A.internal", 0)) == 1
    assert starts(world) == [1]
    worker.kill()


# -- settings that restart the tasks ----------------------------------------------------------------------------------


async def test_a_setting_that_affects_everything_drains_the_flow_and_causes_no_duplicates() -> None:
    world = world_of()
    names = world.make_topics(3, 4)
    workers = await started(world, 2)
    members = [process.member for process in workers]
    async with traffic(world, names):
        await asyncio.sleep(5)
        world.pauses.clear()
        version = await apply(world, **{"source.consumer.isolation.level": "read_committed"})
        await reach_all(world, version)
        await asyncio.sleep(10)
    assert starts(world) == [2, 2]
    assert [process.member for process in workers] == members
    assert not any(process.said("drain.failed") or process.said("flow.failed") for process in workers)
    assert not any(process.herder._outcome_unknown for process in workers)  # drained, not only ended
    assert max(world.pauses.values()) < HEARD_S
    await world.finish()
    assert world.promises_once


async def test_a_flow_that_is_disabled_from_the_start_waits_and_its_worker_stops_in_order() -> None:
    world = world_of()
    world.make_topics(1, 2)
    (first,) = await started(world, 1)
    await reach_all(world, await apply(world, enabled="false"))
    assert await first.stop() == 0
    second = world.start()
    await world.until(lambda: bool(world.up) and world.up[0].member is not None)
    await world.until(lambda: applied(world) == [2])
    await asyncio.sleep(10)
    assert not second.said("flow.ready")
    assert await second.stop() == 0


# -- which settings count ---------------------------------------------------------------------------------------------


async def test_apply_on_the_command_line_makes_running_workers_use_this_file_once() -> None:
    world = world_of()
    world.make_topics(2, 2)
    await started(world, 1, topics="t0")
    late = world.start({"topics": "t.*"}, apply=True)
    await world.until(lambda: "A.t1" in world.target.topics)
    await reach_all(world, 2)
    assert (await stored(world)).by is DecidedBy.APPLY
    version = await apply(world, **{"source.consumer.isolation.level": "read_committed", "topics": "t0"})
    await reach_all(world, version)
    await asyncio.sleep(10)
    assert len(late.said("flow.ready")) == 2
    assert (await stored(world)).version == version  # after a restart it does not apply its file again


OFF_HERE = {"A->B.enabled": "false", "B->A.enabled": "true", "B->A.topics": "none"}
"""The worker is not a member of the group on the flow's target: it runs no other flow to there. It has a group on A."""


async def test_a_file_that_disables_a_flow_does_so_for_all_workers_once_with_apply_on_the_command_line() -> None:
    """Also if the worker with that file cannot reach the source."""
    world = world_of()
    names = world.make_topics(1, 2)
    workers = await started(world, 2)
    async with traffic(world, names):
        late = world.start(OFF_HERE, apply=True)
        late.cut_off_from.add("A")
        await world.until(lambda: bool(late.said("config.replaced")))
        assert late.said("config.replaced")[0]["difference"] == ["enabled: 'true' -> 'false'"]
        await asyncio.sleep(HEARD_S)
        before = copies(world, "t0")
        await asyncio.sleep(20)
        assert copies(world, "t0") == before
        assert ((await stored(world)).by, (await stored(world)).properties["enabled"]) == (DecidedBy.APPLY, "false")
        version = await apply(world, enabled="true")
        await world.until(lambda: copies(world, "t0") > before, within_s=5)
        await asyncio.sleep(20)
        assert (await stored(world)).version == version
    assert all(len(process.said("flow.ready")) == 2 for process in workers)
    assert not late.said("flow.ready")


async def test_a_file_that_disables_a_flow_affects_no_other_worker_without_apply_or_if_the_flow_is_unknown() -> None:
    world = world_of()
    world.make_topics(1, 2)
    worker = world.start(OFF_HERE, apply=True)
    await asyncio.sleep(10)
    assert await stored_in(world) is None
    worker.kill()
    (worker,) = await started(world, 1)
    world.start(OFF_HERE)
    await asyncio.sleep(10)
    assert (await stored(world)).properties["enabled"] == "true"
    assert not worker.said("flow.changing")


async def test_a_file_that_disables_a_flow_does_not_touch_the_settings_of_mirrormaker_2() -> None:
    world = world_of()
    world.target.create_topic(TOPIC, 1, configs={"cleanup.policy": "compact"})
    await put_as_mm2(world, BY_MM2)
    world.start(OFF_HERE, apply=True)
    await asyncio.sleep(10)
    assert (await stored(world)).by is DecidedBy.MM2


async def test_workers_that_start_together_with_a_changed_file_store_it() -> None:
    world = world_of()
    world.make_topics(2, 2)
    for process in await started(world, 2, topics="t0"):
        assert await process.stop() == 0
    workers = [world.start({"topics": "t.*"}) for _ in range(3)]
    await world.until(lambda: all(process.said("flow.ready") for process in workers))
    await reach_all(world, 2)
    assert sum(len(process.said("config.replaced")) for process in workers) == 1
    assert not any(process.said("config.drift") for process in workers)
    await world.finish()


@pytest.mark.parametrize("away_s", [0, 1, 60, 3600])
@pytest.mark.parametrize("killed", [1, 2])
@pytest.mark.parametrize("begun", [1, 3])
async def test_a_changed_file_is_stored_when_all_workers_of_the_flow_were_killed(
    away_s: float, killed: int, begun: int
) -> None:
    """They are still members, and their last announcement is that they run the flow."""
    world = world_of()
    world.make_topics(2, 2)
    for process in await started(world, killed, topics="t0"):
        process.kill()
    await asyncio.sleep(away_s)
    workers = [world.start({"topics": "t.*"}) for _ in range(begun)]
    took_s = await world.until(lambda: all(process.said("flow.ready") for process in workers))
    assert took_s < SESSION_S + 2
    await reach_all(world, 2)
    assert [line["difference"] for process in workers for line in process.said("config.replaced")] == [
        ["topics: 't0' -> 't.*'"]
    ]
    assert not any(process.said("config.drift") for process in workers)
    await world.finish()


@pytest.mark.parametrize("after_s", [0.0, 0.2])
async def test_a_worker_killed_during_a_join_is_not_taken_for_alive_by_its_last_heartbeat(after_s: float) -> None:
    world = world_of()
    world.make_topics(2, 2)
    (first,) = await started(world, 1, topics="t0")
    late = world.start({"topics": "t.*"})
    await world.until(lambda: late.member is not None)
    await asyncio.sleep(after_s)
    first.kill()
    await world.until(lambda: "A.t1" in world.target.topics)
    assert len(late.said("config.replaced")) == 1
    assert not late.said("config.drift")
    await world.finish()


async def test_a_start_waits_for_no_worker_if_all_stopped_in_order_or_its_file_equals_the_stored_settings() -> None:
    world = world_of()
    world.make_topics(2, 2)
    for process in await started(world, 2, topics="t0"):
        assert await process.stop() == 0
    changed_file = world.start({"topics": "t.*"})
    assert await world.until(lambda: bool(changed_file.said("config.replaced"))) < 1
    await reach_all(world, 2)
    changed_file.kill()
    same_file = world.start({"topics": "t.*"})
    assert await world.until(lambda: bool(same_file.said("config.used"))) < 1


async def test_after_a_kill_a_flow_runs_by_the_operators_stored_change() -> None:
    world = world_of()
    world.make_topics(2, 2)
    workers = await started(world, 2, topics="t0")
    await reach_all(world, await apply(world, topics="t.*"))
    for process in workers:
        process.kill()
    again = world.start({"topics": "t0"})
    await world.until(lambda: bool(again.said("flow.ready")))
    assert again.said("config.kept") and not again.said("config.drift")
    await world.finish()


async def test_when_the_other_workers_end_later_a_drifted_file_is_not_stored() -> None:
    """A worker's death changes no settings behind an operator's back; only the next start stores the file."""
    world = world_of()
    world.make_topics(2, 2)
    (first,) = await started(world, 1, topics="t0")
    late = world.start({"topics": "t.*"})
    await world.until(lambda: bool(late.said("flow.ready")))
    first.kill()
    await asyncio.sleep(60)
    assert "A.t1" not in world.target.topics
    assert (await stored(world)).properties["topics"] == "t0"
    late.kill()
    again = world.start({"topics": "t.*"})
    await world.until(lambda: "A.t1" in world.target.topics)
    assert again.said("config.replaced")
    await world.finish()


async def test_a_worker_evicted_while_it_waits_for_others_decides_in_its_next_incarnation() -> None:
    world = world_of()
    world.make_topics(2, 2)
    await started(world, 1, topics="t0")
    late = world.start({"topics": "t.*"})
    await world.until(lambda: late.member is not None)
    member = late.member
    late.freeze()
    await asyncio.sleep(3 * SESSION_S)
    late.thaw()
    await world.until(lambda: bool(late.said("flow.ready")), within_s=30)
    assert late.member is not member
    assert len(late.said("config.drift")) == 1
    assert not late.said("config.replaced") and not late.said("config.unshared")


async def test_once_settings_can_be_stored_they_are_and_nothing_restarts() -> None:
    world = world_of()
    world.target.create_topic(TOPIC, 1, configs={"cleanup.policy": "delete"})
    world.make_topics(1, 2)
    await started(world, 2)
    world.target.topics[TOPIC].overrides["cleanup.policy"] = "compact"
    # If both store it at once, the second one writes the first one's again, as version 2.
    await world.until(lambda: applied(world) in ([1, 1], [2, 2]), within_s=35)
    assert starts(world) == [1, 1]
    await reach_all(world, await apply(world, topics="t.*,other"))


async def test_settings_stored_by_a_newer_mm2py_are_not_applied() -> None:
    world = world_of()
    names = world.make_topics(1, 2)
    (first,) = await started(world, 1)
    await put(world, (FLOW_KEY, b'{"format": 9, "readable_from": 9, "mm2py": "9.0"}'))
    late = world.start()
    await world.until(lambda: bool(late.said("flow.refused")))
    assert "Run mm2py 9.0 or later." in late.said("flow.refused")[0]["why"]
    async with traffic(world, names):
        await asyncio.sleep(70)
    await world.until(world.is_copied)
    assert len(first.said("config.unshared")) == 1
    assert starts(world)[0] == 1

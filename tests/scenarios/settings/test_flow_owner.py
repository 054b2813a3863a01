"""One group runs a flow: who is refused, who takes over, and what happens when several want to at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mm2py.cli.apply import EXIT_DONE, EXIT_FAILED
from mm2py.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED
from mm2py.kafka.errors import BrokerRefused, BrokerUnreachable
from mm2py.kafka.port import BrokerId, FetchRequest, ProduceRequest
from mm2py.records.owner_record import OWNER_KEY, Owner, encode_owner
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.status.exit_codes import EXIT_WAITS, exit_of_report
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.config_world import TOPIC, put, stored_in
from tests.scenarios.gate import Request
from tests.scenarios.process import Process
from tests.scenarios.rest.rest_world import SOURCE, rest_of
from tests.scenarios.settings.test_apply_command import Shell
from tests.scenarios.settings.test_status_of_settings import looked_at
from tests.scenarios.shared_world import SESSION_S, SharedWorld, run
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

LAPTOP = {"mm2py.group": "laptop", "topics": ".*"}
THIRD = {"mm2py.group": "third", "topics": "t.*"}


def world_of(seed: int = 1) -> SharedWorld:
    return SharedWorld(seed, extra={"topics": "t.*"})


async def owner_of(world: SharedWorld) -> Owner | None:
    """Return the owner as a worker reads it that starts now."""
    table = ConfigTable(world.target, TOPIC)
    await table.read_patiently(random.Random(1))
    return table.records.owner.current


async def owner_group(world: SharedWorld) -> str:
    owner = await owner_of(world)
    return "" if owner is None else owner.group


async def started(world: SharedWorld, workers: int, **extra: str) -> list[Process]:
    processes = [world.start(extra) for _ in range(workers)]
    await world.until(world.is_copied)
    return processes


def why_refused(process: Process) -> str:
    return "\n".join(str(line["why"]) for line in process.said("flow.refused"))


async def with_traffic(world: SharedWorld, names: list[str], during: Callable[[], Awaitable[None]]) -> None:
    traffic = asyncio.create_task(world.traffic(names, 0.05))
    try:
        await during()
    finally:
        traffic.cancel()
        await asyncio.gather(traffic, return_exceptions=True)


def is_copy(request: Request) -> bool:
    return isinstance(request, ProduceRequest) and request.topics[0].name.startswith("A.t")


def is_look_at_settings(request: Request) -> bool:
    return isinstance(request, FetchRequest) and [topic.name for topic in request.topics] == [TOPIC]


class OldVersion:
    """What an mm2py does about owners that knows none."""

    async def take(self, ready: object) -> None: ...
    async def keep(self) -> None: ...
    async def refuse_unread(self) -> None: ...


def start_old(world: SharedWorld) -> Process:
    """Start a worker of an older version: it writes no owner, and looks at none."""
    process = world.start()
    schedule: Any = process.herder.connectors[0].plan.schedule
    schedule._watch._owner = OldVersion()
    return process


@pytest.mark.parametrize("is_source_dead", [True, False])
async def test_a_second_group_is_refused_by_name_and_changes_nothing(is_source_dead: bool) -> None:
    """The story: a laptop was started with a source that does not exist. ``topics`` of a healthy flow became ``.*``.
    With a source that exists, the two groups fenced each other without end."""
    world = world_of()
    names = world.make_topics(2, 3)
    workers = await started(world, 2)
    stored, owner = await stored_in(world), await owner_of(world)
    assert owner is not None and owner.group == "mm2py"

    async def meanwhile() -> None:
        laptop = world.start(LAPTOP)
        if is_source_dead:
            laptop.cut_off_from.add("A")
        await world.until(lambda: bool(laptop.said("flow.refused")))
        assert "group mm2py runs it (2 live workers, claimed 20" in why_refused(laptop)
        assert f"by {owner.worker})." in why_refused(laptop)
        assert "Set mm2py.group = mm2py in this file to join it." in why_refused(laptop)
        await world.until(lambda: not laptop.is_up)
        await asyncio.sleep(10)

    await with_traffic(world, names, meanwhile)
    await world.finish()
    assert await stored_in(world) == stored and await owner_of(world) == owner
    for worker in workers:
        assert len(worker.said("flow.ready")) == 1 and not worker.said("config.changed")
        assert not worker.said("flow.failed")


async def test_a_worker_stores_nothing_before_its_source_answers() -> None:
    world = world_of()
    world.make_topics(1, 1)
    worker = world.start()
    worker.cut_off_from.add("A")
    await asyncio.sleep(60)
    assert TOPIC not in world.target.topics
    (status,) = worker.herder.status()
    assert status.state == "waiting" and "no way there" in status.reason
    assert worker.herder.facts().health == "healthy"
    worker.cut_off_from.clear()
    await world.until(world.is_copied)
    assert await owner_group(world) == "mm2py"


async def test_a_worker_whose_source_is_its_target_stores_nothing() -> None:
    world = world_of()
    world.make_topics(1, 1)
    worker = world.start(A=world.target)
    await world.until(lambda: bool(worker.said("flow.refused")))
    assert "are the same cluster" in why_refused(worker) and not worker.said("config.unshared")
    assert TOPIC not in world.target.topics


async def test_a_flow_that_runs_releases_only_what_it_has_drained_while_it_waits_to_store() -> None:
    """The story: the settings cannot be stored, and the flow runs by the worker's file. Half a minute later they could
    be. The source is away just then, a batch is under way to the target, and another worker joins."""
    world = world_of()
    world.target.create_topic(TOPIC, 1, configs={"cleanup.policy": "delete"})
    names = world.make_topics(1, 6)
    begun_s = world.clock.monotonic()
    (worker,) = await started(world, 1)

    async def meanwhile() -> None:
        await asyncio.sleep(begun_s + 29.8 - world.clock.monotonic())
        worker.slow_s = lambda _, request: 2.0 if is_copy(request) else 0.0
        await asyncio.sleep(0.15)
        worker.cut_off_from.add("A")
        await asyncio.sleep(1.0)
        other = world.start()
        await world.until(lambda: len(other.owns(world.flow)) == 3)
        await asyncio.sleep(10)
        worker.cut_off_from.clear()
        worker.slow_s = lambda *_: 0.0

    await with_traffic(world, names, meanwhile)
    await world.finish()


@pytest.mark.parametrize(("topics", "said"), [("t.*", "config.used"), ("t.*,other", "config.drift")])
async def test_a_worker_that_runs_what_is_stored_need_not_wait_for_its_source(topics: str, said: str) -> None:
    world = world_of()
    world.make_topics(1, 1)
    await started(world, 1)
    late = world.start({"topics": topics})
    late.cut_off_from.add("A")
    await world.until(lambda: bool(late.said(said)))


async def test_a_worker_that_may_not_store_keeps_nothing_that_others_wait_for() -> None:
    """The story: w2 is the first worker of this version, and does not reach the source. Its group gives it partitions
    all the same, and takes some of them back when w3 joins. w3 must not wait for what w2 does not run."""
    world = world_of()
    world.make_topics(2, 6)
    first = start_old(world)
    await world.until(world.is_copied)
    late = world.start()
    late.cut_off_from.add("A")
    await world.until(lambda: len(late.owns(world.flow)) == 6)
    await asyncio.sleep(5)
    third = start_old(world)
    await world.until(lambda: world.is_fully_assigned() and len(late.owns(world.flow)) < 6)
    assert third.owns(world.flow)
    await late.stop()
    world.write("t0")
    await world.until(world.is_copied)
    assert first.is_up


@pytest.mark.walk(range(4))
async def test_when_the_owner_was_killed_another_group_takes_over_after_the_session_time_out_exactly_once(
    seed: int,
) -> None:
    world = world_of(seed)
    names = world.make_topics(2, 3)
    workers = await started(world, 2)

    async def takeover() -> None:
        await asyncio.sleep(world.rng.uniform(0, 3))
        for worker in workers:
            worker.kill()
        killed_s = world.clock.monotonic()
        laptop = world.start(LAPTOP)
        await world.until(lambda: bool(laptop.said("topics.copying")))
        assert world.clock.monotonic() - killed_s >= SESSION_S
        (claimed,) = laptop.said("flow.claimed")
        assert claimed["instead_of"] == "mm2py"
        assert laptop.said("flow.fencing_owner")[0]["producers"] >= 1
        await asyncio.sleep(3)

    await with_traffic(world, names, takeover)
    await world.finish()
    assert await owner_group(world) == "laptop"


async def test_a_group_that_has_stopped_in_order_gives_way_at_once() -> None:
    world = world_of()
    world.make_topics(1, 2)
    (worker,) = await started(world, 1)
    assert await worker.stop() == 0
    laptop = world.start(LAPTOP)
    took_s = await world.until(lambda: bool(laptop.said("flow.claimed")))
    assert took_s < SESSION_S
    await world.finish()


@pytest.mark.walk(range(6))
async def test_of_two_groups_that_start_at_once_one_runs_the_flow_and_the_other_is_refused(seed: int) -> None:
    world = world_of(seed)
    names = world.make_topics(2, 3)

    async def race() -> None:
        one = world.start()
        await asyncio.sleep(world.rng.choice([0, world.rng.uniform(0, 0.3)]))
        two = world.start(LAPTOP)
        await world.until(lambda: bool(one.said("flow.refused")) != bool(two.said("flow.refused")))
        await asyncio.sleep(3)
        winner = two if one.said("flow.refused") else one
        assert await owner_group(world) == ("laptop" if winner is two else "mm2py")
        assert [process for process in (one, two) if process.said("flow.ready")] == [winner]

    await with_traffic(world, names, race)
    await world.finish()


@pytest.mark.walk(range(6))
async def test_of_two_groups_that_find_the_owner_dead_one_takes_over(seed: int) -> None:
    world = world_of(seed)
    names = world.make_topics(2, 3)
    (dead,) = await started(world, 1)

    async def race() -> None:
        dead.kill()
        one = world.start(LAPTOP)
        await asyncio.sleep(world.rng.choice([0, world.rng.uniform(0, 0.3)]))
        two = world.start(THIRD)
        await world.until(lambda: bool(one.said("flow.refused")) != bool(two.said("flow.refused")))
        await asyncio.sleep(3)
        winner = two if one.said("flow.refused") else one
        assert await owner_group(world) == ("third" if winner is two else "laptop")
        assert [process for process in (one, two) if process.said("flow.ready")] == [winner]

    await with_traffic(world, names, race)
    await world.finish()


@pytest.mark.walk(range(12))
async def test_a_worker_of_the_owner_that_starts_while_it_is_being_replaced_repeats_nothing(seed: int) -> None:
    """The story: see ``OwnerWatch._complete``. The group that takes over may have several workers."""
    world = world_of(seed)
    names = world.make_topics(2, 3)
    (dead,) = await started(world, 1)

    async def race() -> None:
        dead.kill()
        laptops = [world.start(LAPTOP) for _ in range(world.rng.choice([1, 2]))]
        await world.until(lambda: any(laptop.member is not None for laptop in laptops))
        if world.rng.random() < 0.5:  # just when it is claimed
            await world.until(lambda: any(laptop.said("flow.fencing_owner") for laptop in laptops))
            await asyncio.sleep(world.rng.choice([0.0, world.rng.uniform(0, 0.05)]))
        else:
            await asyncio.sleep(world.rng.uniform(SESSION_S, SESSION_S + 1))
        again = world.start()
        await world.until(
            lambda: all(laptop.said("flow.refused") for laptop in laptops) != bool(again.said("flow.refused"))
        )
        await asyncio.sleep(5)
        # A laptop that was refused because of the one that joined meanwhile stays so, until it is started again.
        is_laptops = bool(again.said("flow.refused"))
        assert all(laptop.said("flow.refused") for laptop in laptops) != is_laptops, world.logs()
        assert await owner_group(world) == ("laptop" if is_laptops else "mm2py")

    await with_traffic(world, names, race)
    await world.finish()


@pytest.mark.walk(range(9, 15))
async def test_a_worker_of_the_owner_that_has_read_the_old_claim_and_stalls_repeats_nothing(seed: int) -> None:
    """The story: w3 of group g has read that g is the owner, and stalls for a second before its first batch. Group h
    claims the flow meanwhile, and the broker that has the claim answers w3 late. h must not copy before it knows what
    became of w3, whose producer is fenced nowhere yet."""
    world = world_of(seed)
    names = world.make_topics(2, 3)
    (stopped,) = await started(world, 1)

    async def race() -> None:
        assert await stopped.stop() == 0
        laptop = world.start(LAPTOP)
        laptop.slow_s = lambda cluster, _: 1.0 if cluster == "A" else 0.0
        await world.until(lambda: laptop.member is not None)
        await asyncio.sleep(0.6)
        again = world.start()
        moment = world.rng.choice(["config.used", "flow.ready", "topics.copying"])
        await world.until(lambda: bool(again.said(moment)))
        assert not laptop.said("flow.claimed")
        again.slow_s = lambda _, request: 2.0 if is_look_at_settings(request) else 0.0
        again.freeze()
        await world.until(lambda: bool(laptop.said("flow.claimed")))
        laptop.slow_s = lambda *_: 0.0
        await asyncio.sleep(world.rng.uniform(0, 1.5))
        again.thaw()
        await world.until(lambda: bool(again.said("flow.refused")) and bool(laptop.said("topics.copying")))

    await with_traffic(world, names, race)
    await world.finish()


@pytest.mark.parametrize("suspended", [True, False])
async def test_an_owner_that_wakes_after_it_was_replaced_writes_nothing_more_and_is_refused(suspended: bool) -> None:
    world = world_of()
    names = world.make_topics(2, 3)
    (sleeper,) = await started(world, 1)

    async def takeover() -> None:
        await asyncio.sleep(1)
        sleeper.freeze(suspended=suspended)
        laptop = world.start(LAPTOP)
        await world.until(lambda: bool(laptop.said("topics.copying")))
        await asyncio.sleep(2)
        sleeper.thaw()
        await world.until(lambda: bool(sleeper.said("flow.refused")))
        assert "group laptop runs it (1 live worker, claimed" in why_refused(sleeper)
        await world.until(lambda: not sleeper.is_up)
        assert not laptop.said("flow.failed")

    await with_traffic(world, names, takeover)
    await world.finish()


async def test_a_worker_of_the_owner_that_is_cut_off_from_the_target_and_comes_back_goes_on() -> None:
    world = world_of()
    world.make_topics(1, 3)
    (worker,) = await started(world, 1)
    worker.cut_off_from.add("B")
    await asyncio.sleep(30)
    worker.cut_off_from.clear()
    world.write("t0")
    await world.finish()
    assert not worker.said("flow.refused")


async def test_an_owner_whose_worker_only_emits_the_heartbeats_of_the_flow_is_replaced() -> None:
    world = world_of()
    world.make_topics(1, 3)
    (worker,) = await started(world, 1)
    assert await worker.stop() == 0
    world.start({"A->B.enabled": "false", "B->A.enabled": "true", "emit.heartbeats.enabled": "true"})
    await world.until(lambda: len(world.target.records("heartbeats", 0)) > 2)
    laptop = world.start(LAPTOP)
    await world.until(lambda: bool(laptop.said("flow.claimed")) or bool(laptop.said("flow.refused")))
    assert not laptop.said("flow.refused") and await owner_group(world) == "laptop"


async def test_a_start_does_not_wait_for_news_in_control_logs_that_it_has_read_to_their_end() -> None:
    """The story: since flows have an owner, a first start took half a second longer. Of each control log, the worker's
    own and that of another group, all was read, and then what might come within 0.2 s."""
    world = world_of()
    world.make_topics(1, 3)
    first = world.start()
    first_s = await world.until(lambda: bool(first.said("flow.claimed")))
    await world.until(world.is_copied)
    assert await first.stop() == 0
    laptop = world.start(LAPTOP)
    takeover_s = await world.until(lambda: bool(laptop.said("config.replaced")))
    assert first_s < 0.2 and takeover_s < 0.2, (first_s, takeover_s)


async def test_a_flow_that_an_older_version_runs_in_another_group_is_not_taken() -> None:
    world = world_of()
    names = world.make_topics(1, 3)
    old = start_old(world)
    await world.until(world.is_copied)
    assert await owner_of(world) is None
    stored = await stored_in(world)

    async def meanwhile() -> None:
        laptop = world.start(LAPTOP)
        await world.until(lambda: bool(laptop.said("flow.refused")))
        assert f"group mm2py runs it (1 live worker: {old.name})." in why_refused(laptop)
        await asyncio.sleep(3)

    await with_traffic(world, names, meanwhile)
    await world.finish()
    assert await owner_of(world) is None and await stored_in(world) == stored


async def test_in_a_rolling_upgrade_the_first_new_worker_claims_the_flow_and_nothing_restarts() -> None:
    world = world_of()
    names = world.make_topics(2, 3)
    old = start_old(world)
    await world.until(world.is_copied)

    async def upgrade() -> None:
        new = world.start()
        await world.until(lambda: bool(new.said("topics.copying")))
        assert new.said("flow.claimed")[0]["instead_of"] is None
        assert len(old.said("flow.ready")) == 1
        assert await old.stop() == 0

    await with_traffic(world, names, upgrade)
    await world.finish()
    assert await owner_group(world) == "mm2py"


class NotToRead(NearBrokers):
    """Connections without the right to read one topic."""

    def __init__(self, wire: Any, topic: str) -> None:
        self._wire = wire
        self._topic = topic

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> Any:
        names = [topic.name for topic in request.topics] if isinstance(request, FetchRequest) else []
        if self._wire.name == "B" and self._topic in names:
            raise BrokerRefused(f"Reading {self._topic}", TOPIC_AUTHORIZATION_FAILED)
        return await self._wire.send(broker, request, channel=channel)

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        self._wire.close_channel(broker, channel)


async def test_an_owner_whose_control_log_cannot_be_read_is_not_replaced() -> None:
    world = world_of()
    world.make_topics(1, 1)
    (worker,) = await started(world, 1)
    await worker.stop()
    log = "mm2-cluster.mm2py.internal"
    laptop = world.start(LAPTOP, through=lambda wire: NotToRead(wire, log))
    await world.until(lambda: bool(laptop.said("flow.refused")))
    assert "group mm2py may run it, and its control log cannot be read" in why_refused(laptop)
    assert f"mm2py needs DESCRIBE and READ on {log}." in why_refused(laptop)
    assert await owner_group(world) == "mm2py"


async def test_a_control_log_that_another_team_has_broken_stops_no_flow_that_was_never_its_own() -> None:
    """Without an owner all control logs are looked at. One of them could not be read, and no flow started."""
    world = world_of()
    names = world.make_topics(1, 2)
    log = "mm2-cluster.broken.internal"
    world.target.create_topic(log, 1)
    worker = world.start(through=lambda wire: NotToRead(wire, log))
    await world.until(lambda: bool(worker.said("topics.copying")))
    assert await owner_group(world) == "mm2py"
    assert worker.said("owner.log_unread")[0]["group"] == "broken"
    assert names
    assert await worker.stop() == 0


async def test_where_the_control_log_of_the_owner_is_gone_its_producers_are_fenced_by_their_names() -> None:
    world = world_of()
    names = world.make_topics(2, 3)
    (sleeper,) = await started(world, 1)

    async def takeover() -> None:
        sleeper.freeze()
        world.target.delete_topic("mm2-cluster.mm2py.internal")
        laptop = world.start(LAPTOP)
        await world.until(lambda: bool(laptop.said("topics.copying")))
        assert laptop.said("flow.fencing_owner")[0]["producers"] >= 1
        sleeper.thaw()
        await world.until(lambda: bool(sleeper.said("flow.refused")), within_s=120)
        await world.until(lambda: not sleeper.is_up)

    await with_traffic(world, names, takeover)
    await world.finish()


@pytest.mark.parametrize("harm", ["deleted", "covered", "topic"])
async def test_an_owner_that_was_deleted_or_covered_is_written_again(harm: str) -> None:
    world = world_of()
    world.make_topics(1, 1)
    (worker,) = await started(world, 1)
    owner = await owner_of(world)
    if harm == "deleted":
        await put(world, (OWNER_KEY, None))
    elif harm == "covered":
        await put(world, (OWNER_KEY, encode_owner(Owner("laptop", "w9", 1, "aa", based_on="older"))))
    else:
        world.target.delete_topic(TOPIC)
    await world.until(lambda: bool(worker.said("flow.owner_restored")))
    await asyncio.sleep(3)
    found = await owner_of(world)
    assert owner is not None and found is not None
    assert (found.group, found.write_id) == (owner.group, owner.write_id)
    last = [record for record in world.target.records(TOPIC, 0) if record.key == OWNER_KEY][-1]
    assert owner.write_id.encode() in (last.value or b"")
    assert len(worker.said("flow.ready")) == 1


async def test_a_flow_that_another_group_claims_is_drained_here() -> None:
    """An operator may write by hand that another group runs the flow: no worker of it lives, so it is claimed back."""
    world = world_of()
    world.make_topics(1, 1)
    (worker,) = await started(world, 1)
    owner = await owner_of(world)
    assert owner is not None
    await put(world, (OWNER_KEY, encode_owner(Owner("laptop", "w9", 1, "aa", based_on=owner.write_id))))
    await world.until(lambda: bool(worker.said("flow.lost")))
    await world.until(lambda: len(worker.said("flow.claimed")) == 2)
    world.write("t0")
    await world.finish()


# -- operators ---------------------------------------------------------------------------------------------------------


async def test_apply_with_a_file_of_another_group_is_refused_while_workers_of_the_owner_live(tmp_path: Path) -> None:
    world = world_of()
    world.make_topics(1, 1)
    (worker,) = await started(world, 1)
    stored, shell = await stored_in(world), Shell(world, tmp_path)
    for more in ([], ["--yes"], ["--dry-run"]):
        assert await shell.run(LAPTOP, *more) == EXIT_FAILED
        (warning,) = shell.warnings
        assert "Flow A->B is refused: group mm2py runs it (1 live worker, claimed 20" in warning
    assert await stored_in(world) == stored

    worker.kill()
    assert await shell.run(LAPTOP, "--yes") == EXIT_DONE
    assert "  Group mm2py ran this flow until now; it has no live worker of it." in shell.out
    found = await stored_in(world)
    assert found is not None and found.properties["topics"] == ".*"
    assert await owner_group(world) == "mm2py", "a worker claims the flow, when it has fenced the owner"


async def test_apply_with_a_file_of_another_group_that_says_what_is_stored_has_nothing_to_do(tmp_path: Path) -> None:
    """docs/configuration.md: the group is looked at only where there is something to store."""
    world = world_of()
    world.make_topics(1, 1)
    await started(world, 1)
    shell = Shell(world, tmp_path)
    assert await shell.run({"topics": "t.*"}, "--yes") == EXIT_DONE
    assert await shell.run({"topics": "t.*", "mm2py.group": "laptop"}, "--yes") == EXIT_DONE
    assert "nothing to do" in shell.out and not shell.warnings


async def test_a_group_that_starts_while_the_operator_is_asked_is_noticed(tmp_path: Path) -> None:
    world = world_of()
    world.make_topics(1, 1)
    (worker,) = await started(world, 1)
    assert await worker.stop() == 0
    begun: list[Process] = []

    def until_it_has_joined(_: Request) -> None:
        if begun and begun[0].member is None:
            raise BrokerUnreachable("b:1", "busy")

    shell = Shell(world, tmp_path, meets=until_it_has_joined)
    shell.before_answer = lambda: begun.append(world.start())
    assert await shell.run(LAPTOP) == EXIT_FAILED
    assert shell.asked == 1 and "group mm2py runs it" in shell.warnings[0]


async def test_rest_of_a_worker_of_another_group_changes_nothing() -> None:
    world = world_of()
    world.make_topics(1, 1)
    await started(world, 1)
    before = len(world.target.records(TOPIC, 0))
    async with rest_of(world, name="w9", **LAPTOP) as rest:
        for method, path, body in (
            ("PATCH", f"{SOURCE}/config", {"topics": "x"}),
            ("PUT", f"{SOURCE}/config", {"topics": "x"}),
            ("DELETE", SOURCE, None),
            ("PUT", f"{SOURCE}/pause", None),
            ("PUT", f"{SOURCE}/stop", None),
            ("POST", f"{SOURCE}/restart", None),
            ("PUT", "/admin/loggers/root?scope=cluster", {"level": "DEBUG"}),
        ):
            told = await rest.told(method, path, 409, json=body)
            assert "Flow A->B is refused: group mm2py runs it (1 live worker, claimed 20" in told["message"]
        assert len(world.target.records(TOPIC, 0)) == before
    async with rest_of(world) as rest:
        await rest.told("PUT", f"{SOURCE}/stop", 204)
        await asyncio.sleep(5)
    async with rest_of(world, name="w9", **LAPTOP) as rest:
        told = await rest.told("DELETE", f"{SOURCE}/offsets", 409)
        assert "group mm2py runs it" in told["message"]


async def test_status_with_a_file_of_another_group_names_the_owner() -> None:
    world = world_of()
    world.make_topics(1, 1)
    await started(world, 1)
    report = await looked_at(world, **LAPTOP)
    texts = [problem.text for problem in report.problems if problem.where == "A->B" and problem.kind == "refused"]
    assert len(texts) == 1 and "run by group mm2py, and this file names group laptop." in texts[0]
    assert exit_of_report(report) == EXIT_WAITS
    assert not [problem for problem in (await looked_at(world)).problems if "group" in problem.text]


def test_a_refused_group_says_so_in_status_and_over_rest_and_a_restart_takes_over_when_the_owner_is_gone() -> None:
    async def scenario() -> None:
        world = world_of()
        names = world.make_topics(1, 2)
        (worker,) = await started(world, 1)
        two = {"clusters": "A,B,C", "C.bootstrap.servers": "c:1", "C->B.enabled": "true", "C->B.topics": "c.*"}
        other, lines = world.another_cluster("C"), {**LAPTOP, "topics": "t.*", **two}
        laptop = world.start(lines, C=other)  # it stays for its other flow
        await world.until(lambda: bool(laptop.said("flow.refused")))
        async with rest_of(world, name=laptop.name, also={"C": other}, **lines) as rest:
            await asyncio.sleep(4)
            problems = [one for one in (await rest.live.report()).problems if "Flow A->B is refused" in one.text]
            assert [(one.kind, one.where) for one in problems] == [("refused", f"{SOURCE.rpartition('/')[2]}")]
            status = await rest.told("GET", f"{SOURCE}/status", 200)
            assert status["connector"]["state"] == "FAILED" and "group mm2py runs it" in status["connector"]["trace"]

            world.write(names[0], 2)
            await world.until(world.is_copied)
            worker.kill()
            await rest.told("POST", f"{SOURCE}/restart", 204)
            await world.until(lambda: bool(laptop.said("flow.claimed")))
            world.write(names[0], 2)
            await world.until(world.is_copied)
        wrong = world.findings(exact=True)
        assert not wrong, wrong

    run(scenario())

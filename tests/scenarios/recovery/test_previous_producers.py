"""How a start treats previous producers: drained, killed and expired ones, and many of them.

No record of their own lists them. The control log, the positions and the coordinators do (decision 14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from mm2py.kafka.errors import BrokerRefused, RequestTimedOut
from mm2py.kafka.messages import FindCoordinatorRequest, ListTransactionsRequest, ListTransactionsResponse
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, FetchRequest
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.gate import Gate, Request
from tests.scenarios.late import StuckRequests
from tests.scenarios.recovery.test_late_requests import OLD_MS, ids, is_copy, markers
from tests.scenarios.two_incarnations import (
    OFFSETS,
    Source,
    all_copied,
    finish,
    forget_transactional_ids,
    is_position,
    killed_ahead,
    make,
    said,
    until,
    written,
)
from tests.scenarios.world import BEATS_SELDOM, World

pytestmark = pytest.mark.virtual_time(limit_s=900)

ENABLED = {"B.exactly.once.source.support": "enabled"}
CONTROL_LOG = "mm2-cluster.mm2py.internal"
DENIED = 29
ID_DENIED = 53


def eight_days_pass(world: World) -> None:
    """All workers were down: the control log's records and the transactional ids have expired."""
    world.target.delete_topic(CONTROL_LOG)
    forget_transactional_ids(world)


def cannot_write_markers(world: World) -> None:
    world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}


async def guarantee_of_next(
    world: World, source: Source, *, through: Callable[[Brokers], Brokers] | None = None
) -> str:
    """Let a worker start, copy and stop in order; returns its guarantee, or why it was refused."""
    extra = {} if through is None else {"through": through}
    async with world.worker(**extra) as herder:  # type: ignore[arg-type]
        source.fill(2)
        await asyncio.sleep(40)
        status = next(one for one in herder.status() if one.topics or one.state == "refused")
        if status.state == "refused":
            return status.reason
        await all_copied(world)
        await world.stop(herder)
    return status.guarantee


async def test_a_clean_restart_leaves_no_marker_and_a_kill_leaves_one_in_each_partition() -> None:
    world, source, witness = make(2, partitions=3)
    source.fill(10)
    for number in range(3):
        source.fill(2, partition=number)
        async with world.worker() as herder:
            await all_copied(world)
            await asyncio.sleep(3)
            await world.stop(herder)
        assert markers(world, range(3)) == 0
    async with world.worker():
        source.fill(2)
        await all_copied(world)
    async with world.worker() as herder:
        source.fill(2)
        await all_copied(world)
        await asyncio.sleep(3)
        await world.stop(herder)
    assert markers(world, range(3)) == 3
    await finish(world, source, witness)


@pytest.mark.parametrize("killed", [False, True], ids=["drained", "killed"])
@pytest.mark.parametrize("extra", [{}, ENABLED], ids=["default", "enabled"])
@pytest.mark.virtual_time(limit_s=3000)
async def test_a_restart_after_eight_days_needs_no_right_to_write_markers(extra: dict[str, str], killed: bool) -> None:
    """By then the control log is empty, and no coordinator knows the id, which only its owner could use."""
    world, source, witness = make(6, **extra)
    if killed:
        await killed_ahead(world, source, 20, 15)
    else:
        source.fill(20)
        assert await guarantee_of_next(world, source) == "exactly-once"
    eight_days_pass(world)
    cannot_write_markers(world)
    for _ in range(2):
        assert await guarantee_of_next(world, source) == "exactly-once"
        assert not said(world, "producer.unfenced")
        eight_days_pass(world)
    assert markers(world) == 0
    world.target.denied_on_cluster.clear()
    await finish(world, source, witness)


class Hides:
    """Stands between a worker and its target: transactional ids of previous workers may not be described."""

    def __init__(self, hidden: set[str]) -> None:
        self.hidden = hidden

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Hiding(self.hidden, cluster))


class _Hiding(NearBrokers):
    def __init__(self, hidden: set[str], cluster: Brokers) -> None:
        self._hidden = hidden
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        if isinstance(request, FindCoordinatorRequest) and request.coordinator_keys[0] in self._hidden:
            raise BrokerRefused("Finding the coordinator", ID_DENIED)
        reply = await self._cluster.send(broker, request, channel=channel)
        return replace(reply, transaction_states=()) if isinstance(reply, ListTransactionsResponse) else reply


@pytest.mark.parametrize(("extra", "starts_with"), [({}, "at-least-once ("), (ENABLED, "exactly.once.source.support=")])
async def test_a_transactional_id_that_may_not_be_described_is_not_taken_for_an_expired_one(
    extra: dict[str, str], starts_with: str
) -> None:
    """A coordinator lists no id that we may not DESCRIBE: its worker may still run."""
    world, source, _ = make(8, **extra)
    await killed_ahead(world, source, 20, 15)
    world.target.delete_topic(CONTROL_LOG)
    cannot_write_markers(world)
    hides = Hides(set(world.target.coordinator.transactional_ids))
    why = await guarantee_of_next(world, source, through=hides)
    assert starts_with in why and "cannot be fenced: Finding the coordinator was refused" in why, why


class Silent:
    """Stands between a worker and its target: ListTransactions is never answered."""

    def __init__(self) -> None:
        self.on = True

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Silent(self, cluster))


class _Silent(NearBrokers):
    def __init__(self, silent: Silent, cluster: Brokers) -> None:
        self._silent = silent
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        if self._silent.on and isinstance(request, ListTransactionsRequest):
            raise RequestTimedOut("B", "ListTransactions", 1.0)
        return await self._cluster.send(broker, request, channel=channel)


async def test_coordinators_that_do_not_list_their_ids_for_15_s_make_a_flow_at_least_once_and_that_is_logged() -> None:
    world, source, _ = make(9)
    source.fill(10)
    begun_s = world.clock.monotonic()
    async with world.worker(through=Silent()) as herder:
        await until(lambda: bool(said(world, "flow.ready")), world)
        assert 15 <= world.clock.monotonic() - begun_s < 25
        await all_copied(world)
        status = next(one for one in herder.status() if one.topics)
        assert "a coordinator did not list its transactional ids within 15 s" in status.guarantee
        assert status.guarantee.startswith("at-least-once (")
    assert said(world, "producers.not_listed", "at-least-once")
    assert said(world, "flow.ready", "at-least-once")


async def test_where_exactly_once_is_required_a_flow_waits_until_coordinators_list_their_ids() -> None:
    world, source, witness = make(9, **ENABLED)
    source.fill(10)
    silent = Silent()
    async with world.worker(through=silent):
        await asyncio.sleep(120)
        assert not said(world, "flow.ready")
        assert said(world, "flow.waiting", "a coordinator has not listed its transactional ids yet")
        silent.on = False
        await until(lambda: bool(said(world, "flow.ready", "guarantee=exactly-once")), world)
        await all_copied(world)
    await finish(world, source, witness)


async def test_a_late_first_position_is_refused_although_the_control_log_is_lost() -> None:
    """Neither the control log nor a position names its worker, but coordinators do."""
    world, source, witness = make(10)
    source.fill(10)
    async with world.worker():
        world.processes[0].late_s = lambda _, request: 30.0 if is_position(request) else 0.0
        await until(lambda: bool(world.processes[0].under_way), world)
    (late_id,) = [one for name, one in ids(world).items() if name.flow == "A->B"]
    world.target.delete_topic(CONTROL_LOG)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(40)
        source.fill(5)
        await all_copied(world)
        await asyncio.sleep(3)
        assert late_id not in {producer for producer, _ in written(world)}
    await finish(world, source, witness)


@pytest.mark.parametrize("killed", [False, True], ids=["drained", "killed"])
@pytest.mark.virtual_time(limit_s=3000)
async def test_an_expired_producer_of_a_topic_that_is_no_longer_copied_does_not_stop_the_flow(killed: bool) -> None:
    """A topic is deleted upstream, and its position stays. Weeks later no coordinator knows its producer."""
    world, source, witness = make(6, **ENABLED)
    world.source.create_topic("old", 1)
    world.source.append("old", 0, [b"1"])
    source.fill(10)
    async with world.worker() as herder:
        await until(lambda: "A.old" in world.target.topics and bool(world.target.records("A.old", 0)), world)
        await all_copied(world)
        await asyncio.sleep(5)
        world.source.delete_topic("old")
        await asyncio.sleep(20)
        if not killed:
            await world.stop(herder)
    for _ in range(3):
        assert await guarantee_of_next(world, source) == "exactly-once"
        assert not said(world, "producer.unfenced")
        eight_days_pass(world)
        cannot_write_markers(world)
    world.target.denied_on_cluster.clear()
    await finish(world, source, witness)


@pytest.mark.virtual_time(limit_s=6000)
async def test_many_previous_producers_are_fenced_concurrently() -> None:
    """A worker that had to fence itself 40 times leaves 41 ids; fencing them one after the other took 1.2 seconds."""
    world, source, witness = make(1)
    source.fill(10, age_ms=OLD_MS)
    stuck = StuckRequests(is_copy)
    async with world.worker(through=stuck):
        await all_copied(world)
        for _ in range(40):
            stuck.wanted = 1
            source.fill(5, age_ms=OLD_MS)
            await all_copied(world)
        await asyncio.sleep(3)
    assert len(ids(world)) >= 41
    world.target.delete_topic(CONTROL_LOG)
    world.log_text.truncate(0)
    async with world.worker():
        await until(lambda: bool(said(world, "member.joined")), world)
        begun_s = world.clock.monotonic()
        await until(lambda: bool(said(world, "flow.ready")), world)
        assert world.clock.monotonic() - begun_s < 1.0
        await all_copied(world)
        await asyncio.sleep(2)
    await finish(world, source, witness)


class Denies:
    """Stands between a worker and a cluster. Positions may not be read while it is ``on``."""

    def __init__(self) -> None:
        self.on = True

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Denying(self, cluster))


class _Denying(NearBrokers):
    def __init__(self, denies: Denies, cluster: Brokers) -> None:
        self._denies = denies
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        reply = await self._cluster.send(broker, request, channel=channel)
        if self._denies.on and isinstance(request, FetchRequest) and request.topics[0].name == OFFSETS:
            assert isinstance(reply, FetchReply)
            nothing = [part._replace(error_code=DENIED, records=memoryview(b"")) for part in reply.partitions]
            return replace(reply, partitions=nothing)
        return reply


@pytest.mark.virtual_time(limit_s=3600)
async def test_attempts_that_fail_before_they_write_need_no_fence() -> None:
    """READ on the offsets topic is missing for a weekend, and every half minute there is another attempt."""
    world, source, witness = make(1, **BEATS_SELDOM)
    source.fill(3)
    denies = Denies()
    async with world.worker(through=denies):
        await asyncio.sleep(1200)
        assert len(ids(world)) > 33
        assert said(world, "flow.failed", f"mm2py needs READ on {OFFSETS}.")
        before = world.target.counts["request AddPartitionsToTxn"]
        denies.on = False
        await until(lambda: bool(said(world, "flow.ready")), world)
        assert world.target.counts["request AddPartitionsToTxn"] == before
        await all_copied(world)
        await asyncio.sleep(2)
    await finish(world, source, witness)


async def test_a_stop_that_the_target_does_not_answer_logs_what_the_next_start_will_do() -> None:
    world, source, witness = make(3)
    source.fill(10)
    gate = Gate(is_copy)
    async with world.worker(through=gate) as herder:
        await all_copied(world)
        await asyncio.sleep(3)
        gate.shut()
        source.fill(3)
        await until(lambda: gate.held > 0, world)
        herder.stop()
        await until(lambda: bool(said(world, "drain.failed")), world)
        (line,) = said(world, "drain.failed")
        assert "without an answer of the target within 30 s. Nothing is lost: the next start looks up what" in line
        gate.open()
    before = markers(world)
    async with world.worker():
        await until(lambda: bool(said(world, "flow.ready", "guarantee=exactly-once")), world)
        await all_copied(world)
    assert markers(world) > before, "its last position does not say drained"
    await finish(world, source, witness)

"""Connectors started, kept going, stopped in order: with connectors of the tests' own, under virtual time."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mm2py.connector import Connector, FlowStatus, PathStatus
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, ConnectorName, Flow, Kind, parse_flow
from mm2py.logs import make_logger
from mm2py.records.operator_request import Target, TargetState
from mm2py.worker.facts import Health
from mm2py.worker.herder import CONNECTOR_DRAIN_S, HEALTHY_AFTER_S, ConnectorPlan, Group, Herder
from mm2py.worker.schedule import Always, ConnectorSchedule
from tests.fakes.virtual_time import run_virtual

AB, BA, AC = (parse_flow(text) for text in ("A->B", "B->A", "A->C"))
BEATS_AB = ConnectorName(AB, Kind.HEARTBEAT)
BEATS_BA = ConnectorName(BA, Kind.HEARTBEAT)
PATH_AB = ConnectorName(AB, Kind.PATH)


class Refused(Mm2Error):
    """What the herder is told not to begin again."""


@dataclass
class FakeConnector:
    """Does what its script says; without one it runs until it is cancelled."""

    name: Flow | ConnectorName
    history: list[str]
    fails_with: Exception | None = None
    fails_after_s: float = 0.0
    drain_takes_s: float = 0.0
    drain_fails_with: Exception | None = None

    async def run(self) -> None:
        self.history.append(f"{self.name} runs")
        try:
            if self.fails_with is not None:
                await asyncio.sleep(self.fails_after_s)
                raise self.fails_with
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.history.append(f"{self.name} is cancelled")
            raise

    leaves_outcome_unknown: bool = field(default=True, init=False)
    """Until it is drained."""

    async def drain(self) -> None:
        self.history.append(f"{self.name} drains")
        await asyncio.sleep(self.drain_takes_s)
        if self.drain_fails_with is not None:
            raise self.drain_fails_with
        self.leaves_outcome_unknown = False
        self.history.append(f"{self.name} is drained")

    def measure(self) -> tuple[()]:
        """It counts nothing."""
        return ()

    def status(self, *, with_topics: bool = True) -> FlowStatus | PathStatus | None:
        match self.name:
            case Flow():
                return FlowStatus(self.name, "running", "", "at-least-once", (), {})
            case ConnectorName(kind=Kind.PATH):
                return PathStatus(heartbeat_age_s=0.5, path_latency_ms=40.0)
            case _:
                return None


class FakeSchedule(Always):
    """Ends once, and then never; ``in_order``: there is time to drain."""

    def __init__(self, *, ends_after_s: float, in_order: bool = True, fails_with: Exception | None = None) -> None:
        self.asked = asyncio.Event()
        self.stopped_outcome_unknown: list[bool] = []
        self._ends_after_s: float | None = ends_after_s
        self._in_order = in_order
        self._fails_with = fails_with

    async def until_asked(self) -> None:
        await self.asked.wait()

    async def revoked(self) -> bool:
        if self._ends_after_s is None:
            await super().revoked()
        after_s, self._ends_after_s = self._ends_after_s or 0.0, None
        await asyncio.sleep(after_s)
        if self._fails_with is not None:
            raise self._fails_with
        return self._in_order

    async def stopped(self, *, outcome_unknown: bool) -> None:
        self.stopped_outcome_unknown.append(outcome_unknown)


@dataclass
class FakeGroup:
    """Notes how it was left."""

    left_outcome_unknown: bool | None = None

    async def run(self) -> None:
        await asyncio.Event().wait()

    def rejoin_no_more(self) -> None:
        pass

    async def leave(self, *, outcome_unknown: bool) -> None:
        self.left_outcome_unknown = outcome_unknown


@dataclass
class Worker:
    """A herder with its log and with what its connectors did, in order."""

    connectors: Mapping[Flow | ConnectorName, Callable[[int, list[str]], FakeConnector]]
    """A flow stands for its source connector."""
    refused: Mapping[Flow, Mm2Error] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    began: list[tuple[Flow | ConnectorName, int, float]] = field(default_factory=list)
    """What, in which life, and when."""
    log: io.StringIO = field(default_factory=io.StringIO)
    schedule: FakeSchedule | None = None
    """Of all of them; without it they may always run."""
    group: FakeGroup | None = None

    def herder(
        self,
        groups: Mapping[ClusterAlias, Group] | None = None,
        schedules: Mapping[Flow | ConnectorName, ConnectorSchedule] | None = None,
    ) -> Herder:
        schedules = schedules or {}

        def begin(name: Flow | ConnectorName) -> Callable[[int], Connector]:
            def new_life(life: int) -> Connector:
                self.began.append((name, life, asyncio.get_running_loop().time()))
                return self.connectors[name](life, self.history)

            return new_life

        return Herder(
            {
                name if isinstance(name, ConnectorName) else ConnectorName(name, Kind.SOURCE): ConnectorPlan(
                    begin(name), schedules.get(name) or self.schedule or Always()
                )
                for name in self.connectors
            },
            self.refused,
            groups=groups or ({} if self.group is None else {AB.target: self.group}),
            is_refusal=lambda error: isinstance(error, Refused),
            rng=random.Random(1),
            log=make_logger("info", "json", self.log),
        )

    def run(self, *, stop_at_s: float | None = None, limit_s: float = 10_000.0) -> int:
        """Run to the end, or stop after so many seconds; returns the exit code."""

        async def main() -> int:
            herder = self.herder()
            if stop_at_s is not None:
                asyncio.get_running_loop().call_later(stop_at_s, herder.stop)
            return await herder.run()

        return run_virtual(main(), limit_s=limit_s)

    def events(self, name: str) -> list[dict[str, Any]]:
        logged = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [event for event in logged if event["event"] == name]

    def pauses_s(self, flow: Flow) -> list[float]:
        times = [at_s for began, _, at_s in self.began if began == flow]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


def runs(name: Flow | ConnectorName, **script: Any) -> Callable[[int, list[str]], FakeConnector]:
    return lambda life, history: FakeConnector(name, history, **script)


def refuses(flow: Flow, why: str = "It must not run.") -> Callable[[int, list[str]], FakeConnector]:
    return runs(flow, fails_with=Refused(why, remedy="Do this."))


# -- refused -----------------------------------------------------------------------------------------------------------


def test_a_refused_flow_is_not_started_again_and_the_others_go_on() -> None:
    worker = Worker({AB: refuses(AB), BA: runs(BA)})
    assert worker.run(stop_at_s=1_000) == 0
    assert [(flow, life) for flow, life, _ in worker.began] == [(AB, 0), (BA, 0)]
    (refusal,) = worker.events("flow.refused")
    assert (refusal["flow"], refusal["why"]) == ("A->B", "It must not run. Do this.")


def test_the_process_ends_with_1_when_nothing_is_left() -> None:
    worker = Worker({AB: refuses(AB), BA: runs(BA, fails_with=Refused("No.", remedy=""), fails_after_s=500)})
    assert worker.run() == 1
    assert [event["flow"] for event in worker.events("flow.refused")] == ["A->B", "B->A"]
    assert [event["why"] for event in worker.events("worker.nothing_left")] == ["Every flow was refused."]


def test_the_process_runs_on_where_a_flow_is_mended_over_rest() -> None:
    """The story: a refusal named a request that sets where to go on, and no process was left to answer it."""

    class Mended(Refused):
        is_mended_over_rest = True

    worker = Worker({AB: runs(AB, fails_with=Mended("No.", remedy="PUT ...")), BA: refuses(BA)})
    assert worker.run(stop_at_s=1_000) == 0
    assert len(worker.events("flow.refused")) == 2 and not worker.events("worker.nothing_left")


async def test_an_operators_restart_tries_a_refused_flow_again_and_the_group_is_told_both() -> None:
    told: list[str] = []

    class Told(FakeSchedule):
        def refuse(self, why: str) -> None:
            told.append(why)

        def allow(self) -> None:
            told.append("allowed")

    schedule = Told(ends_after_s=1e9)

    def script(life: int, history: list[str]) -> FakeConnector:
        return refuses(AB)(life, history) if life == 0 else runs(AB)(life, history)

    worker = Worker({AB: script, BA: runs(BA)})
    herder = worker.herder(schedules={AB: schedule})
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    loop.call_later(49, lambda: seen.extend(status.state for status in herder.status()))
    loop.call_later(50, schedule.asked.set)
    loop.call_later(60, lambda: seen.extend(status.state for status in herder.status()))
    loop.call_later(61, herder.stop)
    code = await herder.run()
    assert seen == ["refused", "running", "running", "running"]
    assert code == 0
    assert told == ["It must not run. Do this.", "allowed"]
    assert [(flow, life, round(at_s)) for flow, life, at_s in worker.began] == [(AB, 0, 0), (BA, 0, 0), (AB, 1, 50)]


@dataclass
class Storing(FakeConnector):
    """Stores something, which takes a while, and ends."""

    takes_s: float = 0.0

    async def run(self) -> None:
        await asyncio.sleep(self.takes_s)
        self.history.append(f"{self.name} is stored")


@pytest.mark.parametrize(("takes_s", "is_stored"), [(5.0, True), (10_000.0, False)])
def test_with_apply_a_flow_is_switched_off_though_all_others_are_refused(takes_s: float, *, is_stored: bool) -> None:
    """Others run A->C, and the operator who starts this worker believes it off."""
    off = ConnectorName(AC, Kind.OFF)
    worker = Worker({AB: refuses(AB), off: lambda _, history: Storing(off, history, takes_s=takes_s)})
    assert worker.run(limit_s=100) == 1
    assert (f"{off} is stored" in worker.history) is is_stored
    assert [event["flow"] for event in worker.events("flow.not_switched_off")] == ([] if is_stored else ["A->C"])
    assert json.loads(worker.log.getvalue().splitlines()[-1])["event"] == "worker.nothing_left"


def test_what_the_file_refuses_is_named_and_the_rest_runs() -> None:
    worker = Worker({AB: runs(AB)}, refused={BA: Refused("Flow B->A is not started.", remedy="")})
    assert worker.run(stop_at_s=1) == 0
    assert [event["flow"] for event in worker.events("flow.refused")] == ["B->A"]


# -- begun again -------------------------------------------------------------------------------------------------------


def test_a_failed_flow_starts_again_after_pauses_that_grow_to_half_a_minute() -> None:
    worker = Worker({AB: runs(AB, fails_with=Mm2Error("The target said no.", remedy="Look there."))})
    worker.run(stop_at_s=300)
    assert [life for _, life, _ in worker.began] == list(range(len(worker.began)))
    for pause_s, planned_s in zip(worker.pauses_s(AB), [1, 2, 4, 8, 16, 30, 30, 30], strict=False):
        assert 0.8 * planned_s <= pause_s <= 1.2 * planned_s
    first = worker.events("flow.failed")[0]
    assert (first["flow"], first["why"], first["level"]) == ("A->B", "The target said no. Look there.", "error")
    assert first["again_in_s"] == round(worker.pauses_s(AB)[0], 1)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Mm2Error("The target said no.", remedy="Look there."), "The target said no. Look there."),
        (ZeroDivisionError("oops"), "ZeroDivisionError: oops. Report it with the line in its log."),
    ],
)
def test_each_failed_attempt_is_told_to_the_schedule_with_its_cause(error: Exception, told: str) -> None:
    """The group hears of it from there: nothing of such a flow runs that could say why it copies nothing."""
    heard: list[str] = []

    class Told(FakeSchedule):
        def failed(self, why: str) -> None:
            heard.append(why)

    worker = Worker({AB: runs(AB, fails_with=error)}, schedule=Told(ends_after_s=1e9))
    worker.run(stop_at_s=10)
    assert heard == [told] * len(worker.began) and len(heard) > 2


async def test_an_operators_request_ends_the_pause_after_a_failure() -> None:
    schedule = FakeSchedule(ends_after_s=10_000)
    worker = Worker({AB: runs(AB, fails_with=Mm2Error("The target said no.", remedy="Look there."))}, schedule=schedule)
    herder = worker.herder()
    running = asyncio.create_task(herder.run())
    await asyncio.sleep(200)
    before = len(worker.began)
    schedule.asked.set()
    schedule.asked.clear()
    await asyncio.sleep(0.1)
    assert len(worker.began) > before
    herder.stop()
    await running


def test_a_flow_that_is_switched_off_by_what_is_stored_does_not_start_and_makes_no_worker_unready() -> None:
    """Once the health was "starting" without end, and probes had the process killed."""
    schedule = FakeSchedule(ends_after_s=10)
    schedule.is_off = True
    herder = Worker({AB: runs(AB)}, schedule=schedule).herder()
    assert [status.state for status in herder.status()] == ["off"]
    assert herder.facts().health is Health.HEALTHY


async def test_a_held_flow_says_so_once_it_is_drained() -> None:
    schedule = FakeSchedule(ends_after_s=10)
    worker = Worker({AB: runs(AB, drain_takes_s=5)}, schedule=schedule)
    herder = worker.herder()
    running = asyncio.create_task(herder.run())
    schedule.held = Target(TargetState.STOPPED, "ann")
    await asyncio.sleep(12)
    assert [status.state for status in herder.status()] == ["running"]
    herder.connectors[0].is_up = False  # as when it waits for its permit
    assert [(status.state, status.reason) for status in herder.status()] == [("stopped", "stopped by ann")]
    herder.stop()
    await running


def test_a_defect_is_reported_with_its_place_and_the_flow_begins_again() -> None:
    worker = Worker({AB: runs(AB, fails_with=ZeroDivisionError("division by zero")), BA: runs(BA)})
    assert worker.run(stop_at_s=10) == 0
    crash = worker.events("flow.crashed")[0]
    assert crash["flow"] == "A->B"
    assert crash["why"] == "ZeroDivisionError: division by zero"
    assert crash["at"].startswith("run:")
    assert "report it" in crash["remedy"]
    assert "Traceback" in crash["exception"]
    assert [life for flow, life, _ in worker.began if flow == BA] == [0]


def test_a_flow_that_cannot_even_be_made_begins_again_too() -> None:
    """The connector's constructor raised: the flow ended without a word, as if it had been refused."""

    def broken(life: int, history: list[str]) -> FakeConnector:
        if life == 0 and not history:
            history.append("A->B broke")
            raise RuntimeError("no connector")
        return FakeConnector(AB, history)

    worker = Worker({AB: broken})
    assert worker.run(stop_at_s=60) == 0
    assert len(worker.events("flow.crashed")) == 1
    assert "A->B runs" in worker.history


def test_failures_of_long_ago_do_not_lengthen_todays_pause() -> None:
    """Six bad starts on Monday; the broker that goes away on Friday must not cost half a minute."""

    def script(life: int, history: list[str]) -> FakeConnector:
        after_s = 0.0 if life < 6 else HEALTHY_AFTER_S + 1
        return FakeConnector(AB, history, fails_with=Mm2Error("Gone.", remedy=""), fails_after_s=after_s)

    worker = Worker({AB: script})
    worker.run(stop_at_s=600)
    early, late = worker.pauses_s(AB)[5], worker.pauses_s(AB)[6] - HEALTHY_AFTER_S - 1
    assert early >= 24.0
    assert late <= 1.2


# -- heartbeats --------------------------------------------------------------------------------------------------------


def test_heartbeats_that_fail_are_begun_again_and_named_as_what_they_are() -> None:
    """An alert on flow.failed is for flows."""
    beats = runs(BEATS_AB, fails_with=Mm2Error("No.", remedy=""), fails_after_s=5)
    worker = Worker({AB: runs(AB), BEATS_AB: beats})
    assert worker.run(stop_at_s=100) == 0
    assert not worker.events("flow.failed")
    failed = worker.events("connector.failed")
    assert len(failed) > 3
    assert (failed[0]["flow"], failed[0]["connector"]) == ("A->B", "A->B.MirrorHeartbeatConnector")
    assert worker.history.count("A->B runs") == 1


def test_heartbeats_alone_do_not_keep_a_process_alive_whose_flows_were_all_refused() -> None:
    worker = Worker({AB: refuses(AB), BEATS_AB: runs(BEATS_AB), BEATS_BA: runs(BEATS_BA)})
    assert worker.run() == 1
    assert worker.history[-2:] == [f"{BEATS_AB} is cancelled", f"{BEATS_BA} is cancelled"]
    by_file = Worker({BEATS_BA: runs(BEATS_BA)}, refused={AB: Refused("Flow A->B is not started.", remedy="")})
    assert by_file.run() == 1


def test_a_worker_without_flows_emits_heartbeats_until_it_is_stopped() -> None:
    worker = Worker({BEATS_AB: runs(BEATS_AB)})
    assert worker.run(stop_at_s=50) == 0
    assert worker.history == [f"{BEATS_AB} {what}" for what in ("runs", "drains", "is drained", "is cancelled")]
    assert [event["flows"] for event in worker.events("worker.draining")] == [0]


async def test_the_status_of_a_flow_has_what_its_path_says_and_heartbeats_make_no_line_of_their_own() -> None:
    worker = Worker({AB: runs(AB), BEATS_BA: runs(BEATS_BA), PATH_AB: runs(PATH_AB)})
    herder = worker.herder()
    asyncio.get_running_loop().call_later(2, herder.stop)
    running = asyncio.create_task(herder.run())
    (before,) = herder.status()
    assert (before.state, before.heartbeat_age_s, before.path_latency_ms) == ("starting", None, None)
    await asyncio.sleep(1)
    found = herder.status()
    await running
    (status,) = found
    assert (status.flow, status.state, status.heartbeat_age_s, status.path_latency_ms) == (AB, "running", 0.5, 40.0)


# -- stopped -----------------------------------------------------------------------------------------------------------


def test_every_flow_is_drained_before_any_is_cancelled_and_they_drain_side_by_side() -> None:
    worker = Worker({AB: runs(AB, drain_takes_s=10), BA: runs(BA, drain_takes_s=1)})
    assert worker.run(stop_at_s=5, limit_s=15.5) == 0
    assert worker.history[:2] == ["A->B runs", "B->A runs"]
    assert worker.history[2:] == [
        "A->B drains",
        "B->A drains",
        "B->A is drained",
        "A->B is drained",
        "A->B is cancelled",
        "B->A is cancelled",
    ]
    assert [event["flows"] for event in worker.events("worker.draining")] == [2]
    assert worker.events("worker.drained")


def test_one_that_cannot_drain_does_not_keep_the_others_from_it_and_the_exit_code_tells() -> None:
    worker = Worker({AB: runs(AB, drain_fails_with=OSError("target is gone")), BA: runs(BA, drain_takes_s=2)})
    assert worker.run(stop_at_s=5) == 1
    assert "B->A is drained" in worker.history
    (failed,) = worker.events("drain.failed")
    assert (failed["flow"], failed["why"]) == ("A->B", "target is gone")
    assert failed["effect"] == (
        "the next start fences this process, looks up what the target has stored, and continues after it; nothing"
        " is copied twice, unless the guarantee of the flow is at-least-once"
    )
    assert not worker.events("worker.drained")


def test_a_drain_that_never_ends_is_given_up() -> None:
    """The target is gone and takes no positions: the operator's stop must not hang on it."""
    worker = Worker({AB: runs(AB, drain_takes_s=10**6), BA: runs(BA)})
    assert worker.run(stop_at_s=5, limit_s=5 + CONNECTOR_DRAIN_S + 1) == 1
    (failed,) = worker.events("drain.failed")
    assert failed["why"] == "not done within 40 s"
    assert worker.history[-2:] == ["A->B is cancelled", "B->A is cancelled"]


def test_a_stop_in_the_pause_of_a_failed_flow_is_immediate_and_drains_nothing_dead() -> None:
    worker = Worker({AB: runs(AB, fails_with=Mm2Error("No.", remedy=""), drain_takes_s=30)})
    assert worker.run(stop_at_s=20, limit_s=20.1) == 0
    assert "A->B drains" not in worker.history
    assert [event["flows"] for event in worker.events("worker.draining")] == [0]


async def test_a_stop_before_the_first_turn_is_heard() -> None:
    worker = Worker({AB: runs(AB)})
    herder = worker.herder()
    herder.stop()
    assert await herder.run() == 0


@pytest.mark.virtual_time(limit_s=100)
async def test_a_connector_that_waits_for_its_turn_as_the_worker_leaves_has_not_failed() -> None:
    """Another worker emits the flow's heartbeats; this one stops in order, and has no line of an error in its log."""
    worker = Worker({AB: runs(AB), BEATS_AB: runs(BEATS_AB)})

    class Members:
        def __init__(self) -> None:
            self.left = asyncio.Event()

        async def run(self) -> None:
            await self.left.wait()

        def rejoin_no_more(self) -> None:
            pass

        async def leave(self, *, outcome_unknown: bool) -> None:
            assert not outcome_unknown
            self.left.set()
            await asyncio.sleep(1)  # whoever waits hears of it before all is cancelled

    class NotYet(Always):
        def __init__(self, members: Members) -> None:
            self._members = members

        async def granted(self) -> None:
            await self._members.left.wait()
            raise Mm2Error("It has left.", remedy="")

    members = Members()
    herder = worker.herder(groups={AB.target: members}, schedules={BEATS_AB: NotYet(members)})
    asyncio.get_running_loop().call_later(20, herder.stop)
    assert await herder.run() == 0
    assert not worker.events("connector.failed")
    assert worker.history == ["A->B runs", "A->B drains", "A->B is drained", "A->B is cancelled"]


async def test_each_group_is_left_when_its_own_connectors_have_drained_and_its_heartbeats_stop_last() -> None:
    """C does not answer, and B does: nobody would copy A->B while C is waited for, were both left together."""
    worker = Worker({AB: runs(AB, drain_takes_s=2), AC: runs(AC, drain_takes_s=20), BEATS_AB: runs(BEATS_AB)})

    @dataclass
    class Left(FakeGroup):
        at_s: float | None = None

        async def leave(self, *, outcome_unknown: bool) -> None:
            await super().leave(outcome_unknown=outcome_unknown)
            self.at_s = asyncio.get_running_loop().time()

    groups = {AB.target: Left(), AC.target: Left()}
    herder = worker.herder(groups=groups)
    asyncio.get_running_loop().call_later(10, herder.stop)
    assert await herder.run() == 0
    assert [group.at_s for group in groups.values()] == [12.0, 30.0]
    assert worker.history.index("A->B is drained") < worker.history.index(f"{BEATS_AB} drains")


async def test_what_one_flow_left_unanswered_is_no_unknown_outcome_in_the_group_of_another_target() -> None:
    worker = Worker({AB: runs(AB, drain_fails_with=OSError("target is gone")), AC: runs(AC)})
    groups = {AB.target: FakeGroup(), AC.target: FakeGroup()}
    herder = worker.herder(groups=groups)
    asyncio.get_running_loop().call_later(10, herder.stop)
    assert await herder.run() == 1
    assert [group.left_outcome_unknown for group in groups.values()] == [True, False]


async def test_a_flow_that_is_stopped_gives_way_before_it_is_drained() -> None:
    worker = Worker({AB: runs(AB)})

    class GivesWay(Always):
        def withdraw(self) -> None:
            worker.history.append("A->B gives way")

    herder = worker.herder(schedules={AB: GivesWay()})
    asyncio.get_running_loop().call_later(10, herder.stop)
    assert await herder.run() == 0
    assert worker.history == ["A->B runs", "A->B gives way", "A->B drains", "A->B is drained", "A->B is cancelled"]


async def test_a_connector_whose_turn_comes_while_the_worker_drains_is_not_started() -> None:
    """Nobody would drain it: what it sends would be taken for answered when the worker has left."""
    worker = Worker({AB: runs(AB), AC: runs(AC, drain_takes_s=20)})

    class Late(Always):
        async def granted(self) -> None:
            await asyncio.sleep(15)

    herder = worker.herder(schedules={AB: Late()})
    asyncio.get_running_loop().call_later(10, herder.stop)
    assert await herder.run() == 0
    assert [flow for flow, _, _ in worker.began] == [AC]


@pytest.mark.parametrize("first_outcome_unknown", [True, False])
def test_a_flow_is_withdrawn_outcome_unknown_also_when_only_an_attempt_before_the_refused_one_left_something(
    first_outcome_unknown: bool,
) -> None:
    told: list[bool] = []

    class Renounced(Always):
        async def release_refused(self, *, outcome_unknown: bool) -> None:
            told.append(outcome_unknown)

    def script(life: int, history: list[str]) -> FakeConnector:
        fails_with = Mm2Error("It fails.", remedy="") if life == 0 else Refused("It must not run.", remedy="")
        connector = FakeConnector(AB, history, fails_with=fails_with)
        connector.leaves_outcome_unknown = first_outcome_unknown and life == 0
        return connector

    worker = Worker({AB: script, AC: runs(AC)})

    async def main() -> int:
        herder = worker.herder(schedules={AB: Renounced()})
        asyncio.get_running_loop().call_later(10, herder.stop)
        return await herder.run()

    assert run_virtual(main()) == 0
    assert told == [first_outcome_unknown]


# -- a turn that ends --------------------------------------------------------------------------------------------------


def test_a_connector_whose_schedule_ends_in_order_is_drained_and_restarts_at_once() -> None:
    worker = Worker({AB: runs(AB, drain_takes_s=3)}, schedule=FakeSchedule(ends_after_s=10), group=FakeGroup())
    assert worker.run(stop_at_s=30) == 0
    assert worker.history[:5] == ["A->B runs", "A->B drains", "A->B is drained", "A->B is cancelled", "A->B runs"]
    assert worker.began == [(AB, 0, 0.0), (AB, 1, 13.0)]
    assert worker.group is not None
    assert worker.group.left_outcome_unknown is False
    assert not worker.events("flow.failed")


def test_a_drain_that_never_ends_does_not_keep_the_next_attempt_from_starting() -> None:
    worker = Worker({AB: runs(AB, drain_takes_s=10**6)}, schedule=FakeSchedule(ends_after_s=10), group=FakeGroup())
    worker.run(stop_at_s=60)
    assert [(life, at_s) for _, life, at_s in worker.began] == [(0, 0.0), (1, 10.0 + CONNECTOR_DRAIN_S)]
    assert worker.group is not None
    assert worker.group.left_outcome_unknown is True


@pytest.mark.parametrize(
    ("connector", "outcome_unknown"),
    [
        ({"drain_takes_s": 3}, False),
        ({"drain_takes_s": 10**6}, True),
        ({"drain_fails_with": OSError("target is gone")}, True),
    ],
)
def test_a_schedule_is_told_whether_its_connector_left_an_unknown_outcome(
    connector: dict[str, Any], outcome_unknown: bool
) -> None:
    schedule = FakeSchedule(ends_after_s=10)
    Worker({AB: runs(AB, **connector)}, schedule=schedule).run(stop_at_s=60)
    assert schedule.stopped_outcome_unknown == [outcome_unknown]


async def test_a_schedule_is_told_of_an_unknown_outcome_of_another_flow_at_the_same_target() -> None:
    other, schedule = parse_flow("C->B"), FakeSchedule(ends_after_s=10)
    worker = Worker({AB: runs(AB, fails_with=Mm2Error("Fenced.", remedy=""), fails_after_s=5), other: runs(other)})
    herder = worker.herder(schedules={other: schedule})
    asyncio.get_running_loop().call_later(20, herder.stop)
    await herder.run()
    assert schedule.stopped_outcome_unknown == [True]


def test_a_connector_whose_turn_is_over_at_once_is_not_drained() -> None:
    """Its member is out: others shut it out and go on, and what it sends now is waste."""
    worker = Worker({AB: runs(AB)}, schedule=FakeSchedule(ends_after_s=10, in_order=False), group=FakeGroup())
    worker.run(stop_at_s=30)
    assert worker.history[:3] == ["A->B runs", "A->B is cancelled", "A->B runs"]
    assert worker.group is not None
    assert worker.group.left_outcome_unknown is True


def test_a_stop_while_a_turn_ends_waits_for_the_drain_that_is_under_way_and_begins_nothing() -> None:
    worker = Worker({AB: runs(AB, drain_takes_s=5)}, schedule=FakeSchedule(ends_after_s=10), group=FakeGroup())
    assert worker.run(stop_at_s=12, limit_s=16) == 0
    assert worker.history == ["A->B runs", "A->B drains", "A->B is drained", "A->B is cancelled"]
    assert worker.group is not None
    assert worker.group.left_outcome_unknown is False


def test_a_flow_that_fails_while_its_turn_ends_has_failed() -> None:
    script = runs(AB, fails_with=Mm2Error("Fenced.", remedy=""), fails_after_s=12, drain_takes_s=30)
    worker = Worker({AB: lambda life, history: script(life, history) if life == 0 else FakeConnector(AB, history)})
    worker.schedule, worker.group = FakeSchedule(ends_after_s=10), FakeGroup()
    worker.run(stop_at_s=60)
    assert [event["why"] for event in worker.events("flow.failed")] == ["Fenced."]
    assert worker.group.left_outcome_unknown is True
    assert 12.8 < worker.began[1][2] < 13.3


def test_a_turn_that_fails_is_a_defect_and_the_flow_begins_again_after_a_pause() -> None:
    schedule = FakeSchedule(ends_after_s=10, fails_with=ZeroDivisionError("division by zero"))
    worker = Worker({AB: runs(AB)}, schedule=schedule)
    worker.run(stop_at_s=30)
    assert [event["why"] for event in worker.events("flow.crashed")] == ["ZeroDivisionError: division by zero"]
    assert len(worker.began) == 2


async def test_a_second_stop_changes_nothing() -> None:
    worker = Worker({AB: runs(AB, drain_takes_s=10)})
    herder = worker.herder()
    for at_s in (1.0, 2.0, 3.0):
        asyncio.get_running_loop().call_later(at_s, herder.stop)
    assert await herder.run() == 0
    assert worker.history.count("A->B drains") == 1


async def test_cancelling_the_herder_leaves_no_flow_behind() -> None:
    worker = Worker({AB: runs(AB), BA: runs(BA)})
    running = asyncio.create_task(worker.herder().run())
    await asyncio.sleep(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert worker.history[-2:] == ["A->B is cancelled", "B->A is cancelled"]


# -- what it shows -----------------------------------------------------------------------------------------------------


def test_the_status_names_every_flow_and_why_it_does_not_run() -> None:
    worker = Worker({AB: refuses(AB), BA: runs(BA)}, refused={AC: Refused("Flow A->C is not started.", remedy="")})

    async def main() -> Sequence[FlowStatus]:
        herder = worker.herder()
        asyncio.get_running_loop().call_later(2, herder.stop)
        running = asyncio.create_task(herder.run())
        before = herder.status()
        assert {status.state for status in before} == {"starting", "refused"}
        await asyncio.sleep(1)
        found = herder.status()
        await running
        return found

    found = {str(status.flow): (status.state, status.reason) for status in run_virtual(main())}
    assert found == {
        "A->B": ("refused", "It must not run. Do this."),
        "B->A": ("running", ""),
        "A->C": ("refused", "Flow A->C is not started."),
    }

"""Attempt after attempt of a flow fails, or waits: heartbeats tell the group, and the status names it.

Nothing of such a flow runs that could store why. The status said nothing until records had waited for half a minute,
and then that no worker has said why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mm2py.kafka.error_codes import COORDINATOR_NOT_AVAILABLE
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.status.exit_codes import exit_of_report
from mm2py.status.printout import text_of
from mm2py.status.report import ProblemKind
from tests.scenarios.config_world import log_of
from tests.scenarios.copying.test_silent_from_the_start import Scene, snapshots, told
from tests.scenarios.process import Process, Wire

POSITIONS = "mm2-offsets.A.internal"
SOON_S = 12.0
"""Two attempts with the pause between them, a report after five seconds, and the next heartbeat."""


def reasons(found: Any) -> list[str]:
    return [str(one.reason) for one in found.not_copied]


async def failing(scene: Scene, process: Process, *, is_hidden: bool) -> None:
    """Take the rights to store positions away, and let the running flow meet that."""
    await scene.all_copied()
    if is_hidden:
        scene.target.deny(POSITIONS)
    else:
        scene.target.unwritable_topics.add(POSITIONS)
    scene.source.create_topic("t1", 1)
    scene.source.append("t1", 0, [b"1"])
    await scene.until(lambda: bool(process.said("flow.failed")))
    await asyncio.sleep(SOON_S)


@pytest.mark.parametrize("is_hidden", [False, True], ids=["waits", "fails"])
async def test_a_flow_that_cannot_start_is_told_everywhere_and_not_when_it_runs_again(*, is_hidden: bool) -> None:
    scene = Scene()
    process = scene.begin()
    await failing(scene, process, is_hidden=is_hidden)
    assert (len(process.said("flow.failed")) > 2) is is_hidden
    report = await scene.report()
    flow, well = told(report), told(report, "C->B")
    (why,) = flow.not_copied
    assert (reasons(flow), why.waits_for_operator) == (["not-started"], True)
    assert "w1 cannot start the flow: " in why.why and POSITIONS in why.why
    assert scene.clock.wall_ms() - 2_000 * SOON_S < why.since_ms < scene.clock.wall_ms() - 250 * SOON_S
    assert (flow.guarantee.level, well.not_copied, well.guarantee.level) == ("unknown", (), "exactly-once")
    assert {topic.topic: reasons(topic) for topic in flow.topics} == {"t0": ["not-started"], "t1": ["not-started"]}
    (problem,) = [
        one for one in report.problems if one.kind is not ProblemKind.UNREACHABLE
    ]  # who asks has their rights
    assert (problem.where, exit_of_report(report)) == ("A->B", 1 if is_hidden else 3)
    assert "2 topic(s)" in problem.text and "\nnot-started: " in text_of(report)
    for _ in range(40):  # in attempts, and between them
        assert snapshots(process)["A->B"].not_copied == (("not-started", 1, 6),), "t1 is not listed yet"
        assert told(await scene.report()).not_copied[0].since_ms == why.since_ms
        await asyncio.sleep(0.5)

    scene.target.unwritable_topics.clear()
    scene.target.denied_topics.clear()
    await scene.until(lambda: bool(process.member and not process.member.not_started), within_s=120)
    await asyncio.sleep(2)
    report = await scene.report()
    assert (report.problems, reasons(told(report))) == ((), [])
    assert snapshots(process)["A->B"].not_copied == ()
    process.kill()


async def test_one_attempt_that_fails_is_not_told() -> None:
    """As when another process fences this one's producer: the next attempt copies a second later."""
    scene = Scene()
    process = scene.begin()
    await scene.all_copied()
    scene.target.unwritable_topics.add(POSITIONS)
    scene.source.create_topic("t1", 1)
    scene.source.append("t1", 0, [b"1"])
    await scene.until(lambda: bool(process.said("flow.failed")))
    scene.target.unwritable_topics.clear()
    for _ in range(40):
        assert process.member is not None and not process.member.not_started
        await asyncio.sleep(0.5)
    assert len(process.said("flow.failed")) == 1
    assert (await scene.report()).problems == ()
    process.kill()


async def restarted(scene: Scene, through: Callable[[Wire], Brokers], prepare: Callable[[], None]) -> Process:
    """Copy all, stop, and start again when something is missing."""
    first = scene.begin()
    await scene.all_copied()
    await asyncio.sleep(3)
    first.herder.stop()
    await scene.until(lambda: not first.is_up)
    prepare()
    process = scene.begin(through)
    await asyncio.sleep(SOON_S + 5)
    return process


@pytest.mark.parametrize("lacks", ["a producer id", "settled"])
async def test_a_flow_that_waits_for_a_coordinator_of_the_target_is_told_and_copies_when_that_is_back(
    lacks: str,
) -> None:
    """Everything was copied before, so no record waits: the status was green, exactly-once, without end."""
    scene, is_away = Scene(), [lacks == "settled"]

    def through(wire: Wire) -> Brokers:
        send = wire.send

        async def answer(broker: Any, request: Any, **more: Any) -> Any:
            if is_away[0] and type(request).__name__ == "FindCoordinatorRequest" and request.key_type == 0:
                raise BrokerRefused("Finding the coordinator of B-mm2", COORDINATOR_NOT_AVAILABLE)
            return await send(broker, request, **more)

        if wire.name == "B":
            wire.send = answer  # type: ignore[method-assign]
        return wire

    def prepare() -> None:
        if lacks == "a producer id":
            scene.target.create_topic("__transaction_state", 1)
            scene.target.transactions_available = False

    process = await restarted(scene, through, prepare)
    report = await scene.report()
    flow = told(report)
    assert reasons(flow) == ["not-started"] and lacks in flow.not_copied[0].why, flow.not_copied
    assert (exit_of_report(report), flow.guarantee.level) == (3, "unknown")
    assert snapshots(process)["A->B"].not_copied[0][0] == "not-started"

    is_away[0], scene.target.transactions_available = False, True
    await scene.until(lambda: bool(process.member and not process.member.not_started), within_s=120)
    await asyncio.sleep(2)
    report = await scene.report()
    assert (report.problems, told(report).guarantee.level) == ((), "exactly-once")
    process.kill()


async def test_a_flow_that_could_not_start_and_is_switched_off_is_no_problem() -> None:
    scene = Scene()
    process = scene.begin()
    await failing(scene, process, is_hidden=True)
    log = await log_of(scene, "operator")
    await log.read_patiently(scene.rng)
    assert log.config is not None
    off = FlowConfig({**log.config.properties, "enabled": "false"}, DecidedBy.APPLY, log.config.version + 1)
    assert await log.write(off, instead_of=log.config)
    await asyncio.sleep(60)
    flow = told(await scene.report())
    assert reasons(flow) == [] and {reasons(topic)[0] for topic in flow.topics} == {"switched-off"}
    assert process.member is not None and not process.member.not_started
    process.kill()


async def test_a_flow_that_is_refused_waits_for_no_cluster() -> None:
    """The alert Mm2pyFlowWaiting is not for it: it fails, and says why."""
    scene = Scene()
    process = scene.start(A=scene.target, C=scene.other)
    await scene.until(lambda: bool(process.said("flow.refused")))
    await asyncio.sleep(SOON_S)
    assert "A->B" not in snapshots(process)
    process.kill()

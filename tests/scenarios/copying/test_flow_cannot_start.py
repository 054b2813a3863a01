"""Attempt after attempt of a flow fails, or waits: the group is told with heartbeats, and whoever asks hears of it.

Nothing of such a flow runs that could store why. The status said nothing until records had waited for half a minute,
and then that no worker has said why.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mm2py.cli.status import exit_code_of
from mm2py.status.printout import text_of
from mm2py.status.report import ProblemKind
from tests.scenarios.copying.test_silent_from_the_start import Scene, snapshots, told
from tests.scenarios.process import Process

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
    assert scene.clock.wall_ms() - 2_000 * SOON_S < why.since_ms < scene.clock.wall_ms() - 500 * SOON_S
    assert (flow.guarantee.level, well.not_copied, well.guarantee.level) == ("unknown", (), "exactly-once")
    assert {topic.topic: reasons(topic) for topic in flow.topics} == {"t0": ["not-started"], "t1": ["not-started"]}
    (problem,) = [
        one for one in report.problems if one.kind is not ProblemKind.UNREACHABLE
    ]  # who asks has their rights
    assert (problem.where, exit_code_of(report)) == ("A->B", 1 if is_hidden else 3)
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

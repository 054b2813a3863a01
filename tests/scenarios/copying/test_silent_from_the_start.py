"""A source that has never answered a worker: the group is told with heartbeats, and whoever asks hears of it.

The status was green: such a worker runs nothing that could store why it does not copy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mm2py.flow import parse_flow
from mm2py.kafka.port import Brokers
from mm2py.metrics.worker_numbers import FlowSnapshot
from mm2py.records.partition_ranges import ranges
from mm2py.status.exit_codes import exit_of_report
from mm2py.status.inquiry import Inquiry
from mm2py.status.printout import text_of
from mm2py.status.report import Report, report_of
from mm2py.worker.snapshot import snapshot_parts
from tests.fakes.broker.broker_model import ClusterModel
from tests.scenarios.process import Process, Wire
from tests.scenarios.settings.test_status_command import Link
from tests.scenarios.shared_world import SharedWorld

A_TO_B, C_TO_B = parse_flow("A->B"), parse_flow("C->B")
TWO_FLOWS = {"clusters": "A,B,C", "C.bootstrap.servers": "c:1", "C->B.enabled": "true"}
PARTITIONS = {"t0": 6, "fine": 1}
SOON_S = 8.0
"""Five seconds without an answer, and the next heartbeat."""


class Mute:
    """Accepts requests and never answers, while ``is_mute``."""

    def __init__(self) -> None:
        self.is_mute = True

    def through(self, wire: Wire) -> Brokers:
        mute, send = self, wire.send

        async def answer_or_not(*arguments: Any, **more: Any) -> Any:
            while mute.is_mute:
                await asyncio.sleep(0.2)
            return await send(*arguments, **more)

        if wire.name == "A":
            wire.send = answer_or_not  # type: ignore[method-assign]
        return wire


class Scene(SharedWorld):
    """Flow A->B, and C->B that is healthy."""

    def __init__(self) -> None:
        super().__init__(extra=TWO_FLOWS)
        self.other = self.another_cluster("C")
        for cluster, topic in ((self.source, "t0"), (self.other, "fine")):
            cluster.create_topic(topic, PARTITIONS[topic])
            for number in range(PARTITIONS[topic]):
                cluster.append(topic, number, [b"1"])

    def begin(self, through: Callable[[Wire], Brokers] = lambda wire: wire) -> Process:
        return self.start(through=through, C=self.other)

    async def report(self, *, away: Sequence[str] = ()) -> Report:
        """Return what ``mm2py status`` says; clusters that are ``away`` do not answer it either."""
        clusters = {"A": self.source, "B": self.target, "C": self.other}
        inquiry = Inquiry(
            self.file({}),
            lambda _, cluster, __, ___: Link(clusters[cluster.alias], lambda *_: cluster.alias not in away),
            clock=self.clock,
            rng=random.Random(1),
        )
        report = report_of(await inquiry.look())
        await inquiry.close()
        return report

    def has(self, topic: str, cluster: ClusterModel, alias: str) -> bool:
        remote = f"{alias}.{topic}"
        return remote in self.target.topics and all(
            len(self.target.records(remote, number)) == len(cluster.records(topic, number))
            for number in range(PARTITIONS[topic])
        )

    async def all_copied(self) -> None:
        await self.until(lambda: self.has("t0", self.source, "A") and self.has("fine", self.other, "C"))


def snapshots(process: Process) -> dict[str, FlowSnapshot]:
    parts = snapshot_parts(process.herder, checkpoints_max=0)
    return {f"{one.source}->{one.target}": one for one in parts if isinstance(one, FlowSnapshot)}


def told(report: Report, flow: str = "A->B") -> Any:
    return next(one for one in report.flows if str(one.flow) == flow)


@pytest.mark.parametrize("was_copied", [False, True], ids=["first start", "restart"])
@pytest.mark.parametrize("says_nothing", [False, True], ids=["unreachable", "mute"])
async def test_a_source_that_never_answered_is_told_everywhere_beside_a_flow_that_is_well(
    *, was_copied: bool, says_nothing: bool
) -> None:
    scene, mute = Scene(), Mute()
    if was_copied:  # all of it: no record waits, so nothing else shows that the flow does not run
        first = scene.begin()
        await scene.all_copied()
        await asyncio.sleep(3)
        first.herder.stop()
        await scene.until(lambda: not first.is_up)
    process = scene.begin(mute.through if says_nothing else lambda wire: wire)
    if not says_nothing:
        process.cut_off_from.add("A")
    await scene.until(lambda: process.member is not None)
    await asyncio.sleep(SOON_S)
    await scene.until(lambda: scene.has("fine", scene.other, "C"))
    await asyncio.sleep(2)

    report = await scene.report()
    silent, well = told(report), told(report, "C->B")
    (why,) = silent.not_copied
    assert (str(why.reason), why.is_problem) == ("source-silent", True)
    assert "A has not answered w" in why.why and "Look whether A runs" in why.remedy
    assert scene.clock.wall_ms() - 20_000 < why.since_ms < scene.clock.wall_ms() - 5_000
    assert silent.guarantee.level == "unknown"
    assert (well.not_copied, well.guarantee.level) == ((), "exactly-once")
    problems = [(one.where, one.text) for one in report.problems]
    assert [where for where, _ in problems] == ["A->B"], problems
    assert exit_of_report(report) == 3
    assert all([str(one.reason) for one in topic.not_copied] == ["source-silent"] for topic in silent.topics)
    assert "A->B: unknown (" in text_of(report) and "\nsource-silent: " in text_of(report)

    alone = await scene.report(away=["A"])
    assert exit_of_report(alone) == 1
    assert [str(one.reason) for one in told(alone).not_copied] == ["source-silent"]
    assert (told(alone).guarantee.level, told(alone).lag_is_partial) == ("unknown", True)

    found = snapshots(process)
    assert found["A->B"].state == "waiting" and "exactly-once" not in found["A->B"].guarantee
    (reason, topics, partitions) = found["A->B"].not_copied[0]
    assert (reason, topics, partitions) == ("source-silent", 1, 0), "a group of new workers has listed none yet"
    assert found["C->B"].not_copied == ()
    lines = [one for one in process.said("flow.waiting") if one.get("reason") == "source-silent"]
    assert [one["flow"] for one in lines] == ["A->B"] and lines[0]["remedy"], lines

    process.cut_off_from.clear()
    mute.is_mute = False
    await scene.until(lambda: process.member is not None and not process.member.not_started)
    await scene.all_copied()
    await asyncio.sleep(SOON_S)
    report = await scene.report()
    assert [(one.where, one.text) for one in report.problems] == []
    assert told(report).guarantee.level == "exactly-once"
    assert snapshots(process)["A->B"].not_copied == ()
    process.kill()


async def test_a_source_that_does_not_answer_one_of_two_workers_leaves_its_partitions_and_names_it() -> None:
    scene = Scene()
    first = scene.begin()
    await scene.all_copied()
    second = scene.begin()
    second.cut_off_from.add("A")
    await scene.until(lambda: second.member is not None and bool(second.owns(A_TO_B)))
    await asyncio.sleep(SOON_S)
    report = await scene.report()
    flow = told(report)
    (why,) = flow.not_copied
    assert str(why.reason) == "source-silent" and "A has not answered w2" in why.why
    assert flow.guarantee.level == "exactly-once", "the other worker copies"
    (topic,) = [one for one in flow.topics if one.topic == "t0"]
    (said,) = topic.not_copied
    numbers = sorted(number for topic, number in second.owns(A_TO_B) if topic == "t0")
    assert 0 < len(numbers) < PARTITIONS["t0"]
    assert (str(said.reason), said.partitions) == ("source-silent", ranges(numbers))
    assert (snapshots(second)["A->B"].not_copied) == (("source-silent", 1, len(second.owns(A_TO_B))),)
    (problem,) = report.problems
    assert (problem.where, exit_of_report(report)) == ("A->B", 3)
    first.kill()
    second.kill()

"""What ``mm2py groups``, ``translate`` and ``status`` tell, and how soon, beside a source that accepts connections and
says nothing. The clusters are models, time is virtual.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Final

import pytest

from mm2py.cli import groups
from mm2py.config.settings import ClusterSettings
from mm2py.flow import ClusterAlias, Flow
from mm2py.flow_clusters import Connected
from mm2py.kafka.port import BrokerId
from mm2py.offsets.runs import Run
from mm2py.status.bodies import GroupsBody
from mm2py.status.cluster_inquiry import InquirySide, patience_of_commands
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, exit_of_groups, exit_of_offsets
from mm2py.status.inquiry import Inquiry
from mm2py.status.offset_inquiry import Question
from mm2py.status.offset_report import line_of, what_is_unchecked
from mm2py.status.report import report_of
from mm2py.status.target_alone import GroupsQuestion, GroupsTold, OffsetsQuestion, TargetUnread
from mm2py_rest.clusters.questions import FlowQuestions
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.ledger_topic import chunk, write_chunks
from tests.fakes.virtual_time import EPOCH_MS
from tests.scenarios.offsets.test_group_sync import synced_world
from tests.scenarios.offsets.test_offset_syncs import numbered
from tests.scenarios.offsets.test_translate_command import make
from tests.scenarios.settings.test_status_command import Link
from tests.scenarios.world import World

MOST_S: Final = 3.0
"""What a cluster that says nothing may cost a command."""


class Frozen(Link):
    """Connections to a cluster that answers nothing from some request on; ``after_s``: how long each answer takes."""

    def __init__(self, cluster: ClusterModel, frozen_from: str | None = "", after_s: float = 0.0) -> None:
        super().__init__(cluster, lambda *_: True)
        self.frozen_from = frozen_from
        self.is_frozen = frozen_from == ""
        self._after_s = after_s

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        self.is_frozen |= bool(self.frozen_from) and type(request).__name__.startswith(self.frozen_from or "none")
        if self.is_frozen:
            await asyncio.Event().wait()
        await asyncio.sleep(self._after_s)
        return await super().send(broker, request, channel=channel)


class Sides:
    """Both sides of a flow, as a command has them."""

    def __init__(self, world: World, source: Link, target: Link | None = None) -> None:
        patience = patience_of_commands(world.clock)
        self.world = world
        self.source = InquirySide(ClusterAlias("A"), source, patience)  # type: ignore[arg-type]
        target = target or Link(world.target, lambda *_: True)
        self.target = InquirySide(ClusterAlias("B"), target, patience)  # type: ignore[arg-type]
        self.begun_s = world.clock.monotonic()

    @property
    def took_s(self) -> float:
        return self.world.clock.monotonic() - self.begun_s

    async def groups(self) -> GroupsTold:
        world = self.world
        return await GroupsQuestion(world.settings, self.source, self.target, world.clock, world.log).ask()

    async def close(self) -> None:
        await self.source.close()
        await self.target.close()


async def copied_world(**extra: str) -> World:
    """A group stands at 60 of 100 records that are all copied; half a minute later nothing runs any more."""
    world = synced_world(**extra)
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    world.source.groups.commit("connect-x", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(15)
    await asyncio.sleep(30)
    return world


FROZEN_FROM: Final = ["", "ListGroups", "OffsetFetch", "ListOffsets"]


@pytest.mark.parametrize("frozen_from", FROZEN_FROM, ids=lambda name: name or "the beginning")
async def test_groups_are_told_by_the_target_within_three_seconds_when_the_source_says_nothing(
    frozen_from: str,
) -> None:
    world = await copied_world()
    sides = Sides(world, Frozen(world.source, frozen_from))
    told = await sides.groups()
    assert sides.took_s <= MOST_S
    assert told.unread.startswith("A has not answered since 2")
    (report,) = told.reports  # connect-x is none of the flow's
    assert (report.group, report.state, report.state_on_target, report.ready) == ("pay", "", "Empty", True)
    assert (report.lag, report.reads_again_at_most, report.is_exact) == (None, None, True)
    (part,) = report.partitions
    assert (part.topic, part.remote_topic, part.committed, part.lag) == ("orders", "A.orders", None, None)
    assert (part.goes_on_at, part.committed_on_target, part.checkpoint_source_offset) == (60, 60, 60)
    assert part.checkpoint_at_ms is not None and 30_000 < told.at_ms - part.checkpoint_at_ms < 60_000
    assert exit_of_groups(told.reports, told.unread) == EXIT_FAILED
    text = groups.text_of_target(told)
    assert "1 group, 1 ready to go on on the target" in text and told.unread in text
    assert "not known: what groups have committed on the source by now" in text
    row = next(line.split() for line in text.splitlines() if line.startswith("pay"))
    assert row == ["pay", "A.orders", "0", "60", row[4], "s", "60", "yes", "60", "yes"] and 30 < int(row[4]) < 60
    body = GroupsBody(
        exit_code=EXIT_FAILED, flow="A->B", at_ms=told.at_ms, unread=told.unread, groups=tuple(told.reports)
    )
    found = json.loads(body.model_dump_json())
    assert (found["unread"], found["at_ms"] > EPOCH_MS) == (told.unread, True)
    await sides.close()


async def test_a_group_that_could_not_go_on_says_why_also_when_the_target_alone_tells() -> None:
    world = await copied_world()
    world.target.groups.activate("pay")
    sides = Sides(world, Frozen(world.source))
    (busy,) = (await sides.groups()).reports
    assert busy.why == "it has members on the target (Stable)"
    world.target.groups.deactivate("pay")
    world.target.delete_records("A.orders", 0, 80)
    (cut,) = (await sides.groups()).reports
    assert (cut.is_exact, cut.partitions[0].note) == (False, "the target has deleted the copies before offset 80")
    world.target.delete_topic("A.orders")
    await asyncio.sleep(5)
    (gone,) = (await sides.groups()).reports
    assert gone.why == "orders-0: A.orders-0 does not exist on B"
    await sides.close()


async def test_what_the_source_refuses_leaves_what_the_target_tells() -> None:
    world = await copied_world()
    world.source.groups.denied.add("pay")
    sides = Sides(world, Link(world.source, lambda *_: True))
    told = await sides.groups()
    assert "Grant mm2py" in told.unread and [one.group for one in told.reports] == ["pay"]
    await sides.close()


async def test_a_target_that_says_nothing_ends_the_question_within_three_seconds() -> None:
    world = await copied_world()
    for frozen_from in ("", "ListGroups", "Fetch"):
        sides = Sides(world, Link(world.source, lambda *_: True), Frozen(world.target, frozen_from))
        with pytest.raises(TargetUnread, match="B has not answered since"):
            await sides.groups()
        assert sides.took_s <= MOST_S
        await sides.close()


async def test_a_source_that_came_back_is_asked_again() -> None:
    world = await copied_world()
    source = Frozen(world.source)
    sides = Sides(world, source)
    question = GroupsQuestion(world.settings, sides.source, sides.target, world.clock, world.log)
    assert (await question.ask()).unread
    source.is_frozen = False
    await asyncio.sleep(12)  # what it was asked while it was frozen has no answer
    await question.ask()
    told = await question.ask()
    assert not told.unread and told.reports[0].lag == 40
    await sides.close()


@pytest.mark.parametrize("frozen_from", ["", "Metadata"], ids=["the beginning", "the second question"])
async def test_an_offset_is_translated_by_the_ledger_and_what_is_not_checked_is_said(frozen_from: str) -> None:
    world = make()
    write_chunks(world.target, [chunk(Run(5, 0, 10), is_whole=True, begin=(5, 0))])
    sides = Sides(world, Frozen(world.source))
    question = OffsetsQuestion(world.settings, sides.source, sides.target, world.clock, world.log)
    _, unread, (forward,) = await question.ask(Question(("orders", 0), [6], False))
    assert sides.took_s <= MOST_S
    assert line_of(forward) == "orders-0 offset 6 -> A.orders-0 offset 1, exact (copied)"
    assert exit_of_offsets([forward], unread) == EXIT_DONE, "a failover asks when the source is gone"
    said = what_is_unchecked(unread, "A", is_reverse=False)
    assert said.startswith("not checked: whether the topic was recreated on A (A has not answered since 2")
    _, unread, (back,) = await question.ask(Question(("orders", 0), [1], True))
    assert line_of(back) == "A.orders-0 offset 1 -> orders-0 offset 6, exact (copied)"
    assert "and where its log on A starts now" in what_is_unchecked(unread, "A", is_reverse=True)
    await sides.close()


async def test_an_offset_that_only_offset_syncs_on_the_source_could_tell_has_no_answer() -> None:
    world = make()
    sides = Sides(world, Frozen(world.source))
    question = OffsetsQuestion(world.settings, sides.source, sides.target, world.clock, world.log)
    _, unread, (found,) = await question.ask(Question(("orders", 0), [7], False))
    assert found.text == "before the ledger, and the source, which has the offset syncs, does not tell"
    assert exit_of_offsets([found], unread) == EXIT_FAILED
    await sides.close()


@pytest.mark.parametrize("alias", ["A", "B"])
@pytest.mark.parametrize("frozen_from", ["", "Metadata", "ListOffsets", "Fetch"])
async def test_one_look_of_the_status_takes_three_seconds_when_a_cluster_says_nothing(
    alias: str, frozen_from: str
) -> None:
    world = await copied_world()

    def connect(_: Flow, cluster: ClusterSettings, __: float, ___: random.Random) -> Connected:
        model = world.source if cluster.alias == "A" else world.target
        is_frozen = cluster.alias == alias
        return Frozen(model, frozen_from if is_frozen else None)  # type: ignore[return-value]

    inquiry = Inquiry(
        world.file({}), connect, clock=world.clock, rng=world.rng, patience=patience_of_commands(world.clock)
    )
    begun_s = world.clock.monotonic()
    report = report_of(await inquiry.look())
    took_s = world.clock.monotonic() - begun_s
    if report.clusters[ClusterAlias(alias)]:
        assert took_s <= MOST_S, f"{took_s}"
        assert report.problems[0].kind == "unreachable"
    else:
        assert frozen_from in ("ListOffsets", "Fetch"), "it was not asked for that"
    await inquiry.close()


async def test_a_cluster_that_is_far_is_slow_and_not_silent() -> None:
    """Each answer takes 300 ms."""
    world = await copied_world()
    sides = Sides(world, Frozen(world.source, None, after_s=0.3))
    told = await sides.groups()
    assert not told.unread and told.reports[0].lag == 40
    await sides.close()


async def test_a_connection_that_takes_long_is_waited_for_as_long_as_its_steps_are_answered() -> None:
    """TLS, versions, and the log-in of a far cluster: five steps of 0.6 s. Then one stops in the middle."""

    class FarAway:
        def __init__(self, steps: int) -> None:
            self._steps = steps
            self._step_s = float("-inf")

        def step_s(self) -> float:
            return self._step_s

        async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
            for _ in range(self._steps):
                await asyncio.sleep(0.6)
                self._step_s = asyncio.get_running_loop().time()
            if self._steps < 5:
                await asyncio.Event().wait()
            return await world.source.send(broker, request, channel=channel)

    world = make()
    loop = asyncio.get_running_loop()
    for steps, is_away, took_s in ((5, False, 3.0), (2, True, 3.2), (0, True, 2.0)):
        side = InquirySide(ClusterAlias("A"), FarAway(steps), patience_of_commands(world.clock))  # type: ignore[arg-type]
        begun_s = loop.time()
        await side.probe()
        assert (bool(side.away), loop.time() - begun_s) == (is_away, pytest.approx(took_s, abs=0.1))
        await side.close()


async def test_numbers_are_those_of_a_whole_answer_while_the_source_answers() -> None:
    world = await copied_world()
    world.source.append("orders", 0, numbered(5))
    sides = Sides(world, Link(world.source, lambda *_: True))
    told = await sides.groups()
    (report,) = told.reports
    assert (told.unread, report.lag, report.partitions[0].committed) == ("", 45, 60)
    assert report.partitions[0].checkpoint_source_offset == 60
    await sides.close()


async def test_one_frozen_broker_of_three_does_not_make_its_cluster_silent() -> None:
    world = await copied_world()

    class OneFrozen(Link):
        def __init__(self) -> None:
            super().__init__(world.source, lambda *_: True)
            self.first: str | None = None

        async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
            self.first = self.first or channel
            if channel == self.first:
                await asyncio.Event().wait()
            return await super().send(broker, request, channel=channel)

    sides = Sides(world, OneFrozen())
    told = await sides.groups()
    assert (told.unread, told.reports[0].lag, sides.took_s < 1.0) == ("", 40, True)
    begun_s = world.clock.monotonic()
    await sides.source.probe()
    assert world.clock.monotonic() - begun_s < 0.4, "the broker that answered is asked first"
    await sides.close()


async def test_rest_tells_groups_and_offsets_within_three_seconds_and_then_at_once() -> None:
    world = await copied_world()
    target = Link(world.target, lambda *_: True)
    source = Frozen(world.source)
    questions = FlowQuestions(world.settings, lambda: source, lambda: target, world.clock)  # type: ignore[arg-type,return-value]
    for most_s in (MOST_S, 0.5):
        begun_s = world.clock.monotonic()
        told = await questions.groups(world.settings)
        assert told.unread.startswith("A has not answered since 2") and told.reports[0].ready
        offsets = await questions.translate(world.settings, Question(("orders", 0), [60], False))
        assert offsets.unread and offsets.reports[0].other_offset == 60
        assert world.clock.monotonic() - begun_s <= most_s
        await asyncio.sleep(10)
    await questions.close()


async def test_groups_of_a_renamed_topic_are_told_by_the_target_alone() -> None:
    """A checkpoint has the name of the copy, which does not tell the topic: the ledger does."""
    world = synced_world(**{"A->B.topics.rename": "(.*)s -> sales.$1"})
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "A.sales.order"})
        await asyncio.sleep(15)
    sides = Sides(world, Frozen(world.source))
    (report,) = (await sides.groups()).reports
    (part,) = report.partitions
    assert (report.group, report.ready, report.is_exact) == ("pay", True, True)
    assert (part.topic, part.remote_topic, part.goes_on_at) == ("orders", "A.sales.order", 60)
    assert (part.committed_on_target, part.checkpoint_source_offset) == (60, 60)
    await sides.close()

"""What ``mm2py groups`` finds out between two cluster models."""

from __future__ import annotations

import asyncio
import random

from mm2py.cli.command import as_workers_run
from mm2py.config.configuration import flow_of
from mm2py.config.settings import ClusterSettings
from mm2py.flow import Flow
from mm2py.flow_clusters import Connected
from mm2py.offsets.runs import Run
from mm2py.status.consumer_group_inquiry import ConsumerGroupInquiry
from mm2py.status.consumer_groups import ConsumerGroupReport, report_of
from mm2py.status.inquiry import Inquiry
from mm2py.status.printout import text_of
from mm2py.status.report import report_of as status_of
from tests.fakes.ledger_topic import chunk, write_chunks
from tests.scenarios.offsets.test_exact_checkpoints import emitting
from tests.scenarios.offsets.test_group_sync import synced_world
from tests.scenarios.offsets.test_offset_syncs import numbered
from tests.scenarios.settings.test_status_command import Link
from tests.scenarios.world import World


async def reports(world: World) -> dict[str, ConsumerGroupReport]:
    found = report_of(await ConsumerGroupInquiry(world.settings, world.source, world.target, world.log).look())
    return {one.group: one for one in found}


async def test_before_anything_is_copied_no_group_is_ready() -> None:
    world = synced_world()
    world.source.groups.commit("pay", {("orders", 0): (10, "")})
    world.source.groups.commit("elsewhere", {("mm2-offsets.X.internal", 0): (10, "")})
    found = await reports(world)
    assert {name: one.why for name, one in found.items()} == {"pay": "orders-0: A.orders-0 does not exist on B"}
    world.target.create_topic("A.orders", 2)
    assert (await reports(world))["pay"].why == "orders-0: nothing of it is known to be copied"


async def test_topics_that_a_group_also_reads_and_the_flow_leaves_out_are_named() -> None:
    """They were dropped without a word, and the group "could continue". Those that are gone concern nobody any more."""
    world = synced_world(**{"topics": "orders,B.*", "topics.exclude": "drafts"})
    for topic in ("payments", "drafts", "B.orders", "mm2-status.X.internal"):
        world.source.create_topic(topic, 1)
    wanted = ("orders", "payments", "drafts", "B.orders", "mm2-status.X.internal", "gone", "heartbeats")
    world.source.groups.commit("pay", {(topic, 0): (10, "") for topic in wanted})
    world.source.groups.commit("plain", {("orders", 0): (10, "")})
    world.source.groups.commit("elsewhere", {("payments", 0): (10, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(15)
        found = await reports(world)
    assert {name: (one.ready, one.left_out) for name, one in found.items()} == {
        "pay": (True, ("B.orders", "drafts", "payments")),
        "plain": (True, ()),
    }
    assert [(one.topic, one.partition) for one in found["pay"].partitions] == [("orders", 0)]


async def test_the_ledger_makes_a_group_exact_that_offset_syncs_would_let_read_records_again() -> None:
    world = synced_world(**{"emit.offset-syncs.enabled": "false"})
    world.source.groups.commit("pay", {("orders", 0): (50, "")})
    world.target.create_topic("A.orders", 2)
    world.target.append("A.orders", 0, numbered(90))
    write_chunks(world.target, [chunk(Run(10, 0, 90), is_whole=True, begin=(10, 0))])
    async with emitting(world):
        await asyncio.sleep(12)
    (found,) = (await reports(world)).values()
    assert (found.ready, found.is_exact, found.reads_again_at_most) == (True, True, 0)
    (part,) = found.partitions
    assert (part.goes_on_at, part.committed_on_target, part.basis) == (40, 40, "ledger")


async def test_a_group_of_a_remote_topic_that_was_recreated_is_neither_ready_nor_exact() -> None:
    world = synced_world()
    world.source.groups.commit("pay", {("orders", 0): (50, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(15)
    assert (await reports(world))["pay"].is_exact
    world.target.delete_topic("A.orders")
    assert (await reports(world))["pay"].why == "orders-0: A.orders-0 does not exist on B"
    world.target.create_topic("A.orders", 2)
    found = (await reports(world))["pay"]
    assert found.why == "orders-0: A.orders was recreated on B, and the ledger is of the topic before"
    assert (found.is_exact, found.reads_again_at_most) == (False, None)


async def test_groups_that_mm2py_may_not_commit_for_name_the_right_that_is_missing() -> None:
    world = synced_world()
    for group in ("locked", "hidden", "pay"):
        world.source.groups.commit(group, {("orders", 0): (100, "")})
    world.target.groups.unwritable.add("locked")
    world.target.groups.denied.add("hidden")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(15)
        found = await reports(world)
        for group in ("locked", "hidden"):
            assert not found[group].ready
            assert "GROUP_AUTHORIZATION_FAILED" in found[group].why
            assert found[group].why.endswith(f"Grant mm2py READ on group {group}.")
        assert (found["pay"].ready, found["pay"].refused) == (True, "")
        world.target.groups.unwritable.clear()
        world.target.groups.denied.clear()
        await asyncio.sleep(10)
        found = await reports(world)
    assert all(one.ready and not one.refused for one in found.values())


async def test_a_command_looks_at_a_flow_as_its_workers_run_it_and_not_as_the_file_says_by_now() -> None:
    world = synced_world(checkpoints_topic_replication_factor="1", groups="pay")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
    file = world.file({"groups": "other"})
    by_file = flow_of(file, "A->B")
    settings = await as_workers_run(file, by_file, world.target)
    assert by_file.checkpoints is not None and settings.checkpoints is not None
    for group in ("pay", "other"):
        assert by_file.checkpoints.group_filter.should_replicate(group) == (group == "other")
        assert settings.checkpoints.group_filter.should_replicate(group) == (group == "pay")
    world.target.deny("mm2-configs.A.internal")
    assert await as_workers_run(file, by_file, world.target) == by_file


async def test_the_status_of_a_flow_tells_its_groups_in_short() -> None:
    world = synced_world()
    for group in ("pay", "busy"):
        world.source.groups.commit(group, {("orders", 0): (100, "")})
    world.target.groups.activate("busy")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(15)

        def connect(_: Flow, cluster: ClusterSettings, __: float, ___: random.Random) -> Connected:
            return Link(world.source if cluster.alias == "A" else world.target, lambda *_: True)

        inquiry = Inquiry(world.file({}), connect, clock=world.clock, rng=world.rng)
        report = status_of(await inquiry.look())
    assert report.is_well
    groups = report.flows[0].consumer_groups
    assert groups is not None
    assert (groups.count, groups.ready, groups.is_synced, groups.reads_again_at_most) == (2, 1, True, 0)
    text = text_of(report)
    assert "consumer groups: 2, 1 ready to go on on B" in text
    assert "not ready: busy: it has members on the target (Stable)" in text

"""``mm2py plan``: what it says before each kind of change, that a worker then does it, and that it changes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from mm2py.cli.plan import Connected, plan_of_file, saved_plan
from mm2py.config.settings import ClusterSettings
from mm2py.flow import Flow
from mm2py.flow_plan.plan_file import differences
from mm2py.flow_plan.plan_text import lines_of
from mm2py.flow_plan.planned import PlannedFlow, PlannedTopic, changes_anything, is_complete
from mm2py.kafka import messages
from mm2py.kafka.errors import BrokerUnreachable
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.topics.acls import Permission
from tests.fakes.broker.broker_model import ClusterModel
from tests.scenarios.gate import Request
from tests.scenarios.sync_world import EVERY_MINUTE, IDENTITY, acl
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=3600)

INTERNAL = {"mm2-configs.A.internal", "mm2-offsets.A.internal", "mm2-ledger.A.internal", "mm2-status.A.internal"}
ALL_INTERNAL = {
    *INTERNAL,
    "heartbeats",
    "mm2-offset-syncs.B.internal",
    "mm2-cluster.mm2py.internal",
    "mm2-flight.A.internal",
}


THROTTLED = ErrorCode.throttling_quota_exceeded


class Line:
    """A connection of the command to a cluster; ``is_dead``: it does not answer; ``is_throttled``: a quota of the
    controller is used up."""

    def __init__(self, cluster: Brokers, *, is_dead: bool, is_throttled: bool) -> None:
        self._cluster = cluster
        self._is_dead = is_dead
        self._is_throttled = is_throttled

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> Any:
        if self._is_dead:
            raise BrokerUnreachable("b:1", "connection refused")
        reply = await self._cluster.send(broker, request, channel=channel)
        if self._is_throttled and isinstance(reply, messages.CreateTopicsResponse):
            return replace(reply, topics=tuple(replace(one, error_code=THROTTLED) for one in reply.topics))
        if self._is_throttled and isinstance(reply, messages.CreatePartitionsResponse):
            return replace(reply, results=tuple(replace(one, error_code=THROTTLED) for one in reply.results))
        return reply

    def round_trip_s(self, broker: BrokerId) -> float | None:
        return self._cluster.round_trip_s(broker)

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        self._cluster.close_channel(broker, channel)

    async def close(self) -> None:
        pass


def state_of(cluster: ClusterModel) -> Mapping[str, object]:
    """Return all that a plan might change."""
    return {
        "topics": {
            name: (
                topic.id,
                len(topic.partitions),
                dict(topic.overrides),
                [len(cluster.records(name, number)) for number in range(len(topic.partitions))],
            )
            for name, topic in cluster.topics.items()
        },
        "acls": None if cluster.acls is None else set(cluster.acls),
    }


async def plan(
    world: World, extra: Mapping[str, str] | None = None, *, dead: str = "", throttled: str = ""
) -> list[PlannedFlow]:
    """Make the plan of a file, and see that it changes nothing when no worker does."""

    def connect(flow: Flow, cluster: ClusterSettings, timeout_s: float, rng: random.Random) -> Connected:
        brokers = world.target if cluster.alias == "B" else world.source
        alias = cluster.alias
        return cast("Connected", Line(brokers, is_dead=alias == dead, is_throttled=alias == throttled))

    before = [state_of(cluster) for cluster in (world.source, world.target)]
    found = await plan_of_file(world.file(extra or {}), connect, world.clock)
    if not world.processes:
        assert [state_of(cluster) for cluster in (world.source, world.target)] == before
    return found


async def plan_one(world: World, extra: Mapping[str, str] | None = None, **how: Any) -> PlannedFlow:
    (found,) = await plan(world, extra, **how)
    return found


def a_world(*topics: str, partitions: int = 1, **extra: str) -> World:
    world = World(11, extra={**EVERY_MINUTE, "topics": "orders.*", "refresh.topics.interval.seconds": "5", **extra})
    for topic in topics:
        world.source.create_topic(topic, partitions)
    return world


async def test_a_first_start_is_planned_and_then_done_and_then_there_is_nothing_to_do() -> None:
    world = a_world("orders", "other", partitions=3)
    world.source.configure_topic("orders", {"retention.ms": "7200000", "min.insync.replicas": "1"})
    found = await plan_one(world)
    assert found.is_known and found.changes
    assert found.starts == ("MirrorSourceConnector",) and not found.runs
    assert found.stores_settings and found.settings_stored is None
    assert "topics: (default) -> 'orders.*'" in [one.text for one in found.settings]
    assert found.creates == (PlannedTopic("orders", "A.orders", 3, 1, {"retention.ms": "7200000"}),)
    assert {one.name for one in found.internal} == ALL_INTERNAL
    assert (found.topics, found.left_out) == (1, {"not included": 1})
    assert not (found.refusals or found.widens or found.configs or found.acls or found.notes)
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(10)
        made = world.target.topics["A.orders"]
        assert (len(made.partitions), made.overrides) == (3, {"retention.ms": "7200000"})
        for one in found.internal:
            topic = (world.source if one.cluster == "A" else world.target).topics[one.name]
            assert len(topic.partitions) == one.partitions, one.name
            assert {name: topic.overrides.get(name) for name in one.configs} == one.configs, one.name
        found = await plan_one(world)
        assert found.is_known and not found.changes, lines_of(found)
        assert found.runs == ("MirrorSourceConnector",)
        assert lines_of(found)[-1] == "  nothing to do"


async def test_what_changes_on_the_source_while_a_worker_runs_is_planned_until_it_has_followed() -> None:
    slow = {"topics.watch.interval.ms": "60000", "sync.topic.configs.interval.seconds": "600"}
    world = a_world("orders", partitions=2, **slow)
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(10)
        world.source.create_topic("orders-new", 4)
        world.source.add_partitions("orders", 5)
        world.source.configure_topic("orders", {"retention.ms": "5"})
        found = await plan_one(world)
        assert [(one.remote, one.partitions) for one in found.creates] == [("A.orders-new", 4)]
        assert [(one.remote, one.has, one.wants) for one in found.widens] == [("A.orders", 2, 5)]
        assert [(one.remote, one.setting, one.old, one.new) for one in found.configs] == [
            ("A.orders", "retention.ms", None, "5")
        ]
        assert not found.starts and not found.stores_settings
        assert len(world.target.topics["A.orders"].partitions) == 2 and "A.orders-new" not in world.target.topics
        await asyncio.sleep(700)
        assert not (await plan_one(world)).changes


async def test_a_setting_that_the_file_changes_is_planned_with_what_it_does_to_topics() -> None:
    world = a_world("orders", "orders-b", "payments")
    async with world.worker():
        await world.copied({"orders": "A.orders", "orders-b": "A.orders-b"})
        await asyncio.sleep(10)
        found = await plan_one(world, {"topics": "orders,payments"})
        assert [one.text for one in found.settings] == ["topics: 'orders.*' -> 'orders,payments'"]
        assert found.stores_settings and found.settings_stored == 1 and not found.starts
        assert [one.topic for one in found.creates] == ["payments"]
        assert found.stops == ("orders-b",)


async def test_a_remote_topic_with_records_of_others_is_refused_and_an_empty_one_begins() -> None:
    world = a_world("orders", "orders-b")
    world.target.create_topic("A.orders", 1)
    world.target.append("A.orders", 0, [b"of someone else"])
    world.target.create_topic("A.orders-b", 1)
    found = await plan_one(world)
    (refusal,) = found.refusals
    assert refusal.topic == "orders" and "A.orders on B is not empty there" in refusal.why and refusal.remedy
    assert found.begins == ("orders-b",) and not found.creates
    assert found.topics == 1


async def test_entries_of_topics_that_match_nothing_are_named() -> None:
    found = await plan_one(a_world("orders"), {"topics": "orders,ordres,pay.*"})
    assert found.notes == (
        "topics names ordres, and A does not show it: it does not exist, or mm2py may not describe it.",
        "Pattern pay.* of topics matches no topic that A shows.",
    )


async def test_a_remote_topic_that_is_deleted_and_one_that_is_recreated_are_told() -> None:
    world = a_world("orders", "orders-b")
    world.source.append("orders", 0, [b"1"])
    async with world.worker():
        await world.copied({"orders": "A.orders", "orders-b": "A.orders-b"})
        await asyncio.sleep(10)
    world.target.recreate_topic("A.orders")
    (refusal,) = (await plan_one(world)).refusals
    assert refusal.topic == "orders" and "A.orders on B was deleted and recreated" in refusal.why
    found = await plan_one(world, {"on.target.loss": "recopy"})
    assert not found.refusals and found.notes == (
        "orders: it would be copied once more from its start, because a policy says so.",
    )
    world.target.delete_topic("A.orders-b")
    found = await plan_one(world)
    assert [one.remote for one in found.creates] == ["A.orders-b"]
    assert [one.topic for one in found.refusals] == ["orders", "orders-b"]
    async with world.worker() as herder:
        await asyncio.sleep(300)  # the session of the first worker has expired by then
        (status,) = (one for one in herder.status() if one.refused)
        assert {name: str(error) for name, error in status.refused.items()}.keys() == {"orders", "orders-b"}


async def test_more_replicas_than_brokers_are_refused_for_topics_and_for_those_of_mm2py() -> None:
    world = a_world("orders", **{"replication.factor": "3", "status.storage.replication.factor": "3"})
    found = await plan_one(world)
    refused = {one.topic: one.remedy for one in found.refusals}
    assert set(refused) == {"orders", "mm2-status.A.internal", "mm2-flight.A.internal"}
    assert "Set replication.factor (3) to what B can hold." in refused["orders"]
    assert "status.storage.replication.factor (3)" in refused["mm2-status.A.internal"]
    assert not found.creates and "mm2-status.A.internal" not in {one.name for one in found.internal}


async def test_a_topic_of_mm2pys_own_that_would_lose_what_it_keeps_is_told() -> None:
    world = a_world("orders")
    world.target.create_topic("mm2-offsets.A.internal", 3, {"cleanup.policy": "delete"})
    world.target.create_topic("heartbeats", 1, {"cleanup.policy": "delete"})
    (refusal,) = (await plan_one(world)).refusals
    assert refusal.topic == "mm2-offsets.A.internal" and "cleanup.policy=delete" in refusal.why
    assert refusal.remedy == "Set cleanup.policy=compact on it."


async def test_a_limit_of_partitions_refuses_what_does_not_fit() -> None:
    world = a_world("orders", "orders-b", partitions=3, **{"remote.partitions.max": "4"})
    found = await plan_one(world)
    assert [one.topic for one in found.creates] == ["orders"]
    (refusal,) = found.refusals
    assert refusal.topic == "orders-b" and "remote.partitions.max=4" in refusal.why


async def test_acls_are_counted_and_named_and_a_dry_run_is_no_change() -> None:
    world = a_world("orders")
    world.source.acls = {acl("orders"), acl("orders", permission=Permission.DENY, principal="User:joe"), acl("other")}
    world.target.acls = set()
    found = await plan_one(world)
    assert found.acls == (
        "DENY READ on LITERAL A.orders for User:joe from *",
        "ALLOW READ on LITERAL A.orders for User:jane from *",
    )
    dry = replace(await plan_one(world, {"sync.topic.acls.dry.run": "true"}), starts=(), stores_settings=False)
    assert dry.acls_only_logged and dry.acls
    assert not replace(dry, creates=(), internal=()).changes


@pytest.mark.parametrize(("dead", "is_planned"), [("A", True), ("B", False)])
async def test_a_cluster_that_does_not_answer_leaves_the_rest_of_the_plan(dead: str, is_planned: bool) -> None:
    world = a_world("orders")
    found = await plan_one(world, dead=dead)
    assert not found.is_known and len(found.unread) == 1 and "connection refused" in found.unread[0]
    assert bool(found.settings) is is_planned


async def test_what_a_target_does_not_try_because_of_a_quota_is_not_known() -> None:
    """The target refused the trials for now: the plan had a note, or nothing, and said that there is nothing to do."""
    slow = {"topics.watch.interval.ms": "60000", "sync.topic.configs.interval.seconds": "600"}
    world = a_world("orders", partitions=2, **slow)
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(10)
        world.source.create_topic("orders-new", 4)
        found = await plan_one(world, throttled="B")
        assert not found.is_known and not found.creates
        assert found.unread == (
            "Whether B would create the remote topics of orders-new: it did not say, for example because of a quota.",
        )
        world.source.add_partitions("orders", 5)
        found = await plan_one(world, throttled="B")
        assert "Whether B would add partitions to A.orders: it did not say, for example because of a quota." in (
            found.unread
        )
        assert (await plan_one(world)).is_known


async def test_two_flows_into_one_remote_topic_are_told_by_the_plan_of_the_second() -> None:
    world = World(3, extra={**EVERY_MINUTE, **IDENTITY, "topics": "orders"})
    world.source.create_topic("orders", 1)
    lines = {"clusters": "A,C,B", "C.bootstrap.servers": "a:1", "C->B.enabled": "true"}
    first, second = await plan(world, lines)
    assert [one.remote for one in first.creates] == ["orders"]
    assert second.flow == "C->B" and [one.topic for one in second.refusals] == ["orders"]
    assert "A->B also leads into orders" in second.refusals[0].why


async def test_a_flow_whose_source_is_its_target_is_refused() -> None:
    world = a_world("orders")
    world.source = world.target
    found = await plan_one(world)
    assert "are the same cluster" in found.refused and not found.is_known


async def test_a_flow_of_another_group_is_refused() -> None:
    world = a_world("orders")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        found = await plan_one(world, {"mm2py.group": "laptop"})
        assert "group mm2py runs it" in found.refused


async def test_a_plan_is_stale_when_what_it_rests_on_has_changed(tmp_path: Path) -> None:
    world = a_world("orders")
    file = world.file({})
    saved = saved_plan(file, await plan(world))
    assert differences(saved, saved_plan(file, await plan(world))) == []
    world.source.create_topic("orders-b", 2)
    told = "\n".join(differences(saved, saved_plan(file, await plan(world))))
    assert "A->B: +       A.orders-b (2 partitions, 1 replica)" in told
    assert "A->B: changed since the plan was made: topics of the source" in told
    world.source.delete_topic("orders-b")
    assert differences(saved, saved_plan(file, await plan(world))) == []
    changed = world.file({"topics": "orders"})
    told = "\n".join(differences(saved, saved_plan(changed, await plan(world, {"topics": "orders"}))))
    assert "A->B: its settings in the file have changed" in told
    assert changes_anything(saved.flows) and is_complete(saved.flows)

"""Two files with other aliases for the same two clusters, and flows in opposite directions: nothing comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mm2py.config.configuration import SettingsFile
from mm2py.config.properties import Properties, PropertyEntry
from mm2py.copying.positions import operators_position
from mm2py.flow import ClusterAlias, Kind
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import BrokerId, Brokers, FetchRequest
from mm2py.records.operator_request import TargetState
from mm2py.records.source_offset import SourcePartition, encode_key, encode_value, partition_for
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.status.inquiry import Inquiry
from mm2py.status.report import Report, report_of
from mm2py.topics.names import is_own_topic
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.config_world import log_of
from tests.scenarios.gate import Request
from tests.scenarios.process import Process, Wire
from tests.scenarios.settings.test_status_command import Link
from tests.scenarios.standstills import standstills
from tests.scenarios.world import World
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

LINES = {
    "offset.storage.partitions": "3",
    "offset.flush.interval.ms": "1000",
    "refresh.topics.interval.seconds": "5",
    "emit.checkpoints.enabled": "false",
}
IDENTITY = {"replication.policy.class": "IdentityReplicationPolicy"}


Through = Callable[[Wire], Brokers]


class NotToRead(NearBrokers):
    """Connections that refuse reads of one topic of one cluster."""

    def __init__(self, wire: Any, cluster: str, topic: str, code: int = TOPIC_AUTHORIZATION_FAILED) -> None:
        self.is_away = True
        self._wire = wire
        self._cluster = cluster
        self._topic = topic
        self._code = code

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> Any:
        names = [topic.name for topic in request.topics] if isinstance(request, FetchRequest) else []
        if self.is_away and self._wire.name == self._cluster and self._topic in names:
            raise BrokerRefused(f"Reading {self._topic}", self._code)
        return await self._wire.send(broker, request, channel=channel)


class Away:
    """A topic that has no leader while ``is_away``."""

    def __init__(self, cluster: str, topic: str) -> None:
        self._place = cluster, topic
        self._made: list[NotToRead] = []
        self._is_away = False

    @property
    def is_away(self) -> bool:
        return self._is_away

    @is_away.setter
    def is_away(self, value: bool) -> None:
        self._is_away = value
        for one in self._made:
            one.is_away = value

    def through(self, wire: Wire) -> Brokers:
        made = NotToRead(wire, *self._place, LEADER_NOT_AVAILABLE)
        made.is_away = self._is_away
        self._made.append(made)
        return made


class Ring(World):
    """Clusters A and B, and flows that call them otherwise."""

    def flow(
        self, source: str, target: str, *, back: bool = False, through: Through = lambda wire: wire, **extra: str
    ) -> Process:
        """Start a worker of a file with one flow, from A to B or back, in a group of its own."""
        clusters: dict[str, ClusterModel] = dict(zip((source, target), (self.source, self.target), strict=True))
        if back:
            clusters = {source: self.target, target: self.source}
        lines = {
            "clusters": f"{source},{target}",
            f"{source}.bootstrap.servers": f"{source}:1",
            f"{target}.bootstrap.servers": f"{target}:1",
            f"{source}->{target}.enabled": "true",
            "mm2py.group": f"group-{source}",
            **LINES,
            **extra,
        }
        entries = {key: PropertyEntry(value, key, number) for number, (key, value) in enumerate(lines.items(), 1)}
        file = SettingsFile(Path("mm2.properties"), Properties(entries), ())
        process = Process(self, len(self.processes) + 1, file, clusters, through=through)
        self.processes.append(process)
        return process

    async def report(self, process: Process) -> Report:
        """Return what ``mm2py status`` says to a worker's file."""
        inquiry = Inquiry(
            process.file,
            lambda _, cluster, __, ___: Link(process.clusters[cluster.alias], lambda *_: True),
            clock=self.clock,
            rng=random.Random(1),
        )
        report = report_of(await inquiry.look())
        await inquiry.close()
        return report

    async def owner(self, alias: str) -> str:
        """Return which source cluster the owner of a flow into B names."""
        table = ConfigTable(self.target, f"mm2-configs.{alias}.internal")
        await table.read_patiently(random.Random(1))
        assert table.records.owner.current is not None
        return table.records.owner.current.source_cluster

    async def ask(self, back: Process, state: TargetState) -> None:
        """Pause a flow into A, or let it go on, as an operator."""
        (settings,) = back.file.configuration().flows
        name = f"operator-{self.rng.random()}"
        await (await log_of(self, name, lambda _: self.source, settings.flow)).write_target(
            Kind.SOURCE, state, by="ann"
        )

    def put_position(self, alias: str, topic: str, offset: int) -> None:
        """Set where a flow into A goes on, as REST does for a stopped connector."""
        partition = SourcePartition(alias, topic, 0)
        value = encode_value(
            operators_position(
                offset,
                source_cluster=self.target.cluster_id,
                source_topic_id=self.target.topics[topic].id,
                target_topic_id=None,
            )
        )
        offsets = f"mm2-offsets.{alias}.internal"
        self.source.append(offsets, partition_for(partition, 3), [Record(value, encode_key(partition))])

    def make(self, cluster: ClusterModel, topic: str, *values: str) -> None:
        if topic not in cluster.topics:
            cluster.create_topic(topic, 1)
        for value in values:
            cluster.append(topic, 0, [Record(value=value.encode())])

    def topics(self, cluster: ClusterModel) -> set[str]:
        aliases = {alias for process in self.processes for alias in process.clusters}
        return {name for name in cluster.topics if not is_own_topic(name, aliases=aliases)}

    async def until(self, reached: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(120):
                while not reached():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(self.log_text.getvalue()[-6000:]) from None


def values(cluster: ClusterModel, topic: str) -> list[str]:
    if topic not in cluster.topics:
        return []
    return [(record.value or b"").decode() for record in cluster.records(topic, 0)]


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_ring_of_two_files_ends_where_it_began_and_both_sides_name_it(at_once: bool) -> None:
    """The story: two teams mirror the same two clusters, each in one direction, with aliases of their own. No flow
    found the other one's alias of its target in a name, and the topics grew by one a second on each cluster."""
    world = Ring(1)
    world.make(world.source, "orders", "o1", "o2")
    world.make(world.target, "payments", "p1", "p2")
    there = world.flow("a", "B2")
    if not at_once:
        await world.until(lambda: values(world.target, "a.orders") == ["o1", "o2"])
    back = world.flow("y", "x", back=True)
    await world.until(lambda: values(world.target, "a.orders") == ["o1", "o2"])
    await world.until(lambda: values(world.source, "y.payments") == ["p1", "p2"])
    await asyncio.sleep(60)
    world.make(world.source, "orders", "o3")
    world.make(world.source, "refunds", "r1")
    await world.until(lambda: values(world.target, "a.refunds") == ["r1"])
    await asyncio.sleep(20)
    beats = {"heartbeats"}
    assert world.topics(world.target) == {"payments", "a.orders", "a.refunds", "a.heartbeats"} | beats
    assert world.topics(world.source) == {"orders", "refunds", "y.payments", "y.heartbeats"} | beats
    assert values(world.target, "a.orders") == ["o1", "o2", "o3"]
    assert values(world.source, "y.payments") == ["p1", "p2"]
    for process, other in ((there, "Flow y->x of group group-y"), (back, "Flow a->B2 of group group-a")):
        (found,) = process.said("ring.found")
        assert found["why"].startswith(f"{other} leads back, from ")
        assert not process.said("topic.refused")

    report = await world.report(back)
    assert report.problems == ()
    (flow,) = report.flows
    assert [(str(one.reason), one.is_problem) for one in flow.not_copied] == [("ring", False)]
    assert flow.not_copied[0].why.startswith("Flow a->B2 of group group-a leads back, from x into y")
    left_out = {one.topic: one for one in flow.topics if one.not_copied}
    assert left_out.keys() == {"a.orders", "a.refunds", "a.heartbeats"}
    for one in left_out.values():
        assert [str(reason.reason) for reason in one.not_copied] == ["ring"] and one.lag is None
        assert one.not_copied[0].why == "Flow a->B2 of group group-a has made it from a topic of x."


async def test_what_a_ring_leaves_out_is_no_lag_of_the_flow_while_it_is_paused_or_does_not_run() -> None:
    """A paused worker drains, and deleted what it had stored. Copies of the other flow were then counted as lag."""
    world = Ring(1)
    world.make(world.source, "orders", "o1", "o2", "o3")
    world.make(world.target, "payments", "p1", "p2")
    world.flow("a", "B2")
    back = world.flow("y", "x", back=True)
    await world.until(lambda: values(world.target, "a.orders") == ["o1", "o2", "o3"])
    await world.until(lambda: values(world.source, "y.payments") == ["p1", "p2"])
    await asyncio.sleep(60)
    await world.ask(back, TargetState.PAUSED)
    await asyncio.sleep(10)
    assert {one.state for one in back.herder.status()} == {"paused"}
    world.make(world.target, "payments", "p3")
    for _ in range(2):
        report = await world.report(back)
        (flow,) = report.flows
        topics = {topic.topic: ([str(one.reason) for one in topic.not_copied], topic.lag) for topic in flow.topics}
        assert topics["a.orders"] == (["ring"], None)
        assert topics["payments"] == (["held"], 1)
        assert {topic for topic, (why, _) in topics.items() if why != ["held"]} == {"a.orders", "a.heartbeats"}
        assert flow.lag == sum(lag for why, lag in topics.values() if why == ["held"] and lag is not None)
        assert report.summary.startswith("nothing is copied: y->x (paused since ") or not back.is_up, report.summary
        assert f" by ann; lag {flow.lag})" in report.summary
        back.herder.stop()
        await asyncio.sleep(10)
    back = world.flow("y", "x", back=True)
    await asyncio.sleep(10)
    await world.ask(back, TargetState.STARTED)
    await world.until(lambda: values(world.source, "y.payments") == ["p1", "p2", "p3"])
    await asyncio.sleep(60)
    stored = {one.member for one in standstills(world.source, "mm2-status.y.internal")}
    member = back.herder.groups[ClusterAlias("x")].member
    assert member is not None and stored == {member.id}, "what the worker before had left is deleted"
    assert (await world.report(back)).problems == ()


async def test_files_with_the_same_aliases_see_the_ring_in_names_and_it_is_not_named() -> None:
    world = Ring(1)
    world.make(world.source, "orders", "o1")
    world.make(world.target, "payments", "p1")
    flows = world.flow("a", "b"), world.flow("b", "a", back=True)
    await world.until(lambda: values(world.target, "a.orders") == ["o1"])
    await world.until(lambda: values(world.source, "b.payments") == ["p1"])
    await asyncio.sleep(40)
    assert world.topics(world.target) == {"payments", "a.orders", "heartbeats", "a.heartbeats"}
    assert not any(flow.said("ring.found") for flow in flows)


async def test_a_flow_of_an_earlier_version_is_known_by_its_positions() -> None:
    """Its owner does not name the source cluster. A worker of this version adds that.

    Another cluster may have had the alias before: what came from there is copied on.
    """
    world = Ring(1)
    world.make(world.source, "orders", "o1")
    world.make(world.target, "payments", "p1")
    world.make(world.target, "a.invoices", "i1")
    old = world.flow("a", "b")
    schedule: Any = old.herder.connectors[0].plan.schedule
    schedule._watch._owner._source_id = lambda: None
    await world.until(lambda: values(world.target, "a.orders") == ["o1"])
    await asyncio.sleep(2)  # its position is stored
    back = world.flow("y", "x", back=True)
    await world.until(lambda: values(world.source, "y.payments") == ["p1"])
    await world.until(lambda: values(world.source, "y.a.invoices") == ["i1"])
    await asyncio.sleep(10)
    assert "y.a.orders" not in world.source.topics and back.said("ring.found")
    assert await world.owner("a") == ""
    assert await old.stop() == 0
    world.flow("a", "b")
    await asyncio.sleep(10)
    assert await world.owner("a") == world.source.cluster_id


async def test_a_topic_that_was_copied_already_stops_and_is_named_and_nothing_is_deleted() -> None:
    world = Ring(1)
    world.make(world.target, "a.orders", "o1")
    back = world.flow("y", "x", back=True)
    await world.until(lambda: values(world.source, "y.a.orders") == ["o1"])
    world.flow("a", "b", topics="refunds")
    await world.until(lambda: bool(back.said("ring.found")))
    await world.until(lambda: bool(back.said("topics.deselected")))
    world.make(world.target, "a.orders", "o2")
    await asyncio.sleep(20)
    assert values(world.source, "y.a.orders") == ["o1"]


async def test_a_flow_whose_records_may_not_be_read_is_named_once_with_the_right_to_grant() -> None:
    world = Ring(1)
    world.make(world.source, "orders", "o1")
    world.make(world.target, "payments", "p1")
    back = world.flow("y", "x", back=True, through=lambda wire: NotToRead(wire, "B", "mm2-configs.a.internal"))
    world.flow("a", "b", topics="orders")
    await world.until(lambda: bool(back.said("ring.unknown")))
    await asyncio.sleep(60)
    (unknown,) = back.said("ring.unknown")
    assert "the flow from a into y leads back" in unknown["why"]
    assert unknown["remedy"] == "Grant DESCRIBE and READ on mm2-configs.a.internal on y."
    (told,) = (await world.report(back)).flows[0].not_copied
    assert (str(told.reason), told.is_problem, told.remedy) == ("ring", False, unknown["remedy"])
    assert values(world.source, "y.payments") == ["p1"]


async def test_records_that_cannot_be_read_for_a_moment_delay_new_topics_and_those_that_are_copied_go_on() -> None:
    world = Ring(1)
    world.make(world.target, "payments", "p1")
    away = Away("B", "mm2-configs.a.internal")
    world.flow("y", "x", back=True, through=away.through)
    await world.until(lambda: values(world.source, "y.payments") == ["p1"])
    away.is_away = True
    world.make(world.source, "orders", "o1")
    world.flow("a", "b", topics="orders")
    await world.until(lambda: values(world.target, "a.orders") == ["o1"])
    world.make(world.target, "payments", "p2")
    await world.until(lambda: values(world.source, "y.payments") == ["p1", "p2"])
    await asyncio.sleep(5)
    away.is_away = False
    await asyncio.sleep(20)
    assert "y.a.orders" not in world.source.topics


async def test_under_the_identity_policy_the_way_back_is_refused_until_it_begins_behind_what_came_from_there() -> None:
    """A failover and the way back: the reverse flow begins at the end of what the first one has brought, when that has
    ended. The first one, started again, is refused by the same rule."""
    world = Ring(1)
    world.make(world.source, "orders", "o1", "o2")
    there = world.flow("a", "b", **IDENTITY)
    await world.until(lambda: values(world.target, "orders") == ["o1", "o2"])
    await asyncio.sleep(2)
    back = world.flow("y", "x", back=True, **IDENTITY)
    await world.until(lambda: bool(back.said("topic.refused")))
    (refused,) = back.said("topic.refused")
    assert "flow a->b of group group-a copies it from x to y under the same name" in refused["why"]
    assert "stop the workers of flow a->b of group group-a. Then: Go on behind what is there" in refused["why"]
    assert "mm2py translate OTHER.properties 'a->b' --topic orders --partition 0 --offset END answers" in refused["why"]
    await world.until(lambda: bool(there.said("ring.found")))
    world.make(world.source, "orders", "o3")
    await world.until(lambda: values(world.target, "orders") == ["o1", "o2", "o3"])
    assert await back.stop() == 0

    world.put_position("y", "orders", 3)
    back = world.flow("y", "x", back=True, **IDENTITY)
    await world.until(lambda: bool(back.said("topic.refused")))
    assert "its workers run (w1). Stop them; it is looked at again." in back.said("topic.refused")[0]["why"]
    assert await there.stop() == 0
    world.make(world.target, "orders", "n1")
    await world.until(lambda: values(world.source, "orders") == ["o1", "o2", "o3", "n1"])
    assert back.said("topic.accepted")

    there = world.flow("a", "b", **IDENTITY)
    await world.until(lambda: bool(there.said("topic.refused")))
    assert "flow y->x of group group-y copies it from b to a" in there.said("topic.refused")[0]["why"]
    world.make(world.target, "orders", "n2")
    await world.until(lambda: values(world.source, "orders")[3:] == ["n1", "n2"])
    await asyncio.sleep(60)
    assert values(world.source, "orders") == values(world.target, "orders") == ["o1", "o2", "o3", "n1", "n2"]


async def test_the_worker_of_the_way_back_does_not_stand_in_its_own_way_with_the_heartbeats_of_the_first_flow() -> None:
    """The story: the one file of the operator has both directions, ``a->b.enabled=false`` and ``b->a.enabled=true``. As
    in MirrorMaker 2, a flow that is switched off emits heartbeats. So the worker of the way back was a member that runs
    the first flow, and each topic was refused with the advice to stop it."""
    world = Ring(1)
    world.make(world.source, "orders", "o1", "o2")
    group = {"mm2py.group": "g"}
    there = world.flow("a", "b", **IDENTITY, **group)
    await world.until(lambda: values(world.target, "orders") == ["o1", "o2"])
    await asyncio.sleep(2)
    assert await there.stop() == 0
    back = world.flow("b", "a", back=True, **IDENTITY, **group, **{"a->b.enabled": "false"})
    await world.until(lambda: bool(back.said("topic.refused")))
    assert ", and its workers run" not in back.said("topic.refused")[0]["why"]
    world.put_position("b", "orders", 2)
    assert await back.stop() == 0
    world.make(world.target, "orders", "n1")
    back = world.flow("b", "a", back=True, **IDENTITY, **group, **{"a->b.enabled": "false"})
    await world.until(lambda: values(world.source, "orders") == ["o1", "o2", "n1"])
    assert not back.said("topic.refused")


async def test_under_the_identity_policy_both_flows_refuse_what_both_select_and_none_has_begun() -> None:
    world = Ring(1)
    world.make(world.source, "orders", "o1")
    world.make(world.target, "orders")
    for cluster in (world.source, world.target):
        world.make(cluster, "far-orders", "f1")
    flows = [world.flow("a", "b", **IDENTITY), world.flow("y", "x", back=True, **IDENTITY)]
    await world.until(lambda: any(flow.said("topic.refused") for flow in flows))
    await asyncio.sleep(60)
    assert len(values(world.source, "orders")) + len(values(world.target, "orders")) in {1, 2}
    assert set(values(world.target, "orders")) <= {"o1"}
    assert world.topics(world.source) | world.topics(world.target) <= {
        *("orders", "far-orders", "heartbeats", "a.heartbeats", "y.heartbeats")
    }
    assert all(flow.said("ring.found") for flow in flows)


async def test_identity_flows_whose_topics_begin_differently_are_no_ring() -> None:
    world = Ring(1)
    world.make(world.source, "orders", "o1")
    world.make(world.target, "payments", "p1")
    there = world.flow("a", "b", topics="orders.*", **IDENTITY)
    back = world.flow("y", "x", back=True, topics="payments.*", **IDENTITY)
    await world.until(lambda: values(world.target, "orders") == ["o1"])
    await world.until(lambda: values(world.source, "payments") == ["p1"])
    await asyncio.sleep(20)
    assert not any(flow.said("ring.found") or flow.said("topic.refused") for flow in (there, back))

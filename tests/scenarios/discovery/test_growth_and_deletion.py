"""The copy of a topic that grows, is deleted or is recreated, while mm2py runs and while it does not."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings
from mm2py.copying.planning.steps import TargetRules
from mm2py.copying.positions import Position
from mm2py.kafka.cluster import PartitionMetadata, TopicMetadata
from mm2py.kafka.port import ProducerIdentity
from mm2py_connectors.source.discovery.remote_topics import Vanished
from tests.fakes.broker.broker_model import ClusterModel, Record
from tests.fakes.broker.partition_model import NO_LEADER
from tests.fakes.shell import DeafShell
from tests.scenarios.world import World

MINUTE_S, HOUR_S = 60.0, 3600.0
pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)
LATEST = {"A.consumer.auto.offset.reset": "latest"}
NONE = {"A.consumer.auto.offset.reset": "none"}


def lines(world: World, event: str) -> list[str]:
    return [line for line in world.log_text.getvalue().splitlines() if re.search(rf" {event}( |$)", line)]


async def until(condition: Callable[[], bool], *, deadline_s: float = 2 * MINUTE_S) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.1)


def values(cluster: ClusterModel, topic: str, partition: int) -> list[bytes | None]:
    if topic not in cluster.topics or partition >= len(cluster.topics[topic].partitions):
        return []
    return [record.value for record in cluster.records(topic, partition)]


# ---- new topics


async def test_a_new_topic_starts_as_soon_as_its_remote_partitions_have_leaders() -> None:
    """The story: each new topic, and so each start, took a quarter of a second longer than needed."""
    world = World(3)
    for node in world.target.nodes.values():
        node.metadata_lag_s = 0.0
    create = world.target.create_topic

    def create_without_leaders(name: str, *arguments: Any, **keywords: Any) -> uuid.UUID:
        topic_id = create(name, *arguments, **keywords)
        if name == "A.orders":
            for partition in world.target.topics[name].partitions:
                leader, isr = partition.leader, list(partition.isr)
                partition.elect(NO_LEADER, isr, now_s=world.clock.monotonic())
                elect = functools.partial(partition.elect, leader, isr)
                world.target.later(0.01, lambda elect=elect: elect(now_s=world.clock.monotonic()))
        return topic_id

    world.target.create_topic = create_without_leaders  # type: ignore[method-assign]
    async with world.worker():
        await until(lambda: bool(lines(world, "flow.ready")))
        world.source.create_topic("orders", 4)
        world.source.append("orders", 0, [b"first"])
        async with asyncio.timeout(10.0):
            while "A.orders" not in world.target.topics:
                await asyncio.sleep(0.01)
        await world.copied({"orders": "A.orders"}, deadline_s=0.3)


# ---- growth


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
@pytest.mark.parametrize("extra", [{}, LATEST], ids=["earliest", "latest"])
async def test_added_partitions_are_copied_from_their_first_record(extra: dict[str, str], down: bool) -> None:
    """Under ``latest`` too: all records of a new partition were written after the topic was known."""
    world = World(3, extra=extra)
    world.source.create_topic("orders", 2)
    world.source.append("orders", 0, [b"old"])

    def grow() -> None:
        world.source.add_partitions("orders", 4)
        for number in range(4):
            world.source.append("orders", number, [b"new %d" % number])

    async with world.worker() as herder:
        await until(lambda: len(lines(world, "topics.copying")) == 1)
        await asyncio.sleep(5)
        if down:
            await world.stop(herder)
        else:
            grow()
            await world.copied({"orders": "A.orders"})
    if down:
        grow()
        async with world.worker():
            await world.copied({"orders": "A.orders"})
    assert [values(world.target, "A.orders", number) for number in range(4)] == [
        [b"new 0"] if extra else [b"old", b"new 0"],
        [b"new 1"],
        [b"new 2"],
        [b"new 3"],
    ]


async def test_under_reset_none_a_known_topic_grows_without_a_question() -> None:
    world = World(3)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"0"])
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        await world.stop(herder)
    world.rewrite_file(NONE)
    world.source.add_partitions("orders", 2)
    world.source.append("orders", 1, [b"1"])
    world.source.create_topic("unknown", 1)
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        (line,) = lines(world, "topic.refused")
        assert "topic=unknown" in line


async def test_under_latest_older_records_are_left_out_and_a_recopy_copies_them() -> None:
    world = World(3, extra=LATEST)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"old"])
    async with world.worker():
        await until(lambda: len(lines(world, "topics.copying")) == 1)
        await asyncio.sleep(5)
        world.source.append("orders", 0, [b"new"])
        await world.copied({"orders": "A.orders"})
        assert values(world.target, "A.orders", 0) == [b"new"]
        world.source.recreate_topic("orders")
        world.source.append("orders", 0, [b"first", b"second"])
        await until(lambda: bool(lines(world, "topic.refused")))
    async with world.worker(allow_recopy=frozenset({"orders"})):
        await world.copied({"orders": "A.orders"})
        assert values(world.target, "A.orders", 0) == [b"new", b"first", b"second"]


def stored_by_mm2(world: World, **offsets: int) -> None:
    """Store positions of MirrorMaker 2 for partitions of ``orders``, one offset each."""
    world.target.create_topic("mm2-offsets.A.internal", 1, {"cleanup.policy": "compact"})
    for number, offset in offsets.items():
        key = ["MirrorSourceConnector", {"cluster": "A", "partition": int(number[1:]), "topic": "orders"}]
        record = Record(json.dumps({"offset": offset}).encode(), key=json.dumps(key, separators=(",", ":")).encode())
        world.target.append("mm2-offsets.A.internal", 0, [record])


async def test_a_partition_that_was_idle_under_mirrormaker_2_is_not_taken_for_an_added_one() -> None:
    """MirrorMaker 2 stores no position for an empty partition: under ``latest`` it is not copied from its start."""
    world = World(3, extra=LATEST)
    world.source.create_topic("orders", 4)
    for number in range(4):
        world.source.append("orders", number, [b"old"])
    world.target.create_topic("A.orders", 4)
    stored_by_mm2(world, p0=0, p2=0)
    for attempt in range(2):
        async with world.worker() as herder:
            await until(lambda: len(lines(world, "topics.copying")) == 1)
            await asyncio.sleep(5)
            for number in range(4):
                world.source.append("orders", number, [b"new %d" % attempt])
            await world.copied({"orders": "A.orders"})
            await world.stop(herder)
    idle = [b"new 0", b"new 1"]
    copies = [values(world.target, "A.orders", number) for number in range(4)]
    assert copies == [
        idle,
        idle,
        idle,
        [b"old", *idle],
    ]  # the last partition may have been added while no worker ran


async def test_under_reset_none_a_partition_without_a_position_of_mirrormaker_2_needs_a_decision() -> None:
    world = World(3, extra=NONE)
    world.source.create_topic("orders", 2)
    for number in range(2):
        world.source.append("orders", number, [b"old"])
    world.target.create_topic("A.orders", 2)
    stored_by_mm2(world, p1=0)
    async with world.worker():
        await until(lambda: len(lines(world, "topic.refused")) == 1)
        await asyncio.sleep(MINUTE_S)
        assert values(world.target, "A.orders", 0) == []


# ---- deletion


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
async def test_a_deleted_topic_is_no_longer_copied_and_its_copy_stays(down: bool) -> None:
    world = World(3)
    for topic in ("orders", "bills"):
        world.source.create_topic(topic, 2)
        world.source.append(topic, 0, [b"1"])
    both = {"orders": "A.orders", "bills": "A.bills"}
    async with world.worker() as herder:
        await world.copied(both)
        if down:
            await world.stop(herder)
        else:
            world.source.delete_topic("orders")
            await until(lambda: len(lines(world, "topic.gone")) == 1)
            assert "the remote topic and its position are kept" in lines(world, "topic.gone")[0]
            assert [topic.topic for topic in herder.status()[0].topics] == ["bills"]
            world.source.append("bills", 0, [b"2"])
            await world.copied({"bills": "A.bills"})
            await asyncio.sleep(10 * MINUTE_S)
            assert len(lines(world, "topic.gone")) == 1
    if down:
        world.source.delete_topic("orders")
        await asyncio.sleep(1)
        async with world.worker():
            await until(lambda: len(lines(world, "topics.gone")) == 1)
            assert "topics=1 first=orders" in lines(world, "topics.gone")[0]
    assert values(world.target, "A.orders", 0) == [b"1"]


async def test_a_refused_topic_that_is_deleted_upstream_is_no_longer_refused() -> None:
    world = World(3)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"1"])
    world.target.create_topic("A.orders", 1)
    world.target.append("A.orders", 0, [b"foreign"])
    async with world.worker() as herder:
        await until(lambda: "orders" in herder.status()[0].refused)
        await asyncio.sleep(2 * MINUTE_S)
        assert "orders" in herder.status()[0].refused
        assert len(lines(world, "topic.refused")) == 1
        world.source.delete_topic("orders")
        await until(lambda: herder.status()[0].refused == {})


def test_topics_that_get_ids_in_an_upgrade_of_their_brokers_are_not_taken_for_recreated() -> None:
    """A cluster of old brokers is upgraded: its topics get ids, and are still the same topics."""

    def copied(topic_id: uuid.UUID | None) -> CopiedPartition:
        copier = Copier("orders-0", Position(0), ProducerIdentity(1, 0, None), CopySettings(1))
        return CopiedPartition(
            source_topic="orders",
            target_topic="A.orders",
            partition=0,
            copier=copier,
            rules=TargetRules(1),
            shell=DeafShell(),
            source_topic_id=topic_id,
            target_topic_id=None,
        )

    def shown(topic_id: uuid.UUID | None) -> dict[str, TopicMetadata]:
        part = PartitionMetadata(0, None, -1, 0)
        return {"orders": TopicMetadata("orders", topic_id, 0, is_internal=False, partitions={0: part})}

    first, other = uuid.UUID(int=1), uuid.UUID(int=2)
    assert Vanished().look([copied(None)], shown(first)) == {}
    assert Vanished().look([copied(first)], shown(first)) == {}
    assert Vanished().look([copied(first)], shown(other)) == {"orders": "it was deleted and recreated upstream"}
    assert Vanished().look([copied(first), copied(None)], shown(other)).keys() == {"orders"}


async def test_topics_that_get_ids_while_they_are_copied_are_still_copied() -> None:
    """Both clusters are upgraded broker by broker, so all leaders move as well."""
    world = World(3, nodes=3)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"1"])
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        (process,) = world.processes
        assert process.task is not None
        for part in process.task.partitions.values():
            part.source_topic_id = part.target_topic_id = None  # as started before the upgrade
        for number in range(3):
            world.source.move_leader("orders", 0)
            world.target.move_leader("A.orders", 0)
            world.source.append("orders", 0, [b"%d" % number])
            await world.copied({"orders": "A.orders"}, deadline_s=MINUTE_S)
            await asyncio.sleep(MINUTE_S)
        assert not lines(world, "topic.refused")
        assert not lines(world, "flow.failed")


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
async def test_a_topic_that_was_recreated_with_fewer_partitions_is_refused_with_both_numbers(down: bool) -> None:
    world = World(3)
    world.source.create_topic("orders", 4)
    for number in range(4):
        world.source.append("orders", number, [b"old %d" % number])

    def shrink() -> None:
        world.source.recreate_topic("orders", 2)
        world.source.append("orders", 0, [b"new 0", b"new 1", b"new 2"])

    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        if down:
            await world.stop(herder)
        else:
            shrink()
            await until(lambda: len(lines(world, "topic.refused")) == 1)
    if down:
        shrink()
        async with world.worker():
            await until(lambda: len(lines(world, "topic.refused")) == 1)
    (line,) = lines(world, "topic.refused")
    assert "it was deleted and recreated upstream, with 2 partition(s) instead of 4" in line
    assert "Otherwise mm2py gaps FILE accept 'A->B:orders' copies it from its first record on." in line
    assert [values(world.target, "A.orders", number) for number in range(4)] == [
        [b"old %d" % number] for number in range(4)
    ]
    for _ in range(2):  # the flag was left in the unit file
        async with world.worker(allow_recopy=frozenset({"orders"})) as herder:
            await until(lambda: len(values(world.target, "A.orders", 0)) == 4)
            await asyncio.sleep(MINUTE_S)
            await world.stop(herder)
    assert values(world.target, "A.orders", 0) == [b"old 0", b"new 0", b"new 1", b"new 2"]
    assert values(world.target, "A.orders", 3) == [b"old 3"]


async def test_positions_of_mirrormaker_2_reveal_a_shrunken_topic_by_their_number() -> None:
    """They name no topic id, so nothing else shows that this is another topic."""
    world = World(3)
    world.source.create_topic("orders", 2)
    for number in range(2):
        world.source.append("orders", number, [b"1", b"2", b"3"])
    world.target.create_topic("A.orders", 3)
    stored_by_mm2(world, p0=0, p1=0, p2=0)
    async with world.worker():
        await until(lambda: len(lines(world, "topic.refused")) == 1)
        assert "with 2 partition(s) instead of 3" in lines(world, "topic.refused")[0]
        assert values(world.target, "A.orders", 0) == []


# ---- a source that has too many partitions


async def test_no_source_can_create_more_partitions_than_the_flow_may_have() -> None:
    """S23: copied topics are still copied, new ones are refused with number and key; deletion upstream frees none."""
    world = World(3, extra={"A->B.remote.partitions.max": "10"})
    world.source.create_topic("a", 4)
    world.source.create_topic("grows", 2)
    async with world.worker() as herder:
        await until(lambda: {"A.a", "A.grows"} <= world.target.topics.keys())
        await until(lambda: len(herder.status()[0].topics) == 2)
        world.source.create_topic("huge", 5)
        world.source.create_topic("fits", 3)
        await until(lambda: len(lines(world, "topic.refused")) == 1)
        assert (
            "with its 5 partition(s) the flow would have more on B than remote.partitions.max=10"
            in (lines(world, "topic.refused")[0])
        )
        await until(lambda: "A.fits" in world.target.topics)
        world.source.add_partitions("grows", 9)
        world.source.append("grows", 1, [b"copied"])
        await until(lambda: len(lines(world, "topic.too_narrow")) == 1)
        assert "Raise remote.partitions.max" in lines(world, "topic.too_narrow")[0]
        await until(lambda: values(world.target, "A.grows", 1) == [b"copied"])
        world.source.delete_topic("a")
        await until(lambda: len(lines(world, "topic.gone")) == 1)
        world.source.create_topic("again", 4)
        await until(lambda: len(lines(world, "topic.refused")) == 2)
        await asyncio.sleep(10 * MINUTE_S)
        ours = {name: len(topic.partitions) for name, topic in world.target.topics.items() if name[:2] == "A."}
        assert ours == {"A.a": 4, "A.grows": 2, "A.fits": 3}


async def test_hundreds_of_refused_topics_do_not_flood_the_log() -> None:
    world = World(3, extra={"A->B.remote.partitions.max": "5"})
    for number in range(300):
        world.source.create_topic(f"flood-{number}", 1)
    async with world.worker():
        await until(lambda: len(lines(world, "topic.refused")) >= 21)
        await asyncio.sleep(2 * MINUTE_S)
        said = lines(world, "topic.refused")
        assert 20 < len(said) <= 40
        assert sum(int(count) for line in said[20:] for count in re.findall(r"topics=(\d+)", line)) == 275
        assert sum(line.count("is refused: ") for line in said) == 295, "each with its reason"
        assert sum(any(re.search(rf"\bflood-{number}\b", line) for line in said) for number in range(300)) == 295
        assert sum(name.startswith("A.") for name in world.target.topics) == 5

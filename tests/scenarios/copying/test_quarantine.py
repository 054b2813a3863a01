"""Records that the target refuses go into quarantine whole; all others are copied in order. On two cluster models."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from mm2py.copying.positions import read_positions
from mm2py.kafka import internal_topic
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers, ProduceRequest
from mm2py.records.batch import NewRecord
from mm2py.records.quarantined import QuarantineEntry, decode
from mm2py.records.source_offset import StoredPosition
from mm2py.topics.acls import Operation, Pattern, Permission, TopicAcl
from mm2py.topics.names import InternalTopic
from tests.fakes.broker.record_batch import Record
from tests.scenarios.copying.test_copying_under_faults import CODECS, STORM
from tests.scenarios.gate import Gate, Request
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

QUARANTINE = "mm2-quarantine.A.internal"
ON = {"on.poison.record": "quarantine"}
FUTURE_MS = 4_000_000_000_000
HEADERS = (("mm2py-key", b"mine"), ("h", b"1"), ("h", None))


def make_world(
    seed: int, *, partitions: int = 1, nodes: int = 1, remote: dict[str, str] | None = None, **extra: str
) -> World:
    """Return a world with the topic ``orders``, which takes any timestamp, and its remote topic, which does not."""
    settings = {name.replace("_", "."): value for name, value in extra.items()}
    world = World(seed, nodes=nodes, extra={**ON, "sync.topic.configs.enabled": "false", **settings})
    world.source.create_topic("orders", partitions, {"message.timestamp.after.max.ms": str(1 << 62)})
    world.target.create_topic("A.orders", partitions, remote or {})
    return world


def good(number: int) -> Record:
    return Record(value=b"%d" % number, key=b"k", timestamp_ms=1_000)


def poison(number: int) -> Record:
    """A record with a timestamp so late that no broker takes it."""
    return Record(value=b"%d" % number, key=None, timestamp_ms=FUTURE_MS, headers=HEADERS)


def kept(world: World) -> list[QuarantineEntry]:
    if QUARANTINE not in world.target.topics:
        return []
    found = [
        decode(NewRecord(record.key, record.value, record.timestamp_ms, record.headers))
        for record in world.target.records(QUARANTINE, 0)
    ]
    assert all(isinstance(one, QuarantineEntry) for one in found)
    return [one for one in found if isinstance(one, QuarantineEntry)]


def copied(world: World, partition: int = 0) -> list[bytes | None]:
    if "A.orders" not in world.target.topics:
        return []
    return [record.value for record in world.target.records("A.orders", partition)]


async def until(
    condition: Callable[[], bool], world: World, *, deadline_s: float = 200.0, every_s: float = 0.01
) -> None:
    try:
        async with asyncio.timeout(deadline_s):
            while not condition():
                await asyncio.sleep(every_s)
    except TimeoutError:
        raise AssertionError(world.log_text.getvalue()[-3000:]) from None


async def stored(world: World) -> StoredPosition:
    name = world.settings.offsets_topic
    topic = (await fetch_metadata(world.target, [name])).topics[name]
    positions, _ = await read_positions(world.target, topic, "A")
    return positions["orders", 0]


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_a_refused_record_is_quarantined_whole_and_the_others_of_its_batch_arrive_in_order(codec: str) -> None:
    world = make_world(1)
    records = [good(number) for number in range(100)]
    records[41] = poison(41)
    world.source.append("orders", 0, records, codec=codec)
    async with world.worker() as herder:
        await until(lambda: sum(topic.records for topic in herder.status()[0].topics) == 99, world)
        (topic,) = herder.status()[0].topics
        assert topic.dropped == {"quarantined": 1}
        await world.stop(herder)
    assert copied(world) == [b"%d" % number for number in range(100) if number != 41]
    (one,) = kept(world)
    assert one.record == NewRecord(None, b"41", FUTURE_MS, HEADERS)
    provenance = one.provenance
    assert (provenance.flow, provenance.source_cluster) == ("A->B", world.source.cluster_id)
    assert provenance.origin == ("orders", 0, 41, str(world.source.topics["orders"].id))
    assert provenance.error_code == 32
    assert "INVALID_TIMESTAMP" in provenance.error_text
    configs = world.target.topics[QUARANTINE].overrides
    assert (configs["cleanup.policy"], configs["retention.ms"]) == ("delete", "-1")
    assert int(configs["max.message.bytes"]) > 10 << 20


async def test_the_position_keeps_a_quarantined_record_across_a_restart() -> None:
    world = make_world(2)
    world.source.append("orders", 0, [good(0), poison(1), poison(2)])
    async with world.worker() as herder:
        await until(lambda: len(kept(world)) == 2, world)
        await asyncio.sleep(2)
        said = world.log_text.getvalue()
        await world.stop(herder)
    assert said.count("record.quarantined") == 1
    assert "source offset 1 was refused (INVALID_TIMESTAMP" in said
    assert "partitions.waiting" not in said
    position = await stored(world)
    assert (position.next_source, position.skipped) == (3, ((1, 2),))
    async with world.worker() as herder:
        await asyncio.sleep(2)
        world.source.append("orders", 0, [good(3)])
        await until(lambda: len(copied(world)) == 2, world)
        await world.stop(herder)
    assert copied(world) == [b"0", b"3"]
    assert len(kept(world)) == 2
    assert (await stored(world)).skipped == ()


async def test_the_position_keeps_a_quarantined_record_across_kills_until_a_later_record_is_copied() -> None:
    """No record follows the position (docs/broker-facts.md#m9), so only it knows of the quarantined record."""
    world = make_world(2)
    world.source.append("orders", 0, [good(0), poison(1), poison(2)])
    owners = set()
    for _ in range(3):
        async with world.worker():
            await asyncio.sleep(5)
        position = await stored(world)
        assert (position.next_source, position.skipped) == (3, ((1, 2),))
        owners.add(position.producer_id)
    assert len(owners) == 3, "each incarnation has read the position"
    gate = Gate(lambda request: isinstance(request, ProduceRequest) and request.topics[0].name.startswith("mm2-o"))
    async with world.worker(through=gate):
        await asyncio.sleep(5)
        gate.shut()
        world.source.append("orders", 0, [good(3)])
        await until(lambda: copied(world) == [b"0", b"3"], world)
    assert (await stored(world)).skipped == ((1, 2),)
    async with world.worker():
        await asyncio.sleep(5)
    position = await stored(world)
    assert (position.next_source, position.skipped) == (4, ()), "it has found the record after the position"


async def test_a_record_too_large_for_the_remote_topic_is_kept_in_a_quarantine_that_has_room() -> None:
    world = make_world(3, remote={"max.message.bytes": "2000"})
    large = Record(value=bytes(50_000), key=b"k", timestamp_ms=1_000)
    world.source.append("orders", 0, [good(0), large, good(2)])
    async with world.worker():
        await until(lambda: len(copied(world)) == 2, world)
    (one,) = kept(world)
    assert (one.record.value, one.provenance.error_code) == (bytes(50_000), 10)
    assert one.provenance.origin.offset == 1


async def test_a_raised_limit_is_noticed_before_a_record_is_quarantined() -> None:
    world = make_world(4, remote={"max.message.bytes": "2000"})
    world.source.append("orders", 0, [good(0)])
    async with world.worker():
        await until(lambda: len(copied(world)) == 1, world)
        world.target.configure_topic("A.orders", {"max.message.bytes": "100000"})
        world.source.append("orders", 0, [Record(value=bytes(50_000), key=b"k", timestamp_ms=1_000)])
        await until(lambda: len(copied(world)) == 2, world, deadline_s=10)
    assert kept(world) == []


async def test_without_the_setting_the_partition_waits_at_the_refused_record() -> None:
    world = make_world(5, partitions=2, on_poison_record="stop")
    world.source.append("orders", 0, [*map(good, range(5)), poison(5), good(6)])
    async with world.worker():
        await asyncio.sleep(100)
        world.source.append("orders", 1, [good(7)])
        await until(lambda: copied(world, 1) == [b"7"], world)
        said = world.log_text.getvalue()
    assert copied(world) == [b"%d" % number for number in range(5)]
    assert QUARANTINE not in world.target.topics
    assert said.count("target.refuses") == 1
    assert "the record of source offset 5 " in said


@pytest.mark.walk(range(3))
@pytest.mark.virtual_time
async def test_in_storms_each_record_is_copied_in_order_or_quarantined(seed: int) -> None:
    rng = random.Random(seed)
    world = make_world(seed, partitions=2, nodes=3, copy_mode=rng.choice(["auto", "pass", "repack"]))
    bad: set[bytes] = set()
    wanted: dict[int, list[bytes]] = {0: [], 1: []}
    number = 0
    for _ in range(60):
        partition, records = rng.randrange(2), []
        for _ in range(rng.randint(1, 12)):
            number += 1
            is_bad = rng.random() < 0.03
            records.append(poison(number) if is_bad else good(number))
            if is_bad:
                bad.add(b"%d" % number)
            else:
                wanted[partition].append(b"%d" % number)
        world.source.append("orders", partition, records, codec=rng.choice(CODECS))
    world.source.inject(STORM)
    world.target.inject(STORM)
    for _ in range(3):
        async with world.worker():
            await asyncio.sleep(rng.uniform(2.0, 20.0))
    world.source.heal()
    world.target.heal()
    async with world.worker() as herder:
        await until(lambda: all(wanted[at][-1] in copied(world, at) for at in wanted), world, deadline_s=900)
        await until(lambda: {one.record.value for one in kept(world)} == bad, world, deadline_s=900)
        await world.stop(herder)
    for at, values in wanted.items():
        place = {value: index for index, value in enumerate(values)}
        seen = -1
        for value in copied(world, at):
            assert place[value or b""] <= seen + 1, f"seed {seed}: {value!r} overtakes"
            seen = max(seen, place[value or b""])
        assert seen == len(values) - 1
    assert world.target.complaints == []


def allow(name: str, principal: str) -> TopicAcl:
    return TopicAcl(name, Pattern.LITERAL, principal, "*", Operation.READ, Permission.ALLOW)


async def test_records_are_not_quarantined_where_more_principals_could_read_them_than_in_their_remote_topic() -> None:
    world = make_world(7, sync_topic_acls_enabled="false")
    world.source.append("orders", 0, [good(0), poison(1), good(2)])
    everything = TopicAcl("mm2", Pattern.PREFIXED, "User:eve", "*", Operation.READ, Permission.ALLOW)
    world.target.acls = {allow("A.orders", "User:jane"), everything}
    async with world.worker():
        await asyncio.sleep(60)
        said = world.log_text.getvalue()
        assert said.count("quarantine.failing") == 1
        assert "could be read by User:eve from *" in said
        assert QUARANTINE not in world.target.topics
        world.target.acls = {allow("A.orders", "User:jane")}
        await until(lambda: len(copied(world)) == 2, world)
    assert len(kept(world)) == 1


async def test_a_quarantine_topic_that_would_lose_records_is_not_used() -> None:
    world = make_world(8)
    world.source.append("orders", 0, [good(0), poison(1), good(2)])
    world.target.create_topic(QUARANTINE, 1, {"retention.ms": "1000"})
    async with world.worker():
        await asyncio.sleep(60)
        assert "would lose records: it has retention.ms=1000" in world.log_text.getvalue()
        assert kept(world) == []
        world.target.configure_topic(QUARANTINE, {"retention.ms": "-1"})
        await until(lambda: len(copied(world)) == 2, world)
    assert len(kept(world)) == 1


async def test_a_broker_that_has_not_heard_of_the_quarantine_yet_is_asked_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 2683 of the simulation: it was taken for a missing right, and the partition waited for 30 seconds."""
    asked: list[str] = []
    read = internal_topic.read_settings

    async def late(brokers: Brokers, topic: InternalTopic, **more: Any) -> object:
        if topic.name == QUARANTINE:
            asked.append(topic.name)
            if len(asked) == 1:
                return BrokerRefused("Reading it", 3)
        return await read(brokers, topic, **more)

    world = make_world(11)
    monkeypatch.setattr(internal_topic, "read_settings", late)
    world.source.append("orders", 0, [good(0), poison(1), good(2)])
    async with world.worker():
        await until(lambda: len(copied(world)) == 2, world, deadline_s=15)
        assert "quarantine.failing" not in world.log_text.getvalue()
    assert len(kept(world)) == 1
    assert len(asked) > 1


@pytest.mark.parametrize("while_it_is_written_to", [False, True])
async def test_a_deleted_quarantine_is_recreated_for_the_next_record_and_that_is_logged(
    while_it_is_written_to: bool,
) -> None:
    """Its records are lost by the deletion; nothing else is lost, and nothing waits."""
    world = make_world(9)
    world.source.append("orders", 0, [good(0), poison(1), good(2)])
    deleted: list[str] = []

    def delete_it(request: Request) -> bool:
        is_kept_in = isinstance(request, ProduceRequest) and request.topics[0].name == QUARANTINE
        if is_kept_in and len(copied(world)) > 1 and not deleted:
            deleted.append(QUARANTINE)
            world.target.delete_topic(QUARANTINE)
        return False

    async with world.worker(through=Gate(delete_it if while_it_is_written_to else lambda _: False)) as herder:
        await until(lambda: len(copied(world)) == 2, world)
        if not while_it_is_written_to:
            world.target.delete_topic(QUARANTINE)
        await asyncio.sleep(5)
        world.source.append("orders", 0, [good(3), poison(4), good(5)])
        await until(lambda: len(copied(world)) == 4, world)
        assert [one.record.value for one in kept(world)] == [b"4"]
        assert world.target.topics[QUARANTINE].overrides["retention.ms"] == "-1"
        assert "quarantine.topic_gone" in world.log_text.getvalue()
        await world.stop(herder)
    assert copied(world) == [b"0", b"2", b"3", b"5"]


@pytest.mark.parametrize("is_deleted_again", [True, False])
async def test_a_recreated_quarantine_is_checked_before_a_record_is_kept_in_it(
    is_deleted_again: bool,
) -> None:
    world = make_world(10)
    world.source.append("orders", 0, [good(0), poison(1)])
    async with world.worker():
        await until(lambda: len(kept(world)) == 1, world)
        world.target.delete_topic(QUARANTINE)
        world.target.create_topic(QUARANTINE, 1, {"retention.ms": "604800000"})
        world.source.append("orders", 0, [poison(2), good(3)])
        await asyncio.sleep(60)
        assert "would lose records: it has retention.ms=604800000" in world.log_text.getvalue()
        assert kept(world) == [] and copied(world) == [b"0"]
        if is_deleted_again:
            world.target.delete_topic(QUARANTINE)
        else:
            world.target.configure_topic(QUARANTINE, {"retention.ms": "-1"})
        await until(lambda: copied(world) == [b"0", b"3"], world)
    assert [one.record.value for one in kept(world)] == [b"2"]

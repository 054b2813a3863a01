"""The broker model ends transactions, writes their markers and fences as a real broker does; see its older sibling.

The same calls are made on both sides. A coordinator answers before the markers are written, so whoever looks at a log
waits until it has as many offsets as it should get.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from deploy.local.errors import MissingTool
from deploy.local.kafka import KafkaCluster
from mm2py.kafka.admin import create_topic_acls, find_coordinator, init_producer_id
from mm2py.kafka.errors import BrokerRefused, BrokerUnreachable
from mm2py.kafka.list_offsets import LATEST, list_offsets
from mm2py.kafka.port import (
    BrokerId,
    FetchRequest,
    PartitionFetch,
    PartitionProduce,
    ProduceRequest,
    TopicFetch,
    TopicProduce,
)
from mm2py.kafka.producer.transactions import (
    ActiveProducer,
    ListedTransaction,
    add_partitions_to_txn,
    describe_producers,
    end_txn,
    list_transactions,
    write_txn_markers,
)
from mm2py.topics.acls import TopicAcl
from tests.cluster.brokers.test_broker_model_matches_broker import Answer, Names, create, describe
from tests.cluster.running import PATIENCE, paused, until
from tests.cluster.two_worlds import NODE, ModelWorld, World, on_both
from tests.fakes.broker.record_batch import Batch, Record, build_batch, parse_batches, read_marker

Place = tuple[str, int]
Owner = tuple[int, int]
"""Producer id and epoch."""


class Caller:
    """One side: calls with short names for topics, transactional ids and producer ids, and all it answered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names = Names()
        self.epochs = Names({-1: -1})
        """Of coordinators: one that was away for a moment leads under a later epoch."""
        self.answers: list[Answer] = []

    def note(self, *answer: Any) -> None:
        self.answers.append(answer)

    def real(self, places: Iterable[Place]) -> list[Place]:
        return [(self.world.name_of(topic), partition) for topic, partition in places]

    async def make(self, topic: str, partitions: int = 1) -> None:
        assert (await create(self.world, topic, partitions, 1, {}, validate_only=False))[2] == 0
        for number in range(partitions):
            await self.leader_of((topic, number))

    async def leader_of(self, place: Place) -> BrokerId:
        """Return who leads, once he knows it."""
        (real,) = self.real([place])
        found: list[BrokerId] = []

        async def leads() -> bool:
            for part in (await describe(self.world, place[0])).partitions:
                if int(part.partition_index) == place[1] and part.leader_id >= 0:
                    found[:] = [BrokerId(part.leader_id)]
                    with contextlib.suppress(BrokerUnreachable):
                        told = await list_offsets(self.world.brokers, {real: found[0]}, LATEST)
                        return not told[real].error_code
            return False

        await until(leads, f"somebody leads {place}")
        return found[0]

    async def coordinator(self, name: str) -> BrokerId:
        """Return who coordinates; the first who asks on a new broker lets it create the topic for that."""
        found: list[BrokerId] = []

        async def coordinates() -> bool:
            try:
                found[:] = [await find_coordinator(self.world.brokers, self.world.name_of(name), transactions=True)]
            except BrokerRefused as error:
                assert error.code == 15
            return bool(found)

        await until(coordinates, f"somebody coordinates {name}")
        return found[0]

    async def init(self, name: str, expected: Owner = (-1, -1), timeout_ms: int = 60_000) -> Owner:
        """Ask for a producer id until the coordinator is there and no transaction is in the way."""
        got: list[Owner | int] = []

        async def given() -> bool:
            got[:] = [await self._init(name, expected, timeout_ms)]
            return got[0] not in {14, 15, 16, 51}

        await until(given, f"{name} gets a producer id")
        return self._given(name, got[0])

    async def init_once(self, name: str, expected: Owner = (-1, -1)) -> Owner:
        return self._given(name, await self._init(name, expected, 60_000))

    def _given(self, name: str, got: Owner | int) -> Owner:
        if isinstance(got, int):
            self.note("init", name, got)
            return -1, -1
        self.note("init", name, self.names(got[0]), got[1])
        return got

    async def _init(self, name: str, expected: Owner, timeout_ms: int) -> Owner | int:
        try:
            return await init_producer_id(
                self.world.brokers,
                await self.coordinator(name),
                self.world.name_of(name),
                expected=expected,
                transaction_timeout_ms=timeout_ms,
            )
        except BrokerRefused as error:
            return error.code

    async def add(self, name: str, owner: Owner, *places: Place, patient: bool = True) -> None:
        """Add partitions; ``patient``: once the transaction before is over."""
        wanted = self.real(places)
        coordinator = await self.coordinator(name or "x")
        transactional_id = name and self.world.name_of(name)
        answer: list[Any] = []

        async def added() -> bool:
            try:
                codes = await add_partitions_to_txn(
                    self.world.brokers, coordinator, transactional_id, *owner, partitions=wanted
                )
                answer[:] = [codes[place] for place in wanted]
            except BrokerRefused as error:
                answer[:] = [f"refused {error.code}"]
            return not patient or answer != ["refused 51"]

        await until(added, f"{name} is aborted")
        self.note("add", name, *answer)

    async def end(self, name: str, owner: Owner) -> None:
        coordinator = await self.coordinator(name or "x")
        try:
            await end_txn(self.world.brokers, coordinator, name and self.world.name_of(name), *owner)
            self.note("end", name, 0)
        except BrokerRefused as error:
            self.note("end", name, error.code)

    async def mark(self, owner: Owner, *places: Place, coordinator_epoch: int = 0) -> None:
        wanted = self.real(places)
        codes = await write_txn_markers(self.world.brokers, NODE, *owner, wanted, coordinator_epoch=coordinator_epoch)
        self.note("mark", [codes[place] for place in wanted])

    async def state(self, *names: str, at_once: bool = False) -> None:
        """Note in which state the transactional ids are; one that is being ended is waited for."""
        wanted = {self.world.name_of(name): name for name in names}
        ours: list[ListedTransaction] = []

        async def decided() -> bool:
            listed = await list_transactions(self.world.brokers, NODE)
            ours[:] = [one for one in listed if one.transactional_id in wanted]
            return at_once or all(one.state != "PrepareAbort" for one in ours)

        await until(decided, f"{names} are aborted")
        self.note(
            "state", sorted((wanted[one.transactional_id], self.names(one.producer_id), one.state) for one in ours)
        )

    async def producers(self, *places: Place) -> None:
        wanted = self.real(places)
        found = await describe_producers(self.world.brokers, NODE, wanted)
        for place, short in zip(wanted, places, strict=True):
            active = found[place]
            told = active if isinstance(active, int) else [self._seen_producer(one) for one in active]
            self.note("producers", short, told)

    def _seen_producer(self, one: ActiveProducer) -> Answer:
        who = self.names(one.producer_id), one.epoch, self.epochs(one.coordinator_epoch)
        return *who, one.last_sequence, one.last_timestamp_ms > 0, one.txn_start_offset

    async def write(self, place: Place, owner: Owner, sequence: int) -> None:
        """Send a record; a leader that has just come back does not know it at once."""
        record = Record(b"v", timestamp_ms=time.time_ns() // 1_000_000)
        raw = build_batch([record], producer_id=owner[0], producer_epoch=owner[1], base_sequence=sequence)
        topic = TopicProduce(self.world.name_of(place[0]), None, [PartitionProduce(place[1], raw)])
        request = ProduceRequest([topic], 10_000)
        part = (await self.world.brokers.send(await self.leader_of(place), request)).partitions[0]
        self.note("write", place, self.names(owner[0]), owner[1], sequence, part.error_code, part.base_offset)

    async def log(self, place: Place, *, end: int) -> None:
        """Note every batch of a partition, once it has ``end`` offsets."""
        found: list[Batch] = []
        leader = await self.leader_of(place)

        async def complete() -> bool:
            want = TopicFetch(self.world.name_of(place[0]), None, [PartitionFetch(place[1], 0, 1 << 20)])
            part = (await self.world.brokers.send(leader, FetchRequest([want], 0, 1, 1 << 20, False))).partitions[0]
            found[:] = parse_batches(part.records)
            return part.error_code == 0 and part.high_watermark >= end

        await until(complete, f"{place} has {end} offsets")
        self.note("log", place, [self._seen_batch(batch) for batch in found])

    def _seen_batch(self, batch: Batch) -> Answer:
        assert batch.max_timestamp > 0
        marker = read_marker(batch) if batch.control else None
        return (
            batch.base_offset,
            self.names(batch.producer_id),
            batch.producer_epoch,
            batch.base_sequence,
            batch.count,
            batch.attributes,
            batch.partition_leader_epoch,
            marker and (marker[0], self.epochs(marker[1])),
        )


def assert_alike(play: Callable[[Caller], Awaitable[None]], kafka: KafkaCluster, **arguments: Any) -> list[Answer]:
    """Play on both sides, compare answer by answer, and return them."""

    async def collect(world: World) -> list[Answer]:
        caller = Caller(world)
        await play(caller)
        return caller.answers

    expected, got = on_both(collect, kafka, now_ms=time.time_ns() // 1_000_000, **arguments)
    for number, (model, broker) in enumerate(zip(expected, got, strict=True)):
        assert model == broker, f"answer {number} of {len(expected)}"
    return got


T0, T1 = ("t", 0), ("t", 1)


async def begin_refuse_and_abort(caller: Caller) -> None:
    """Ask for what is refused and for what is not, one transaction after the other."""
    await caller.make("t", 2)
    pid, _ = await caller.init("x")
    await caller.state("x", "never")
    await caller.end("x", (pid, 0))
    for name, owner in (("x", (pid, 1)), ("x", (pid + 1000, 0)), ("never", (pid, 0)), ("", (pid, 0))):
        await caller.add(name, owner, T0)
        await caller.end(name, owner)
    await caller.add("x", (pid, 0), T0, ("missing", 0), T1, ("t", 9))
    await caller.state("x")
    await caller.add("x", (pid, 0), T0)
    await caller.add("x", (pid, 0), T0)
    await caller.add("x", (pid, 0), T1)
    await caller.state("x")
    await caller.producers(T0, ("t", 9), ("missing", 0))
    await caller.end("x", (pid, 1))
    await caller.end("x", (pid, 0))
    await caller.log(T0, end=1)
    await caller.log(T1, end=1)
    await caller.state("x")
    await caller.producers(T0, T1)
    await caller.end("x", (pid, 0))
    await caller.end("x", (pid, 1))
    await caller.end("x", (pid + 1000, 0))
    await caller.write(T1, (pid, 0), 0)
    await caller.add("x", (pid, 0), T1)
    await caller.end("x", (pid, 0))
    await caller.log(T1, end=3)
    await caller.state("x")
    await caller.write(T1, (pid, 0), 1)
    await caller.producers(T1)
    await caller.init("x", (pid, 0))
    await caller.init("x", (pid, 0))
    await caller.add("x", (pid, 1), T1)
    await caller.end("x", (pid, 1))
    await caller.log(T1, end=5)
    await caller.state("x")
    await caller.init("x", (pid, 0))
    await caller.init("x", (pid, 1))
    await caller.write(T1, (pid, 0), 2)
    await caller.write(T1, (pid, 1), 1)
    await caller.write(T1, (pid, 1), 0)
    await caller.init("x")
    await caller.init("x", (pid, 1))


def test_transactions_are_begun_refused_and_aborted_alike(target_cluster: KafkaCluster) -> None:
    """All or nothing (H8); who is refused, and with what; a keepalive leaves the epoch as it is (E20)."""

    got = assert_alike(begin_refuse_and_abort, target_cluster)
    assert ("add", "x", 55, 3, 55, 3) in got
    assert ("write", T1, 0, 0, 2, 47, -1) in got


async def fence_one_of_two(caller: Caller) -> None:
    """Fence one partition of somebody else, then one of one's own, and let everybody write to both."""
    await caller.make("t", 2)
    owner = await caller.init("x")
    await caller.write(T0, owner, 0)
    await caller.write(T1, owner, 0)
    fence = await caller.init("x")
    await caller.add("x", fence, T0)
    await caller.end("x", fence)
    await caller.log(T0, end=2)
    await caller.write(T0, owner, 1)
    await caller.write(T1, owner, 1)
    await caller.producers(T0, T1)
    await caller.init("x", owner)
    await caller.add("x", owner, T0)
    await caller.end("x", owner)
    await caller.write(T0, fence, 1)
    await caller.write(T0, fence, 0)
    await caller.write(T1, fence, 0)
    await caller.write(T1, owner, 2)
    await caller.producers(T0, T1)
    await caller.write(T0, await caller.init("x"), 0)
    own = await caller.init("y")
    await caller.write(T0, own, 0)
    await caller.write(T1, own, 0)
    raised = await caller.init("y", own)
    await caller.add("y", raised, T0)
    await caller.end("y", raised)
    await caller.log(T0, end=6)
    await caller.write(T0, own, 1)
    await caller.write(T0, raised, 0)
    await caller.write(T1, own, 1)
    await caller.write(T1, raised, 0)
    await caller.log(T0, end=7)
    await caller.log(T1, end=6)


def test_a_fence_shuts_the_old_owner_out_where_its_marker_is(target_cluster: KafkaCluster) -> None:
    """E9: a fence of one of two partitions; E9b: the same with oneself."""

    got = assert_alike(fence_one_of_two, target_cluster)
    assert ("write", T0, 0, 0, 1, 47, -1) in got
    assert ("write", T1, 0, 0, 1, 0, 1) in got
    assert ("init", "x", 90) in got


def test_asking_for_a_producer_id_aborts_an_open_transaction(target_cluster: KafkaCluster) -> None:
    """Whoever asks, and be it with an epoch that is long over: the epoch is looked at only when nothing is open.

    w1 is fenced: the leader has begun the transaction for it under epoch 1. w1 asks to renew its epoch 0, gets 51, and
    the leader's EndTxn 90. The fence stands all the same: the abort writes markers, of epoch 2.
    """

    async def play(caller: Caller) -> None:
        await caller.make("t")
        owner = await caller.init("x")
        await caller.add("x", owner, T0)
        await caller.init_once("x")
        await caller.log(T0, end=1)
        await caller.state("x")
        await caller.end("x", owner)
        await caller.add("x", owner, T0)
        await caller.producers(T0)
        await caller.write(T0, owner, 0)
        await caller.init("x", owner)  # given the raised epoch, as if an answer had been lost
        await caller.init("x")
        await caller.init("x", owner)
        w1 = await caller.init("y")
        fence = await caller.init("y")
        await caller.add("y", fence, T0)
        await caller.init_once("y", (w1[0] + 1000, 0))
        await caller.init_once("y", w1)
        await caller.log(T0, end=2)
        await caller.state("y")
        await caller.end("y", fence)
        await caller.init("y", w1)
        await caller.write(T0, fence, 0)
        await caller.init("y", fence)

    got = assert_alike(play, target_cluster)
    assert ("end", "y", 90) in got


def test_markers_past_the_coordinator_are_written_twice_and_may_lock_it_up(target_cluster: KafkaCluster) -> None:
    """E12. Then the coordinator's own marker is refused, and it neither completes the transaction nor tries again."""

    async def play(caller: Caller) -> None:
        await caller.make("t", 2)
        owner = await caller.init("x")
        pid = owner[0]
        await caller.write(T0, owner, 0)
        await caller.mark((pid, 1), T0, T1, ("missing", 0), ("t", 9))
        await caller.mark((pid, 1), T0)
        await caller.write(T0, owner, 1)
        await caller.write(T1, owner, 0)
        await caller.mark((pid, 0), T0)
        await caller.mark((pid, 2), T0, coordinator_epoch=5)
        await caller.mark((pid, 3), T0)
        await caller.mark((pid, 3), T1)
        await caller.mark((pid, 3), T0, T1, coordinator_epoch=5)
        await caller.mark((pid, 9), ("missing", 0))
        await caller.producers(T0, T1)
        await caller.log(T0, end=5)
        await caller.log(T1, end=3)
        await caller.add("x", owner, T0)
        await caller.end("x", owner)
        await paused(2.0, "it stays as it is")
        await caller.state("x", at_once=True)
        await caller.init_once("x")
        await caller.end("x", owner)
        await caller.add("x", owner, T0, patient=False)
        await caller.log(T0, end=5)

    got = assert_alike(play, target_cluster)
    assert ("state", [("x", 0, "PrepareAbort")]) in got


def test_a_transaction_that_stays_open_too_long_is_aborted_and_fences_its_owner(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    """Nobody ends it: the coordinator does, under a higher epoch. An id that nobody uses is forgotten (E1)."""
    settings = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
        "transactional.id.expiration.ms": 6_000,
    }

    async def play(caller: Caller) -> None:
        await caller.make("t", 2)
        idle = await caller.init("idle")
        alive = await caller.init("alive")
        owner = await caller.init("x", timeout_ms=1000)
        await caller.add("x", owner, T0)
        await caller.log(T0, end=1)
        await caller.state("x")
        await caller.end("x", owner)
        await caller.add("x", owner, T0)
        await caller.producers(T0)
        await caller.init("x", owner)
        await caller.init("x", (owner[0], 1))
        await caller.init("x")
        for _ in range(4):  # E20
            await caller.add("alive", alive, T1)
            await caller.end("alive", alive)
            await paused(2.0, "transactions of one second grow old")
        await caller.state("idle", "alive")
        await caller.write(T1, idle, 0)
        await caller.add("idle", idle, T1)
        await caller.end("idle", idle)
        fence = await caller.init("idle")
        await caller.add("idle", fence, T1)
        await caller.end("idle", fence)
        await caller.log(T1, end=6)
        await caller.write(T1, idle, 1)
        await caller.mark((idle[0], 1), T1)
        await caller.write(T1, idle, 2)
        fence = await caller.init("alive")
        await caller.add("alive", fence, T1)
        await caller.end("alive", fence)
        await caller.log(T1, end=9)
        await caller.write(T1, alive, 0)

    broker_config = {name: str(value) for name, value in settings.items()}
    got = assert_alike(play, make_cluster(settings=settings), broker_config=broker_config)
    assert [answer[:3] for answer in got if answer[0] == "init" and answer[1] == "idle"] == [
        ("init", "idle", 0),
        ("init", "idle", 3),
    ]


def test_denied_topics_hold_up_the_others_of_a_request(guarded_cluster: KafkaCluster) -> None:
    async def play(caller: Caller) -> None:
        await caller.make("t")
        await caller.make("denied")
        owner = await caller.init("x")
        denied = ("denied", 0)
        if isinstance(caller.world, ModelWorld):
            caller.world.cluster.deny("denied")
        else:
            taken = TopicAcl(caller.world.name_of("denied"), 3, "User:*", "*", 2, 2)
            assert list((await create_topic_acls(caller.world.brokers, [taken])).values()) == [None]
        await caller.add("x", owner, T0, denied, ("missing", 0))
        await caller.add("x", owner, denied)
        await caller.state("x")
        await caller.producers(T0, denied)
        await caller.add("x", owner, T0)
        await caller.end("x", owner)
        await caller.log(T0, end=1)

    got = assert_alike(play, guarded_cluster)
    assert ("add", "x", 55, 29, 3) in got


def test_a_partition_without_leader_is_left_out_of_a_fence_that_succeeds(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    """C3, E16: no error anywhere, the transaction completes, and the old owner goes on writing."""

    async def play(caller: Caller) -> None:
        await caller.make("t", 6)
        owner = await caller.init("x")
        coordinator = await caller.coordinator("x")
        leaders = [await caller.leader_of(("t", number)) for number in range(6)]
        gone = next(leader for leader in leaders if leader not in {coordinator, NODE})
        there, lost = (("t", leaders.index(node)) for node in (NODE, gone))
        for place in (there, lost):
            await caller.write(place, owner, 0)
        await caller.world.stop(gone)
        fence = await caller.init("x")
        await caller.add("x", fence, there, lost)
        await caller.end("x", fence)
        await caller.init("x")
        await caller.world.start(gone)
        for place in (there, lost):
            await caller.write(place, owner, 1)
            await caller.log(place, end=2)
        caller.answers = [
            ("place", *answer[2:]) if answer[0] in {"write", "log"} else answer for answer in caller.answers
        ]

    got = assert_alike(play, make_cluster(nodes=3), nodes=3)
    codes = [answer[4] for answer in got if answer[0] == "place" and len(answer) == 6]
    assert codes == [0, 0, 47, 0]


@pytest.mark.compat
@pytest.mark.timeout(600 * PATIENCE)  # jars may have to be fetched
@pytest.mark.parametrize("version", ["3.3.2", "3.9.2"])
def test_older_brokers_speak_the_same_versions_and_fence_alike(
    make_cluster: Callable[..., KafkaCluster], version: str
) -> None:
    """But for one thing: an owner whose transaction the coordinator aborted is not given the raised epoch."""
    try:
        kafka = make_cluster(kafka_version=version)
    except MissingTool as missing:
        pytest.skip(f"older brokers cannot be had: {missing.what}")
    assert_alike(begin_refuse_and_abort, kafka)
    assert_alike(fence_one_of_two, kafka)

    async def play(world: World) -> list[Answer]:
        caller = Caller(world)
        await caller.make("t")
        owner = await caller.init("x")
        await caller.add("x", owner, T0)
        await caller.init_once("x")
        await caller.log(T0, end=1)
        await caller.state("x")
        await caller.init("x", owner)
        return caller.answers

    younger, older = on_both(play, kafka, now_ms=time.time_ns() // 1_000_000)
    assert younger[:-1] == older[:-1]
    assert (younger[-1], older[-1]) == (("init", "x", 0, 1), ("init", "x", 90))

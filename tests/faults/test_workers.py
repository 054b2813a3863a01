"""Workers stop, die and freeze: each record is there once and in order."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from mm2py.kafka import admin as kafka_admin
from mm2py.kafka.cluster import Cluster, fetch_metadata
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.producer import transactions
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, new_topic, now_ms
from tests.cluster.kafka_client import admin
from tests.cluster.kafka_frames import PRODUCE, Direction, Frame
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Action, Drop, Hold, Pass
from tests.cluster.running import PATIENCE, Mm2py, Value, pause, paused, wait_until
from tests.faults.scene import BEGIN_S, NODES, REPLICAS, Pair, Scene, rounds, three_node_properties

INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, WRITE_MARKERS = 22, 24, 26, 27
PER_SECOND: Final = 300
"""Records of each topic, where speed does not matter."""
POSITIONS: Final = b"mm2-offsets."


def begin_again(scene: Scene) -> None:
    """Start the process again, and wait until it copies."""
    before = scene.run.log[-1]
    scene.run.start()
    scene.run.wait_for_event("topics.copying", after=before, deadline_s=BEGIN_S)


def reconciled_since(run: Mm2py, at: int) -> int:
    """Return how many records a process found after its positions since its log had ``at`` lines."""
    return sum(event["records"] for event in run.log[at:] if event["event"] == "partitions.reconciled")


# Stops and restarts


def test_clean_stops_under_load_cause_no_duplicates_and_leave_no_marker(pair: Pair) -> None:
    """F02: SIGTERM three times; no fence is needed."""
    with Scene(pair, "stopped") as scene:
        for _ in range(3):
            scene.copy_more(2_000)
            assert scene.run.terminate() == 0
            scene.loads.wait_for(500)
            scene.run.start()
        scene.copy_more(1_000)
        scene.conclude()
        assert all(event["records"] == 0 for event in scene.run.events("partitions.reconciled"))
        assert not scene.run.events("drain.failed")


def test_clean_and_hard_restarts_in_any_order_cost_no_record(pair: Pair) -> None:
    """F03, F04: ten times, SIGTERM or SIGKILL; some while the process is still starting."""
    chance = random.Random(3)
    with Scene(pair, "bounced", per_second=PER_SECOND) as scene:
        for number in range(rounds(10)):
            clean, early = chance.random() < 0.5, number % 4 == 3
            if early:
                scene.loads.wait_for(chance.randrange(1, PER_SECOND))
            else:
                scene.copy_more(chance.randrange(1, 3 * PER_SECOND))
            lines = len(scene.run.log)
            if clean and not early:
                assert scene.run.terminate() == 0
                begin_again(scene)
                assert reconciled_since(scene.run, lines) == 0, "a clean stop left records after its positions"
            elif clean:  # a process that has not started copying has nothing to drain
                scene.run.terminate()
                scene.run.start()
            else:
                scene.run.kill()
                scene.run.start()
        scene.copy_more(PER_SECOND)
        scene.conclude()


# Killed at each step


@dataclass(frozen=True)
class Step:
    """The frame at which a process is killed.

    Attributes:
        begins: it is killed while it takes over from a killed one, not while it copies.
        action: the fate of this frame: a dropped one never arrives, a held one arrives when the
            process is dead.
    """

    direction: Direction
    api_key: int
    where: Callable[[Frame], bool] = lambda _: True
    begins: bool = False
    action: type[Drop | Hold] = Drop
    skip: int = 0


def _is_data(frame: Frame) -> bool:
    return b".internal" not in frame.content


def _is_position(frame: Frame) -> bool:
    return POSITIONS in frame.content


def _joins(frame: Frame) -> bool:
    return b'"kind":"Joined"' in frame.content


def _says_fenced(frame: Frame) -> bool:
    return b'"kind":"Fenced"' in frame.content


_SENT, _ANSWERED = Direction.REQUEST, Direction.REPLY
STEPS: Final = {
    "when records are on their way": Step(_SENT, PRODUCE, _is_data, skip=10, action=Hold),
    "when records are stored and not acknowledged": Step(_ANSWERED, PRODUCE, _is_data, skip=10),
    "when records are acknowledged and no position is stored": Step(_SENT, PRODUCE, _is_position, skip=2),
    "when a position is on its way": Step(_SENT, PRODUCE, _is_position, skip=2, action=Hold),
    "when a position is stored and not acknowledged": Step(_ANSWERED, PRODUCE, _is_position, skip=2),
    "before it has a producer id": Step(_SENT, INIT_PRODUCER_ID, begins=True),
    "when its producer id is given": Step(_ANSWERED, INIT_PRODUCER_ID, begins=True),
    "before it has joined": Step(_SENT, PRODUCE, _joins, begins=True),
    "when the record that it joins is on its way": Step(_SENT, PRODUCE, _joins, begins=True, action=Hold),
    "when it has raised the epoch of the one before": Step(_ANSWERED, INIT_PRODUCER_ID, begins=True, skip=1),
    "before the fence of the positions begins": Step(_SENT, ADD_PARTITIONS, _is_position, begins=True),
    "between begin and end of the fence of the positions": Step(_SENT, END_TXN, begins=True),
    "when the end of the fence of the positions is on its way": Step(_SENT, END_TXN, begins=True, action=Hold),
    "when the fence of the positions has ended": Step(_ANSWERED, END_TXN, begins=True),
    "before the group knows that the previous incarnation is fenced": Step(_SENT, PRODUCE, _says_fenced, begins=True),
    "between begin and end of the fence of the copies": Step(_SENT, END_TXN, begins=True, skip=1),
    "when the end of the fence of the copies is on its way": Step(_SENT, END_TXN, begins=True, skip=1, action=Hold),
    "when the fence of the copies has ended": Step(_ANSWERED, END_TXN, begins=True, skip=1),
    "before its first position": Step(_SENT, PRODUCE, _is_position, begins=True),
    "when its first position is on its way": Step(_SENT, PRODUCE, _is_position, begins=True, action=Hold),
    "when its first position is stored": Step(_ANSWERED, PRODUCE, _is_position, begins=True),
    "when its first records are on their way": Step(_SENT, PRODUCE, _is_data, begins=True, action=Hold),
    "when its first records are stored": Step(_ANSWERED, PRODUCE, _is_data, begins=True),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_killed_at_any_step_loses_and_repeats_no_record(pair: Pair, at_target: KafkaProxy, step: str) -> None:
    """F06. The frame never arrives, or only when its process is dead; then another process starts."""
    at = STEPS[step]
    properties: dict[str, Value] = {"B.offset.flush.interval.ms": 500}
    with Scene(pair, "killed-at", target=at_target.bootstrap, per_second=PER_SECOND, properties=properties) as scene:
        scene.copy_more(PER_SECOND)
        if at.begins:
            scene.run.kill()
            scene.loads.wait_for(50)
        dropped: Action = at.action()
        struck = at_target.rule(
            dropped,
            at.direction,
            api_key=at.api_key,
            skip=at.skip,
            times=None if at.action is Drop else 1,
            where=at.where,
        )
        if at.begins:
            scene.run.start()
        struck.wait_until_fired(deadline_s=BEGIN_S)
        scene.run.kill()
        struck.release()
        at_target.end_rules()
        begin_again(scene)
        scene.copy_more(PER_SECOND)
        scene.conclude()


# Freezes


def comes_back_as_another(zombie: Mm2py) -> None:
    """Wake a frozen worker after its successor has started: it logs its eviction, and joins as another member."""
    zombie.signal(signal.SIGCONT)
    said = zombie.wait_for_event("group.rejoining", deadline_s=BEGIN_S)
    assert "session has expired" in said["why"]
    zombie.wait_for_event("member.joined", after=said, deadline_s=BEGIN_S)


def test_a_frozen_worker_that_wakes_after_its_successor_has_started_writes_nothing_as_it_was(pair: Pair) -> None:
    """F07, fifty times: it holds batches and positions when it freezes. It logs that it was evicted, and returns as
    another member, which is asked to stop.
    """
    chance = random.Random(7)
    woken = 0
    with Scene(pair, "zombie", per_second=PER_SECOND) as scene:
        for number in range(rounds(50)):
            begun_s = time.monotonic()
            scene.copy_more(chance.randrange(1, PER_SECOND))
            zombie = scene.run
            zombie.signal(signal.SIGSTOP)
            successor = scene.begin_another()
            successor.wait_for_event("topics.copying", deadline_s=BEGIN_S)
            scene.copy_more(chance.randrange(1, PER_SECOND))
            comes_back_as_another(zombie)
            assert zombie.terminate() == 0
            assert successor.alive
            assert not successor.events("group.rejoining")
            woken += 1
            print(
                f"round {number + 1}: {time.monotonic() - begun_s:.1f} s, {reconciled_since(successor, 0)} reconciled"
            )
        scene.copy_more(PER_SECOND)
        scene.conclude()
        print(f"{woken} zombies woke")


def test_a_worker_that_stalls_for_longer_than_transactions_may_take_continues(pair: Pair) -> None:
    """F45: data are not in a transaction, so none is aborted; the outcome of unanswered batches is looked up."""
    with Scene(pair, "stalled", per_second=PER_SECOND) as scene:
        scene.copy_more(PER_SECOND)
        scene.run.signal(signal.SIGSTOP)
        scene.loads.wait_for(PER_SECOND)
        pause(70, "the time of the stall is the fault")
        scene.run.signal(signal.SIGCONT)
        scene.copy_more(70 * PER_SECOND)
        scene.conclude()
        assert len(scene.run.events("flow.ready")) == 1, "the flow restarted"


def test_a_worker_that_stalls_during_its_fence_fences_again(pair: Pair, at_target: KafkaProxy) -> None:
    """F45: the coordinator aborts the only transaction, the fence, and raises the epoch."""
    with Scene(pair, "stalled-fence", target=at_target.bootstrap, per_second=PER_SECOND) as scene:
        scene.copy_more(PER_SECOND)
        scene.run.kill()
        scene.loads.wait_for(50)
        held = at_target.rule(Hold(), _SENT, api_key=END_TXN)
        before = scene.run.log[-1]
        scene.run.start()
        held.wait_until_fired(deadline_s=BEGIN_S)
        scene.run.signal(signal.SIGSTOP)
        pause(30, "transactions of 10 s, checked every 10 s")
        held.release()
        scene.run.signal(signal.SIGCONT)
        scene.run.wait_for_event("topics.copying", after=before, deadline_s=BEGIN_S)
        scene.copy_more(PER_SECOND)
        scene.conclude()


# Many records

MANY: Final = int(os.environ.get("MM2PY_FAULTS_RECORDS", "1_000_000"))
PACE: Final = 3_000_000
"""Bytes a second."""


def _copied(cluster: KafkaCluster, topic: str, partitions: int) -> int:
    """Return the sum of the ends, markers among them; 0 before the topic exists."""
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    client = admin(cluster)  # its answers never come once it is gone
    try:
        return sum(
            found.result(20 * PATIENCE).offset
            for found in client.list_offsets(wanted, request_timeout=10 * PATIENCE).values()
        )
    except KafkaException:
        return 0


def _wait_for_copied(cluster: KafkaCluster, topic: str, partitions: int, goal: int) -> None:
    wait_until(lambda: _copied(cluster, topic, partitions) >= goal, f"{goal} are copied", deadline_s=BEGIN_S)


def test_a_worker_killed_ten_times_in_a_million_records_copies_each_once(pair: Pair) -> None:
    """F01, F04: when some tens of thousands more are copied, or while it is starting; not at full speed, or the last
    kills would find nothing left to copy.
    """
    partitions, records, kills = 12, MANY, 10
    chance = random.Random(10)
    topic = new_topic(pair.source, "million", partitions, replicas=REPLICAS)
    traffic = Traffic(seed=10, partitions=partitions, first_timestamp_ms=now_ms(), plain=True)
    settings = {"linger.ms": 50, "batch.num.messages": 10_000, "queue.buffering.max.messages": 500_000}
    load = Load(pair.source.internal_bootstrap, topic, traffic, codecs=["lz4"], settings=settings)
    assert load.run(records=records) == records
    remote = f"A.{topic}"
    met: list[int] = []
    properties: dict[str, Value] = {"A->B.topics": topic, "A->B.bytes.per.second.max": PACE}
    with Mm2py(three_node_properties(pair.source, pair.target, **properties)) as run:
        for number in range(kills):
            if number % 3 == 2:  # while it is starting, or soon after
                pause(chance.uniform(0.1, 3.0), "the moment of the kill")
            else:
                goal = min(records, (met[-1] if met else 0) + chance.randrange(10_000, 70_000))
                _wait_for_copied(pair.target, remote, partitions, goal)
            assert run.alive
            run.kill()
            met.append(_copied(pair.target, remote, partitions))
            run.start()
        report = assert_copied(pair.source, pair.target, topic, remote, run=run, deadline_s=5 * BEGIN_S, max_rewinds=0)
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()
    print(f"killed at {met} of {records}; {reconciled_since(run, 0)} records reconciled\n{report}")
    assert sum(copied < records for copied in met) >= kills / 2, f"it was killed too late: {met}"


# Transactional ids


async def _on(cluster: KafkaCluster) -> Cluster:
    addresses = [address.split(":") for address in cluster.internal_bootstrap.split(",")]
    return Cluster("a client", [(host, int(port)) for host, port in addresses], rng=random.Random(1), client_id="tests")


def _listed_ids(cluster: KafkaCluster, group: str) -> dict[str, int]:
    """Return the transactional ids under which a group copies that the coordinators know, with their producer ids. They
    name the flow, other than those under which settings are stored.
    """

    async def listed() -> dict[str, int]:
        brokers = await _on(cluster)
        try:
            found: dict[str, int] = {}
            for broker in (await fetch_metadata(brokers, [])).brokers:
                for one in await transactions.list_transactions(brokers, broker):
                    if group in one.transactional_id and "->" in one.transactional_id:
                        found[one.transactional_id] = one.producer_id
            return found
        finally:
            await brokers.close()

    return asyncio.run(listed())


def _use_epochs_up(cluster: KafkaCluster, transactional_id: str) -> int:
    """Use up an id's epochs until another producer id is assigned, and return how many requests that took."""

    async def use_up() -> int:
        brokers = await _on(cluster)
        try:
            first: int | None = None
            for asked in count(1):
                try:
                    coordinator = await kafka_admin.find_coordinator(brokers, transactional_id, transactions=True)
                    while True:
                        producer_id, _ = await kafka_admin.init_producer_id(brokers, coordinator, transactional_id)
                        first = first if first is not None else producer_id
                        if producer_id != first:
                            return asked
                except KafkaError:
                    await paused(0.05, "it is busy, or moved")
            raise AssertionError
        finally:
            await brokers.close()

    return asyncio.run(use_up())


def _group(scene: Scene) -> str:
    return str(scene.properties["mm2py.group"])


def test_a_worker_whose_epochs_are_used_up_is_fenced_without_its_coordinator(pair: Pair, at_target: KafkaProxy) -> None:
    """F47: its transactional id was requested 32,000 times while it was frozen. A fence under that id would hit another
    producer (E10). So markers go straight to the partitions, and the frozen worker wakes to find them.
    """
    markers = at_target.rule(Pass(), _SENT, api_key=WRITE_MARKERS, times=None)
    with Scene(pair, "used-up", target=at_target.bootstrap, per_second=100) as scene:
        scene.copy_more(200)
        zombie = scene.run
        (transactional_id,) = _listed_ids(pair.target, _group(scene))
        zombie.signal(signal.SIGSTOP)
        _use_epochs_up(pair.target, transactional_id)
        successor = scene.begin_another()
        successor.wait_for_event("topics.copying", deadline_s=BEGIN_S)
        scene.copy_more(200)
        comes_back_as_another(zombie)
        assert zombie.terminate() == 0
        scene.conclude()
        assert markers.fired, "no worker wrote markers to the partitions"
        assert not successor.events("producer.unfenced")


EXPIRY_S: Final = 20


@pytest.fixture(scope="module")
def forgetful(clusters: Pair) -> Iterator[Pair]:
    """The same source, and a target that expires transactional ids within seconds."""
    settings = {
        "min.insync.replicas": min(2, NODES),
        "transactional.id.expiration.ms": EXPIRY_S * 1_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 1_000,
    }
    with KafkaCluster("faults-forgetful", nodes=NODES, settings=settings, ready_timeout_s=180 * PATIENCE) as target:
        yield Pair(clusters.source, target)


def test_a_worker_that_runs_longer_than_its_transactional_id_lasts_can_still_be_fenced(
    pair: Pair, forgetful: Pair
) -> None:
    """F48: it uses the id now and then, so the target does not forget it."""
    with Scene(forgetful, "kept-alive", per_second=PER_SECOND) as scene:
        scene.copy_more(PER_SECOND)
        known = _listed_ids(forgetful.target, _group(scene))
        assert len(known) == 1
        pause(3 * EXPIRY_S, "the time of the wait is the fault")
        assert _listed_ids(forgetful.target, _group(scene)) == known
        zombie = scene.run
        zombie.signal(signal.SIGSTOP)
        successor = scene.begin_another()
        successor.wait_for_event("topics.copying", deadline_s=BEGIN_S)
        scene.copy_more(PER_SECOND)
        comes_back_as_another(zombie)
        assert zombie.terminate() == 0
        scene.conclude()
        assert not successor.events("producer.unfenced")


@pytest.mark.parametrize("wakes", [False, True], ids=["killed", "frozen"])
def test_a_worker_whose_transactional_id_has_expired_is_fenced_without_its_coordinator(
    pair: Pair, forgetful: Pair, wakes: bool
) -> None:
    """F48: a request for the id gets another producer id (docs/broker-facts.md#c2); markers go to the partitions."""
    with (
        KafkaProxy(forgetful.target.bootstrap) as proxy,
        Scene(forgetful, "forgotten", target=proxy.bootstrap, per_second=PER_SECOND) as scene,
    ):
        markers = proxy.rule(Pass(), _SENT, api_key=WRITE_MARKERS, times=None)
        scene.copy_more(PER_SECOND)
        gone = scene.run
        if wakes:
            gone.signal(signal.SIGSTOP)
        else:
            gone.kill()
        wait_until(
            lambda: not _listed_ids(forgetful.target, _group(scene)),
            "its id is forgotten",
            deadline_s=10 * EXPIRY_S * PATIENCE,
        )
        successor = scene.begin_another()
        successor.wait_for_event("topics.copying", deadline_s=BEGIN_S)
        scene.copy_more(PER_SECOND)
        if wakes:
            comes_back_as_another(gone)
            assert gone.terminate() == 0
        scene.conclude()
        assert markers.fired, "no worker wrote markers to the partitions"
        assert not successor.events("producer.unfenced")

"""Offsets of nasty partitions on real brokers: every one of them is answered as both logs say it.

Compacted topics that were cleaned, transactions of which some abort, small batches that are repacked, records in
quarantine, a gap, new partitions; workers that restart, join, and are killed under load.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.local.kafka import KafkaCluster
from tests.checker.ledger import Ledger
from tests.checker.load import Load
from tests.checker.traffic import Planned, Traffic
from tests.cluster.cleaned_topics import NEVER_CLEANED, cleaned_topic, rolls
from tests.cluster.copies import add_partitions, assert_copied, make_topic, new_topic, now_ms, send
from tests.cluster.copying.test_gaps import delete_before
from tests.cluster.copying.test_quarantine import ANY_TIME, FUTURE_MS, refused_records
from tests.cluster.group_offsets import member
from tests.cluster.groups import Group
from tests.cluster.judged_offsets import Flow
from tests.cluster.kafka_client import new_name, offsets, record_count
from tests.cluster.running import PATIENCE, Mm2py, Value, one_way_properties, pause, wait_until

pytestmark = pytest.mark.timeout(600 * PATIENCE)

ARRIVAL_S = 60.0 * PATIENCE
GROUPS = 6
SMALL = {"batch.num.messages": 2, "linger.ms": 0}
PER_SECOND = 100
"""Records of each topic under load."""
MORE = 150
"""How many records are copied between two disturbances."""


class Scene:
    """One flow of nasty topics with aliases of its own, and groups that have committed anywhere in them."""

    def __init__(
        self, source: KafkaCluster, target: KafkaCluster, stems: dict[str, int], *, seed: int, kills: bool = False
    ) -> None:
        self.source, self.target = source, target
        self.alias, self.other = new_name("A").replace("-", ""), new_name("B").replace("-", "")
        self.sends, self.chance = Ledger(), random.Random(seed)
        stem = new_name("stands")
        self.groups = [f"{stem}-{number}" for number in range(GROUPS)]
        self.topics: dict[str, str] = {}
        for name, partitions in stems.items():
            settings = ANY_TIME if name == "poison" else {}
            is_cleaned = name == "cleaned"
            self.topics[name] = (
                cleaned_topic(source, self.sends) if is_cleaned else new_topic(source, name, partitions, settings)
            )
            policy = {"cleanup.policy": "compact"} if is_cleaned else {}
            make_topic(target, f"{self.alias}.{self.topics[name]}", partitions, {**policy, **NEVER_CLEANED})
        self.flow = Flow(
            *(source, target, self.alias, self.other, list(self.topics.values()), self.sends),
            cleaned=[topic for name, topic in self.topics.items() if name == "cleaned"],
            groups=self.groups,
            may_repeat=[topic for name, topic in self.topics.items() if name == "cleaned" and kills],
        )
        self.properties: dict[str, Value] = one_way_properties(source, target, names=(self.alias, self.other)) | {
            f"{self.alias}->{self.other}.topics": ",".join(self.topics.values()),
            f"{self.alias}.consumer.isolation.level": "read_committed",
            f"{self.other}.offset.flush.interval.ms": self.chance.choice((500, 15_000)),
            "on.poison.record": "quarantine",
            "offset.lag.max": 20,
            "sync.topic.configs.enabled": False,
            "emit.checkpoints.enabled": True,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": True,
            "sync.group.offsets.interval.seconds": 1,
            "groups": f"{stem}-.*",
        }

    def load(self, name: str, *, partitions: int, producer: int = 0) -> Load:
        """Return a load that suits the topic: odd records in small batches, transactions, keys that come back."""
        is_cleaned, is_transactional = name == "cleaned", name == "transactions"
        return Load(
            self.source.internal_bootstrap,
            self.topics[name],
            Traffic(
                seed=self.chance.randrange(1_000),
                partitions=partitions,
                producer=producer,
                compacted=is_cleaned,
                twins=not is_cleaned,
                keys=60,
                first_timestamp_ms=now_ms(),
            ),
            self.sends,
            codecs=["none", "lz4"] if is_transactional or is_cleaned else ["none", "gzip", "zstd"],
            per_second=PER_SECOND,
            transactional_id=self.topics[name] if is_transactional else None,
            settings=None if is_transactional else SMALL,
        )

    @contextmanager
    def under_load(self, **partitions: int) -> Iterator[None]:
        with ExitStack() as running:
            for name, count in partitions.items():
                running.enter_context(self.load(name, partitions=count).in_background())
            yield

    def remote(self, name: str) -> str:
        return self.flow.remote(self.topics[name])

    def wait_for_copies(self, run: Mm2py, name: str, *, partitions: int, more: int = MORE) -> None:
        """Wait until the remote topic has grown by so many records."""
        goal = record_count(self.target, self.remote(name), range(partitions)) + more
        run.wait_until(
            lambda: record_count(self.target, self.remote(name), range(partitions)) >= goal,
            f"{more} more records of {name} are copied",
            deadline_s=ARRIVAL_S,
        )

    def commit_anywhere(self) -> None:
        """Let every group commit an offset of each partition: of a record, a marker, the start, the end."""
        bounds = {place: offsets(self.source, *place) for place in self.flow.pairs()}
        for number, group in enumerate(self.groups):
            fixed = {0: 1, 1: 0}.get(number)
            at = {place: self.chance.randint(*log) if fixed is None else log[fixed] for place, log in bounds.items()}
            _commit(self.source, group, [TopicPartition(*place, offset) for place, offset in at.items()])


def _commit(cluster: KafkaCluster, group: str, at: list[TopicPartition]) -> None:
    client: Consumer = member(cluster, group)
    try:
        client.commit(offsets=at, asynchronous=False)
    finally:
        client.close()


@pytest.mark.walk(range(1))
def test_every_offset_is_answered_after_restarts_moves_a_kill_and_new_partitions(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, seed: int
) -> None:
    print(f"seed {seed}")
    stems = {"cleaned": 1, "transactions": 2, "small": 2}
    scene = Scene(source_cluster, target_cluster, stems, seed=seed, kills=True)
    with Group(target_cluster, scene.properties, workers=1) as group:
        with scene.under_load(**stems):
            (first,) = group.workers
            scene.wait_for_copies(first, "transactions", partitions=2)
            assert first.terminate() == 0
            second, third = group.start_another(), group.start_another()
            group.wait_until_assigned(5, among=2, deadline_s=ARRIVAL_S)
            scene.wait_for_copies(second, "small", partitions=2)
            second.signal(signal.SIGKILL)
            fourth = group.start_another()
            group.wait_until_assigned(5, among=2, deadline_s=ARRIVAL_S)
            for name, partitions in stems.items():
                scene.wait_for_copies(fourth, name, partitions=partitions)
        add_partitions(source_cluster, scene.topics["small"], 4)
        send(source_cluster, scene.topics["cleaned"], rolls(40), ledger=scene.sends)
        scene.load("small", partitions=4, producer=1).run(records=400)
        for name, topic in scene.topics.items():
            assert_copied(
                *(source_cluster, target_cluster, topic, scene.remote(name)),
                run=fourth,
                read_committed=True,
                ledger=scene.sends,
            )
        scene.commit_anywhere()
        scene.flow.assert_exact(third)
        group.assert_steady(but=(second,))


@pytest.mark.slow
@pytest.mark.walk(range(1))
def test_every_offset_is_answered_after_many_kills_and_a_worker_that_was_frozen(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, seed: int
) -> None:
    """Positions are seldom stored, so each successor finds out again what most of the copied records were."""
    print(f"seed {seed}")
    stems = {"cleaned": 1, "transactions": 2, "small": 2}
    scene = Scene(source_cluster, target_cluster, stems, seed=seed, kills=True)
    scene.properties[f"{scene.other}.offset.flush.interval.ms"] = 20_000
    with Group(target_cluster, scene.properties, workers=2) as group:
        with scene.under_load(**stems):
            frozen, *_ = group.workers
            scene.wait_for_copies(frozen, "transactions", partitions=2)
            frozen.signal(signal.SIGSTOP)
            group.start_another()
            for _ in range(4):
                last = group.workers[-1]
                scene.wait_for_copies(last, scene.chance.choice(sorted(stems)), partitions=1, more=60)
                pause(scene.chance.uniform(0, 1.5), "into a transaction, a batch, a hand-over")
                scene.chance.choice([one for one in group.workers[1:] if one.alive]).signal(signal.SIGKILL)
                group.start_another()
            frozen.signal(signal.SIGCONT)
            for name, partitions in stems.items():
                scene.wait_for_copies(group.workers[-1], name, partitions=partitions)
        last = group.workers[-1]
        send(source_cluster, scene.topics["cleaned"], rolls(40), ledger=scene.sends)
        for name, topic in scene.topics.items():
            assert_copied(
                *(source_cluster, target_cluster, topic, scene.remote(name)),
                run=last,
                read_committed=True,
                ledger=scene.sends,
            )
        scene.commit_anywhere()
        scene.flow.assert_exact(last)


@pytest.mark.walk(range(1))
def test_every_offset_is_answered_around_quarantined_records_a_gap_and_what_was_cleaned(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, seed: int
) -> None:
    """Refused records stand single, in a row, amid a batch, first and last in the log. The gap stands behind copies."""
    print(f"seed {seed}")
    scene = Scene(source_cluster, target_cluster, {"poison": 1, "gap": 1, "cleaned": 1}, seed=seed)
    refused = {0, 57, 58, 59, 120, 150, 199}
    poison = [_numbered(at, FUTURE_MS if at in refused else now_ms()) for at in range(200)]
    send(source_cluster, scene.topics["poison"], poison[:100], ledger=scene.sends, linger_ms=500)
    send(source_cluster, scene.topics["gap"], [_numbered(at, now_ms()) for at in range(50)], ledger=scene.sends)
    with Mm2py(scene.properties) as run, scene.under_load(cleaned=1):
        scene.wait_for_copies(run, "cleaned", partitions=1)
        _wait_for_count(scene, run, "gap", 50)
        _wait_for_count(scene, run, "poison", 100 - len({at for at in refused if at < 100}))
        assert run.terminate() == 0
    send(source_cluster, scene.topics["gap"], [_numbered(at, now_ms()) for at in range(50, 120)], ledger=scene.sends)
    delete_before(source_cluster, scene.topics["gap"], 90)
    send(source_cluster, scene.topics["poison"], poison[100:], ledger=scene.sends, linger_ms=500)
    with Mm2py(scene.properties) as run:
        with scene.under_load(cleaned=1):
            scene.wait_for_copies(run, "cleaned", partitions=1)
        _wait_for_count(scene, run, "gap", 80)
        _wait_for_count(scene, run, "poison", 200 - len(refused))
        wait_until(
            lambda: len(refused_records(target_cluster, scene.alias)) == len(refused),
            "all refused records are in quarantine",
        )
        scene.commit_anywhere()
        scene.flow.assert_exact(run)
        assert run.terminate() == 0


def _numbered(at: int, timestamp_ms: int) -> Planned:
    return Planned(0, timestamp_ms, b"k", b"%d" % at, ())


def _wait_for_count(scene: Scene, run: Mm2py, name: str, count: int) -> None:
    run.wait_until(
        lambda: record_count(scene.target, scene.remote(name)) == count,
        f"{count} records of {name} are copied",
        deadline_s=ARRIVAL_S,
    )

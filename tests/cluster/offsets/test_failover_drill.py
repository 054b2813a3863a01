"""Failover of many groups on real brokers: they stop on the source anywhere, and go on in the copy.

None skips a record, none reads one again. If the source is cut off while they read, they read again what they committed
after the last checkpoint, and nothing else.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import Consumer, KafkaException

from deploy.local.kafka import KafkaCluster
from tests.checker.dump import dumped
from tests.checker.dumped import digest
from tests.cluster.copies import assert_copied
from tests.cluster.drills import DrillTopics, Failover, Stood, go_on, judge_failover, stop_anywhere
from tests.cluster.group_offsets import member
from tests.cluster.judged_offsets import Flow, Place, wait_or_tell
from tests.cluster.kafka_client import new_name
from tests.cluster.running import PATIENCE, Mm2py, Value, one_way_properties, pause

pytestmark = pytest.mark.timeout(600 * PATIENCE)

GROUPS = 20
RECORDS = 1_500
"""Of each topic."""
ARRIVAL_S = 90.0 * PATIENCE
ROUND_S = 30.0 * PATIENCE
CLOSE_S = 30.0 * PATIENCE
"""Checkpoints and commits follow each other in seconds; a machine that is busy takes longer."""


class Drill:
    """A flow of the topics of a drill with aliases of its own, and its groups."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, *, seed: int) -> None:
        print(f"seed {seed}")
        self.source, self.target, self.chance = source, target, random.Random(seed)
        self.topics = DrillTopics(source, seed=seed)
        alias, other, stem = new_name("A").replace("-", ""), new_name("B").replace("-", ""), new_name("drill")
        self.groups = [f"{stem}-{number:02}" for number in range(GROUPS)]
        self.topics.make_remotes(target, alias)
        self.flow = Flow(
            *(source, target, alias, other, self.topics.topics, self.topics.sends),
            cleaned=[self.topics.cleaned],
            groups=self.groups,
        )
        self.properties: dict[str, Value] = one_way_properties(source, target, names=(alias, other)) | {
            f"{alias}->{other}.topics": ",".join(self.topics.topics),
            f"{alias}.consumer.isolation.level": "read_committed",
            "sync.topic.configs.enabled": False,
            "emit.checkpoints.enabled": True,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": True,
            "sync.group.offsets.interval.seconds": 1,
            "groups": f"{stem}-.*",
        }

    def assert_copied(self, run: Mm2py) -> None:
        for topic in self.topics.topics:
            assert_copied(
                *(self.source, self.target, topic, self.flow.remote(topic)),
                run=run,
                deadline_s=ARRIVAL_S,
                read_committed=True,
                ledger=self.topics.sends,
            )

    def wait_for_commits(self, run: Mm2py, upstream: Callable[[str, Place], int | None]) -> None:
        """Wait until every group has committed on the target what its last checkpoint says.

        Args:
            upstream: of which source offset that checkpoint has to be; None if it may be of any.
        """
        missing: list[str] = []

        def synced() -> bool:
            missing.clear()
            last = {(one.group, place): one for place, found in self.flow.checkpoints().items() for one in found}
            commits = self.flow.commits(self.target)
            for group in self.groups:
                for place in self.topics.places:
                    one, at = last.get((group, place)), commits[group].get(place)
                    wanted = upstream(group, place)
                    if one is None or at != one.target_offset or wanted not in {None, one.source_offset}:
                        missing.append(f"{group} {place}: {one}, committed {at}, wanted one of {wanted}")
            return not missing

        wait_or_tell(run, synced, lambda: "\n".join(missing), deadline_s=ROUND_S)

    def continue_on_target(self, stood: Stood) -> Failover:
        """Let a group go on in the copy, and count."""
        places = {(self.flow.remote(topic), number): (topic, number) for topic, number in self.topics.places}
        met = {places[place]: records for place, records in go_on(self.target, stood.group, places).items()}
        return judge_failover(stood, met, self.pairs)

    def judge(self, stood: list[Stood]) -> list[Failover]:
        self.pairs = self.flow.pairs()
        found = [self.continue_on_target(one) for one in stood]
        for one in found:
            print(f"{one.group}: lag {one.lag}, skipped {one.skipped}, again {one.read_again}/{one.expected_again}")
        return found


@pytest.mark.walk(range(1))
def test_twenty_groups_that_stop_anywhere_skip_no_record_and_read_none_again(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, seed: int
) -> None:
    drill = Drill(source_cluster, target_cluster, seed=seed)
    with Mm2py(drill.properties) as run:
        drill.topics.write(RECORDS)
        drill.assert_copied(run)
        logs = drill.topics.logs()
        stood = [stop_anywhere(source_cluster, group, logs, drill.chance) for group in drill.groups]
        committed = {one.group: one.committed for one in stood}
        drill.wait_for_commits(run, lambda group, place: committed[group][place])
        found = drill.judge(stood)
        assert run.terminate() == 0
    assert sum(one.lag for one in found) > RECORDS, "they lag"
    assert [one for one in found if one.skipped or one.read_again] == []


class Reader(threading.Thread):
    """Groups that read on and commit, each at a pace of its own, until the source is gone."""

    def __init__(self, cluster: KafkaCluster, groups: list[str], topics: list[str], chance: random.Random) -> None:
        super().__init__(name="drill groups", daemon=True)
        self.read: dict[str, dict[Place, list[tuple[int, bytes]]]] = {group: {} for group in groups}
        self._paces = {group: chance.randint(5, 60) for group in groups}
        self._clients: dict[str, Consumer] = {group: member(cluster, group) for group in groups}
        self._ended = threading.Event()
        for client in self._clients.values():
            client.subscribe(topics)

    def run(self) -> None:
        while not self._ended.is_set():
            for group, client in self._clients.items():
                with suppress(KafkaException):  # the source is gone, or there is nothing to commit
                    self._read_some(group, client)

    def _read_some(self, group: str, client: Consumer) -> None:
        messages = [message for message in client.consume(self._paces[group], 0.02) if message.error() is None]
        for message in messages:
            record, place = dumped(message), (str(message.topic()), message.partition() or 0)
            self.read[group].setdefault(place, []).append((record.offset, digest(record)))
        if messages:
            client.commit(asynchronous=True)  # a commit that waits would wait long for a source that is gone

    def end(self) -> None:
        """Read no more; what is not committed yet may still be."""
        self._ended.set()
        self.join()

    def close(self) -> None:
        """Leave the groups, for which the source has to be there.

        The client of a source that was away has waited for ever here, and nothing interrupts it: so not for long.
        """
        closing = [threading.Thread(target=client.close, daemon=True) for client in self._clients.values()]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(CLOSE_S / len(closing))


@contextmanager
def reading(drill: Drill) -> Iterator[Reader]:
    reader = Reader(drill.source, drill.groups, drill.topics.topics, drill.chance)
    reader.start()
    try:
        yield reader
    finally:
        reader.end()
        drill.source.start()
        reader.close()


@pytest.mark.walk(range(1))
def test_groups_whose_source_is_cut_off_read_again_what_they_committed_after_the_last_checkpoint(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, seed: int
) -> None:
    source = make_cluster("drill-source")
    drill = Drill(source, target_cluster, seed=seed)
    with reading(drill) as reader, Mm2py(drill.properties) as run:
        for _ in range(8):
            drill.topics.write(RECORDS // 10)
            pause(drill.chance.uniform(0.2, 0.6), "checkpoints come between")
        drill.assert_copied(run)
        drill.wait_for_commits(run, lambda _group, _place: None)
        for _ in range(2):
            drill.topics.write(RECORDS // 10)
        source.broker(1).kill()
        reader.end()
        drill.wait_for_commits(run, lambda _group, _place: None)
        last = {(one.group, place): one for place, found in drill.flow.checkpoints().items() for one in found}
        assert run.alive
        run.kill()  # what is on the target stays as it is
    stood = [
        Stood(
            group,
            {place: last[group, place].source_offset for place in drill.topics.places},
            {place: reader.read[group].get(place, []) for place in drill.topics.places},
        )
        for group in drill.groups
    ]
    found = drill.judge(stood)
    assert sum(one.lag for one in found), "they lag"
    assert [one for one in found if one.skipped or one.read_again != one.expected_again] == []

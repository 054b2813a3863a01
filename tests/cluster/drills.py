"""A failover drill: groups read a cluster, stop, and go on in the copy. It counts what they skip and read again.

A group is a consumer of librdkafka that subscribes. What it read is counted by the records themselves, so every record
of a drill is different from all others.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from deploy.local.kafka import KafkaCluster
from tests.checker.dump import dumped
from tests.checker.dumped import Dumped, digest
from tests.checker.ledger import Ledger
from tests.checker.pairs import Cost, Pairs
from tests.checker.traffic import Planned, Traffic
from tests.cluster.cleaned_topics import NEVER_CLEANED, cleaned_topic
from tests.cluster.copies import dump, make_topic, new_topic, now_ms, producer, send, send_with
from tests.cluster.group_offsets import member
from tests.cluster.judged_offsets import Place
from tests.cluster.running import PATIENCE, wait_until

READ_S = 60.0 * PATIENCE
TRANSACTION_RECORDS = 15
ABORTED = 4
"""One transaction of so many is aborted."""


# Writing


class DrillTopics:
    """Three topics of a drill, and all that was sent to them: plain batches, transactions, a compacted topic."""

    def __init__(self, cluster: KafkaCluster, *, seed: int) -> None:
        self.sends = Ledger()
        self._cluster = cluster
        self.plain = new_topic(cluster, "plain", 2)
        self.transactions = new_topic(cluster, "transactions", 2)
        self.cleaned = cleaned_topic(cluster, self.sends, seed=seed, plain=True)
        self.partitions = {self.plain: 2, self.transactions: 2, self.cleaned: 1}
        self._sizes = random.Random(seed)
        self._producer = producer(cluster, transactional_id=f"drill-{self.transactions}")
        self._producer.init_transactions(READ_S)
        self._transactions = 0
        self._records = {
            topic: Traffic(
                seed=seed + 1 + at,
                partitions=partitions,
                producer=1,
                first_timestamp_ms=now_ms(),
                compacted=topic == self.cleaned,
                keys=60,
                plain=True,  # so that no two records are equal
            ).records()
            for at, (topic, partitions) in enumerate(self.partitions.items())
        }

    @property
    def topics(self) -> list[str]:
        return list(self.partitions)

    @property
    def places(self) -> list[Place]:
        return [(topic, number) for topic, count in self.partitions.items() for number in range(count)]

    def make_remotes(self, cluster: KafkaCluster, source_alias: str) -> None:
        """Make the remote topics, so that no cleaner removes copies while they are counted."""
        for topic, partitions in self.partitions.items():
            policy = {"cleanup.policy": "compact"} if topic == self.cleaned else {}
            make_topic(cluster, f"{source_alias}.{topic}", partitions, {**policy, **NEVER_CLEANED})

    def write(self, records: int) -> None:
        """Write so many records to each topic: some alone, some in large batches, and in small transactions."""
        for topic in (self.plain, self.cleaned):
            left = islice(self._records[topic], records)
            while batch := list(islice(left, self._sizes.choice((1, 3, 50, 400)))):
                send(self._cluster, topic, batch, ledger=self.sends)
        left = islice(self._records[self.transactions], records)
        while batch := list(islice(left, TRANSACTION_RECORDS)):
            self._transact(batch)

    def logs(self) -> dict[Place, list[Dumped]]:
        """Return what readers of committed records see on the source."""
        return {
            (topic, number): log
            for topic, count in self.partitions.items()
            for number, log in dump(self._cluster, topic, range(count)).items()
        }

    def _transact(self, batch: Sequence[Planned]) -> None:
        self._transactions += 1
        is_aborted = self._transactions % ABORTED == 0
        sent_there = Ledger()
        self._producer.begin_transaction()
        send_with(self._producer, self.transactions, batch, ledger=sent_there)
        if is_aborted:
            self._producer.abort_transaction(READ_S)
        else:
            self._producer.commit_transaction(READ_S)
        for number in range(self.partitions[self.transactions]):
            for entry in sent_there.of(self.transactions, number):
                self.sends.add(self.transactions, number, entry._replace(is_aborted=is_aborted))


# Groups


@dataclass(frozen=True, slots=True)
class Stood:
    """Where a group stopped on the source."""

    group: str
    committed: Mapping[Place, int]
    read: Mapping[Place, Sequence[tuple[int, bytes]]]
    """Source offset and digest of each record it has read, by partition."""


@dataclass(frozen=True, slots=True)
class Failover:
    """What a group met when it went on in the copy, in records."""

    group: str
    lag: int
    """How many records of the copy the group had not read."""
    skipped: int
    read_again: int
    expected_again: int
    """How many it had read behind the offsets from which it goes on: what even an exact mirror cannot know."""

    @property
    def cost(self) -> Cost:
        return Cost(self.skipped, self.read_again - self.expected_again)


def stop_anywhere(
    cluster: KafkaCluster,
    group: str,
    logs: Mapping[Place, Sequence[Dumped]],
    chance: random.Random,
    *,
    protocol: str = "classic",
) -> Stood:
    """Let a group read a random part of each partition, commit, and leave.

    Of every second partition it commits the offset of the next record, as Java's consumer does that stands behind
    markers. Of the others it commits the one behind its last record.
    """
    goals = {place: _share(len(log), chance) for place, log in logs.items()}
    client = member(cluster, group, protocol=protocol)
    client.subscribe(sorted({topic for topic, _ in logs}))
    read: dict[Place, list[tuple[int, bytes]]] = {place: [] for place in logs}
    paused: set[Place] = set()
    try:

        def has_read() -> bool:
            for message in client.consume(500, 0.1):
                assert message.error() is None, message.error()
                place = (str(message.topic()), message.partition() or 0)
                record = dumped(message)
                if len(read[place]) < goals[place]:
                    read[place].append((record.offset, digest(record)))
                elif place not in paused:
                    paused.add(place)
                    client.pause([TopicPartition(*place)])
            return all(len(read[place]) >= goal for place, goal in goals.items()) and bool(client.assignment())

        wait_until(has_read, f"{group} has read {goals}", deadline_s=READ_S)
        committed = {
            place: _next(client, place, log, read[place][-1][0] + 1 if read[place] else 0, behind_markers=at % 2 == 1)
            for at, (place, log) in enumerate(sorted(logs.items()))
        }
        client.commit(
            offsets=[TopicPartition(*place, offset) for place, offset in committed.items()], asynchronous=False
        )
    finally:
        client.close()
    return Stood(group, committed, read)


def _share(records: int, chance: random.Random) -> int:
    """Return how many of so many records a group reads; now and then none or all."""
    return chance.choice((0, records, *(chance.randint(0, records) for _ in range(6))))


def _next(client: Consumer, place: Place, log: Sequence[Dumped], offset: int, *, behind_markers: bool) -> int:
    """Return what is committed behind the last record."""
    if not behind_markers:
        return offset
    at = bisect_left(log, offset, key=lambda record: record.offset)
    if at < len(log):
        return log[at].offset
    return max(offset, client.get_watermark_offsets(TopicPartition(*place), READ_S)[1])


def go_on(
    cluster: KafkaCluster, group: str, places: Iterable[Place], *, reset: str = "error"
) -> dict[Place, list[Dumped]]:
    """Let a group go on where it stands, up to the ends; it commits nothing.

    Args:
        places: all partitions of the topics that it subscribes to.
        reset: ``auto.offset.reset``, for partitions without a committed offset.
    """
    wanted = set(places)
    client = Consumer(
        {
            "bootstrap.servers": cluster.internal_bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    client.subscribe(sorted({topic for topic, _ in wanted}))
    found: defaultdict[Place, list[Dumped]] = defaultdict(list)
    ended: set[Place] = set()

    def is_at_the_end() -> bool:
        for message in client.consume(500, 0.1):
            error = message.error()
            place = (str(message.topic()), message.partition() or 0)
            if error is None:
                found[place].append(dumped(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(place)
            else:
                raise KafkaException(error)
        return ended >= wanted

    try:
        wait_until(is_at_the_end, f"{group} has come to the end of {wanted}", deadline_s=READ_S)
    finally:
        client.close()
    return dict(found)


def judge_failover(stood: Stood, met: Mapping[Place, Sequence[Dumped]], pairs: Mapping[Place, Pairs]) -> Failover:
    """Count what a group skipped and read again.

    Args:
        stood: with the offsets from which it may be expected to go on.
        met: what it read in the copy, by source topic and partition; likewise ``pairs``.
    """
    lag = skipped = again = expected = 0
    for place, ours in pairs.items():
        committed = stood.committed[place]
        met_offsets = [record.offset for record in met.get(place, ())]
        unread = ours.there.copied[ours.here.copies_before(committed) :]
        lag += len(unread)
        skipped += len(set(unread) - set(met_offsets))
        read = {content for _, content in stood.read[place]}
        again += sum(digest(record) in read for record in met.get(place, ()))
        again += len(met_offsets) - len(set(met_offsets))
        expected += sum(offset >= committed and ours.partner(offset) is not None for offset, _ in stood.read[place])
    return Failover(stood.group, lag, skipped, again, expected)

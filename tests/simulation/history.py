"""All records that were ever written to the source, by partition, and all that the clusters were made to lose."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from tests.fakes.broker.broker_model import ClusterModel, Transaction
from tests.fakes.broker.partition_model import Partition
from tests.fakes.broker.record_batch import Record, StoredRecord, read_records
from tests.simulation.schedule import Times, TopicPlan

OLD_MS: Final = 1_000_000
POISON_MS: Final = 4_000_000_000_000
"""A timestamp so late that no remote topic of these runs takes it."""


@dataclass(slots=True)
class PartitionHistory:
    """One source partition. Offsets are the source's."""

    records: dict[int, StoredRecord] = field(default_factory=dict)
    """All records that stand or stood there, by offset, without the truncated ones."""
    aborted: set[int] = field(default_factory=set)
    before_cut: list[StoredRecord] | None = None
    """All records that stood there before the source was truncated."""
    gone: list[StoredRecord] = field(default_factory=list)
    """Offsets truncated from the source."""
    target_cut: list[StoredRecord] = field(default_factory=list)
    """Offsets truncated from the remote partition."""
    target_deleted: list[StoredRecord] = field(default_factory=list)
    """Offsets deleted from the start of the remote partition."""
    target_was_emptied: bool = False
    """The remote partition was empty once. Only offsets tell the end of its copy, so fences may repeat records."""
    was_cut: bool = False
    target_was_cut: bool = False

    def in_order(self, *, committed: bool) -> list[StoredRecord]:
        return [self.records[offset] for offset in sorted(self.records) if not committed or offset not in self.aborted]


@dataclass(slots=True)
class _Open:
    """A transaction that is open."""

    transaction: Transaction
    offsets: dict[tuple[str, int], list[int]]
    ends_at_s: float


class Traffic:
    """Writes to the source topics as applications do, and remembers all records."""

    def __init__(self, cluster: ClusterModel, topics: dict[str, TopicPlan], rng: random.Random) -> None:
        self.history: defaultdict[tuple[str, int], PartitionHistory] = defaultdict(PartitionHistory)
        self._cluster = cluster
        self._topics = topics
        self._rng = rng
        self._open: list[_Open] = []
        self._number = 0

    def write(self) -> None:
        """Append a batch to some partition, or nothing if that partition has no leader now."""
        rng = self._rng
        plan = rng.choice(list(self._topics.values()))
        partition = rng.randrange(len(self._cluster.topics[plan.name].partitions))
        records = [self._record(plan) for _ in range(rng.choice([1, 1, 2, 5, rng.randint(1, 40)]))]
        if rng.random() < plan.poison:
            records[rng.randrange(len(records))] = self._poison()
        codec, in_transaction = rng.choice(plan.codecs), rng.random() < plan.transactions
        if not _is_led(self._cluster, self._cluster.partition(plan.name, partition)):
            return
        if not in_transaction:
            self._cluster.append(plan.name, partition, records, codec=codec)
            self._learn(plan.name, partition)
            return
        begins = not self._open or rng.random() < 0.5
        if begins:
            self._open.append(_Open(self._cluster.transaction(), {}, self._now_s() + rng.choice([0.0, 0.3, 8.0])))
        chosen = rng.choice(self._open)
        chosen.transaction.append(plan.name, partition, records, codec=codec)
        offsets = self._learn(plan.name, partition)
        chosen.offsets.setdefault((plan.name, partition), []).extend(offsets)

    def end_transactions(self, *, all_of_them: bool = False) -> None:
        """Commit or abort the transactions that are due and whose partitions have leaders."""
        left = []
        for one in self._open:
            led = all(_is_led(self._cluster, self._cluster.partition(*key)) for key in one.transaction.touched)
            if not led or not (all_of_them or one.ends_at_s <= self._now_s()):
                left.append(one)
            elif self._rng.random() < 0.5:
                one.transaction.abort()
                for key, offsets in one.offsets.items():
                    self.history[key].aborted.update(offsets)
            else:
                one.transaction.commit()
        self._open = left

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def _learn(self, topic: str, partition: int) -> list[int]:
        stored = read_records(self._cluster.partition(topic, partition).log.batches[-1])
        self.history[topic, partition].records.update({record.offset: record for record in stored})
        return [record.offset for record in stored]

    def _record(self, plan: TopicPlan) -> Record:
        rng = self._rng
        self._number += 1
        key = None if rng.random() < 0.2 and not plan.compacted else b"key-%d" % rng.randrange(10)
        value: bytes | None = b"%d:" % self._number + rng.randbytes(rng.randint(0, plan.value_bytes_most))
        headers: tuple[tuple[str, bytes | None], ...] = rng.choice([(), (("h", None), ("h", b"")), (("", b"\xff"),)])
        if rng.random() < 0.05:
            value, headers = None, (("n", b"%d" % self._number),)
        old = plan.times is Times.OLD or (plan.times is Times.MIXED and rng.random() < 0.5)
        return Record(value=value, key=key, headers=headers, timestamp_ms=OLD_MS if old else None)

    def _poison(self) -> Record:
        self._number += 1
        return Record(value=b"%d" % self._number, key=b"poison", timestamp_ms=POISON_MS)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _is_led(cluster: ClusterModel, partition: Partition) -> bool:
    return partition.leader in cluster.nodes and cluster.nodes[partition.leader].up


def is_led(cluster: ClusterModel, topic: str, partition: int) -> bool:
    """Whether the partition has a leader now."""
    return _is_led(cluster, cluster.partition(topic, partition))

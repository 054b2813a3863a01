"""What the control log of a run must show: one leader an epoch, and only owners write to partitions (I8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

from mm2py.flow import Kind, parse_flow
from mm2py.group.membership import GroupState
from mm2py.records.control_codec import decode
from mm2py.records.control_record import Entry, MemberId, Writes
from tests.fakes.broker.broker_model import ClusterModel

FLOW: Final = parse_flow("A->B")
CONTROL_LOG: Final = "mm2-cluster.mm2py.internal"


def entries(target: ClusterModel) -> Iterator[Entry]:
    for record in target.records(CONTROL_LOG, 0):
        where = f"{CONTROL_LOG} at {record.offset}"
        yield Entry(record.offset, record.timestamp_ms, decode(record.value, where=where))


def group_findings(target: ClusterModel, topics: Collection[tuple[str, str]]) -> list[str]:
    """Return all faults.

    Args:
        topics: source topics with their remote topics.
    """
    if CONTROL_LOG not in target.topics:
        return []
    findings: list[str] = []
    leaders: dict[int, MemberId] = {}
    writers: dict[int, MemberId] = {}
    owners: defaultdict[tuple[str, int], list[MemberId]] = defaultdict(list)
    view, changes, epoch = GroupState(), -1, 0
    for entry in entries(target):
        if isinstance(entry.record, Writes):
            writers[entry.record.writer.producer_id] = entry.record.member
        view.take(entry)
        if view.leader is not None and leaders.setdefault(view.leader_epoch, view.leader) != view.leader:
            findings.append(f"epoch {view.leader_epoch} has two leaders, {leaders[view.leader_epoch]}, {view.leader}")
        if view.leader_epoch < epoch:
            findings.append(f"leader epoch {view.leader_epoch} comes after {epoch}")
        epoch = view.leader_epoch
        if changes != view.revocations.changes:
            changes = view.revocations.changes
            for task, owned in view.owners.items():
                if task.kind is Kind.SOURCE and task.is_partition and owned.member and owned.waits_for is None:
                    runs = owners[task.topic, task.partition]
                    if not runs or runs[-1] != owned.member:
                        runs.append(owned.member)
    for topic, remote in topics:
        for part in target.topics[remote].partitions if remote in target.topics else ():
            findings += _judge_writers(target, (topic, remote, part.index), writers, owners[topic, part.index])
    return findings


def _judge_writers(
    target: ClusterModel, at: tuple[str, str, int], writers: dict[int, MemberId], owners: list[MemberId]
) -> list[str]:
    """Each worker that wrote to a partition owned it, and they wrote one after the other, as they owned it."""
    topic, remote, number = at
    turn = 0
    for batch in target.batches(remote, number):
        if batch.control or batch.producer_id < 0:
            continue
        member = writers.get(batch.producer_id)
        if member is None:
            return [f"{topic}-{number}: at {batch.base_offset} writes producer {batch.producer_id}, of no member"]
        while turn < len(owners) and owners[turn] != member:
            turn += 1
        if turn == len(owners):
            return [f"{topic}-{number}: at {batch.base_offset} writes {member}, whose turn it was not: {owners}"]
    return []

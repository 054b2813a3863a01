"""The cases of the fault campaign: what happens to mirror and brokers, in which order, by which seed.

The numbers are those of the list of faults that mm2py is tested against: F02 clean stops, F06 kills during the start
and just after a write, F07 a process that is frozen and wakes, F14 to F16 brokers that are killed, then ten kills under
load, and two ways in which a source loses or replaces records while the mirror is down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.fault_mirrors import MM2, MM2_EOS
from bench.fault_outcome import MENTIONED, SILENT, WARNED, Reported, gap_report, recreation_report
from bench.fault_scene import (
    ANSWER_S,
    PARTITIONS,
    SECOND,
    START_S,
    NotSeen,
    Scene,
    admin_of,
    await_in_sync,
    busiest,
    delete_below,
    wait_for,
)
from deploy.local.kafka import Broker, KafkaCluster
from tests.checker.check import Report

FROZEN_S: Final = 25.0
"""Longer than MirrorMaker 2's session of 10 s, and shorter than its transactions' minute."""
BEFORE_RECORDS: Final = 2_000
WHILE_DOWN_RECORDS: Final = 3_000
"""Records written to each topic before the mirror is down, and while it is down."""
GAP_RECOVER_S: Final = 40.0
"""How long copying may take to resume after a gap; a mirror may rightly refuse to."""
SETTLE_S: Final = 3.0
TRANSACTIONS: Final = "__transaction_state"
GROUPS: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of a case: the checker's report, and for a gap its width and how the log reported it."""

    report: Report
    gap_records: int = 0
    reported: Reported | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One case; ``nodes`` are the numbers of nodes of source and target cluster."""

    title: str
    run: Callable[[Scene], Judged]
    nodes: tuple[int, int] = (1, 1)


# The mirror


def clean_stops(scene: Scene) -> Judged:
    """F02: SIGTERM under load, three times."""
    with scene.under_load():
        scene.start_and_warm_up()
        for number in range(3):
            scene.pause(0.5, 2)
            fault_s = time.monotonic()
            code = scene.worker.stop()
            marks = scene.marks()  # the worker may have copied earlier records while it stopped
            scene.note(f"stopped in {time.monotonic() - fault_s:.1f} s, exit code {code}")
            scene.worker.start()
            scene.await_recovery(f"clean stop {number + 1}", marks, fault_s)
    return _finished(scene)


def kills_at_start(scene: Scene) -> Judged:
    """F06: killed three times during its start, after a random part of its duration; then twice just after a write."""
    with scene.under_load():
        scene.start_and_warm_up()
        marks, fault_s = _kill(scene)
        for _ in range(3):
            scene.worker.start()
            time.sleep(scene.chance.uniform(0.1, 0.95) * scene.seconds_to_start)
            marks, fault_s = _kill(scene)
        scene.worker.start()
        scene.await_recovery("kills while it starts", marks, fault_s)
        for number in range(2):
            scene.pause(0, 0.3)
            marks, fault_s = _kill(scene)
            scene.worker.start()
            scene.await_recovery(f"kill {number + 1} just after writing", marks, fault_s)
    return _finished(scene)


def kills(scene: Scene) -> Judged:
    """F04, F05: ten kills in the middle of one load."""
    with scene.under_load():
        scene.start_and_warm_up()
        for number in range(scene.kills):
            scene.pause(0.5, 4)
            marks, fault_s = _kill(scene)
            scene.worker.start()
            scene.await_recovery(f"kill {number + 1}", marks, fault_s)
    return _finished(scene)


def frozen(scene: Scene) -> Judged:
    """F07: SIGSTOP for longer than the session, SIGCONT; no worker takes over. Recovery is counted from the SIGCONT."""
    with scene.under_load():
        scene.start_and_warm_up()
        scene.worker.freeze()
        marks = scene.marks()
        scene.note("frozen")
        time.sleep(FROZEN_S)
        fault_s = time.monotonic()
        scene.worker.thaw()
        scene.await_recovery("waking", marks, fault_s)
    return _finished(scene)


def taken_over(scene: Scene) -> Judged:
    """F07: as ``frozen``, and a second process is started at once. The first process wakes when the second copies."""
    with scene.under_load():
        scene.start_and_warm_up()
        fault_s = time.monotonic()
        scene.worker.freeze()
        marks = scene.marks()
        scene.workers[SECOND].start()
        scene.note("frozen, and a second process is started")
        scene.await_recovery("freezing", marks, fault_s)
        time.sleep(max(0.0, fault_s + FROZEN_S - time.monotonic()))
        scene.worker.thaw()
        scene.note("the first wakes")
        scene.await_recovery("the first waking", scene.marks(), time.monotonic(), counts=False)
        time.sleep(4 * SETTLE_S)
        ends = {number: worker.exit_code for number, worker in enumerate(scene.workers)}
        scene.note(f"exit codes (None: it runs): {ends}")
    return _finished(scene)


def _kill(scene: Scene) -> tuple[Mapping[str, int], float]:
    fault_s = time.monotonic()
    scene.worker.kill()
    scene.note("killed")
    return scene.marks(), fault_s


def _finished(scene: Scene) -> Judged:
    scene.finish()
    ends = sum(bound.end for bound in scene.source_bounds().values()), sum(scene.target_ends().values())
    scene.note(f"log ends, all partitions together: source {ends[0]}, target {ends[1]}")
    return Judged(scene.check())


# Brokers


def broker_kills(scene: Scene, *, side: str) -> Judged:
    """F14, F15: twice the broker that leads most partitions is killed. It restarts when all are copied again."""
    on_source = side == "source"
    topics = list(scene.remotes) if on_source else list(scene.remotes.values())
    return _kill_brokers(scene, topics, lambda: busiest(_cluster(scene, on_source), topics), on_source=on_source)


def coordinator_kills(scene: Scene) -> Judged:
    """F16: as F15, with the broker that coordinates the mirror's transactional id, or its group if it has no id."""
    return _kill_brokers(scene, list(scene.remotes.values()), lambda: _coordinator(scene), on_source=False)


def _cluster(scene: Scene, on_source: bool) -> KafkaCluster:
    return scene.clusters.source if on_source else scene.clusters.target


def _kill_brokers(scene: Scene, topics: Sequence[str], choose: Callable[[], Broker], *, on_source: bool) -> Judged:
    cluster = _cluster(scene, on_source)
    with scene.under_load():
        scene.start_and_warm_up()
        for number in range(2):
            scene.pause(0.5, 2)
            broker = choose()
            fault_s = time.monotonic()
            broker.kill()
            marks = scene.marks()
            scene.note(f"broker {broker.node_id} killed")
            scene.await_recovery(f"broker kill {number + 1}", marks, fault_s)
            broker.start()
            await_in_sync(cluster, topics)
            scene.note(f"broker {broker.node_id} is back and in sync")
        time.sleep(SETTLE_S)
    return _finished(scene)


def _coordinator(scene: Scene) -> Broker:
    target = scene.clusters.target
    group = f"{scene.plan.source_alias}-mm2"
    if scene.plan.mirror == MM2:
        topic, partition = GROUPS, java_hash(group) % _width(scene, GROUPS)
    elif scene.plan.mirror == MM2_EOS:
        topic, partition = TRANSACTIONS, java_hash(f"{group}-MirrorSourceConnector-0") % _width(scene, TRANSACTIONS)
    else:
        topic, partition = TRANSACTIONS, _partition_of_transactions(scene)
    leader = admin_of(target).list_topics(topic, timeout=ANSWER_S).topics[topic].partitions[partition].leader
    scene.note(f"coordinator: broker {leader}, {topic}-{partition}")
    return target.broker(leader)


def java_hash(text: str) -> int:
    """Return the absolute value of ``String.hashCode``, which decides a coordinator's partition."""
    units = text.encode("utf-16-be")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return abs(found - (1 << 32) if found >> 31 else found)


def _width(scene: Scene, topic: str) -> int:
    return len(admin_of(scene.clusters.target).list_topics(topic, timeout=ANSWER_S).topics[topic].partitions)


def _partition_of_transactions(scene: Scene) -> int:
    """Return the partition of mm2py's newest transactional id: each incarnation has its own."""
    alias = scene.plan.source_alias.encode()
    found: list[tuple[int, int]] = []
    consumer = Consumer(
        {
            "bootstrap.servers": scene.clusters.target.bootstrap,
            "group.id": "coordinators",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        width = _width(scene, TRANSACTIONS)
        consumer.assign([TopicPartition(TRANSACTIONS, number, OFFSET_BEGINNING) for number in range(width)])
        ended: set[int] = set()

        def all_read() -> bool:
            for message in consumer.consume(1_000, timeout=0.2):
                number, key = message.partition(), message.key()
                if number is None:
                    continue
                if message.error() is not None:
                    ended.add(number)
                elif isinstance(key, bytes) and alias in key:
                    found.append((message.timestamp()[1], number))
            return len(ended) == width

        wait_for(all_read, f"{TRANSACTIONS} is read", deadline_s=30)
    finally:
        consumer.close()
    return max(found)[1]


# Gaps


def deleted_records(scene: Scene) -> Judged:
    """F52: records are deleted past the position while the mirror is down; the rest must be copied."""
    _copy_and_stop(scene)
    positions = {place: bound.end for place, bound in scene.source_bounds().items()}
    target_starts = scene.target_ends()
    scene.write(WHILE_DOWN_RECORDS)
    ends = {place: bound.end for place, bound in scene.source_bounds().items()}
    cuts = {place: (positions[place] + ends[place]) // 2 for place in positions}
    delete_below(scene.clusters.source, cuts)
    gap = sum(cuts[place] - positions[place] for place in positions)
    scene.note(f"{gap} records deleted that were not copied")
    since = _start_again(scene, "start after the deletion")
    goal = sum(load.acknowledged for load in scene.loads) - gap
    scene.note(f"all that is left was copied: {_copied(scene, goal)}")
    scene.stop_all()
    text = scene.worker.log_text(since)
    reports = [
        gap_report(
            text, topic, {number: (positions[topic, number], cuts[topic, number]) for number in range(PARTITIONS)}
        )
        for topic in scene.topics
    ]
    return Judged(scene.check(cuts, target_starts), gap, _least(reports))


def recreated_topic(scene: Scene, *, longer: bool) -> Judged:
    """F53: the topics are deleted while the mirror is down, and recreated with other records.

    ``longer``: with more records than the positions, so that the positions are valid offsets of the new topics.
    """
    _copy_and_stop(scene)
    target_starts = scene.target_ends()
    scene.delete_topics()
    scene.make_topics()
    scene.tail.follow(1)
    scene.new_loads(producer=1)
    scene.write(BEFORE_RECORDS * 2 if longer else BEFORE_RECORDS // 4)
    scene.note("deleted and recreated")
    since = _start_again(scene, "start after the recreation")
    scene.await_all(deadline_s=20)
    scene.stop_all()
    text = scene.worker.log_text(since)
    report = scene.check(None, target_starts)
    missing = sum(verdict.breaches["I1"] for verdict in report.verdicts)
    return Judged(report, missing, _least([recreation_report(text, topic) for topic in scene.topics]))


def _copy_and_stop(scene: Scene) -> None:
    """Let the worker copy some records of each topic completely, and stop it with SIGTERM.

    Raises:
        NotSeen: the worker did not copy all of them.
    """
    scene.write(BEFORE_RECORDS)
    scene.worker.start()
    scene.note("worker starts")
    if not scene.await_all(deadline_s=START_S):
        raise NotSeen(f"not within {START_S:g} s: {BEFORE_RECORDS} records of each topic are copied")
    scene.stop_all()


def _start_again(scene: Scene, what: str) -> int:
    """Start the worker with some load, and return the earlier size of its log. Here it may be right to copy nothing."""
    since = scene.worker.log_size()
    marks, fault_s = scene.marks(), time.monotonic()
    scene.worker.start()
    with scene.under_load():
        scene.await_recovery(what, marks, fault_s, by_hand=False, deadline_s=GAP_RECOVER_S)
        time.sleep(SETTLE_S)
    return since


def _copied(scene: Scene, goal: int) -> bool:
    with suppress(NotSeen):
        wait_for(lambda: scene.tail.distinct() >= goal, "what is left is copied", deadline_s=20)
    return scene.tail.distinct() >= goal


def _least(reports: Sequence[Reported]) -> Reported:
    """Return the weakest report of all topics, with the lines of all."""
    level = max((report.level for report in reports), key=(WARNED, MENTIONED, SILENT).index)
    return Reported(level, [line for report in reports for line in report.lines])


CASES: Final[Mapping[str, Case]] = {
    "F02": Case("F02: three clean stops", clean_stops),
    "F06": Case("F06: three kills while it starts, two just after it wrote", kills_at_start),
    "F07": Case("F07: frozen for 25 s, wakes", frozen),
    "F07-two": Case("F07: frozen, a second process takes over, the first wakes", taken_over),
    "kills": Case("ten kills in the middle of a load", kills),
    "deleted": Case("records deleted past the position while it is down", deleted_records),
    "anew-longer": Case("topics recreated while it is down, longer than before", partial(recreated_topic, longer=True)),
    "anew-shorter": Case("the same, shorter than before", partial(recreated_topic, longer=False)),
    "F14": Case("F14: a source broker killed, twice", partial(broker_kills, side="source"), (3, 1)),
    "F15": Case("F15: a target broker killed, twice", partial(broker_kills, side="target"), (1, 3)),
    "F16": Case("F16: the coordinator killed, twice", coordinator_kills, (1, 3)),
}

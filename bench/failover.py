"""How long partitions are not copied when their worker is killed: ``python -m bench.failover``; see docs/benchmarks.md.

Three workers share a topic that gets a few records a second in each partition. Repeatedly one of the three, the leader
or another, is killed with SIGKILL, at any moment between two of its heartbeats. Measured is the time until each of its
partitions has a record on the target that was written after the kill. Then a new worker replaces it.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from bench import failover_beside
from bench.campaign import add_arguments, carry_out
from bench.failover_watch import DEADLINE_S, PARTITIONS, Watch, wait_for
from bench.light_load import EVERY_S, light_load
from bench.paced import percentile
from bench.pages import first_lines
from bench.runs import Run, RunLog
from deploy.local.kafka import KafkaCluster
from mm2py.records.control_record import Assigned, Evicted, Fenced
from tests.cluster.groups import Group
from tests.cluster.kafka_client import create_topic, new_name
from tests.cluster.running import Value, one_way_properties

KILLS: Final = 50
WORKERS: Final = 3
SESSION_S: Final = 3.0
GOALS_S: Final[Mapping[float, float]] = {0.5: 1.0, 0.99: 2.0}
"""By percentile: how long after the session time-out partitions are copied again."""
STEPS: Final[Mapping[str, str]] = {
    "evicted_s": "until the group knows that it is gone",
    "given_s": "until others own its partitions",
    "fenced_s": "until it is fenced from the positions",
    "first_s": "until the first of its partitions is copied again",
    "last_s": "until the last of them is",
}


def kill_one(group: Group, watch: Watch, chance: random.Random) -> dict[str, float]:
    """Kill one of the workers, and return the times from the kill to each step of the recovery.

    Raises:
        AssertionError: it took longer than ``DEADLINE_S``.
    """
    shares = group.wait_until_assigned(PARTITIONS, among=WORKERS, deadline_s=DEADLINE_S)
    watch.begin(int(time.time() * 1000))
    wait_for(watch, range(PARTITIONS))  # all partitions are copied
    time.sleep(chance.uniform(0.5, 1.5))
    dead = chance.choice([worker for worker in group.workers if worker.alive])
    name, was_leader = group.member_of(dead), dead is group.leader
    lost = sorted(share.partition for share, owner in shares.items() if owner == name)
    killed_s = time.time()
    watch.begin(int(killed_s * 1000) + 1)
    dead.signal(signal.SIGKILL)
    seen = wait_for(watch, lost)
    measures = {"partitions": float(len(lost)), "was_leader": float(was_leader)}
    measures |= {"first_s": min(seen.values()) - killed_s, "last_s": max(seen.values()) - killed_s}
    for entry in group.entries():
        at_s = entry.time_ms / 1000 - killed_s
        match entry.record:
            case Evicted(dead=who) if who == name:
                measures.setdefault("evicted_s", at_s)
            case Fenced(of=who) if who == name:
                measures.setdefault("fenced_s", at_s)
            case Assigned() if "evicted_s" in measures:
                measures.setdefault("given_s", at_s)
    dead.wait()
    group.start_another()
    return measures


def verdicts(runs: Sequence[Run]) -> list[tuple[str, float, float, bool]]:
    """Return (percentile, result, goal, whether it is reached) for each goal. Pure."""
    took_s = [run.measures["last_s"] for run in runs if run.measures]
    found = [(share, percentile(took_s, share), SESSION_S + more_s) for share, more_s in GOALS_S.items() if took_s]
    return [(f"p{share * 100:g}", at_s, goal_s, at_s <= goal_s) for share, at_s, goal_s in found]


def report(runs: Sequence[Run], facts: Mapping[str, object]) -> str:
    """Return the page of results. Pure."""
    good = [run.measures for run in runs if run.measures]
    lines = first_lines("How long partitions stand still when their worker is killed", facts)
    lines += [
        f"{len(good)} kills of one of {WORKERS} workers that share {PARTITIONS} partitions, each of which gets"
        f" {1 / EVERY_S:g} records a second; `session.timeout.ms` is {SESSION_S * 1000:g}, its default. Seconds from"
        " SIGKILL to a record on the target that was written after it.",
        "",
        "|  | p50 | p99 | longest | when the leader died, p50 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, title in STEPS.items():
        found = [measures[name] for measures in good if name in measures]
        led = [measures[name] for measures in good if name in measures and measures["was_leader"]]
        if found:
            of_leader = f"{percentile(led, 0.5):.2f} s" if led else "-"
            lines.append(
                f"| {title} | {percentile(found, 0.5):.2f} s | {percentile(found, 0.99):.2f} s | {max(found):.2f} s "
                f"| {of_leader} |"
            )
    lines += ["", "| goal |  | found |  |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {share} | at most {goal_s:g} s | {found_s:.2f} s | {'held' if held else '**missed**'} |"
        for share, found_s, goal_s, held in verdicts(runs)
    ]
    lines += ["", *(f"Kill {run.round + 1} failed: {run.failed}" for run in runs if run.failed), ""]
    return "\n".join(lines)


def run_all(source: KafkaCluster, target: KafkaCluster, kills: int, log: RunLog) -> None:
    """Kill until the log has all results; each is stored as soon as it is known."""
    topic = new_name("failover")
    create_topic(source, topic, PARTITIONS)
    properties: dict[str, Value] = one_way_properties(source, target)
    properties |= {"A->B.topics": topic, "topics.watch.interval.ms": 1000}
    with (
        Group(target, properties, workers=WORKERS) as group,
        light_load(source, [(topic, number) for number in range(PARTITIONS)]),
    ):
        group.wait_until_assigned(PARTITIONS, among=WORKERS, deadline_s=DEADLINE_S)
        watch = Watch(target, f"A.{topic}")
        try:
            for number in range(kills):
                if log.has(("failover", "mm2py", number), PARTITIONS):
                    continue
                run = Run("failover", "mm2py", number, PARTITIONS, kill_one(group, watch, random.Random(number)))
                log.add(run)
                said = ", ".join(f"{name} {value:.2f}" for name, value in sorted(run.measures.items()))
                print(f"kill {number + 1}: {said}", flush=True)
        finally:
            watch.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill workers and print the cost. The exit code is 1 if a kill was not recovered from; goals may be missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description="What a killed worker costs.")
    parser.add_argument("--kills", type=int, help=f"by default {KILLS}; beside MM2 20 of each")
    parser.add_argument("--beside-mm2", action="store_true", help="two workers each of mm2py and of MirrorMaker 2")
    parser.add_argument("--mirrors", nargs="+", metavar="NAME", help="with --beside-mm2: some of mm2py, mm2-0, mm2")
    parser.add_argument("--default-kills", type=int, default=3, help="of MM2 as it comes: over five minutes each")
    add_arguments(parser, "failover")
    options = parser.parse_args(arguments)
    if options.beside_mm2:
        return failover_beside.main(options)
    kills = KILLS if options.kills is None else options.kills
    return carry_out("failover", options, lambda source, target, log: run_all(source, target, kills, log), report)


if __name__ == "__main__":
    sys.exit(main())

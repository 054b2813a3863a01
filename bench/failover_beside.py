"""The same kills for mm2py and MirrorMaker 2, two workers each: ``python -m bench.failover --beside-mm2``.

MirrorMaker 2 runs in dedicated mode with its internal REST server, which several processes need, once with its default
``scheduled.rebalance.max.delay.ms`` of five minutes and once with 0. One of the two workers is killed with SIGKILL, and
no worker is started until all partitions have a record that was written after the kill; then a new worker replaces the
dead one. The partitions of the dead worker are found in the same way for all mirrors: those with a pause in their copy.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.campaign import carry_out
from bench.failover_watch import PARTITIONS, Watch, wait_for
from bench.fault_mirrors import MM2, MM2PY, Plan, Worker
from bench.light_load import EVERY_S, light_load
from bench.owners import is_assigned
from bench.paced import percentile
from bench.pages import Facts, first_lines, table
from bench.runs import Run, RunLog
from deploy.local.guardian import guard
from deploy.local.kafka import KafkaCluster
from deploy.local.ports import PortLease, lease_ports
from tests.cluster.groups import Group
from tests.cluster.kafka_client import create_topic, topic_names
from tests.cluster.running import wait_until

WORKERS: Final = 2
GROUP: Final = "mm2py"
"""The group of workers whose file names none."""
TASKS: Final = 4
"""``tasks.max`` of MirrorMaker 2: with its default of 1, one of two workers copies nothing."""
STOOD_STILL_S: Final = 1.0
"""A partition without a new record for this long after the kill belonged to the dead worker: no mirror reassigns
sooner, and each copies its own partitions within milliseconds.
"""
READY_S: Final = 420.0
"""MirrorMaker 2 may delay a rebalance for five minutes, also when a worker joins."""
SETTLE_S: Final = (1.0, 3.0)
WORKLOAD: Final = "failover"
_ASSIGNED: Final = re.compile(r"\bclientId=(?P<flow>[^,]+), .* got assignment: Assignment\{(?P<what>.*)\}")
_TASKS: Final = re.compile(r"\btaskIds=\[(?P<tasks>[^\]]*)\]")
_SOURCE: Final = "MirrorSourceConnector-"


@dataclass(frozen=True, slots=True)
class MirrorSetup:
    """One mirror with its settings, and the number of kills."""

    name: str
    mirror: str
    title: str
    kills: int
    deadline_s: float
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further properties of MirrorMaker 2; ``{target}`` in a key stands for its alias."""


SETUPS: Final = (
    MirrorSetup("mm2py", MM2PY, "mm2py", 20, 60.0),
    MirrorSetup(
        *("mm2-0", MM2, "MM2, `scheduled.rebalance.max.delay.ms=0`", 20, 120.0),
        settings={"{target}.scheduled.rebalance.max.delay.ms": "0"},
    ),
    MirrorSetup("mm2", MM2, "MM2, defaults", 3, 400.0),
)


def mm2_settings(setup: MirrorSetup, rest_port: int) -> dict[str, str]:
    """Return the properties of a worker that are added to those of the fault campaign. Pure."""
    return {
        "tasks.max": str(TASKS),
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{rest_port}",
        **setup.settings,
    }


def source_tasks(log_text: str, flow: str) -> list[str]:
    """Return the tasks that copy records in the last assignment of a worker of MirrorMaker 2, by its log. Pure."""
    given: list[str] = []
    for line in log_text.splitlines():
        found = _ASSIGNED.search(line)
        if found is None or found["flow"] != flow:
            continue
        tasks = _TASKS.search(found["what"])
        names = tasks["tasks"].split(", ") if tasks is not None else []
        given = [name for name in names if name.startswith(_SOURCE)]
    return given


def tasks_are_assigned(tasks: Sequence[Sequence[str]], count: int) -> bool:
    """Return whether each worker has a task, and each task has exactly one worker. Pure."""
    held = Counter(task for each in tasks for task in each)
    return all(tasks) and len(held) == count and set(held.values()) == {1}


def stood_still(seen_s: Mapping[int, float], killed_s: float) -> dict[int, float]:
    """Return how long each partition of the dead worker was not copied. Pure.

    Args:
        seen_s: when each partition had its first record that was written after the kill.
    """
    took_s = {number: at_s - killed_s for number, at_s in seen_s.items()}
    return {number: each for number, each in took_s.items() if each > STOOD_STILL_S}


class Pair:
    """Two workers of one mirror, on a flow of their own."""

    def __init__(self, setup: MirrorSetup, source: KafkaCluster, target: KafkaCluster) -> None:
        self.setup = setup
        self.topic = f"failover-{setup.name}"
        self.remote_topic = f"s{setup.name}.{self.topic}"
        self.workers: list[Worker] = []
        self._flow = f"s{setup.name}->t{setup.name}"
        self._source, self._target = source, target
        self._directory: Path = guard().new_directory(f"failover-{setup.name}")
        self._leases: list[PortLease] = []

    def start_another(self) -> None:
        """Start one more worker, with its own port."""
        (lease,) = lease_ports(1)
        self._leases.append(lease)
        plan = Plan(
            *(self.setup.mirror, self.setup.name, self._source.bootstrap, self._target.bootstrap, [self.topic]),
            source_replicas=1,
            target_replicas=1,
            mm2_settings=mm2_settings(self.setup, lease.port),
        )
        worker = Worker(plan, self._directory, rest_port=lease.port, name=f"worker-{len(self._leases)}")
        worker.start()
        self.workers.append(worker)

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive]

    def wait_until_assigned(self) -> None:
        """Wait until both workers copy some of the partitions.

        Raises:
            AssertionError: this took longer than ``READY_S``, or a worker ended.
        """
        if self.setup.mirror == MM2PY:
            wait_until(self._partitions_are_assigned, "both workers have partitions", deadline_s=READY_S)
        else:
            wait_until(self._tasks_are_assigned, "both workers have tasks", deadline_s=READY_S)
        wait_until(lambda: self.remote_topic in topic_names(self._target), "the copy is there", deadline_s=READY_S)

    def _partitions_are_assigned(self) -> bool:
        self._assert_alive()
        view = Group(self._target, {"mm2py.group": GROUP}, workers=0).view()
        return is_assigned(view, self.topic, partitions=PARTITIONS, workers=WORKERS)

    def _tasks_are_assigned(self) -> bool:
        self._assert_alive()
        time.sleep(0.5)  # their logs are read from the start
        return tasks_are_assigned([source_tasks(worker.log_text(), self._flow) for worker in self.alive], TASKS)

    def _assert_alive(self) -> None:
        assert len(self.alive) == WORKERS, f"a worker ended; its log ends:\n{self.workers[-1].log_text()[-2_000:]}"

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        for lease in self._leases:
            lease.release()
        guard().remove_directory(self._directory)


@contextmanager
def _pair(setup: MirrorSetup, source: KafkaCluster, target: KafkaCluster) -> Iterator[tuple[Pair, Watch]]:
    pair = Pair(setup, source, target)
    try:
        create_topic(source, pair.topic, PARTITIONS)
        with light_load(source, [(pair.topic, number) for number in range(PARTITIONS)]):
            for _ in range(WORKERS):
                pair.start_another()
            pair.wait_until_assigned()
            watch = Watch(target, pair.remote_topic)
            try:
                yield pair, watch
            finally:
                watch.close()
    finally:
        pair.close()


def kill_one(pair: Pair, watch: Watch, chance: random.Random) -> dict[str, float]:
    """Kill one of the two workers, and return how long its partitions were not copied.

    Raises:
        AssertionError: not all partitions were copied again in time.
    """
    pair.wait_until_assigned()
    watch.begin(int(time.time() * 1000))
    wait_for(watch, range(PARTITIONS), READY_S)
    time.sleep(chance.uniform(*SETTLE_S))
    dead = chance.choice(pair.alive)
    killed_s = time.time()
    watch.begin(int(killed_s * 1000) + 1)
    dead.kill()
    took_s = stood_still(wait_for(watch, range(PARTITIONS), pair.setup.deadline_s), killed_s)
    assert took_s, "no partition stood still: the dead worker copied none"
    return {"partitions": float(len(took_s)), "first_s": min(took_s.values()), "last_s": max(took_s.values())}


def report(runs: Sequence[Run], facts: Facts) -> str:
    """Return the page of results. Pure."""
    lines = first_lines(
        "How long partitions stand still when one of two workers is killed, beside MirrorMaker 2", facts
    )
    lines += [
        f"{PARTITIONS} partitions with {1 / EVERY_S:g} records a second each, shared by two workers, one of which gets"
        " SIGKILL; no worker replaces it before all partitions are copied again. Seconds from the kill to a record on"
        f" the target that was written after it. MirrorMaker 2 has `tasks.max={TASKS}` and its internal REST server.",
        "",
    ]
    rows = []
    for setup in SETUPS:
        mine = [run for run in runs if run.mirror == setup.name]
        good = [run.measures for run in mine if run.measures]
        cells = ["-"] * 5
        if good:
            last_s = [measures["last_s"] for measures in good]
            cells = [
                f"{percentile([measures['partitions'] for measures in good], 0.5):.0f}",
                f"{percentile([measures['first_s'] for measures in good], 0.5):.2f} s",
                *(f"{each:.2f} s" for each in (min(last_s), percentile(last_s, 0.5), max(last_s))),
            ]
        rows.append([setup.title, str(len(mine)), *cells, str(sum(run.failed is not None for run in mine))])
    head = ["", "kills", "partitions that stood still, p50", "first of them is copied again, p50"]
    head += ["last of them, shortest", "last of them, p50", "last of them, longest", "not in time"]
    lines += [*table(head, rows), ""]
    titles = {setup.name: setup.title for setup in SETUPS}
    lines += [f"* {titles[run.mirror]}, kill {run.round + 1}: {run.failed}" for run in runs if run.failed]
    return "\n".join(lines).rstrip() + "\n"


def run_all(source: KafkaCluster, target: KafkaCluster, kills: Mapping[str, int], log: RunLog) -> None:
    """Kill until the log has all results; each is stored as soon as it is known."""
    for setup in SETUPS:
        while left := [
            number
            for number in range(kills.get(setup.name, 0))
            if not log.has((WORKLOAD, setup.name, number), PARTITIONS)
        ]:
            _run_some(setup, source, target, left, log)


def _run_some(
    setup: MirrorSetup, source: KafkaCluster, target: KafkaCluster, numbers: Sequence[int], log: RunLog
) -> None:
    """Kill once for each number. Stop at a kill without recovery, because then the state of the pair is unknown."""
    with _pair(setup, source, target) as (pair, watch):
        for number in numbers:
            try:
                measures = kill_one(pair, watch, random.Random(number))
            except AssertionError as error:
                log.add(Run(WORKLOAD, setup.name, number, PARTITIONS, failed=str(error)))
                print(f"{setup.name}, kill {number + 1}: {error}", flush=True)
                return
            log.add(Run(WORKLOAD, setup.name, number, PARTITIONS, measures))
            said = ", ".join(f"{name} {value:.2f}" for name, value in measures.items())
            print(f"{setup.name}, kill {number + 1}: {said}", flush=True)
            pair.start_another()


def main(options: argparse.Namespace) -> int:
    """Kill workers of all mirrors and print the table. The exit code is 1 if mm2py did not recover from a kill.

    Args:
        options: ``--kills`` of mm2py and of MM2 without delay, ``--default-kills`` of MM2 with its default delay.
    """
    wanted = {each.name: each.kills if options.kills is None else options.kills for each in SETUPS}
    wanted["mm2"] = options.default_kills
    if unknown := sorted(set(options.mirrors or ()) - wanted.keys()):
        print(f"bench: there is no {', '.join(unknown)}, only {', '.join(wanted)}", file=sys.stderr)
        return 2
    wanted = {name: kills for name, kills in wanted.items() if options.mirrors is None or name in options.mirrors}
    return carry_out(
        "failover-beside-mm2",
        options,
        lambda source, target, log: run_all(source, target, wanted, log),
        report,
        counts=lambda run: run.mirror == "mm2py",
    )

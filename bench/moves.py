"""How long partitions are not copied in a planned move: ``python -m bench.moves``; see docs/benchmarks.md.

Two workers share a topic that gets a few records a second in each partition. Repeatedly a third worker joins, and then
one of the three, the leader or another, is stopped with SIGTERM. Measured is the longest time without a newer record on
the target: for partitions that moved, for those that stayed, and for all in a quiet time before.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from bench.arrivals import Arrivals, longest_gap_s
from bench.campaign import add_arguments, carry_out
from bench.light_load import EVERY_S, light_load
from bench.paced import percentile
from bench.pages import Facts, first_lines, table
from bench.runs import Run, RunLog
from deploy.local.kafka import KafkaCluster
from tests.cluster.groups import Group
from tests.cluster.kafka_client import create_topic, new_name
from tests.cluster.running import Value, one_way_properties

MOVES: Final = 20
"""How many moves of each kind."""
WORKERS: Final = 3
PARTITIONS: Final = 24
GOAL_S: Final = 1.0
"""The goal: a planned move pauses no partition for this long."""
QUIET_S: Final = 5.0
AFTER_S: Final = 2.0
"""How long pauses are measured after all partitions have their owners."""
DEADLINE_S: Final = 60.0
KINDS: Final[Mapping[str, str]] = {"join": "a worker joins", "stop": "a worker stops"}
ROWS: Final[Mapping[str, str]] = {
    "moved": "partitions that moved",
    "stayed": "partitions that stayed",
    "quiet": "all, in the quiet time before",
    "writer": "the writer's own pauses",
}

Owners = Mapping[int, str]
"""Owners by partition."""


def move_measures(
    times_s: Mapping[int, Sequence[float]],
    writer_s: Sequence[float],
    window: tuple[float, float],
    before: Owners,
    after: Owners,
) -> dict[str, float]:
    """Return the longest gap of each partition around a move, and in a quiet time before it. Pure.

    Args:
        times_s: for each partition, when newer records arrived.
        writer_s: when the writer wrote to all of them.
        window: from the order to move, until all had been with their new owners for a while.
    """
    begun_s, _ = window
    measures = {"writer": longest_gap_s(writer_s, *window)}
    for number, times in times_s.items():
        moved = before[number] != after[number]
        measures[f"{'moved' if moved else 'stayed'}-{number}"] = longest_gap_s(times, *window)
        measures[f"quiet-{number}"] = longest_gap_s(times, begun_s - QUIET_S, begun_s)
    return measures


def gaps_of(runs: Sequence[Run], kind: str, what: str) -> list[float]:
    """Return all gaps of one row of the table. Pure."""
    of_kind = [run.measures for run in runs if run.workload == kind]
    return [gap for measures in of_kind for name, gap in measures.items() if name.partition("-")[0] == what]


def report(runs: Sequence[Run], facts: Facts) -> str:
    """Return the page of results. Pure."""
    count = {kind: sum(run.workload == kind for run in runs) for kind in KINDS}
    lines = first_lines("How long partitions stand still when they move as planned", facts)
    lines += [
        f"{PARTITIONS} partitions, each of which gets {1 / EVERY_S:g} records a second. {count['join']} times a worker"
        f" joined two others, {count['stop']} times one of {WORKERS} was stopped with SIGTERM. A gap is the time"
        " between two newer records of one partition at a consumer of the target; of each partition the longest around"
        " each move counts.",
        "",
    ]
    rows, goals = [], []
    for kind, title in KINDS.items():
        for what, row in ROWS.items():
            if found := gaps_of(runs, kind, what):
                shown = [f"{percentile(found, share):.3f} s" for share in (0.5, 0.99, 1.0)]
                rows.append([f"{title}: {row}", str(len(found)), *shown])
        if moved := gaps_of(runs, kind, "moved"):
            held = "held" if max(moved) < GOAL_S else "**missed**"
            goals.append([title, f"less than {GOAL_S:g} s", f"{max(moved):.3f} s", held])
    lines += table(["", "gaps", "p50", "p99", "worst"], rows)
    lines += ["", *table(["longest gap of what moved", "goal", "found", ""], goals), ""]
    return "\n".join(lines)


class Scene:
    """Workers that share a topic under load, and the records that arrive."""

    def __init__(self, group: Group, topic: str, arrivals: Arrivals, writer_s: Sequence[float]) -> None:
        self._group = group
        self._topic = topic
        self._arrivals = arrivals
        self._writer_s = writer_s

    def move(self, order: Callable[[], None], *, workers: int) -> dict[str, float]:
        """Give an order that moves partitions, and return what it cost.

        Args:
            workers: the number of workers that own partitions afterwards.
        Raises: AssertionError: the partitions are not assigned to this many workers ``DEADLINE_S`` later.
        """
        time.sleep(QUIET_S)
        before = self._owners()
        begun_s = time.monotonic()
        order()
        self._group.wait_until_assigned(PARTITIONS, among=workers, deadline_s=DEADLINE_S)
        time.sleep(AFTER_S)
        window, after = (begun_s, time.monotonic()), self._owners()
        times_s = {number: times for (_, number), times in self._arrivals.times_s().items()}
        return move_measures(times_s, list(self._writer_s), window, before, after)

    def join(self) -> None:
        self._group.start_another()

    def stop(self, chance: random.Random) -> None:
        """Stop one of the workers. Raises: AssertionError: it did not drain."""
        stopped = chance.choice([worker for worker in self._group.workers if worker.alive])
        code = stopped.terminate()
        assert code == 0, f"the worker ended with {code}\n{stopped.tail()}"

    def _owners(self) -> dict[int, str]:
        shares = self._group.partitions()
        return {share.partition: owner for share, owner in shares.items() if share.topic == self._topic}


def run_all(source: KafkaCluster, target: KafkaCluster, moves: int, log: RunLog) -> None:
    """Move until the log has all results; each is stored as soon as it is known."""
    topic = new_name("moves")
    create_topic(source, topic, PARTITIONS)
    properties: dict[str, Value] = one_way_properties(source, target)
    properties |= {"A->B.topics": topic, "topics.watch.interval.ms": 1000}
    with (
        Group(target, properties, workers=WORKERS - 1) as group,
        light_load(source, [(topic, number) for number in range(PARTITIONS)]) as writer_s,
    ):
        group.wait_until_assigned(PARTITIONS, among=WORKERS - 1, deadline_s=DEADLINE_S)
        arrivals = Arrivals(target, [(f"A.{topic}", number) for number in range(PARTITIONS)])
        try:
            arrivals.wait_for_all()
            scene = Scene(group, topic, arrivals, writer_s)
            for number in _left(moves, log):
                chance = random.Random(number)
                _keep(log, "join", number, scene.move(scene.join, workers=WORKERS))
                stopped = scene.move(lambda chance=chance: scene.stop(chance), workers=WORKERS - 1)  # type: ignore[misc]
                _keep(log, "stop", number, stopped)
        finally:
            arrivals.close()
        group.assert_steady()


def _left(moves: int, log: RunLog) -> Iterator[int]:
    """Return the numbers of the moves to make. A join without its stop, left by an interrupted bench, is repeated."""
    return (
        number for number in range(moves) if not all(log.has((kind, "mm2py", number), PARTITIONS) for kind in KINDS)
    )


def _keep(log: RunLog, kind: str, number: int, measures: dict[str, float]) -> None:
    run = Run(kind, "mm2py", number, PARTITIONS, measures)
    if not log.has(run.key, PARTITIONS):
        log.add(run)
    moved = gaps_of([run], kind, "moved")
    print(f"{kind} {number + 1}: {len(moved)} moved, longest gap {max(moved, default=0.0):.3f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Let workers join and stop, and print the cost. The exit code is 1 if a move failed; goals may be missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.moves", description="What a planned move costs.")
    parser.add_argument("--moves", type=int, default=MOVES, help=f"of each kind, by default {MOVES}")
    add_arguments(parser, "moves")
    options = parser.parse_args(arguments)
    return carry_out("moves", options, lambda source, target, log: run_all(source, target, options.moves, log), report)


if __name__ == "__main__":
    sys.exit(main())

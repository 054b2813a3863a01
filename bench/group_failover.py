"""``make group-failover``: what consumer groups skip and read again in the copies of mm2py and of MirrorMaker 2.

Both mirrors copy the same topics at the same time, each under its own aliases, with
``sync.group.offsets.enabled=true``. Twenty groups stop on the source at random offsets. When no mirror commits anything
more on the target, each group continues there, in the copy of one mirror and then in that of the other. The records
that it reads are compared with those it has read on the source.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.campaign import add_arguments, carry_out
from bench.fault_mirrors import MM2, MM2PY, Plan, Worker
from bench.paced import percentile
from bench.pages import Facts, first_lines, table
from bench.runs import Run, RunLog
from deploy.local.guardian import guard
from deploy.local.kafka import KafkaCluster
from tests.checker.check import check_copy
from tests.cluster.drills import DrillTopics, Stood, go_on, judge_failover, stop_anywhere
from tests.cluster.judged_offsets import Flow
from tests.cluster.running import wait_until

MIRRORS: Final = (MM2, MM2PY)
TITLES: Final = {MM2: "MM2", MM2PY: "mm2py"}
WORKLOAD: Final = "group-failover"
GROUPS: Final = 20
RECORDS: Final = 6_000
PORTIONS: Final = 40
"""The records are written in this many portions, with a pause between them."""
PAUSE_S: Final = 0.5
SEED: Final = 7
START_S: Final = 180.0
COPIED_S: Final = 120.0
STILL_S: Final = 20.0
"""A mirror that has committed nothing for this long has finished. Both have intervals of a second."""
STILL_DEADLINE_S: Final = 240.0


def settings_of(stem: str) -> dict[str, str]:
    """Return the properties of both mirrors that are added to those of the fault campaign. Pure."""
    return {
        "{source}.consumer.isolation.level": "read_committed",
        "emit.heartbeats.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "refresh.groups.interval.seconds": "5",
        "groups": f"{stem}-.*",
    }


@dataclass(frozen=True, slots=True)
class Mirror:
    """A running mirror, and its flow as the checker reads it."""

    name: str
    worker: Worker
    flow: Flow

    def assert_alive(self) -> None:
        assert self.worker.alive, f"{self.name} ended; its log ends:\n{self.worker.log_text()[-2_000:]}"


@contextmanager
def _mirrors(
    names: Sequence[str], source: KafkaCluster, target: KafkaCluster, topics: DrillTopics, stem: str
) -> Iterator[list[Mirror]]:
    groups = [f"{stem}-{number:02}" for number in range(GROUPS)]
    directories: list[Path] = []
    with ExitStack() as running:
        found = []
        for name in names:
            plan = Plan(
                *(name, uuid.uuid4().hex[:6], source.bootstrap, target.bootstrap, topics.topics, 1, 1),
                settings=settings_of(stem),
            )
            topics.make_remotes(target, plan.source_alias)
            directory = guard().new_directory(f"bench-{name}")
            directories.append(directory)
            running.callback(guard().remove_directory, directory)
            worker = Worker(plan, directory, rest_port=0)
            running.callback(worker.kill)
            worker.start()
            flow = Flow(
                *(source, target, plan.source_alias, plan.target_alias, topics.topics, topics.sends),
                cleaned=[topics.cleaned],
                groups=groups,
            )
            found.append(Mirror(name, worker, flow))
        yield found


def wait_for_copies(mirror: Mirror, topics: DrillTopics, deadline_s: float) -> None:
    """Wait until a mirror has copied all records, each once.

    Raises:
        AssertionError: the mirror has ended, or has not copied all records in time.
    """
    flow = mirror.flow
    report = check_copy(
        flow.source.internal_bootstrap,
        flow.target.internal_bootstrap,
        {topic: flow.remote(topic) for topic in topics.topics},
        read_committed=True,
        ledger=topics.sends,
        wait_s=deadline_s,
    )
    mirror.assert_alive()
    assert report.ok, f"{mirror.name} has not copied all:\n{report}"


def wait_until_still(mirrors: Sequence[Mirror]) -> dict[str, float]:
    """Wait until no mirror commits anything more on the target.

    Returns:
        By mirror the seconds until its last commit.
    """
    begun_s = time.monotonic()
    last: dict[str, object] = {}
    changed_s = {mirror.name: begun_s for mirror in mirrors}

    def still() -> bool:
        time.sleep(0.5)
        for mirror in mirrors:
            mirror.assert_alive()
            commits = mirror.flow.commits(mirror.flow.target)
            if commits != last.get(mirror.name):
                last[mirror.name], changed_s[mirror.name] = commits, time.monotonic()
        return time.monotonic() - max(changed_s.values()) > STILL_S

    wait_until(still, "no more commits on the target", deadline_s=STILL_DEADLINE_S)
    return {name: at_s - begun_s for name, at_s in changed_s.items()}


def fail_over(mirror: Mirror, topics: DrillTopics, stood: Sequence[Stood]) -> list[dict[str, float]]:
    """Let all groups continue in a mirror's copy, and return the counts of each, in total and for each kind of topic.

    In a partition without a commit a group reads everything again: ``auto.offset.reset`` is ``earliest``.
    """
    kinds = {"plain": topics.plain, "transactions": topics.transactions, "compacted": topics.cleaned}
    pairs = mirror.flow.pairs()
    places = {(mirror.flow.remote(topic), number): (topic, number) for topic, number in topics.places}
    found = []
    for one in stood:
        met = go_on(mirror.flow.target, one.group, places, reset="earliest")
        by_source = {places[place]: records for place, records in met.items()}
        measures: dict[str, float] = {"lag": 0, "skipped": 0, "again": 0}
        for kind, topic in kinds.items():
            ours = {place: each for place, each in pairs.items() if place[0] == topic}
            result = judge_failover(one, by_source, ours)
            counted = {"lag": result.lag, "skipped": result.skipped, "again": result.read_again}
            for name, count in counted.items():
                measures[name] += count
                measures[f"{name}_{kind}"] = count
        found.append(measures)
    return found


def run_all(
    source: KafkaCluster, target: KafkaCluster, log: RunLog, *, mirrors: Sequence[str], records: int, seed: int
) -> None:
    """Carry out the drill, once for all mirrors together."""
    if all(log.has((WORKLOAD, name, number), records) for name in mirrors for number in range(GROUPS)):
        return
    chance, stem = random.Random(seed), f"drill{uuid.uuid4().hex[:6]}"
    topics = DrillTopics(source, seed=seed)
    with _mirrors(mirrors, source, target, topics, stem) as running:
        for mirror in running:
            wait_for_copies(mirror, topics, START_S)
        print("Both mirrors copy.", flush=True)
        for _ in range(PORTIONS):
            topics.write(records // PORTIONS)
            time.sleep(PAUSE_S)
        for mirror in running:
            wait_for_copies(mirror, topics, COPIED_S)
        logs = topics.logs()
        stood = [stop_anywhere(source, group, logs, chance) for group in running[0].flow.groups]
        print(f"{GROUPS} groups have stopped.", flush=True)
        settled_s = wait_until_still(running)
        for mirror in running:
            for number, measures in enumerate(fail_over(mirror, topics, stood)):
                settled = {"settled_s": round(settled_s[mirror.name], 1)}
                log.add(Run(WORKLOAD, mirror.name, number, records, {**measures, **settled}))
            print(f"{TITLES[mirror.name]}: all groups have gone on.", flush=True)


def report(runs: Sequence[Run], facts: Facts, *, seed: int = SEED) -> str:
    """Return the page of results. Pure."""
    lines = first_lines("What groups skip and read again when they go on in the copy, beside MirrorMaker 2", facts)
    records = max((run.records for run in runs), default=0)
    lines += [
        f"{GROUPS} groups read three topics of {records:,} records each: plain batches of 1 to 400 records (two"
        " partitions), transactions of 15 records of which one in four is aborted (two partitions), and a compacted"
        " topic that was cleaned (one). They stop anywhere, commit, and leave. Both mirrors copied the same topics at"
        " the same time, `read_committed`, with `sync.group.offsets.enabled=true`, and a second between checkpoints and"
        " between commits; `offset.lag.max` is 100, the default. When no mirror has committed anything for"
        f" {STILL_S:g} s, each group goes on on the target. Counted are records: those it had not read and did not meet"
        f" (skipped), and those it had read and met again. Lag: what it had not read. Seed {seed}.",
        "",
        *table(
            ["", "groups", "skipped", "read again, all groups", "median", "most", "groups that read none again"],
            [_summary_row(name, _of(runs, name)) for name in MIRRORS],
        ),
        "",
        *table(
            ["read again, by topic", "plain", "transactions", "compacted"],
            [
                [
                    TITLES[name],
                    *(f"{_sum(runs, name, f'again_{kind}'):,}" for kind in ("plain", "transactions", "compacted")),
                ]
                for name in MIRRORS
            ],
        ),
        "",
    ]
    header = ["group", "lag"]
    for name in MIRRORS:
        header += [f"{TITLES[name]}: skipped", "read again"]
    lines += table(header, _group_rows(runs))
    settled = {name: [run.measures["settled_s"] for run in _of(runs, name)] for name in MIRRORS}
    said = ", ".join(f"{TITLES[name]} {max(found):.1f} s" for name, found in settled.items() if found)
    lines += ["", f"* From the last group's stop to the last commit on the target: {said}."]
    return "\n".join(lines).rstrip() + "\n"


def _of(runs: Sequence[Run], mirror: str) -> list[Run]:
    return sorted((run for run in runs if run.mirror == mirror and run.measures), key=lambda run: run.round)


def _sum(runs: Sequence[Run], mirror: str, measure: str) -> int:
    return round(sum(run.measures[measure] for run in _of(runs, mirror)))


def _summary_row(name: str, runs: Sequence[Run]) -> list[str]:
    if not runs:
        return [TITLES[name], "0", *["-"] * 5]
    again = [run.measures["again"] for run in runs]
    return [
        TITLES[name],
        str(len(runs)),
        f"{sum(run.measures['skipped'] for run in runs):,.0f}",
        f"{sum(again):,.0f}",
        f"{percentile(again, 0.5):,.0f}",
        f"{max(again):,.0f}",
        str(sum(each == 0 for each in again)),
    ]


def _group_rows(runs: Sequence[Run]) -> list[list[str]]:
    """Return a row for each group, those with the least lag first."""
    by_group: dict[int, dict[str, Mapping[str, float]]] = {}
    for run in runs:
        if run.measures:
            by_group.setdefault(run.round, {})[run.mirror] = run.measures
    rows = []
    for number, found in sorted(by_group.items(), key=lambda item: max(each["lag"] for each in item[1].values())):
        row = [str(number), f"{max(each['lag'] for each in found.values()):,.0f}"]
        for name in MIRRORS:
            row += [f"{found[name][key]:,.0f}" if name in found else "-" for key in ("skipped", "again")]
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out the drill and print its tables. The exit code is 1 if it could not be finished."""
    parser = argparse.ArgumentParser(prog="python -m bench.group_failover", description="Failover of groups.")
    parser.add_argument("--mirrors", nargs="+", choices=MIRRORS, default=list(MIRRORS), help="by default both")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of each topic; by default {RECORDS}")
    parser.add_argument("--seed", type=int, default=SEED)
    add_arguments(parser, "group-failover")
    options = parser.parse_args(arguments)
    if options.save and (options.records != RECORDS or set(options.mirrors) != set(MIRRORS)):
        parser.error("--save is for the whole drill: leave out --records and --mirrors")
    return carry_out(
        "group-failover",
        options,
        lambda source, target, log: run_all(
            source, target, log, mirrors=options.mirrors, records=options.records, seed=options.seed
        ),
        lambda runs, facts: report(runs, facts, seed=options.seed),
        shape={"seed": str(options.seed), "records": str(options.records)},
    )


if __name__ == "__main__":
    sys.exit(main())

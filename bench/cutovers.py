"""``make cutovers``: planned cutovers and rollbacks under load, counted record by record; see docs/recovery-cutover.md.

Producers of three kinds (idempotent, transactional, and to a compacted topic) and twenty groups of both protocols work
all the time on the cluster where the hooks send them. A round cuts over and rolls back; then it cuts over, completes,
cuts over back and completes. Then it is counted what groups have lost or read again, the checker compares the clusters,
and the pauses of each producer at each switch are taken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.campaign import add_arguments, carry_out
from bench.paced import percentile
from bench.pages import Facts, first_lines, table
from bench.runs import Run, RunLog
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.cluster.switched_load import IDENTITY, PREFIXED, switched_load

ROUNDS: Final = 10
GROUPS: Final = 20
WORKLOAD: Final = "cutovers"
POLICIES: Final[Mapping[str, str]] = {"identity": IDENTITY, "prefixed": PREFIXED}
COUNTS: Final[Mapping[str, str]] = {
    "lost": "lost for a group",
    "again": "read again by a group",
    "differs": "differences between the clusters",
}


@contextmanager
def cutover_clusters(nodes: int) -> Iterator[list[KafkaCluster]]:
    """Start a source and a target cluster."""
    replicas = min(nodes, 3)
    settings = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": 1,
        "log.cleaner.backoff.ms": 5_000,
    }
    with start_clusters([KafkaCluster(name, nodes=nodes, settings=settings) for name in ("source", "target")]) as both:
        yield both


def run_all(
    source: KafkaCluster,
    target: KafkaCluster,
    log: RunLog,
    *,
    rounds: int,
    groups: int,
    nodes: int,
    names: Sequence[str],
) -> None:
    """Carry out the rounds that the log does not have; each is stored as soon as it is known."""
    for name in names:
        left = [number for number in range(rounds) if not log.has((WORKLOAD, name, number), 0)]
        if not left:
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            switched_load(
                (source, target), Path(folder), POLICIES[name], groups=groups, replicas=min(nodes, 3)
            ) as load,
        ):
            for number in left:
                print(f"{name}, round {number + 1} of {rounds}", flush=True)
                measures = load.round(partial(print, "  ", flush=True))
                wrong = [f"{measures[one]:g} {text}" for one, text in COUNTS.items() if measures[one]]
                log.add(Run(WORKLOAD, name, number, 0, measures, failed="; ".join(wrong) or None))


def report(runs: Sequence[Run], facts: Facts, *, groups: int = GROUPS) -> str:
    """Return the page of results. Pure."""
    lines = first_lines("Cutovers and rollbacks under load", facts)
    lines += [
        f"Two clusters, three producers (idempotent, transactional, to a compacted topic), {groups} groups, half of"
        " them by the classic protocol and half by that of KIP-848; all read all topics. A round is a cutover and its"
        " rollback, then a cutover and a cutover back, each completed with its own comparison. The counts are over all"
        " records and groups; the checker compares the clusters.",
        "",
    ]
    header = ("flows", "rounds", "cutovers", "rollbacks", "records", *COUNTS.values(), "calls that changed nothing")
    rows, pauses, durations = [], [], []
    for name in dict.fromkeys(run.mirror for run in runs):
        good = [run.measures for run in runs if run.mirror == name and run.measures]
        switches = [[key.split("_")[0] for key in one if key.endswith("_s") and key[0] in "cr"] for one in good]
        counted = [f"{sum(one.get(count, 0) for one in good):g}" for count in COUNTS]
        records = f"{max((one.get('records', 0) for one in good), default=0):,.0f}"
        verbs = [str(sum(one.count(verb) for one in switches)) for verb in ("cutover", "rollback")]
        refused = f"{sum(one.get('refused', 0) for one in good):g}"
        rows.append((name, str(len(good)), *verbs, records, *counted, refused))
        stood = [value for one in good for key, value in one.items() if key.startswith("pause_")]
        if stood:
            pauses.append((name, str(len(stood)), *_spread(stood)))
        for verb in ("cutover", "rollback", "complete"):
            took = [value for one in good for key, value in one.items() if key.startswith(f"{verb}_")]
            if took:
                durations.append((name, verb, str(len(took)), *_spread(took)))
    lines += [*table(header, rows), ""]
    lines += ["How long a producer was not answered at a switch, from its last answer on the one cluster to its first"]
    lines += ["on the other; ten seconds of it are the verification of the fence:", ""]
    lines += [*table(("flows", "pauses", "p50", "p99", "longest"), pauses), ""]
    lines += ["How long the command took, with the start of its process and its checks:", ""]
    lines += [*table(("flows", "verb", "calls", "p50", "p99", "longest"), durations), ""]
    lines += [f"{run.mirror}, round {run.round + 1} **failed**: {run.failed}" for run in runs if run.failed]
    return "\n".join([*lines, ""])


def _spread(found: Sequence[float]) -> tuple[str, str, str]:
    return f"{percentile(found, 0.5):.1f} s", f"{percentile(found, 0.99):.1f} s", f"{max(found):.1f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Cut over and back, and print what it cost. The exit code is 1 if anything was lost or repeated, or differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.cutovers", description="Cutovers and rollbacks under load.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each kind of flow (default: %(default)s)")
    parser.add_argument("--groups", type=int, default=GROUPS, help="consumer groups (default: %(default)s)")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="of each cluster (default: %(default)s)")
    parser.add_argument("--flows", nargs="+", choices=POLICIES, default=list(POLICIES), help="which flows")
    add_arguments(parser, WORKLOAD)
    options = parser.parse_args(arguments)

    def measure(source: KafkaCluster, target: KafkaCluster, log: RunLog) -> None:
        run_all(
            source,
            target,
            log,
            rounds=options.rounds,
            groups=options.groups,
            nodes=options.nodes,
            names=options.flows,
        )

    shape = {"groups": str(options.groups), "nodes": str(options.nodes)}
    return carry_out(
        WORKLOAD,
        options,
        measure,
        partial(report, groups=options.groups),
        shape=shape,
        clusters=partial(cutover_clusters, options.nodes),
    )


if __name__ == "__main__":
    sys.exit(main())

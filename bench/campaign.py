"""A bench that takes minutes: started or resumed, measured between two clusters, printed and stored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bench.machine import commit, hardware
from bench.mirrors import ROOT
from bench.pages import Facts, facts_of, save
from bench.runs import OtherConditions, Run, RunLog
from bench.sides import bench_clusters
from deploy.local.errors import StarterError
from deploy.local.kafka import KafkaCluster


def add_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments that ``carry_out`` reads."""
    parser.add_argument("--runs", type=Path, metavar="DIR", default=ROOT / "run", help="where runs are kept: run/")
    parser.add_argument("--resume", action="store_true", help="go on with the last one, which was interrupted")
    parser.add_argument("--save", action="store_true", help=f"write docs/results/{name}-DATE.md and .json")


def carry_out(
    name: str,
    options: argparse.Namespace,
    measure: Callable[[KafkaCluster, KafkaCluster, RunLog], None],
    report: Callable[[Sequence[Run], Facts], str],
    *,
    shape: Mapping[str, str] | None = None,
    counts: Callable[[Run], bool] = lambda _: True,
    clusters: Callable[[], AbstractContextManager[list[KafkaCluster]]] = bench_clusters,
) -> int:
    """Run a bench and return its exit code: 1 if it was interrupted, or a run that counts failed.

    Args:
        measure: adds the missing runs to the log, between a source and a target.
        shape: further conditions that must be the same for a bench to be resumed.
        clusters: starts the source and the target.
    """
    machine = hardware()
    conditions = {"commit": commit(), **(shape or {})}
    try:
        log = RunLog(options.runs / f"{name}.jsonl", conditions, resume=options.resume)
        with clusters() as (source, target):
            measure(source, target, log)
    except (StarterError, OtherConditions) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except AssertionError as error:
        print("\n".join([f"bench: {error}", *getattr(error, "__notes__", [])]), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; --resume continues.", file=sys.stderr)
        return 130
    facts = facts_of(conditions["commit"], machine)
    page = report(log.runs, facts)
    print(page)
    if options.save:
        save(name, page, facts, log.runs)
    return 1 if any(run.failed and counts(run) for run in log.runs) else 0

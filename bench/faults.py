"""``make faults-beside-mm2``: the same faults for mm2py and for MirrorMaker 2, default and exactly-once, as a table.

Each case has its own flow, with new topics and new aliases, and the same seed for each mirror. The outcome of a case is
written to a file when it ends, so that an interrupted campaign can continue with ``--resume``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from bench.fault_cases import CASES
from bench.fault_mirrors import MIRRORS, TITLES
from bench.fault_outcome import Counts, Kept, Outcome, table
from bench.fault_scene import Clusters, Scene
from bench.machine import commit, hardware, versions
from bench.results import RESULTS
from deploy.local.errors import StarterError
from deploy.local.guardian import guard
from deploy.local.kafka import KafkaCluster, start_clusters

WORK_DIRECTORY: Final = Path(__file__).parents[1] / "run" / "faults"
PER_SECOND: Final = 1_500.0
SEED: Final = 20
KILLS: Final = 10
NOTES: Final = (
    "Two topics of four partitions, records of 100 bytes on average; one topic's records are of today, the other's a "
    "month old. The load continues during the faults and ends after the last recovery, so a mirror that recovers "
    "later is written more records.",
    "Lost: missing, though later records of the partition are there. Not copied: missing with nothing behind them, "
    "because copying had stopped. Repeated: copies beyond the first that a read_committed consumer sees. All three by "
    "`tests/checker`, from dumps of both sides.",
    "Seconds: from the fault (F07 that wakes: from the waking) to the first copy, and to the first copy in the slowest "
    "of the eight partitions, of a record written after it, as a consumer of the copy saw it; median, worst in "
    "brackets. A process that was stopped or killed is started again at once. Brokers are held to be gone after 3 s, "
    "Kafka's default is 9 s.",
    "A restart by hand: a partition was not copied for 90 s, so the mirror was stopped and started again.",
    "Gap: how many records were deleted before they could be copied (recreated topics: how many are not in the copy), "
    "and whether the log said so: a warning or an error naming topic and offsets (recreated topics: naming the topic), "
    "or only lines below a warning. mm2py refuses a recreated topic until an operator decides; all that is "
    "written to it is then not copied.",
)


class Arguments(argparse.Namespace):
    """The arguments of the command line."""

    cases: list[str]
    mirrors: list[str]
    rate: float
    kills: int
    mm2_settings: list[tuple[str, str]]
    seed: int
    work: Path
    resume: bool
    save: bool


def parse(arguments: Sequence[str] | None = None) -> Arguments:
    """Read the command line; argparse ends the process if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description="Faults, beside MirrorMaker 2.")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="by default all")
    parser.add_argument("--mirrors", nargs="+", choices=MIRRORS, default=list(MIRRORS), help="by default all")
    parser.add_argument("--rate", type=float, default=PER_SECOND, help="records a second over both topics")
    parser.add_argument("--kills", type=int, default=KILLS, help="how many in the case `kills`")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--work", type=Path, default=WORK_DIRECTORY, metavar="DIR", help="where cases are kept")
    parser.add_argument("--resume", action="store_true", help="leave out what is kept already, of this commit")
    parser.add_argument("--save", action="store_true", help="write the table and all cases under docs/results")
    parser.add_argument(
        "--mm2-set",
        nargs="+",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        dest="mm2_settings",
        help="for MirrorMaker 2's file only; {target} in a key stands for the target's alias",
    )
    parsed = parser.parse_args(arguments, namespace=Arguments())
    if parsed.save and (parsed.kills != KILLS or parsed.mm2_settings):
        parser.error("--save is for a whole campaign with default settings: leave out --kills and --mm2-set")
    return parsed


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def path_of(work: Path, case: str, mirror: str) -> Path:
    return work / f"{case}.{mirror}.json"


def kept_outcomes(work: Path, conditions: Mapping[str, Any]) -> dict[tuple[str, str], Kept]:
    """Return the stored outcomes with these conditions, by case and mirror; unreadable files are left out."""
    found = {}
    for path in sorted(work.glob("*.json")):
        try:
            kept = Kept.load(path)
        except (ValueError, KeyError, TypeError):
            continue
        if kept.conditions == conditions:
            found[kept.outcome.case, kept.outcome.mirror] = kept
    return found


def left_of(
    cases: Sequence[str], mirrors: Sequence[str], kept: Mapping[tuple[str, str], Kept]
) -> dict[tuple[int, int], list[tuple[str, str]]]:
    """Return the cases that must still run, by the size of the clusters: all mirrors of a case before the next case."""
    left: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for case in cases:
        todo = [(case, mirror) for mirror in mirrors if (case, mirror) not in kept or kept[case, mirror].outcome.failed]
        if todo:
            left.setdefault(CASES[case].nodes, []).extend(todo)
    return left


def missing_of(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the cases and mirrors of a whole campaign that these outcomes lack."""
    there = {(outcome.case, outcome.mirror) for outcome in outcomes}
    return [f"{case} {mirror}" for case in CASES for mirror in MIRRORS if (case, mirror) not in there]


def run_case(clusters: Clusters, case: str, mirror: str, options: Arguments) -> Outcome:
    """Run one case and return its outcome, also if the case fails."""
    begun_s = time.monotonic()
    directory = options.work / "logs" / f"{case}.{mirror}"
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    seed = options.seed + list(CASES).index(case)
    scene = Scene(
        *(clusters, mirror, directory),
        serial=uuid.uuid4().hex[:6],
        seed=seed,
        per_second=options.rate,
        kills=options.kills,
        mm2_settings=dict(options.mm2_settings),
    )
    begun = Outcome(case, mirror, seed, load_average=round(os.getloadavg()[0], 2), course=scene.course)
    try:
        with scene:
            judged = CASES[case].run(scene)
    except Exception:
        failed = traceback.format_exc().strip().splitlines()
        return replace(begun, failed="\n".join([failed[-1], *failed]), seconds=round(time.monotonic() - begun_s, 1))
    return replace(
        begun,
        counts=Counts.of(judged.report.verdicts),
        recoveries=scene.recoveries,
        seen_twice=scene.tail.repeated(),
        gap_records=judged.gap_records,
        reported=judged.reported,
        restarts_by_hand=scene.restarts_by_hand,
        seconds=round(time.monotonic() - begun_s, 1),
        findings=[str(finding) for finding in judged.report.findings][:20],
    )


def run_all(options: Arguments, conditions: Mapping[str, Any]) -> list[Outcome]:
    """Run the remaining cases, and return all outcomes."""
    kept = kept_outcomes(options.work, conditions) if options.resume else {}
    left = left_of(options.cases, options.mirrors, kept)
    print(f"{sum(map(len, left.values()))} cases; each is kept in {options.work} as it ends.", flush=True)
    for nodes, todo in left.items():
        with _clusters(nodes) as clusters:
            for case, mirror in todo:
                outcome = run_case(clusters, case, mirror, options)
                outcome.save(path_of(options.work, case, mirror), conditions)
                print(f"{case} {mirror}: {outcome.failed or outcome.counts} in {outcome.seconds:.0f} s", flush=True)
                _start_what_is_down(clusters)
    return [each.outcome for each in kept_outcomes(options.work, conditions).values()]


@contextmanager
def _clusters(nodes: tuple[int, int]) -> Iterator[Clusters]:
    sides = [KafkaCluster(name, nodes=count) for name, count in zip(("source", "target"), nodes, strict=True)]
    with start_clusters(sides) as (source, target):
        yield Clusters(source, target)


def _start_what_is_down(clusters: Clusters) -> None:
    for cluster in (clusters.source, clusters.target):
        cluster.start()


def markdown(outcomes: Sequence[Outcome], facts: Mapping[str, Any]) -> str:
    """Return the page of results."""
    titles = {name: case.title for name, case in CASES.items()}
    lines = ["# Faults, beside MirrorMaker 2", "", *(f"**{name}**: {_said(value)}  " for name, value in facts.items())]
    lines += ["", table(outcomes, titles, TITLES), "", *(f"* {note}" for note in NOTES)]
    loads = [outcome.load_average for outcome in outcomes]
    if loads:
        lines.append(f"* Load average of the machine when a case began: {min(loads)} to {max(loads)}.")
    said = [outcome for outcome in outcomes if outcome.reported is not None and outcome.reported.lines]
    if said:
        lines += ["", "## What was said of gaps", ""]
    for outcome in said:
        assert outcome.reported is not None
        lines += [f"{titles[outcome.case]}, {TITLES[outcome.mirror]}:", ""]
        lines += ["    " + line for line in outcome.reported.lines] + [""]
    return "\n".join(lines) + "\n"


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        return " · ".join(f"{name} {each}" for name, each in value.items())
    return str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign and print its table. The exit code is 1 if a case could not be finished."""
    options = parse(arguments)
    options.work = options.work.resolve()
    conditions = {
        "commit": commit(),
        "rate": options.rate,
        "kills": options.kills,
        "seed": options.seed,
        "versions": versions(),
    }
    facts = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "commit": conditions["commit"],
        "machine": hardware(),
        "versions": conditions["versions"],
        "load": f"{options.rate:g} records a second, seed {options.seed}",
    }
    guard()
    try:
        outcomes = run_all(options, conditions)
    except StarterError as error:
        print(f"faults: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; --resume continues.", file=sys.stderr)
        return 130
    page = markdown(outcomes, facts)
    print(page)
    if options.save and (missing := missing_of(outcomes)):
        print(f"Not written, {len(missing)} cases are missing: {', '.join(missing)}", file=sys.stderr)
        return 1
    if options.save:
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / f"faults-beside-mm2-{facts['date']}"
        content = {**facts, "notes": NOTES, "cases": [asdict(outcome) for outcome in outcomes]}
        path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
        path.with_suffix(".md").write_text(page)
        print(f"Written: {path}.json and .md")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

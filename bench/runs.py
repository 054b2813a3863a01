"""One measured run, and the file that stores runs during a bench: one JSON object a line.

Its first line has the conditions of the measurement: commit, options. Runs under other conditions are never added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity that is measured in each run."""

    title: str
    unit: str
    higher_is_better: bool = False


MEASURES: Mapping[str, Measure] = {
    # copy workloads
    "records_per_s": Measure("records/s, first to last record", "records/s", higher_is_better=True),
    "mb_per_s": Measure("MB/s, first to last record", "MB/s", higher_is_better=True),
    "records_per_s_from_start": Measure("records/s, from process start", "records/s", higher_is_better=True),
    "mb_per_s_from_start": Measure("MB/s, from process start", "MB/s", higher_is_better=True),
    "cpu_s_per_million": Measure("CPU s per million records, from process start", "s"),
    "cpu_s_per_gb": Measure("CPU s per GB, from process start", "s"),
    "cpu_s_per_million_steady": Measure("CPU s per million records, first to last record", "s"),
    "cpu_s_per_gb_steady": Measure("CPU s per GB, first to last record", "s"),
    "peak_mb": Measure("peak memory", "MB"),
    "first_record_s": Measure("start to first record", "s"),
    "last_record_s": Measure("start to last record", "s"),
    "source_broker_cpu_s_per_million": Measure("source broker, CPU s per million records", "s"),
    "target_broker_cpu_s_per_million": Measure("target broker, CPU s per million records", "s"),
    # paced workloads
    "p50_ms": Measure("latency p50", "ms"),
    "p99_ms": Measure("latency p99", "ms"),
    "direct_p50_ms": Measure("the same record at a consumer of the source, p50", "ms"),
    "direct_p99_ms": Measure("the same record at a consumer of the source, p99", "ms"),
    "cpu_percent": Measure("CPU while measured, percent of a core", "%"),
    "source_broker_cpu_percent": Measure("source broker, percent of a core", "%"),
    "target_broker_cpu_percent": Measure("target broker, percent of a core", "%"),
    # all
    "other_cpu_percent": Measure("CPU of everything else on the machine, percent of a core", "%"),
}
"""Measures by their name in the results; units are powers of ten."""


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run of one mirror."""

    workload: str
    mirror: str
    round: int
    records: int
    """The number of records that had to arrive."""
    measures: Mapping[str, float] = field(default_factory=dict)
    failed: str | None = None
    """Why the run did not finish, and how much was copied; then ``measures`` is empty."""
    not_measured: str | None = None
    """Why the run was not tried."""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.workload, self.mirror, self.round


class OtherConditions(Exception):
    """The earlier runs, which should be resumed, were measured under other conditions."""


class RunLog:
    """The runs so far. Each is on disk before the next run starts, and stays: a failure is a result too."""

    def __init__(self, path: Path, conditions: Mapping[str, str], *, resume: bool) -> None:
        """Open a log.

        Args:
            conditions: what must be the same for all runs in it: commit, options.
        Raises:
            OtherConditions: the log to resume has other conditions.
        """
        self.path = path
        self.runs: list[Run] = []
        if resume and path.exists():
            before, self.runs = read_runs(path)
            if differing := sorted(name for name in {*before, *conditions} if before.get(name) != conditions.get(name)):
                told = ", ".join(f"{name} was {before.get(name)}, is {conditions.get(name)}" for name in differing)
                raise OtherConditions(f"{path} cannot be gone on with: {told}. Begin a new bench, without --resume.")
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"conditions": dict(conditions)}) + "\n", *map(_line, self.runs)]
        path.write_text("".join(lines))  # this removes a line that was cut off

    def has(self, key: tuple[str, str, int], records: int) -> bool:
        """Return whether the log has this run over that number of records, finished or failed."""
        return any(run.key == key and run.records == records for run in self.runs)

    def add(self, run: Run) -> None:
        self.runs.append(run)
        with self.path.open("a") as file:
            file.write(_line(run))


def read_runs(path: Path) -> tuple[dict[str, str], list[Run]]:
    """Return the conditions and the runs in a file; a line that was cut off is left out."""
    conditions: dict[str, str] = {}
    runs: list[Run] = []
    for line in path.read_text().splitlines():
        try:
            content = json.loads(line)
            if "conditions" in content:
                conditions = content["conditions"]
            else:
                runs.append(Run(**content))
        except (ValueError, TypeError):
            continue
    return conditions, runs


def as_json(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return the runs for a results file."""
    return [asdict(run) for run in runs]


def _line(run: Run) -> str:
    return json.dumps(asdict(run)) + "\n"

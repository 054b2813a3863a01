"""The stored results of a bench in docs/results: runs as JSON, tables as Markdown, the chart as SVG."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.batches import compression_ratio
from bench.chart import chart
from bench.report import report
from bench.runs import Run, as_json
from bench.summary import Summary
from bench.workloads import Workload
from mm2py.records.compression import Codec

RESULTS: Final = Path(__file__).parents[1] / "docs" / "results"
BROKERS: Final = (
    "One broker a cluster, both on this machine and on the same cores as the mirror: what a mirror costs its brokers "
    "it takes from itself."
)

WORK: Final = (
    "Both copy records, keep positions, emit heartbeats, and follow topics, settings and ACLs. Offset syncs and "
    "checkpoints are switched off on both sides."
)
FEW: Final = (
    "Fewer records than in a whole bench: what counts from process start is mostly the start, and MirrorMaker 2 is "
    "still warming up. Good for comparing today with yesterday, not for judging goals."
)


@dataclass(frozen=True, slots=True)
class Results:
    """All results of one bench."""

    date: str
    commit: str
    machine: Mapping[str, str | int | float]
    versions: Mapping[str, str]
    workloads: Sequence[Workload]
    runs: Sequence[Run]

    def notes(self) -> list[str]:
        packed = [
            f"`{workload.name}`: the codec makes the batches {compression_ratio(workload.shape):.1f} times smaller; "
            "MirrorMaker 2, as it comes, writes its copy uncompressed, mm2py keeps the codec and the franz-go loop is "
            "told to."
            for workload in self.workloads
            if workload.shape.codec != Codec.NONE
        ]
        few = [FEW] if any(each.pace is None and each.records < 500_000 for each in self.workloads) else []
        return [BROKERS, WORK, *packed, *few]

    def markdown(self) -> str:
        facts = {
            "Run": {"on": self.date, "commit": self.commit[:12] + self.commit[40:]},
            "Machine": self.machine,
            "Versions": self.versions,
        }
        return report(self.runs, facts, self.notes())

    def as_json(self) -> dict[str, Any]:
        return {
            "date": self.date,
            "commit": self.commit,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "notes": self.notes(),
            "workloads": [asdict(workload) for workload in self.workloads],
            "goals": [asdict(verdict) for verdict in Summary(self.runs).verdicts()],
            "runs": as_json(self.runs),
        }

    def svg(self) -> str:
        cpu, cores = self.machine.get("cpu"), self.machine.get("cores")
        caption = (
            f"{self.date}, Kafka and MirrorMaker 2 {self.versions.get('kafka')}, {cpu}, {cores} cores for two brokers "
            "and the mirror; medians, first to last record"
        )
        return chart(Summary(self.runs), caption)

    def save(self, directory: Path = RESULTS) -> list[Path]:
        """Write the three files, and return their names."""
        directory.mkdir(parents=True, exist_ok=True)
        texts = {
            "json": json.dumps(self.as_json(), indent=1, default=str) + "\n",
            "md": self.markdown(),
            "svg": self.svg(),
        }
        paths = []
        for suffix, text in texts.items():
            path = directory / f"bench-{self.date}.{suffix}"
            path.write_text(text)
            paths.append(path)
        return paths

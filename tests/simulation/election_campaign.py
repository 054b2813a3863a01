"""Runs many seeds of ``elections.py`` on all cores, until there were so many elections, and sums up their results."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from tests.simulation.campaign import end_of_trace
from tests.simulation.elections import OWNED_AGAIN_S, Elections, run_elections

FAILURES_SHOWN: Final = 20


@dataclass(slots=True)
class ElectionCampaign:
    """Sums over seeds; ``owned_s`` counts seeds by the seconds until all partitions were owned again."""

    first: int = 0
    seeds: int = 0
    elections: int = 0
    spent_s: float = 0.0
    virtual_s: float = 0.0
    writes: int = 0
    refused: int = 0
    owned_s: Counter[int] = field(default_factory=Counter)
    times: Counter[str] = field(default_factory=Counter)
    failed: dict[int, list[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.failed

    def add(self, outcome: Elections) -> None:
        self.seeds += 1
        self.elections += outcome.elections
        self.virtual_s += outcome.virtual_s
        self.writes += outcome.writes
        self.refused += outcome.refused
        self.owned_s[int(outcome.owned_s) + 1] += 1
        self.times.update(outcome.counts)
        if outcome.findings:
            self.failed[outcome.seed] = outcome.findings

    def save(self, path: Path) -> None:
        """Store it, so that an interrupted campaign can resume."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.content(), indent=1) + "\n")

    def content(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def load(cls, path: Path) -> ElectionCampaign:
        content = json.loads(path.read_text())
        content["times"] = Counter(content["times"])
        content["owned_s"] = Counter({int(seconds): times for seconds, times in content["owned_s"].items()})
        content["failed"] = {int(seed): findings for seed, findings in content["failed"].items()}
        return cls(**content)


def run_guarded(seed: int) -> Elections:
    """Run a seed; report an error in the simulation itself as a finding too."""
    try:
        return run_elections(seed)
    except Exception as error:
        return Elections(seed, findings=[end_of_trace(error)])


def run_campaign(campaign: ElectionCampaign, elections: int, *, after_each: Callable[[Elections], None]) -> None:
    """Run seeds in order, one process a core, until there were so many elections in the campaign."""
    begun_s = time.monotonic() - campaign.spent_s
    with multiprocessing.get_context("spawn").Pool() as pool:
        seeds = itertools.count(campaign.first + campaign.seeds)
        while campaign.elections < elections:
            for outcome in pool.map(run_guarded, itertools.islice(seeds, 20), chunksize=1):
                campaign.add(outcome)
                campaign.spent_s = time.monotonic() - begun_s
                after_each(outcome)


def reproduce(seed: int) -> str:
    return f'make simulate ELECTIONS=1 ARGS="--first {seed}"'


def report(campaign: ElectionCampaign, facts: dict[str, Any]) -> str:
    """Return the results as a page."""
    slowest = max(campaign.owned_s, default=0)
    lines = ["# Elections, simulated", "", *(f"**{name}**: {_said(value)}  " for name, value in facts.items()), ""]
    lines += [
        f"{campaign.elections:,} elections in {campaign.seeds:,} seeds from {campaign.first} on, "
        f"{campaign.spent_s:.0f} s, {campaign.virtual_s / 3600:.1f} hours of simulated time; {len(campaign.failed)} "
        "seeds failed.",
        "",
        "In each: one leader an epoch, epochs only grow, and nothing of what another wrote as leader of it counts. "
        f"{campaign.writes:,} writes to partitions, each by its owner, in turn; {campaign.refused:,} of workers that "
        "had been fenced were refused. After the faults ended each partition was owned by one worker within "
        f"{slowest} s at most (bound: {OWNED_AGAIN_S:.0f} s), in {_share_within(campaign, 1)} of the seeds within 1 s, "
        f"in {_share_within(campaign, 5)} within 5 s.",
        "",
        "| what went wrong | times |",
        "| --- | --- |",
        *(f"| {kind} | {times:,} |" for kind, times in sorted(campaign.times.items())),
        "",
    ]
    for seed, findings in list(campaign.failed.items())[:FAILURES_SHOWN]:
        lines += [f"Seed {seed} failed; `{reproduce(seed)}` runs it again:", ""]
        lines += [f"* {finding.splitlines()[0][:500]}" for finding in findings[:5]]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _share_within(campaign: ElectionCampaign, seconds: int) -> str:
    within = sum(times for took_s, times in campaign.owned_s.items() if took_s <= seconds)
    return f"{within / max(1, campaign.seeds):.1%}"


def _said(value: object) -> str:
    if isinstance(value, dict):
        return " · ".join(f"{name} {each}" for name, each in value.items())
    return str(value)

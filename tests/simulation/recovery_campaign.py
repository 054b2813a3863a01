"""Runs many seeds of ``recoveries.py`` on all cores, and sums up their results."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final

from mm2py.dr.runner import RecoveryGoal
from mm2py.dr.states import RecoveryState
from tests.simulation.campaign import end_of_trace
from tests.simulation.recoveries import RecoveryOutcome, run_recoveries

FAILURES_SHOWN: Final = 20
LEAST: Final = 20
"""How often each state was entered and each verb came to its end, at least, in a campaign that counts."""


@dataclass(slots=True)
class RecoveryCampaign:
    """Sums over seeds."""

    first: int = 0
    seeds: int = 0
    spent_s: float = 0.0
    times: Counter[str] = field(default_factory=Counter)
    failed: dict[int, list[str]] = field(default_factory=dict)

    @property
    def too_rare(self) -> list[str]:
        """What a campaign has to show, and did not, or not often enough."""
        states = [f"state {state}" for state in RecoveryState if state is not RecoveryState.READY]
        wanted = [*states, *(f"done: {goal}" for goal in RecoveryGoal)]
        return [one for one in wanted if self.times[one] < LEAST]

    @property
    def ok(self) -> bool:
        return not self.failed

    def add(self, outcome: RecoveryOutcome) -> None:
        self.seeds += 1
        self.times.update(outcome.counts)
        if outcome.findings:
            self.failed[outcome.seed] = outcome.findings

    def content(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


def run_guarded(seed: int) -> RecoveryOutcome:
    """Run a seed; report an error in the simulation itself as a finding too."""
    try:
        return run_recoveries(seed)
    except Exception as error:
        return RecoveryOutcome(seed, [end_of_trace(error)])


def run_campaign(campaign: RecoveryCampaign, seeds: int, *, after_each: Callable[[RecoveryOutcome], None]) -> None:
    """Run so many seeds, one process a core."""
    begun_s = time.monotonic()
    with multiprocessing.get_context("spawn").Pool() as pool:
        for outcome in pool.imap_unordered(run_guarded, range(campaign.first, campaign.first + seeds), chunksize=20):
            campaign.add(outcome)
            campaign.spent_s = time.monotonic() - begun_s
            after_each(outcome)


def reproduce(seed: int) -> str:
    return f'make simulate RECOVERIES=1 ARGS="--first {seed}"'


def report(campaign: RecoveryCampaign, facts: dict[str, Any]) -> str:
    """Return the results as a page."""
    lines = ["# Recoveries, simulated", "", *(f"**{name}**: {value}  " for name, value in facts.items()), ""]
    lines += [
        f"{campaign.seeds:,} seeds from {campaign.first} on, {campaign.spent_s:.0f} s; {len(campaign.failed)} failed.",
        "",
        "In each: never two sides that take records of a topic in cutovers and rollbacks, no group ahead of its "
        "records, no acknowledged record lost, repeated or read again; after a failover each record that is not on the "
        "new side is listed. At the end everything answers, and each run comes to its end.",
        "",
        "| what | times |",
        "| --- | --- |",
        *(f"| {kind} | {times:,} |" for kind, times in sorted(campaign.times.items())),
        "",
    ]
    if rare := campaign.too_rare:
        lines += [f"Less than {LEAST} times: {', '.join(rare)}.", ""]
    for seed, findings in sorted(campaign.failed.items())[:FAILURES_SHOWN]:
        lines += [f"Seed {seed} failed; `{reproduce(seed)}` runs it again:", ""]
        lines += [f"* {finding[:500]}" for finding in findings[:5]]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"

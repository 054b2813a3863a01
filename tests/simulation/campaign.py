"""Runs many seeds, one after the other, for a time; sums up their results, and lists those that failed."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from tests.simulation.run import Outcome, run_seed

ROOT: Final = Path(__file__).parents[2]

KINDS: Final = (
    "delay",
    "drop_request",
    "drop_reply",
    "reset",
    "duplicate_produce",
    "produce_error",
    "fetch_error",
    "flip_bit",
    "throttle",
    "leader_move",
    "broker_stop",
    "broker_kill",
    "requests reordered",
    "replies reordered",
    "stripe read",
    "worker killed",
    "worker stopped in order",
    "worker paused",
    "worker started beside another",
    "worker started beside a paused one",
    "crash before an effect",
    "crash behind an effect",
    "crash after an effect",
    "cancelled at a resumption",
    "all leaders moved",
    "broker cut off",
    "source truncated",
    "target truncated",
    "source records deleted",
    "target records deleted",
    "topic grown",
    "topic compacted",
    "limit lowered",
    "record refused for good",
    "producer forgotten",
    "transactional id forgotten",
)
"""All kinds of faults. Each must occur in enough of the seeds, or the campaign proves nothing about it."""
LEAST_SHARE: Final = 0.01
LEAST_SEEDS: Final = 200
"""With fewer seeds the shares are not judged."""
FAILURES_SHOWN: Final = 20


@dataclass(slots=True)
class Campaign:
    """The sums over many seeds. ``seeds_with`` counts the seeds in which a kind occurred, ``times`` how often."""

    seeds: int = 0
    first: int = 0
    next_seed: int = 0
    strict: int = 0
    """Runs that may have no duplicate; in the others a worker has logged that it cannot guarantee exactly-once."""
    spent_s: float = 0.0
    virtual_s: float = 0.0
    records: int = 0
    seeds_with: Counter[str] = field(default_factory=Counter)
    times: Counter[str] = field(default_factory=Counter)
    failed: dict[int, list[str]] = field(default_factory=dict)

    def add(self, outcome: Outcome, took_s: float) -> None:
        self.seeds += 1
        self.next_seed = outcome.seed + 1
        self.spent_s += took_s
        self.virtual_s += outcome.virtual_s
        self.records += outcome.records
        self.strict += outcome.strict
        for kind, times in outcome.counts.items():
            self.times[kind] += times
            self.seeds_with[kind] += times > 0
        if not outcome.ok:
            self.failed[outcome.seed] = outcome.findings

    @property
    def too_rare(self) -> list[str]:
        if self.seeds < LEAST_SEEDS:
            return []
        return [kind for kind in KINDS if self.seeds_with[kind] < LEAST_SHARE * self.seeds]

    @property
    def ok(self) -> bool:
        return not self.failed and not self.too_rare

    def save(self, path: Path) -> None:
        """Store it, so that an interrupted campaign can resume."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.content(), indent=1) + "\n")

    def content(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def load(cls, path: Path) -> Campaign:
        content = json.loads(path.read_text())
        content["seeds_with"], content["times"] = Counter(content["seeds_with"]), Counter(content["times"])
        content["failed"] = {int(seed): findings for seed, findings in content["failed"].items()}
        return cls(**content)


def end_of_trace(error: Exception) -> str:
    """Return its last frames, with paths from the repository's root: a result is committed."""
    return "".join(traceback.format_exception(error)[-4:]).replace(f"{ROOT}/", "")


def run_guarded(seed: int) -> Outcome:
    """Run a seed; report an error in the simulation itself as a finding too."""
    try:
        return run_seed(seed)
    except Exception as error:
        return Outcome(seed, findings=[f"the simulation failed with {error!r}:\n{end_of_trace(error)}"])


def run_campaign(
    campaign: Campaign, seeds: Iterable[int], *, seconds: float | None, after_each: Callable[[Outcome], None]
) -> None:
    """Run seeds until all are done or the campaign has taken so many seconds."""
    for seed in seeds:
        if seconds is not None and campaign.spent_s >= seconds:
            return
        begun_s = time.monotonic()
        outcome = run_guarded(seed)
        campaign.add(outcome, time.monotonic() - begun_s)
        after_each(outcome)


def reproduce(seed: int) -> str:
    return f"make simulate SEEDS={seed}"


def report(campaign: Campaign, facts: dict[str, Any]) -> str:
    """Return the results as a page."""
    hours = campaign.virtual_s / 3600
    lines = ["# Simulation", "", *(f"**{name}**: {_said(value)}  " for name, value in facts.items()), ""]
    lines += [
        f"{campaign.seeds} seeds from {campaign.first} on in {campaign.spent_s:.0f} s, {hours:.1f} hours of simulated "
        f"time, {campaign.records:,} records; {len(campaign.failed)} failed.",
        "",
        f"In {campaign.strict} of them nothing may be there twice. In the others a worker said that it could not "
        "promise that, and why: there records may repeat, and none may be lost or overtake.",
        "",
        "| what went wrong | seeds | share | times |",
        "| --- | --- | --- | --- |",
    ]
    for kind in KINDS:
        share = campaign.seeds_with[kind] / max(1, campaign.seeds)
        lines.append(f"| {kind} | {campaign.seeds_with[kind]} | {share:.1%} | {campaign.times[kind]} |")
    lines += ["", *_failures(campaign)]
    return "\n".join(lines).rstrip() + "\n"


def _failures(campaign: Campaign) -> list[str]:
    lines = []
    for seed, findings in list(campaign.failed.items())[:FAILURES_SHOWN]:
        lines += [f"Seed {seed} failed; `{reproduce(seed)}` runs it again:", ""]
        lines += [f"* {finding.splitlines()[0][:500]}" for finding in findings[:5]]
        lines.append("")
    if campaign.too_rare:
        lines.append(f"Struck in fewer than {LEAST_SHARE:.0%} of the seeds: {', '.join(campaign.too_rare)}.")
    return lines


def _said(value: object) -> str:
    if isinstance(value, dict):
        return " · ".join(f"{name} {each}" for name, each in value.items())
    return str(value)

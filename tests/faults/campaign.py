"""The record of a campaign of faults: what each test came to, kept as it ends, so that a campaign can be gone on with.

make faults                               keeps outcomes in run/faults.json
make faults ARGS=--faults-resume          leaves out what has passed at the same commit
make faults ARGS=--faults-save            also writes docs/results/faults-DATE.md when all is over
make faults ARGS="--faults-keep -k ..."   runs what a change could alter, beside what was kept of other commits;
                                          with --faults-resume only what has not passed at any of them
"""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from bench.machine import commit, hardware, versions

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "run" / "faults.json"
VARIABLES: Final = ("MM2PY_FAULTS_DOWN_S", "MM2PY_FAULTS_NODES", "MM2PY_FAULTS_RECORDS", "MM2PY_FAULTS_ROUNDS")
"""Environment variables that make a campaign longer or shorter."""
_COUNTS: Final = re.compile(r"(?P<source>\d+) records, (?P<target>\d+) on the target, (?P<rewinds>\d+) rewinds")


class FaultCampaign:
    """A plugin of pytest; see ``tests/faults/conftest.py``."""

    def __init__(self, *, resume: bool, keep: bool, save: bool) -> None:
        conditions = {"commit": commit(), **{name: os.environ[name] for name in VARIABLES if name in os.environ}}
        before: dict[str, Any] = json.loads(KEPT.read_text()) if (resume or keep) and KEPT.exists() else {}
        same = before.get("conditions") == conditions
        self._conditions = conditions
        self._outcomes: dict[str, dict[str, Any]] = before["outcomes"] if before and (same or keep) else {}
        for one in self._outcomes.values():
            one.setdefault("commit", before["conditions"]["commit"])
        self._resume, self._keep = resume, keep
        self._save = save

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = [item for item in items if self._outcomes.get(item.nodeid, {}).get("outcome") == "passed"]
        if done and (self._resume or not self._keep):
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item not in done]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        one = self._outcomes.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0, "records": 0})
        if report.when == "setup":
            one.update(outcome="unfinished", seconds=0.0, records=0, commit=self._conditions["commit"])
        one["seconds"] = round(one["seconds"] + report.duration, 1)
        if report.outcome != "passed":
            one["outcome"] = report.outcome
        if report.when == "call":
            one["outcome"] = report.outcome
            one["records"] = sum(int(found["source"]) for found in _COUNTS.finditer(report.capstdout))
        if report.when == "teardown":
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps({"conditions": self._conditions, "outcomes": self._outcomes}, indent=1) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._save:
            return
        today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
        path = ROOT / "docs" / "results" / f"faults-{today}.md"
        path.write_text(page(today, self._conditions, self._outcomes))
        terminalreporter.write_line(f"Written: {path}")


def page(today: str, conditions: dict[str, str], outcomes: dict[str, dict[str, Any]]) -> str:
    """Return the page of results."""
    counts = {
        name: sum(one["outcome"] == name for one in outcomes.values())
        for name in ("passed", "failed", "skipped", "unfinished")
    }
    facts: Sequence[tuple[str, object]] = [
        ("date", today),
        *conditions.items(),
        ("machine", _said(hardware())),
        ("versions", _said(versions())),
        ("outcome", ", ".join(f"{count} {name}" for name, count in counts.items() if count)),
        ("records judged", f"{sum(one['records'] for one in outcomes.values()):,}"),
    ]
    lines = ["# Faults, on real brokers", "", *(f"**{name}**: {value}  " for name, value in facts), ""]
    lines += [
        "Passed: each record is there once and in order, readers of committed records see all of it, no gap was found",
        "that the fault does not explain, and the process continues by itself (`tests/faults/scene.py`).",
        "",
        "| test | outcome | s | records |",
        "| --- | --- | --- | --- |",
    ]
    for name, one in outcomes.items():
        file, _, test = name.partition("::")
        said = test.removeprefix("test_").replace("_", " ")
        came_to = one["outcome"]
        if one["commit"] != conditions["commit"]:
            came_to += f", of {one['commit'][:7]}"
        lines.append(f"| {Path(file).stem}: {said} | {came_to} | {one['seconds']:g} | {one['records'] or ''} |")
    return "\n".join(lines) + "\n"


def _said(facts: dict[str, Any]) -> str:
    return " · ".join(f"{name} {each}" for name, each in facts.items())

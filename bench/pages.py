"""A page of results: its first lines, and how it is stored with its runs."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Final

from bench.machine import versions
from bench.mirrors import ROOT
from bench.runs import Run, as_json

RESULTS: Final = ROOT / "docs" / "results"
Facts = Mapping[str, object]


def facts_of(commit: str, machine: Mapping[str, object]) -> Facts:
    """Return date, commit, machine and versions of a bench; the caller reads ``machine`` before the bench."""
    return {"date": today(), "commit": commit, "machine": machine, "versions": versions()}


def today() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"


def first_lines(title: str, facts: Facts) -> list[str]:
    """Return the first lines of a page. Pure."""
    return [f"# {title}", "", *(f"**{name}**: {_said(value)}  " for name, value in facts.items()), ""]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table. Pure."""
    return ["| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows)]


def save(name: str, page: str, facts: Facts, runs: Sequence[Run]) -> None:
    """Write docs/results/NAME-DATE.md and .json, and print their names."""
    path = RESULTS / f"{name}-{facts['date']}"
    path.with_suffix(".json").write_text(json.dumps({**facts, "runs": as_json(runs)}, indent=1) + "\n")
    path.with_suffix(".md").write_text(page)
    print(f"Written: {path}.json and .md")


def _said(value: object) -> str:
    return " · ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, Mapping) else str(value)

"""The tables of a bench in Markdown: the goals first, then all measures, workload by workload. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from bench.mirrors import FRANZ_GO, MIRRORS, MM2, MM2PY, TITLES
from bench.runs import MEASURES, Run
from bench.summary import Goal, Ratio, Spread, Summary, Verdict, rounds_of, shown, shown_ratio
from bench.workloads import WORKLOADS

PLAIN, ENCRYPTED = "uncompressed", "tls"
COPY_NOTE = (
    "Medians of the rounds, lowest and highest in brackets. A ratio says how many times better mm2py is than the "
    "better of the two ways to run MirrorMaker 2, chosen for each measure by itself; its brackets are the worst and "
    "the best round. Rounded against mm2py. MB and GB are 10^6 and 10^9 bytes of record values, whatever the codec."
)


def report(runs: Sequence[Run], facts: Mapping[str, Mapping[str, object]], notes: Sequence[str]) -> str:
    """Return the whole page.

    Args:
        facts: title to name and value: date and machine, versions.
        notes: sentences that belong to these results, such as how well a topic compressed.
    """
    summary = Summary(runs)
    lines = ["# mm2py beside MirrorMaker 2", ""]
    for title, entries in facts.items():
        lines.append(
            f"**{title}**: " + " · ".join(f"{name} {value}" for name, value in entries.items() if value) + "  "
        )
    lines += ["", COPY_NOTE, "", *(f"* {note}" for note in notes), ""]
    if summary.verdicts():
        lines += ["## Goals", "", *goals_table(summary), ""]
    for workload in summary.workloads:
        count = rounds_of(runs)[workload]
        records = max(run.records for run in runs if run.workload == workload)
        lines += [f"## {WORKLOADS[workload].title}", ""]
        lines += [f"`{workload}`, {records:,} records, {count} round{'s' * (count != 1)}.", ""]
        lines += [*workload_table(summary, workload), "", *failures(summary, workload)]
    if {PLAIN, ENCRYPTED} <= set(summary.workloads):
        lines += ["## What TLS costs", "", *tls_table(summary), ""]
    return "\n".join(lines).rstrip() + "\n"


def goals_table(summary: Summary) -> list[str]:
    """Return one row for each goal: the goal, the result, whether it is reached."""
    rows = [
        (
            WORKLOADS[verdict.goal.workload].title,
            MEASURES[verdict.goal.measure].title,
            _median(verdict.goal.measure, verdict.ours, ours=True),
            _median(verdict.goal.measure, verdict.theirs, ours=False),
            _ratio(verdict.ratio),
            wanted(verdict.goal),
            said(verdict),
            _ratio(summary.against_franz_go(verdict.goal.workload, verdict.goal.measure)),
        )
        for verdict in summary.verdicts()
    ]
    header = ("workload", "", "mm2py", "MM2, the better", "times better", "goal", "", "against franz-go")
    return _table(header, rows)


def wanted(goal: Goal) -> str:
    if goal.at_most is not None:
        return f"at most {goal.at_most:g} {MEASURES[goal.measure].unit}"
    return f"{goal.times_better:g}x"


def said(verdict: Verdict) -> str:
    if verdict.held is None:
        return "not measured"
    return "held" if verdict.held else f"**missed**{f' ({verdict.why})' if verdict.why else ''}"


def workload_table(summary: Summary, workload: str) -> list[str]:
    """Return one row for each measure and one column for each mirror."""
    mirrors = [mirror for mirror in MIRRORS if summary.runs_of(workload, mirror)]
    header = ["", *(TITLES[mirror] for mirror in mirrors)]
    has_mm2, has_franz_go = any(mirror in MM2 for mirror in mirrors), FRANZ_GO in mirrors
    header += ["against MM2"] * has_mm2 + ["against franz-go"] * has_franz_go
    rows = []
    for measure, described in MEASURES.items():
        spreads = [summary.spread(workload, mirror, measure) for mirror in mirrors]
        if not any(spreads):
            continue
        row = [described.title + (f" ({described.unit})" if described.unit not in described.title else "")]
        row += [
            _cell(summary, workload, mirror, measure, spread) for mirror, spread in zip(mirrors, spreads, strict=True)
        ]
        comparable = not measure.startswith(("direct_", "other_"))  # these describe the machine
        row += [_ratio(summary.against_mm2(workload, measure) if comparable else None)] * has_mm2
        row += [_ratio(summary.against_franz_go(workload, measure) if comparable else None)] * has_franz_go
        rows.append(row)
    return _table(header, rows)


def tls_table(summary: Summary) -> list[str]:
    """Return the results of each mirror with TLS on both sides, next to those of the same records in plain text."""
    rows = []
    for mirror in MIRRORS:
        row = [TITLES[mirror]]
        for measure in ("records_per_s", "cpu_s_per_million_steady", "target_broker_cpu_s_per_million"):
            plain, encrypted = (summary.spread(each, mirror, measure) for each in (PLAIN, ENCRYPTED))
            if plain is not None and encrypted is not None:
                ours = mirror == MM2PY
                row += [shown(measure, each.median, ours=ours) for each in (plain, encrypted)]
                share = encrypted.median / plain.median * 100
                round_up = MEASURES[measure].higher_is_better != ours
                row.append(f"{(math.ceil(share - 1e-9) if round_up else math.floor(share + 1e-9)) / 100:.2f}x")
        if len(row) > 1:
            rows.append(row)
    header = ["", "records/s, plain", "TLS", "", "CPU s per million, plain", "TLS", ""]
    return _table([*header, "target broker, CPU s per million, plain", "TLS", ""], rows)


def failures(summary: Summary, workload: str) -> list[str]:
    """Return a line for each run that failed or was not measured; no failure is left out."""
    lines = []
    for run in summary.runs:
        if run.workload == workload and run.failed is not None:
            first, *_ = run.failed.splitlines() or [""]
            lines.append(f"* {TITLES[run.mirror]}, round {run.round + 1}: **failed**, {first}")
    reasons = {(run.mirror, run.not_measured) for run in summary.runs if run.workload == workload and run.not_measured}
    lines += [f"* {TITLES[mirror]}: not measured: {reason}." for mirror, reason in sorted(reasons)]
    return [*lines, ""] if lines else []


def _cell(summary: Summary, workload: str, mirror: str, measure: str, spread: Spread | None) -> str:
    if spread is None:
        runs = summary.runs_of(workload, mirror)
        return "failed" if any(run.failed for run in runs) else "not measured"
    ours = mirror == MM2PY
    median = shown(measure, spread.median, ours=ours)
    if spread.lowest == spread.highest:
        return median
    # the ends of a spread are rounded outwards for every mirror
    outwards = MEASURES[measure].higher_is_better
    return (
        f"{median} ({shown(measure, spread.lowest, ours=outwards)}–{shown(measure, spread.highest, ours=not outwards)})"
    )


def _median(measure: str, spread: Spread | None, *, ours: bool) -> str:
    return "-" if spread is None else f"{shown(measure, spread.median, ours=ours)} {_unit(measure)}"


def _unit(measure: str) -> str:
    unit = MEASURES[measure].unit
    return "/s" if unit == "records/s" else unit


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    median = f"{shown_ratio(ratio.median)}x"
    if ratio.lowest == ratio.highest:
        return median
    return f"{median} ({shown_ratio(ratio.lowest)}–{shown_ratio(ratio.highest)})"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]

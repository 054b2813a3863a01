"""What people read of a drill on a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from mm2py.dr.drill.judgement import GREEN, GoesOn, GroupDrill
from mm2py.dr.drill.report import NOT_MEASURED, STEPS, DrillReport, verification_word
from mm2py.dr.readiness import moment_text
from mm2py.moments import time_text
from mm2py.text_table import text_table

if TYPE_CHECKING:
    from mm2py.dr.drill.positions import DrillPlan

PLACES_MOST: Final = 200
"""So many places of a plan are listed."""
WORDS = {
    GoesOn.EXACT: "exact",
    GoesOn.AT_END: "at the end",
    GoesOn.READS_AGAIN: "reads again",
    GoesOn.SKIPS: "skips",
    GoesOn.DIFFERS: "other record",
    GoesOn.NO_PLACE: "no place",
    GoesOn.NOT_KNOWN: "cannot tell",
    GoesOn.LEFT: "left",
}


def plan_lines(plan: DrillPlan, flow: str) -> list[str]:
    """Return what a drill would look at, with the positions of now."""
    groups = sum(not one.is_left and not one.why for one in plan.groups)
    lines = [
        f"A drill of a failover of {flow} would look at {groups:,} groups in {len(plan.places):,} partitions. On the"
        " target it would commit these positions for groups of its own, which it deletes, and nothing else:"
    ]
    rows = [
        (
            one.group,
            f"{place.key[0]}-{place.key[1]}",
            _number(place.committed),
            _number(place.position),
            place.why or one.why,
        )
        for one in plan.groups
        for place in one.places
    ]
    rows += [(one.group, "-", "-", "-", one.why) for one in plan.groups if not one.places]
    more = [f"and {len(rows) - PLACES_MOST:,} more: --json has all"] if len(rows) > PLACES_MOST else []
    head = ("GROUP", "PARTITION", "COMMITTED", "GOES ON AT", "NOTE")
    return [*lines, *text_table(head, rows[:PLACES_MOST], right=(2, 3)), *more]


def report_lines(report: DrillReport, *, everything: bool = False) -> list[str]:
    """Return a report; partitions in which all is well only with ``everything``."""
    return list(_lines(report, everything=everything))


def verdict_line(report: DrillReport) -> str:
    """Return the answer, in a line."""
    counts = report.counts
    told = ", ".join(f"{count:,} {WORDS[kind]}" for kind in GoesOn if (count := counts[kind]))
    groups = len(report.groups)
    where = f"{groups:,} group{'' if groups == 1 else 's'}, partitions: {told or 'none'}"
    if report.reasons:
        return f"NOT PROVEN: {where}."
    return f"PROVEN: every group would go on at the exact record ({where})."


def _lines(report: DrillReport, *, everything: bool) -> Iterator[str]:
    rows = [row for group in report.groups for row in _rows(group, everything=everything)]
    head = ("GROUP", "PARTITION", "COMMITTED", "GOES ON AT", "ON TARGET", "RESULT", "NOTE")
    if rows:
        yield from text_table(head, rows, right=(2, 3))
        yield ""
    steps = ", ".join(f"{what} {report.steps.get(name, 0.0):,.2f} s" for name, what in STEPS.items())
    yield f"Recovery time: {report.recovery_s:,.2f} s measured ({steps}). Not in it: {NOT_MEASURED}."
    yield f"Recovery point: {recovery_point(report)}"
    yield f"Copies: {comparison_text(report)}"
    for one in report.obstacles:
        yield f"In the way of a failover: {one.text} [{one.kind}]"
        yield f"    {one.way_out}"
    for name, why in report.left_behind.items():
        yield f"Shadow group {name} could not be deleted: {why}"
    if report.reasons:
        yield "Why it is not proven:"
        yield from (f"  {reason}" for reason in report.reasons[:20])
        if len(report.reasons) > 20:
            yield f"  ... and {len(report.reasons) - 20:,} more (--json)"
    yield verdict_line(report)


def _rows(group: GroupDrill, *, everything: bool) -> Iterator[Sequence[str]]:
    if group.why:
        yield group.group, "-", "-", "-", "-", WORDS[GoesOn.LEFT if group.is_left else GoesOn.NOT_KNOWN], group.why
    good = [part for part in group.partitions if part.result in GREEN and not part.text]
    if good and not everything and len(group.partitions) > 1:
        numbers = f"{len(good):,} of {len(group.partitions):,}"
        kinds = ", ".join(sorted({WORDS[part.result] for part in good}))
        yield group.group, numbers, "", "", "", kinds, ""
        shown = [part for part in group.partitions if part not in good]
    else:
        shown = list(group.partitions)
    for part in shown:
        yield (
            group.group,
            f"{part.topic}-{part.partition}",
            _number(part.committed),
            _number(part.position),
            part.other_topic,
            WORDS[part.result],
            part.text,
        )


def recovery_point(report: DrillReport) -> str:
    """Return what a failover at the beginning of the drill would have lost."""
    found = report.readiness
    if found.lost_s is None or found.safe_at_ms is None:
        return "what would be lost is not known"
    least = "at least " if found.is_lost_at_least else ""
    records = "" if found.lost_records is None else f" ({least}{found.lost_records:,} records)"
    return f"{least}{found.lost_s:,.1f} s{records}; safe time {moment_text(found.safe_at_ms, found.at_ms)}."


def comparison_text(report: DrillReport) -> str:
    """Return what the comparison says, with its digests."""
    word = verification_word(report.verification)
    if report.verification is None:
        return "not compared, as was asked."
    source, target = report.roots
    digests = f"; digest of the source {source or 'none'}, of the target {target or 'none'}"
    return f"{report.compared:,} records compared: {word}{digests}."


def heading(report: DrillReport) -> str:
    """Return what was done, when and by whom."""
    who = f"{report.author.user or '?'}@{report.author.host or '?'}"
    return f"Drill {report.run} of a failover of {report.flow} to {report.to}, {time_text(report.begun_ms)}, by {who}"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"

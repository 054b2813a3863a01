"""The report of a drill as one HTML page that needs nothing else: no script, no style or picture from elsewhere. Pure.

Names of groups, topics and users come from other people's clusters, and are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from mm2py.dr.drill.judgement import GREEN, GoesOn
from mm2py.dr.drill.printout import WORDS, comparison_text, heading, recovery_point, verdict_line
from mm2py.dr.drill.report import NOT_MEASURED, STEPS, DrillReport, DrillVerdict, has_root
from mm2py.moments import time_text
from mm2py.secret import printable

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
th, td { border-bottom: 1px solid #ddd; padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.proven { border-left: .4rem solid #18794e; padding-left: 1rem; }
.not-proven { border-left: .4rem solid #b42318; padding-left: 1rem; }
code { overflow-wrap: anywhere; }
"""


def report_page(report: DrillReport) -> str:
    """Return the page."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: DrillReport) -> Iterator[str]:
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>{_text(f'Drill of {report.flow}, {report.run}')}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{_text(heading(report))}</h1>"
    kind = "proven" if report.verdict is DrillVerdict.PROVEN else "not-proven"
    yield f'<div class="{kind}"><p><strong>{_text(verdict_line(report))}</strong></p>'
    if report.reasons:
        yield from _list(report.reasons)
    yield "</div>"
    if report.author.reason:
        yield f"<p>Reason: {_text(report.author.reason)}</p>"
    yield "<h2>Recovery time and point</h2>"
    rows = [(what, f"{report.steps.get(name, 0.0):,.2f} s") for name, what in STEPS.items()]
    yield from _table(("Step", "Took"), [*rows, ("together", f"{report.recovery_s:,.2f} s")], numbers=(1,))
    yield f"<p>Not measured: {_text(NOT_MEASURED)}.</p>"
    yield f"<p>Recovery point: {_text(recovery_point(report))}</p>"
    if report.obstacles:
        yield "<h2>In the way of a failover</h2>"
        yield from _list([f"{one.text}. {one.way_out}" for one in report.obstacles])
    yield "<h2>Groups</h2>"
    yield from _groups(report)
    yield "<h2>Copies</h2>"
    yield f"<p>{_text(comparison_text(report))}</p>"
    yield from _digests(report)
    yield f"<p>Begun {_text(time_text(report.begun_ms))}, ended {_text(time_text(report.ended_ms))}.</p>"
    yield (
        f"<p>Nothing was changed on {_text(report.source)} but its record of this drill. On {_text(report.target)}"
        " groups of the drill's own were made and deleted.</p>"
    )
    for name, why in report.left_behind.items():
        yield f"<p>Shadow group <code>{_text(name)}</code> could not be deleted: {_text(why)}</p>"
    yield "</body></html>"


def _groups(report: DrillReport) -> Iterator[str]:
    head = (
        "Group",
        "Partition",
        "Committed",
        "Goes on at",
        "Next record on source",
        "First record on target",
        "Result",
    )
    rows = list[Sequence[str]]()
    for group in report.groups:
        if group.why:
            word = WORDS[GoesOn.LEFT if group.is_left else GoesOn.NOT_KNOWN]
            rows.append((group.group, "-", "-", "-", "-", "-", f"{word}: {group.why}"))
        for part in group.partitions:
            result = WORDS[part.result] + (f": {part.text}" if part.text else "")
            mark = "" if part.result in GREEN else "! "
            numbers = (part.committed, part.position, part.source_record, part.target_record)
            told = tuple("-" if one is None else f"{one:,}" for one in numbers)
            where = f"{part.topic}-{part.partition}"
            where += "" if part.other_topic == part.topic else f" → {part.other_topic}-{part.partition}"
            rows.append((group.group, where, *told, mark + result))
    yield from _table(head, rows, numbers=(2, 3, 4, 5))


def _digests(report: DrillReport) -> Iterator[str]:
    if report.verification is None:
        return
    rows = []
    for one in report.verification.partitions:
        facts = one.plan.facts
        roots = [some.hex() for some in one.roots] if has_root(one) else ["the latest record of each key", ""]
        word = "different" if one.is_different else "not compared" if one.has_problems else "equal"
        rows.append((f"{facts.topic}-{facts.partition}", f"{one.records:,}", word, *roots))
    yield from _table(
        ("Partition", "Records", "Result", "Digest of the source", "Digest of the target"), rows, numbers=(1,)
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int]) -> Iterator[str]:
    yield f"<table><tr>{''.join(f'<th>{_text(one)}</th>' for one in head)}</tr>"
    for row in rows:
        cells = (f"<td{' class=n' if at in numbers else ''}>{_text(cell)}</td>" for at, cell in enumerate(row))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table>"


def _list(texts: Sequence[str]) -> Iterator[str]:
    yield "<ul>"
    yield from (f"<li>{_text(one)}</li>" for one in texts)
    yield "</ul>"


def _text(text: str) -> str:
    """Return a text that comes from anywhere, so that it is nothing but text."""
    return escape(printable(text), quote=True)

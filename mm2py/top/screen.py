"""The lines that ``mm2py top`` shows, for a state and the size of a terminal. Pure.

A small terminal shows the verdicts and the worst topics; a large one also workers, charts and events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mm2py.command_lines import with_file
from mm2py.flow import Flow, Kind
from mm2py.moments import ago, time_text
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.flow_report import FlowReport
from mm2py.status.lag_movement import LagMovement, LagTrendWord, bytes_text
from mm2py.status.report import GroupReport, MemberReport, MemberState
from mm2py.status.verdict import Readiness
from mm2py.status.why import NO_DETAILS, Explanation, Replicated, explain_topic
from mm2py.status.why_group import explain_group
from mm2py.top.cells import (
    BARS,
    Ink,
    ScreenLine,
    Span,
    fitted,
    line,
    padded,
    sparkline,
    text_of_line,
    width_of,
    wrapped,
)
from mm2py.top.flow_chart import SAMPLES
from mm2py.top.help_page import HELP_LINES
from mm2py.top.rows import ShownPartition, TopicRow, caught_up_text, growth_text, rate_text
from mm2py.top.state import Place, TopState, chosen_topic
from mm2py.top.table import TableColumn, TableRow, table_lines

ROOMY: Final = 16
"""From so many lines on, workers, charts and events are shown as well."""
TOPICS_ONCE_MOST: Final = 20
"""How many topics are printed if there is no terminal."""
EVENTS_ONCE_MOST: Final = 10
QUESTION_MOST: Final = 8
"""How many lines a question may take."""
DETAILS_KEPT_MS: Final = 60_000
"""What is asked for only once about a topic is believed for so long."""
RECENT_SAMPLES: Final = 2
"""How many samples of a chart are of the last minutes: the newest may have just begun."""
OLD_MS: Final = 15_000
"""What an older look has found is not called good any more: a cluster answers slowly, or looks are far apart."""
_INKS: Final = {Readiness.SAFE: Ink.GOOD, Readiness.BEHIND: Ink.DOUBTFUL, Readiness.UNKNOWN: Ink.DOUBTFUL}
_TOPICS: Final = (
    TableColumn("TOPIC", 0),
    TableColumn("FLOW", 5),
    TableColumn("LAG", 1, is_right=True),
    TableColumn("AGE", 7, is_right=True),
    TableColumn("GROWTH", 3, is_right=True),
    TableColumn("CAUGHT UP", 4, is_right=True),
    TableColumn("RATE", 6, is_right=True),
    TableColumn("OWNERS", 8),
    TableColumn("STATE", 2),
)
_PARTITIONS: Final = (
    TableColumn("PARTITION", 0, is_right=True),
    TableColumn("POSITION", 6, is_right=True),
    TableColumn("END", 7, is_right=True),
    TableColumn("LAG", 1, is_right=True),
    TableColumn("GROWTH", 3, is_right=True),
    TableColumn("CAUGHT UP", 4, is_right=True),
    TableColumn("OWNER", 5),
    TableColumn("STATE", 2),
)
_GROUPS: Final = (
    TableColumn("GROUP", 0),
    TableColumn("STATE", 4),
    TableColumn("ON TARGET", 5),
    TableColumn("LAG", 2, is_right=True),
    TableColumn("READS AGAIN", 3, is_right=True),
    TableColumn("READY", 1),
)
_MEMBERS: Final = (
    TableColumn("WORKER", 0),
    TableColumn("STATE", 1),
    TableColumn("SEEN", 3, is_right=True),
    TableColumn("TASKS", 2, is_right=True),
    TableColumn("RATE", 4, is_right=True),
    TableColumn("VERSION", 6),
    TableColumn("FLOWS", 5),
)
_KEYS: Final = {
    Place.TOPICS: "? help  q quit  enter look  p pause  r resume  g groups  s sort  / filter  ! problems",
    Place.PARTITIONS: "esc back  ? help  q quit  p pause and r resume the partition  g groups",
    Place.GROUPS: "esc back  ? help  q quit  space ask again",
    Place.PROBLEMS: "esc back  ? help  q quit  up down",
    Place.HELP: "esc back  q quit",
}


def screen(state: TopState, width: int, height: int, now_ms: int, *, bars: str = BARS) -> list[ScreenLine]:
    """Return as many lines as a terminal has, each with room in its width."""
    width, height = max(1, width), max(1, height)
    foot = _foot(state, width)[: max(1, height // 2)]
    room = height - 1 - len(foot)
    head = [_head(state, width, now_ms)] if room >= 0 else []
    match state.place:
        case Place.HELP:
            body = [line(one) for one in HELP_LINES]
        case Place.PARTITIONS:
            body = _partitions(state, width, room, now_ms)
        case Place.GROUPS:
            body = _groups(state, width, room, now_ms)
        case Place.PROBLEMS:
            body = _problems(state, width, most=20, first=state.problem) or [line("There are no problems.", Ink.GOOD)]
            body += [line(text) for note in _notes(state) for text in wrapped(note, width, 20, indent="  ")]
        case Place.TOPICS:
            body = _overview(state, width, room, bars, now_ms)
    if _is_old(state, now_ms):
        body = [tuple(map(_not_good, one)) for one in body]
    body = _clipped(body, room)
    body += [()] * (room - len(body))
    return [fitted(one, width) for one in [*head, *body, *foot]][-height:]


def printed(state: TopState, width: int, *, bars: str = BARS) -> str:
    """Return the overview as plain text, for a reader that is no terminal. All is printed but long lists of topics."""
    if state.look is None:
        return ""
    blocks: list[list[ScreenLine]] = [
        [line(f"{time_text(state.look.report.at_ms)}  {state.look.report.summary}")],
        _problems(state, width, most=20),
        _flows(state, width, bars, state.look.report.at_ms, sentences_most=20),
        _workers(state, width),
        _topics(state, width, TOPICS_ONCE_MOST + 1, is_selecting=False),
        _events(state, width, EVENTS_ONCE_MOST + 1),
    ]
    left = len(state.rows) - TOPICS_ONCE_MOST
    if left > 0:
        blocks[4].append(line(f"... and {left:,} more (mm2py status FILE --all)"))
    shown = [with_file(text_of_line(one).rstrip(), state.file) for block in blocks if block for one in [*block, ()]]
    return "\n".join(shown).rstrip("\n") + "\n"


# -- head and foot -----------------------------------------------------------------------------------------------------


def _head(state: TopState, width: int, now_ms: int) -> ScreenLine:
    if state.look is None:
        return line("mm2py top: the first look at the clusters ...", Ink.STRONG)
    report = state.look.report
    age = max(0, now_ms - report.at_ms)
    right = f"  {_clock(report.at_ms)}, {ago(age)} ago" if width >= 60 else f"  {ago(age)} ago"
    summary = padded(report.summary, max(0, width - width_of(right)))
    is_old = _is_old(state, now_ms)
    ink = Ink.BAD if report.problems else Ink.DOUBTFUL if is_old else Ink.STRONG
    return (Span(summary, ink), Span(right, Ink.DOUBTFUL if is_old else Ink.FAINT))


def _is_old(state: TopState, now_ms: int) -> bool:
    return state.look is not None and now_ms - state.look.report.at_ms > OLD_MS


def _not_good(span: Span) -> Span:
    return replace(span, ink=Ink.DOUBTFUL) if span.ink is Ink.GOOD else span


def _clock(at_ms: int) -> str:
    """Return the time of day."""
    return time_text(at_ms).partition("T")[2]


def _foot(state: TopState, width: int) -> list[ScreenLine]:
    """Return the lines at the bottom: what is asked or said, else which keys there are."""
    said = [
        line(one, Ink.STRONG)
        for text in state.said
        for one in wrapped(with_file(text, state.file), width, QUESTION_MOST)
    ]
    asked = state.asking
    if asked is not None and asked.is_confirming:
        reason = f"Reason: {asked.reason}" if asked.reason else "No reason is given."
        question = f"{asked.text}? y: yes, any other key: no. {reason}"
    elif asked is not None:
        question = f"{asked.text}. Reason (may be empty; enter: go on, esc: cancel): {asked.reason}_"
    elif state.is_filtering:
        question = f"Show topics with (enter: keep, esc: all): {state.wanted}_"
    elif state.doing:
        question = state.doing
    else:
        return [*said, line(_KEYS[state.place], Ink.FAINT)]
    return [*(line(one, Ink.CHOSEN) for one in wrapped(question, width, QUESTION_MOST)), *said]


def _clipped(lines: Sequence[ScreenLine], most: int, what: str = "lines") -> list[ScreenLine]:
    """Return at most so many lines; the last one says how many are missing."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[: max(0, most - 1)], line(f"... and {len(lines) - most + 1} more {what}", Ink.FAINT)][: max(0, most)]


# -- the overview ------------------------------------------------------------------------------------------------------


def _overview(state: TopState, width: int, room: int, bars: str, now_ms: int) -> list[ScreenLine]:
    if state.look is None:
        return []
    is_roomy = room >= ROOMY
    problems = _problems(state, width, most=3)
    problems_most = max(1, room // 6)
    if len(problems) > problems_most:
        problems = _clipped(_problems(state, width, most=1), problems_most, "problems: ! shows all")
    flows = _flows(state, width, bars, now_ms, sentences_most=3)
    if not is_roomy or len(flows) > room // 2:
        flows = _flows(state, width, "", now_ms, sentences_most=1)
    flows = _clipped(flows, max(1, room // 2 - len(problems)))
    left = room - len(problems) - len(flows)
    if not is_roomy:
        return [*problems, *flows, *_topics(state, width, left, is_selecting=True)]
    workers = _workers(state, width)
    workers_least, events_least = min(len(workers), max(2, room // 6)), max(2, room // 6)
    spare = max(0, left - workers_least - events_least - len(state.rows) - 1)  # what topics need no room for
    if len(workers) > workers_least + spare:
        workers = _workers(state, width, is_short=True)
    workers = _clipped(workers, workers_least + spare)
    spare -= max(0, len(workers) - workers_least)
    events = _events(state, width, events_least + spare)
    topics = _topics(state, width, left - len(workers) - len(events), is_selecting=True)
    blanks: list[ScreenLine] = [()] * max(0, left - len(workers) - len(topics) - len(events))
    return [*problems, *flows, *workers, *topics, *blanks, *events]


def _problems(state: TopState, width: int, *, most: int, first: int = 0) -> list[ScreenLine]:
    """Return the problems from one on, each in at most so many lines."""
    if state.look is None:
        return []
    return [
        line(text, Ink.BAD)
        for problem in state.look.report.problems[first:]
        for text in wrapped(with_file(f"! {problem.where}: {problem.text}", state.file), width, most, indent="  ")
    ]


def _notes(state: TopState) -> list[str]:
    return [] if state.look is None else [f"note: {note}" for note in state.look.report.notes]


def _flows(state: TopState, width: int, bars: str, now_ms: int, *, sentences_most: int) -> list[ScreenLine]:
    """Return the verdict on each flow, and its numbers with charts of the last hour; without ``bars``: only that."""
    lines: list[ScreenLine] = []
    if state.look is None:
        return lines
    as_of = f"As of {_clock(state.look.report.at_ms)}: " if _is_old(state, now_ms) else ""
    for flow in state.look.report.flows:
        ink = _INKS.get(flow.verdict.readiness, Ink.BAD)
        if not flow.settings.enabled or any(held.connector is Kind.SOURCE for held in flow.held):
            ink = Ink.DOUBTFUL
        text = with_file(f"{as_of}{flow.verdict.text}", state.file)
        lines += [line(one, ink) for one in wrapped(text, width, sentences_most, indent="  ")]
        if bars:
            lines += _numbers(state, flow, width, bars)
    return lines


def _numbers(state: TopState, flow: FlowReport, width: int, bars: str) -> list[ScreenLine]:
    at_least = "at least " if flow.lag_is_partial and flow.lag is not None else ""
    was = "was " if flow.lag_as_of_ms is not None else ""
    age = f" ({flow.lag_s:,.0f} s)" if flow.lag_s else ""
    lag = f"  lag {was}{at_least}{'?' if flow.lag is None else f'{flow.lag:,}'}{age}"
    if flow.movement is not None and flow.movement.is_behind and flow.movement.per_s is not None:
        lag += f", {_moves(flow.movement)}"
    chart = state.charts.get(flow.flow)
    rates = [] if state.look is None else [rate for key, rate in state.look.rates.items() if key.flow == flow.flow]
    rate = f"copied {rate_text(sum(rates) if rates else _recent_rate(state, flow.flow))}"
    if chart is None:
        return [line(f"{lag}   {rate}")]
    shown = min(SAMPLES, max(5, (width - width_of(lag) - width_of(rate) - 6) // 2))
    marks = [sparkline(numbers[-shown:], bars) for numbers in (chart.lag, chart.rate)]
    return [(Span(f"{lag} "), Span(marks[0], Ink.FAINT), Span(f"   {rate} "), Span(marks[1], Ink.FAINT))]


def _recent_rate(state: TopState, flow: Flow) -> float | None:
    """Return the rate that the history tells of the last minutes, before two looks tell one; None: not known now."""
    chart, facts = state.charts.get(flow), state.flow_facts(flow)
    if chart is None or facts is None or facts.positions_unread:
        return None
    return next((one for one in reversed(chart.rate[-RECENT_SAMPLES:]) if one is not None), None)


def _moves(movement: LagMovement) -> str:
    grows = growth_text(movement)
    if movement.trend is LagTrendWord.SHRINKING:
        return f"{grows}, caught up in {caught_up_text(movement)}"
    return grows


def _workers(state: TopState, width: int, *, is_short: bool = False) -> list[ScreenLine]:
    lines: list[ScreenLine] = []
    for group in () if state.look is None else state.look.report.groups:
        lines.append(line(_group_text(group), Ink.STRONG))
        if group.members and not is_short:
            lines += table_lines(_MEMBERS, group.members, _member_row, width, len(group.members) + 1)
    return lines


def _member_row(member: MemberReport) -> TableRow:
    return TableRow(
        (
            member.name,
            f"{member.state}{', leads' if member.leads and member.state is not MemberState.STOPPED else ''}",
            f"{ago(member.last_seen_ms_ago)} ago",
            f"{member.tasks:,}",
            f"{bytes_text(member.bytes_per_s)}/s" if member.state is MemberState.ALIVE else "-",
            member.version,
            ", ".join(map(str, member.flows)),
        ),
        Ink.PLAIN if member.state is MemberState.ALIVE else Ink.BAD,
    )


def _group_text(group: GroupReport) -> str:
    name = f"Workers of {group.name} on {group.target}: "
    if group.unread:
        return f"{name}not known, {group.unread}"
    if not group.runs:
        last = group.last_append_ms_ago
        return f"{name}none runs" + ("" if last is None else f", the last record is {ago(last)} old")
    alive = sum(member.state is MemberState.ALIVE for member in group.members)
    leader = next((member.name for member in group.members if member.leads), "no member")
    return f"{name}{alive} of {len(group.members)} alive, {leader} leads, generation {group.generation}"


def _topics(state: TopState, width: int, most: int, *, is_selecting: bool) -> list[ScreenLine]:
    rows = state.rows
    is_empty = not rows
    chosen = chosen_topic(state)
    selected = next((at for at, row in enumerate(rows) if row.key == chosen), 0) if is_selecting else None
    several = state.look is not None and len(state.look.report.flows) > 1
    columns = [column for column in _TOPICS if several or column.head != "FLOW"]
    lines = table_lines(columns, rows, lambda row: _topic_row(row, several), width, most, selected=selected)
    if is_empty and most > 1:
        why = f"no topic has {state.wanted!r}: esc shows all" if state.wanted else _no_topic(state)
        lines.append(line(f"  {why}", Ink.FAINT))
    return lines


def _no_topic(state: TopState) -> str:
    is_unread = state.look is not None and any(flow.unread for flow in state.look.report.flows)
    return "no topic is known, see above what cannot be read" if is_unread else "no topic is copied"


def _topic_row(row: TopicRow, several: bool) -> TableRow:
    """Return the row of a topic. ``several``: there are several flows."""
    topic = row.topic
    mark = "! " if row.is_problem else ""
    was, more = "was " if row.is_old else "", "+" if topic.unknown else ""
    lag = "?" if topic.lag is None else f"{was}{topic.lag:,}{more}"
    # that none waited before the source fell silent does not say that none waits
    age = "?" if topic.lag_s is None or row.is_old else "-" if not topic.lag_s else ago(round(topic.lag_s * 1000))
    movement = row.movement
    is_behind = movement is not None and movement.is_behind
    ink = Ink.BAD if row.is_problem else Ink.DOUBTFUL if topic.not_copied or is_behind or row.is_old else Ink.PLAIN
    return TableRow(
        (
            topic.topic,
            *([str(row.key.flow)] if several else []),
            lag,
            age,
            growth_text(movement),
            caught_up_text(movement),
            rate_text(row.rate),
            row.owners,
            f"{mark}{row.state}",
        ),
        ink,
    )


def _events(state: TopState, width: int, most: int) -> list[ScreenLine]:
    """Return the last events of all flows, the newest last; or why there are none."""
    lines = [line("Events of the last hour", Ink.STRONG)]
    several = len(state.charts) > 1
    found = sorted(
        {
            (event.at_ms, "" if not several else f"{_about(flow, event.kind)} ", event.kind, event.text)
            for flow, chart in state.charts.items()
            for event in chart.events
        }
    )
    problems = [f"{flow}: {one.problem}" for flow, one in state.charts.items() if one.problem]
    if state.no_history:
        what = "Not all history is told" if state.charts else "No history, no charts and no events"
        problems.insert(0, f"{what}: {state.no_history}")
    for text in problems:
        lines += [line(one, Ink.DOUBTFUL) for one in wrapped(text, width, 2, indent="  ")]
    room = max(0, most - len(lines))
    for at_ms, flow, kind, text in found[-room:] if room else []:
        lines.append(line(f"{time_text(at_ms).partition('T')[2]} {flow}{kind}: {text}"))
    if len(lines) == 1:
        lines.append(line("  none" if state.charts else "  not told yet", Ink.FAINT))
    return lines[: max(0, most)]


def _about(flow: Flow, kind: str) -> str:
    """Return what an event is about: a flow, or a group of workers, of which the histories of all its flows tell."""
    return f"group on {flow.target}" if kind.startswith(("member.", "leader.")) else str(flow)


# -- one topic, and groups ---------------------------------------------------------------------------------------------


def _partitions(state: TopState, width: int, room: int, now_ms: int) -> list[ScreenLine]:
    if state.opened is None or state.look is None:
        return []
    flow, topic = state.opened
    lines = [line(f"{flow}, topic {topic}", Ink.STRONG)]
    facts, report = state.flow_facts(flow), state.flow_report(flow)
    if facts is None or report is None:
        return [*lines, line("The last look has not found this flow.", Ink.DOUBTFUL)]
    names = {member.member: member.name for group in state.look.report.groups for member in group.members}
    found = explain_topic(facts, report, topic, None, names, state.details or NO_DETAILS)
    is_told = state.details is not None and now_ms - state.details_at_ms <= DETAILS_KEPT_MS
    if not is_told and found.replicated is Replicated.YES:
        since = "yet" if state.details is None else "any more (space asks again)"
        text = f"{found.text} Not known {since}: whether records of it are in quarantine."
        found = replace(found, replicated=Replicated.UNKNOWN, text=text)
    lines += _explained(found, state, width, room // 2)
    rows = state.partitions
    selected = min(state.partition, len(rows))
    return lines + table_lines(_PARTITIONS, rows, _partition_row, width, room - len(lines), selected=selected)


def _partition_row(row: ShownPartition) -> TableRow:
    return TableRow(
        (
            str(row.partition),
            _number(row.position),
            _number(row.end),
            f"{'was ' if row.is_old and row.lag is not None else ''}{_number(row.lag)}",
            growth_text(row.movement),
            caught_up_text(row.movement),
            row.owner,
            f"{'! ' if row.is_problem else ''}{row.state}",
        ),
        Ink.BAD if row.is_problem else Ink.PLAIN,
    )


def _explained(found: Explanation, state: TopState, width: int, most: int) -> list[ScreenLine]:
    """Return what ``mm2py why`` says, in at most so many lines."""
    ink = {Replicated.YES: Ink.GOOD, Replicated.NO: Ink.BAD}.get(found.replicated, Ink.DOUBTFUL)
    texts = [found.text, *(f"also: {one.reason}: {one.text}" for one in found.others)]
    lines = [line(one, ink) for text in texts for one in wrapped(with_file(text, state.file), width, max(1, most))]
    return _clipped(lines, max(1, most))


def _groups(state: TopState, width: int, room: int, now_ms: int) -> list[ScreenLine]:
    groups = state.groups
    if groups is None:
        return []
    when = "they are being asked for ..." if groups.at_ms is None else f"{ago(max(0, now_ms - groups.at_ms))} ago"
    lines = [line(f"Consumer groups of {groups.flow}: {when}", Ink.STRONG)]
    for text in filter(None, (groups.problem, groups.unread and f"as of their last checkpoints: {groups.unread}")):
        lines += [line(one, Ink.DOUBTFUL) for one in wrapped(with_file(text, state.file), width, 3)]
    rows = groups.reports
    if groups.at_ms is not None and not rows and not groups.problem:
        lines.append(line("  the flow knows no group with a commit in a topic that it copies", Ink.FAINT))
    if not rows:
        return lines
    names = [one.group for one in rows]
    selected = names.index(state.group) if state.group in names else 0
    told = _group_told(state, selected, width, max(2, room // 3))
    table = table_lines(_GROUPS, rows, _consumer_row, width, room - len(lines) - len(told), selected=selected)
    return [*lines, *table, *told]


def _consumer_row(group: ConsumerGroupReport) -> TableRow:
    return TableRow(
        (
            group.group,
            group.state or "?",
            group.state_on_target or "-",
            _number(group.lag),
            _again(group.reads_again_at_most),
            group.why or ("in part" if group.left_out else "yes"),
        ),
        Ink.PLAIN if group.ready else Ink.DOUBTFUL,
    )


def _group_told(state: TopState, selected: int, width: int, most: int) -> list[ScreenLine]:
    """Return what ``mm2py why`` says of the selected group."""
    groups = state.groups
    if groups is None:
        return []
    facts, report = state.flow_facts(groups.flow), state.flow_report(groups.flow)
    if facts is None or report is None:
        return []
    group = groups.reports[selected]
    found = explain_group(facts, report, group.group, group, None, groups.unread)
    return [(), *_explained(found, state, width, most - 1)]


def _again(number: int | None) -> str:
    return "?" if number is None else "exact" if number == 0 else f"<= {number:,}"


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"

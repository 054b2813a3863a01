"""The report as a text for people and as an object for programs; docs/status.md describes both. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mm2py.config.secrets import HIDDEN, is_hidden, printable, shown_key
from mm2py.flow import ClusterAlias
from mm2py.records.connector_config import FlowConfig
from mm2py.records.control_record import MemberId
from mm2py.records.status_record import Gap
from mm2py.status.flow_settings import AppliedReport, SettingsReport
from mm2py.status.report import FlowReport, GroupReport, MemberReport, MemberState, Report, ago
from mm2py.status.topics import TopicReport
from mm2py.worker.flow_config import Change

FORMAT: Final = 1
"""Of the object for programs: fields may be added under it, none changes its meaning."""
ROWS_MOST: Final = 20
"""Of each list for people, unless they ask for all."""
NAMES_MOST: Final = 3
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


def text_of(report: Report, *, everything: bool = False, styled: bool = False) -> str:
    """Return what people read: problems first, then groups, then flows.

    Args:
        everything: do not cut long lists.
        styled: with bold headings and red problems, for a terminal.
    """
    return _Page(everything, styled).text(report)


class _Page:
    def __init__(self, everything: bool, styled: bool) -> None:
        self._most = None if everything else ROWS_MOST
        self._styled = styled
        self._lines: list[str] = []

    def text(self, report: Report) -> str:
        count = len(report.problems)
        summary = "nothing is wrong" if not count else f"{count} problem{'s' if count > 1 else ''}"
        self._say(f"{time_text(report.at_ms)}  {summary}", _BOLD)
        self._cut([f"! {problem.where}: {problem.text}" for problem in report.problems], _RED)
        groups = {group.target: group for group in report.groups}
        for group in report.groups:
            self._group(group)
        for flow in report.flows:
            self._flow(flow, groups.get(flow.flow.target))
        return "".join(f"{line}\n" for line in self._lines)

    def _group(self, group: GroupReport) -> None:
        self._say("")
        if group.unread:
            what = "not known"
        elif group.runs:
            leader = _name(group.leader, group) if group.leader is not None else "none"
            what = f"leader {leader}, leader epoch {group.leader_epoch}, generation {group.generation}"
        elif group.last_append_ms is None:
            what = "none runs, and none ever did"
        else:
            what = f"none runs, last record {ago(group.last_append_ms)} ago, leader epoch {group.leader_epoch}"
        self._say(f"Group {group.name} on {group.target}: {what}", _BOLD)
        rows = [
            (
                member.name,
                member.member,
                f"{member.state}{', leads' if member.leads and group.runs else ''}",
                f"{ago(member.last_seen_ms)} ago",
                member.version,
                _number(member.shares),
                _number(member.bytes_per_s),
                ", ".join(map(str, member.flows)),
            )
            for member in group.members
        ]
        head = ("MEMBER", "ID", "STATE", "LAST SEEN", "VERSION", "SHARES", "BYTES/S", "FLOWS")
        self._table(head, rows, right=(5, 6))
        for producer_id, why in list(group.unfenced.items())[-NAMES_MOST:]:
            self._say(f"producer id {producer_id} could not be fenced: {why}")

    def _flow(self, flow: FlowReport, group: GroupReport | None) -> None:
        self._say("")
        reasons = f" ({'; '.join(flow.guarantee.reasons)})" if flow.guarantee.reasons else ""
        off = "" if flow.settings.is_on else "switched off, "
        self._say(f"{flow.flow}: {off}{flow.guarantee.level}{reasons}", _BOLD)
        self._say(", ".join(_facts_of(flow, group)))
        self._settings(flow.settings, group)
        rows = [_topic_row(topic, group) for topic in flow.topics]
        self._table(("TOPIC", "PARTITIONS", "LAG", "OWNERS", "NOTE"), rows, right=(1, 2))

    def _settings(self, settings: SettingsReport, group: GroupReport | None) -> None:
        if settings.stored is None:
            return
        told = [f"{_name(one.member, group)} {_version(one)}" for one in settings.applied]
        shown = told[: self._most]
        more = f" and {len(told) - len(shown)} more (--all)" if len(told) > len(shown) else ""
        stored = settings.stored
        self._say(
            f"settings: version {stored.version}, by {stored.by}, {time_text(stored.at_ms)}"
            + (f"; applied: {', '.join(shown)}{more}" if told else "")
        )
        if settings.drift:
            self._say("the file says otherwise (mm2py apply FILE makes the workers run by it):")
            self._cut([f"  {change}" for change in settings.drift], "")

    def _table(self, head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
        if not rows:
            return
        shown = rows[: self._most]
        widths = [max(len(row[at]) for row in [head, *shown]) for at in range(len(head))]
        for row in [head, *shown]:
            cells = [
                cell.rjust(width) if at in right else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self._say("  ".join(cells).rstrip())
        self._more(len(rows) - len(shown))

    def _cut(self, lines: Sequence[str], style: str) -> None:
        for line in lines[: self._most]:
            self._say(line, style)
        self._more(0 if self._most is None else len(lines) - self._most)

    def _more(self, count: int) -> None:
        if count > 0:
            self._say(f"... and {count} more (--all)")

    def _say(self, line: str, style: str = "") -> None:
        text = printable(line)
        self._lines.append(f"{style}{text}{_PLAIN}" if style and self._styled else text)


def _facts_of(flow: FlowReport, group: GroupReport | None) -> Iterable[str]:
    lag = "?" if flow.lag is None else _number(flow.lag)
    yield f"lag {lag}{' and what is not known' if flow.lag_is_partial and flow.lag is not None else ''}"
    if group is not None and group.runs:
        most = "" if flow.tasks_max is None else f" of at most {flow.tasks_max}"
        yield f"{len(flow.tasks)} task{'' if len(flow.tasks) == 1 else 's'}{most}"
        yield f"head {_name(flow.head, group)}"
        if flow.heartbeats is not None:
            yield f"heartbeats {_name(flow.heartbeats, group)}"
        if flow.checkpoints is not None:
            yield f"checkpoints {_name(flow.checkpoints, group)}"
        waiting = sum(task.waiting for task in flow.tasks)
        if waiting:
            yield f"{waiting} partition(s) on their way to another member"
    yield f"{len(flow.open_gaps)} open gap{'' if len(flow.open_gaps) == 1 else 's'}"
    if flow.gaps_passed:
        yield f"{flow.gaps_passed} that wait for nobody"


def _version(applied: AppliedReport) -> str:
    if applied.version is None:
        return "not yet"
    return f"{applied.version or 'its own file'}{' (behind)' if applied.is_behind else ''}"


def _topic_row(topic: TopicReport, group: GroupReport | None) -> tuple[str, ...]:
    counts = {member: _count(numbers) for member, numbers in topic.owners.items()}
    largest = sorted(counts, key=lambda member: (-counts[member], member))
    owners = [f"{_name(member, group)} {counts[member]}" for member in largest[:NAMES_MOST]]
    if len(largest) > NAMES_MOST:
        owners.append(f"{len(largest) - NAMES_MOST} more")
    notes = [
        f"{count} {what}"
        for count, what in (
            (topic.open_gaps, "open gap(s)"),
            (topic.ahead, "end before their position"),
            (topic.unowned, "unowned"),
            (topic.not_listed, "not listed yet"),
            (topic.not_begun, "not begun"),
            (topic.waiting, "handed over"),
            (topic.unknown, "not known"),
        )
        if count
    ]
    if topic.is_gone:
        notes.insert(0, "not on the source")
    lag = "?" if topic.lag is None else _number(topic.lag)
    return topic.topic, _number(topic.partitions), lag, ", ".join(owners) or "-", ", ".join(notes)


def _name(member: MemberId | None, group: GroupReport | None) -> str:
    if member is None:
        return "nobody"
    known = {} if group is None else {one.member: one.name for one in group.members}
    return known.get(member, str(member))


def _count(numbers: str) -> int:
    spans = [span.partition("-") for span in numbers.split(",") if span]
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)


def _number(number: int) -> str:
    return f"{number:,}"


def time_text(at_ms: int) -> str:
    """Return a wall-clock time in UTC, to the second."""
    try:
        moment = datetime.datetime.fromtimestamp(at_ms / 1000, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return "?"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


# -- for programs ------------------------------------------------------------------------------------------------------


def object_of(report: Report, *, exit_code: int) -> dict[str, Any]:
    """Return what programs read: everything, in the order of the text."""
    return {
        "format": FORMAT,
        "at_ms": report.at_ms,
        "exit_code": exit_code,
        "problems": [
            {"kind": problem.kind, "where": problem.where, "text": problem.text} for problem in report.problems
        ],
        "clusters": _clusters(report.clusters),
        "groups": [_group(group) for group in report.groups],
        "flows": [_flow(flow) for flow in report.flows],
    }


def _clusters(clusters: Mapping[ClusterAlias, str]) -> list[dict[str, Any]]:
    return [{"cluster": alias, "answers": not why, "why": why or None} for alias, why in clusters.items()]


def _group(group: GroupReport) -> dict[str, Any]:
    return {
        "target": group.target,
        "group": group.name,
        "control_log": group.topic,
        "why_unread": group.unread or None,
        "runs": group.runs,
        "last_append_ms_ago": group.last_append_ms,
        "leader": group.leader if group.runs else None,
        "last_leader": group.leader,
        "leader_epoch": group.leader_epoch,
        "generation": group.generation,
        "members": [_member(member) for member in group.members],
        "being_fenced": list(group.being_fenced),
        "unfenced": [{"producer_id": producer_id, "why": why} for producer_id, why in group.unfenced.items()],
    }


def _member(member: MemberReport) -> dict[str, Any]:
    return {
        "member": member.member,
        "name": member.name,
        "version": member.version,
        "url": member.url or None,
        "state": member.state,
        "alive": member.state is MemberState.ALIVE,
        "leads": member.leads,
        "last_seen_ms_ago": member.last_seen_ms,
        "flows": [str(flow) for flow in member.flows],
        "shares": member.shares,
        "bytes_per_s": member.bytes_per_s,
    }


def _flow(flow: FlowReport) -> dict[str, Any]:
    return {
        "flow": str(flow.flow),
        "enabled": flow.settings.is_on,
        "config": None if flow.settings.stored is None else _config(flow.settings.stored),
        "applied": [
            {"member": one.member, "version": one.version, "behind": one.is_behind} for one in flow.settings.applied
        ],
        "drift": [_change(change) for change in flow.settings.drift],
        "guarantee": flow.guarantee.level,
        "guarantee_reasons": list(flow.guarantee.reasons),
        "head": flow.head,
        "heartbeats": flow.heartbeats,
        "checkpoints": flow.checkpoints,
        "tasks": [
            {
                "member": task.member,
                "partitions": task.partitions,
                "waiting": task.waiting,
                "bytes_per_s": task.bytes_per_s,
            }
            for task in flow.tasks
        ],
        "tasks_max": flow.tasks_max,
        "unowned": flow.unowned,
        "lag": flow.lag,
        "lag_is_partial": flow.lag_is_partial,
        "why_unread": list(flow.unread),
        "open_gaps": [_gap(gap) for gap in flow.open_gaps],
        "gaps_passed": flow.gaps_passed,
        "topics": [_topic(topic) for topic in flow.topics],
    }


def _config(stored: FlowConfig) -> dict[str, Any]:
    return {"version": stored.version, "by": stored.by, "worker": stored.worker or None, "at_ms": stored.at_ms}


def _change(change: Change) -> dict[str, Any]:
    old, new = (
        HIDDEN if value is not None and is_hidden(change.name, value) else value for value in (change.old, change.new)
    )
    return {"setting": shown_key(change.name), "stored": old, "file": new}


def _gap(gap: Gap) -> dict[str, Any]:
    return {
        "topic": gap.topic,
        "partition": gap.partition,
        "kind": gap.kind,
        "first_offset": gap.first_offset,
        "last_offset": gap.last_offset,
        "position": gap.position,
        "at_ms": gap.at_ms,
        "text": gap.text,
    }


def _topic(topic: TopicReport) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "partitions": topic.partitions,
        "lag": topic.lag,
        "unknown": topic.unknown,
        "not_begun": topic.not_begun,
        "ahead": topic.ahead,
        "not_listed": topic.not_listed,
        "unowned": topic.unowned,
        "waiting": topic.waiting,
        "open_gaps": topic.open_gaps,
        "on_source": not topic.is_gone,
        "owners": dict(topic.owners),
    }

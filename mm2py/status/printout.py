"""The report as text for people; ``bodies.py`` has what programs read. docs/status.md describes both. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mm2py.command_lines import FILE, for_group, with_file
from mm2py.flow import Kind
from mm2py.moments import ago, time_text
from mm2py.records.control_record import MemberId
from mm2py.secret import printable
from mm2py.status.flow_report import AppliedReport, FlowReport, TopicReport
from mm2py.status.not_copied import reason_of_hold
from mm2py.status.report import GroupReport, MemberState, Report
from mm2py.status.verdict import Readiness
from mm2py.text_table import more_lines, text_table

ROWS_MOST: Final = 20
"""How many lines of a list are printed without ``--all``."""
NAMES_MOST: Final = 3
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


def text_of(report: Report, *, everything: bool = False, styled: bool = False, file: str = FILE) -> str:
    """Return what people read: problems first, then groups, then flows.

    Args:
        everything: do not cut long lists.
        styled: with bold headings and red problems, for a terminal.
        file: as a command line takes it; it is put into the commands that lines name, so that they can be copied.
    """
    return _PrintedPage(everything, styled, file).text(report)


class _PrintedPage:
    def __init__(self, everything: bool, styled: bool, file: str) -> None:
        self._file = file
        self._most = None if everything else ROWS_MOST
        self._styled = styled
        self._lines: list[str] = []

    def text(self, report: Report) -> str:
        self._say(f"{time_text(report.at_ms)}  {report.summary}", _BOLD)
        self._cut([f"! {problem.where}: {problem.text}" for problem in report.problems], _RED)
        self._cut([f"note: {note}" for note in report.notes], "")
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
        elif group.last_append_ms_ago is None:
            what = "no worker runs, and none ever did"
        else:
            what = f"no worker runs, last record {ago(group.last_append_ms_ago)} ago, leader epoch {group.leader_epoch}"
        self._say(f"Group {group.name} on {group.target}: {what}", _BOLD)
        rows = [
            (
                member.name,
                member.member,
                f"{member.state}{', leads' if member.leads and group.runs else ''}",
                f"{ago(member.last_seen_ms_ago)} ago",
                member.version,
                _number(member.tasks),
                _number(member.bytes_per_s),
                ", ".join(map(str, member.flows)),
            )
            for member in group.members
        ]
        head = ("MEMBER", "ID", "STATE", "LAST SEEN", "VERSION", "TASKS", "BYTES/S", "FLOWS")
        self._table(head, rows, right=(5, 6))
        by_core: dict[str, list[str]] = {}
        for member in group.members:
            if member.state is MemberState.ALIVE and member.core:
                by_core.setdefault(member.core, []).append(member.name)
        for core, names in sorted(by_core.items()):
            self._say(f"{core}: {', '.join(names[:NAMES_MOST])}{', ...' if len(names) > NAMES_MOST else ''}")
        for producer_id, why in list(group.unfenced.items())[-NAMES_MOST:]:
            self._say(f"producer id {producer_id} could not be fenced: {why}")

    def _flow(self, flow: FlowReport, group: GroupReport | None) -> None:
        self._say("")
        reasons = f" ({'; '.join(flow.guarantee.reasons)})" if flow.guarantee.reasons else ""
        off = "" if flow.settings.enabled else "switched off, "
        off += "".join(f"{held.text}, " for held in flow.held if held.connector is Kind.SOURCE)
        self._say(f"{flow.flow}: {off}{flow.guarantee.level}{reasons}", _BOLD)
        self._say(flow.verdict.text.partition(": ")[2])
        if flow.loss and flow.verdict.readiness is not Readiness.SAFE:
            self._say(flow.loss)
        limit = flow.bottleneck
        self._say(f"what limits it: {limit.text}{f'. {limit.remedy}' if limit.remedy else ''}")
        self._say(", ".join(_facts_of(flow, group)))
        self._settings(flow, group)
        if flow.lag_as_of_ms is not None:
            self._say(f"the source does not answer: lag and positions are as of {time_text(flow.lag_as_of_ms)}")
        for said in flow.not_copied:
            self._say(f"{said.reason}: {flow.told(said)}")
        for note in flow.notes:
            self._say(f"note: {note}")
        for held in flow.held:
            remedy = reason_of_hold(held.state, flow.flow)[1]
            again = f". {remedy}" if held.connector is Kind.SOURCE else ""
            self._say(f"{held.connector}: {held.told}{again}")
        for refusal in flow.refused:
            self._say(f"{refusal.connector}: refused by {refusal.worker}: {refusal.why}")
        for task in flow.tasks:
            if task.link is not None:
                self._say(f"{_name(task.member, group)}: {task.link.text}")
        self._cut([f"{pause.name}: {pause.text}" for pause in flow.paused], "")
        for one in flow.backfills:
            self._say(f"backfill {one.id}, begun {time_text(one.begun_at_ms)}: {one.text}")
        if flow.consumer_groups is not None:
            self._consumer_groups(flow)
        self._cut([f"  {one.topic}/{one.partition}  {one.text}" for one in flow.behind], "")
        self._more(flow.partitions_behind - len(flow.behind), "/v1/flows/A->B/topics/T/partitions")
        is_silent = flow.lag_as_of_ms is not None
        rows = [_topic_row(topic, group, is_silent=is_silent) for topic in flow.topics]
        self._table(("TOPIC", "PARTITIONS", "LAG", "OWNERS", "NOTE"), rows, right=(1, 2))

    def _settings(self, flow: FlowReport, group: GroupReport | None) -> None:
        settings = flow.settings
        if settings.stored is None:
            return
        told = [f"{_name(one.member, group)} {_version(one)}" for one in settings.applied]
        shown = told[: self._most]
        more = f" and {len(told) - len(shown)} more (--all)" if len(told) > len(shown) else ""
        stored = settings.stored
        self._say(
            f"settings: version {stored.version}, by {stored.who_and_why}, {time_text(stored.at_ms)}"
            + (f"; applied: {', '.join(shown)}{more}" if told else "")
        )
        if settings.drift:
            whose, to_do = "the workers run", "to apply it: mm2py apply FILE"
            if flow.owner_group and group is not None and flow.owner_group != group.name:
                whose = f"the workers of group {flow.owner_group} run"
                to_do = for_group("to change it: mm2py apply FILE", flow.owner_group)
            self._say(f"the file differs from what is stored, by which {whose} ({to_do}):")
            self._cut([f"  {change.text}" for change in settings.drift], "")

    def _consumer_groups(self, flow: FlowReport) -> None:
        groups = flow.consumer_groups
        if groups is None or not groups.count:
            return
        told = f"consumer groups: {_number(groups.count)}, {_number(groups.ready)} ready to go on on {flow.flow.target}"
        told += f", {_number(groups.exact)} at the exact record"
        if groups.reads_again_at_most:
            told += f"; {groups.reads_most_again} would read at most {_number(groups.reads_again_at_most)} again"
        self._say(told)
        for one in groups.not_ready:
            self._say(f"  not ready: {one.group}: {one.why}")
        self._more(groups.count - groups.ready - len(groups.not_ready), f"mm2py groups FILE '{flow.flow}'")

    def _table(self, head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
        for line in text_table(head, rows, right, most=self._most):
            self._say(line)

    def _cut(self, lines: Sequence[str], style: str) -> None:
        for line in lines[: self._most]:
            self._say(line, style)
        self._more(0 if self._most is None else len(lines) - self._most)

    def _more(self, count: int, shown_by: str = "--all") -> None:
        if count > 0:
            self._say(more_lines(count, shown_by))

    def _say(self, line: str, style: str = "") -> None:
        text = printable(with_file(line, self._file))
        self._lines.append(f"{style}{text}{_PLAIN}" if style and self._styled else text)


def _facts_of(flow: FlowReport, group: GroupReport | None) -> Iterable[str]:
    lag = "?" if flow.lag is None else f"{_number(flow.lag)}{_age(flow.lag_s)}"
    is_silent = flow.lag_as_of_ms is not None
    is_partial = any(topic.unknown for topic in flow.topics) if is_silent else flow.lag_is_partial
    if flow.lag is not None:
        lag = f"{'was ' if is_silent else ''}{'at least ' if is_partial else ''}{lag}"
    yield f"lag {lag}"
    if group is not None and group.runs:
        most = "" if flow.tasks_max is None else f" of at most {flow.tasks_max}"
        yield f"{len(flow.tasks)} task{'' if len(flow.tasks) == 1 else 's'}{most}"
        yield f"coordinator {_name(flow.coordinator, group)}"
        if flow.heartbeats is not None:
            yield f"heartbeats {_name(flow.heartbeats, group)}"
        if flow.checkpoints is not None:
            yield f"checkpoints {_name(flow.checkpoints, group)}"
        waiting = sum(task.waiting for task in flow.tasks)
        if waiting:
            yield f"{waiting} partition(s) on their way to another member"
    yield f"{len(flow.open_gaps)} open gap{'' if len(flow.open_gaps) == 1 else 's'}"
    if flow.gaps_passed:
        yield f"{flow.gaps_passed} that need no operator"


def _age(lag_s: float | None) -> str:
    """Return how long the oldest record has waited; empty if none waits, or this is not known."""
    return f" ({lag_s:,.0f} s)" if lag_s else ""


def _version(applied: AppliedReport) -> str:
    if applied.version is None:
        return "not yet"
    return f"{applied.version or 'its own file'}{' (behind)' if applied.is_behind else ''}"


def _topic_row(topic: TopicReport, group: GroupReport | None, *, is_silent: bool) -> tuple[str, ...]:
    notes = [
        f"{count} {what}"
        for count, what in (
            (topic.open_gaps, "open gap(s)"),
            (topic.ahead, "end before their position"),
            (topic.unowned, "without a worker"),
            (topic.not_started, "not started"),
            (topic.unknown, "not known"),
        )
        if count
    ]
    for said in topic.not_copied:
        if not topic.is_named_otherwise(said):
            where = f" ({said.partitions})" if said.partitions else ""
            notes.append(f"{said.reason}{where}")
    if is_silent and topic.newest_ms is not None:
        notes.append(f"last record copied is of {time_text(topic.newest_ms)}")
    lag = "?" if topic.lag is None else f"{'was ' if is_silent else ''}{_number(topic.lag)}{_age(topic.lag_s)}"
    return topic.topic, _number(topic.partitions), lag, owners_text(topic, group), ", ".join(notes)


def owners_text(topic: TopicReport, group: GroupReport | None) -> str:
    """Return who copies how many partitions of a topic, the largest numbers first."""
    counts = {member: _count(numbers) for member, numbers in topic.owners.items()}
    largest = sorted(counts, key=lambda member: (-counts[member], member))
    owners = [f"{_name(member, group)} {counts[member]}" for member in largest[:NAMES_MOST]]
    if len(largest) > NAMES_MOST:
        owners.append(f"{len(largest) - NAMES_MOST} more")
    return ", ".join(owners) or "-"


def _name(member: MemberId | None, group: GroupReport | None) -> str:
    if member is None:
        return "none"
    known = {} if group is None else {one.member: one.name for one in group.members}
    return known.get(member, str(member))


def _count(numbers: str) -> int:
    spans = [span.partition("-") for span in numbers.split(",") if span]
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)


def _number(number: int) -> str:
    return f"{number:,}"

"""How far each source topic of a flow is copied, and who owns its partitions. Pure.

Lag is counted in offsets, so it includes transaction markers and records that compaction has removed. It is the lag of
the stored positions; a running worker stores them about once a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mm2py.connector import Kind
from mm2py.group.view.group_state import GroupState
from mm2py.records.control_record import MemberId, Share
from mm2py.records.source_offset import StoredPosition
from mm2py.status.facts import FlowFacts, Key


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic. ``topic`` is its name on the source."""

    topic: str
    partitions: int
    lag: int | None
    """Summed over the partitions whose lag is known; None if there are none."""
    unknown: int
    """Partitions whose end or position is not known."""
    not_begun: int
    """Partitions that hold records and have no position."""
    ahead: int
    """Partitions that end before their position: the source was cut back, or the topic was deleted and made again."""
    not_listed: int
    """Partitions that the settings select and the flow coordinator has not listed; 0 while no worker runs the flow."""
    unowned: int
    waiting: int
    """Partitions whose previous owner has not released them yet."""
    open_gaps: int
    is_gone: bool
    """The topic is not on the source any more."""
    owners: Mapping[MemberId, str]
    """Partitions by owner, as ranges: ``0-3,7``. Empty while nobody runs the flow."""


@dataclass(slots=True)
class _Lag:
    """Sums over the partitions of a topic."""

    records: int = 0
    known: int = 0
    unknown: int = 0
    not_begun: int = 0
    ahead: int = 0


def topics_of(facts: FlowFacts, state: GroupState | None) -> tuple[TopicReport, ...]:
    """Return a report for each topic that is, or should be, copied; those that need an operator come first.

    Args:
        state: of the group that runs the flow; None if no worker does.
    """
    flow = facts.settings.flow
    listed = {} if state is None else state.topics.get(flow, {})
    gaps = Counter(gap.topic for gap in facts.gaps if gap.is_open)
    stored: dict[str, int] = {}
    for topic, partition in facts.positions:
        stored[topic] = max(stored.get(topic, 0), partition + 1)
    names = {*listed, *gaps} | (stored.keys() if facts.selected is None else facts.selected.keys())
    reports = []
    for topic in names:
        count = (facts.selected or {}).get(topic) or max(listed.get(topic, 0), stored.get(topic, 0))
        is_gone = facts.selected is not None and topic not in facts.selected
        lag = _Lag() if is_gone else _lag_of(facts, topic, count)
        owners: dict[MemberId, list[int]] = {}
        unowned = waiting = 0
        for partition in range(listed.get(topic, 0)):
            owned = None if state is None else state.owners.get(Share(flow, Kind.SOURCE, topic, partition))
            if owned is None or owned.member is None:
                unowned += 1
            else:
                owners.setdefault(owned.member, []).append(partition)
                waiting += owned.waits_for is not None
        reports.append(
            TopicReport(
                topic,
                count,
                lag.records if lag.known or not count else None,
                lag.unknown,
                lag.not_begun,
                lag.ahead,
                0 if state is None or is_gone else max(0, count - listed.get(topic, 0)),
                unowned,
                waiting,
                gaps[topic],
                is_gone,
                {member: ranges(numbers) for member, numbers in sorted(owners.items())},
            )
        )
    return tuple(sorted(reports, key=_urgency))


def _urgency(topic: TopicReport) -> tuple[object, ...]:
    return (-topic.open_gaps, -topic.ahead, -topic.unowned, -topic.not_listed, -(topic.lag or 0), topic.topic)


def _lag_of(facts: FlowFacts, topic: str, count: int) -> _Lag:
    lag = _Lag()
    for partition in range(count):
        key = (topic, partition)
        end, position = facts.ends.get(key), facts.positions.get(key)
        begin = _begin(facts, key, position)
        if end is None or begin is None or (position is None and facts.positions_unread):
            lag.unknown += 1
            continue
        lag.known += 1
        lag.records += max(0, end - begin)
        lag.ahead += begin > end
        lag.not_begun += position is None and end > facts.starts.get(key, end)
    return lag


def _begin(facts: FlowFacts, key: Key, position: StoredPosition | None) -> int | None:
    if position is not None:
        return position.next_source
    return facts.starts.get(key) if facts.settings.auto_offset_reset == "earliest" else facts.ends.get(key)


def ranges(numbers: list[int]) -> str:
    """Return ascending numbers as ``0-3,7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)

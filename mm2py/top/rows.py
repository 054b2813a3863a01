"""The rows of the lists of ``mm2py top``: topics of all flows, partitions of one topic. Pure.

All numbers and reasons are those of ``mm2py status``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from mm2py.moments import ago
from mm2py.records.control_record import MemberId
from mm2py.records.partition_ranges import numbers
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport, TopicReport
from mm2py.status.lag_movement import Expiry, LagMovement, LagTrendWord
from mm2py.status.not_copied import NotCopied
from mm2py.status.partition_lags import begin_of, end_of, partition_movement
from mm2py.status.printout import owners_text
from mm2py.status.report import Report
from mm2py.top.topic_rates import FlowTopic

EXPIRES_SOON_S: Final = 2 * 86_400
"""If the source deletes what is not copied within this time, the state of the topic says so."""


class TopicOrder(StrEnum):
    """In which order topics are listed."""

    URGENT = "urgent first"
    """What waits for an operator, then the largest lag."""
    LAG = "lag"
    GROWTH = "growth"
    RATE = "rate"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic of one flow."""

    key: FlowTopic
    topic: TopicReport
    movement: LagMovement | None
    """How its lag moves; None: not known, also because the source does not answer."""
    owners: str
    rate: float | None
    """Records per second; None: not known."""
    state: str
    """Why it is not copied, or how its lag moves, in a few words."""
    is_old: bool
    """The source does not answer: the lag is what workers knew before."""
    is_problem: bool
    """It waits for an operator."""


@dataclass(frozen=True, slots=True)
class ShownPartition:
    """One partition of a topic."""

    partition: int
    position: int | None
    end: int | None
    lag: int | None
    movement: LagMovement | None
    owner: str
    state: str
    is_old: bool
    """As of a topic."""
    is_problem: bool


def topic_rows(report: Report, rates: Mapping[FlowTopic, float], order: TopicOrder, wanted: str) -> Sequence[TopicRow]:
    """Return the topics of all flows in an order.

    Args:
        wanted: only topics with this text in their name, flow, owners or state; empty: all.
    """
    groups = {group.target: group for group in report.groups}
    rows = []
    for flow in report.flows:
        group = groups.get(flow.flow.target)
        for topic in flow.topics:
            key = FlowTopic(flow.flow, topic.topic)
            is_problem = any(one.is_problem for one in topic.not_copied)
            is_old = flow.lag_as_of_ms is not None
            movement = None if is_old else topic.movement
            state = state_of(topic.not_copied, movement, is_old=is_old)
            owners = owners_text(topic, group)
            rows.append(TopicRow(key, topic, movement, owners, rates.get(key), state, is_old, is_problem))
    rows = [row for row in rows if _has(row, wanted.casefold())]
    return sorted(rows, key=lambda row: (_rank(row, order), row.key.topic, row.key.flow))


def _has(row: TopicRow, wanted: str) -> bool:
    return any(wanted in text.casefold() for text in (row.key.topic, str(row.key.flow), row.owners, row.state))


def _rank(row: TopicRow, order: TopicOrder) -> tuple[float, ...]:
    lag = -1 if row.topic.lag is None else row.topic.lag
    per_s = None if row.movement is None else row.movement.per_s
    match order:
        case TopicOrder.URGENT:
            return not row.is_problem, -lag
        case TopicOrder.LAG:
            return (-lag,)
        case TopicOrder.GROWTH:
            return (float("inf") if per_s is None else -per_s, -lag)
        case TopicOrder.RATE:
            return (float("inf") if row.rate is None else -row.rate, -lag)
        case TopicOrder.NAME:
            return ()


def state_of(not_copied: Sequence[NotCopied], movement: LagMovement | None, *, is_old: bool = False) -> str:
    """Return why something is not copied, or how its lag moves, in a few words.

    Args:
        is_old: the source does not answer. That nothing waited before does not say that nothing waits.
    """
    if not_copied:
        first = not_copied[0]
        where = f" ({first.partitions})" if first.partitions else ""
        more = f" +{len(not_copied) - 1}" if len(not_copied) > 1 else ""
        return f"{first.reason}{where}{more}"
    if is_old:
        return "source does not answer"
    if movement is None:
        return "not known"
    word = "behind" if movement.trend is None else str(movement.trend).replace("-", " ")
    match movement.expiry:
        case Expiry.GONE:
            return f"{word}, the source has deleted the oldest"
        case Expiry.AT_THIS_RATE if (movement.expires_s or 0.0) < EXPIRES_SOON_S:
            return f"{word}, expires in {ago(round((movement.expires_s or 0.0) * 1000))}"
        case _:
            return word


def growth_text(movement: LagMovement | None) -> str:
    """Return by how many records in a second a lag grows."""
    if movement is None or movement.per_s is None:
        return "?"
    if movement.trend in {LagTrendWord.KEEPS_UP, LagTrendWord.STEADY}:
        return "0/s"
    return f"{'+' if movement.per_s > 0 else '-'}{rate_text(abs(movement.per_s))}"


def caught_up_text(movement: LagMovement | None) -> str:
    """Return in which time nothing waits at this rate."""
    if movement is None or movement.trend is None:
        return "?"
    if movement.trend is LagTrendWord.KEEPS_UP:
        return "-"
    return "never" if movement.catch_up_s is None else ago(round(movement.catch_up_s * 1000))


def rate_text(per_s: float | None) -> str:
    """Return a number of records per second."""
    if per_s is None:
        return "?"
    return f"{per_s:,.0f}/s" if per_s >= 10 or per_s == 0 else f"{per_s:.1f}/s"


def partition_rows(
    facts: FlowFacts, flow: FlowReport, topic: str, names: Mapping[MemberId, str], now_ms: int
) -> Sequence[ShownPartition]:
    """Return the partitions of a topic, by number; none: the flow does not copy it.

    Args:
        names: the members of the group, for people.
    """
    found = next((one for one in flow.topics if one.topic == topic), None)
    is_old = flow.lag_as_of_ms is not None
    return [] if found is None else list(_partition_rows(facts, found, names, now_ms, is_old=is_old))


def _partition_rows(
    facts: FlowFacts, topic: TopicReport, names: Mapping[MemberId, str], now_ms: int, *, is_old: bool
) -> Iterable[ShownPartition]:
    owners = {number: names.get(member, member) for member, parts in topic.owners.items() for number in numbers(parts)}
    reasons = [(one, frozenset(numbers(one.partitions))) for one in topic.not_copied]
    for partition in range(topic.partitions):
        key = (topic.topic, partition)
        position = facts.positions.get(key)
        begin, end = begin_of(facts, key, position), end_of(facts, key, position)
        is_known = topic.lag is not None and begin is not None and end is not None and begin <= end
        lag = end - begin if is_known and begin is not None and end is not None else None
        movement = None if lag is None or is_old else partition_movement(facts, key, now_ms)
        causes = [one for one, about in reasons if not one.partitions or partition in about]
        shown = state_of([replace(one, partitions="") for one in causes], movement, is_old=is_old)
        yield ShownPartition(
            partition,
            None if position is None else position.next_source,
            end,
            lag,
            movement,
            owners.get(partition, "-"),
            shown,
            is_old,
            any(one.is_problem for one in causes),
        )

"""The partitions of a topic that a flow copies: the position, the lag and the owner of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mm2py.flow import Kind
from mm2py.group.membership import GroupState
from mm2py.records.control_record import MemberId, TaskName
from mm2py.records.gap_record import Gap
from mm2py.records.partition_ranges import numbers
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport, TopicReport
from mm2py.status.lag_movement import LagMovement
from mm2py.status.not_copied import NotCopied
from mm2py.status.partition_lags import end_of, partition_movement
from mm2py_rest.reports.copy_modes import mode_of
from mm2py_rest.reports.lag import Looks, lags_of


@dataclass(frozen=True, slots=True)
class PartitionCopy:
    """One source partition. Offsets are the next ones."""

    partition: int
    """Of the source topic, and of the remote topic."""
    start: int | None
    """The first offset that the source still has; null: it did not tell."""
    position: int | None
    """The next source offset to be copied, as it is stored, about a second behind; null: none is stored."""
    end: int | None
    """Where the source partition ends; null: it did not tell."""
    target_position: int | None
    """The next target offset at that position; null: not known, as of a position that MirrorMaker 2 has stored."""
    lag_records: int | None
    """``end`` less ``position``, or where copying will begin; null: one of them is not known."""
    lag_bytes: int | None
    """Estimated by the mean size of its records that were copied; null: see lag_note."""
    lag_s: float | None
    """The age of the last copied record; null: see lag_note."""
    lag_note: str
    """Why a lag is not known."""
    lag_as_of_ms: int | None
    """The source does not answer: end and lag are what workers knew at this time, or a little before. Null: as of
    now."""
    movement: LagMovement | None
    """How its lag moves, as in ``/v1/status``; null: the lag is not known."""
    mode: str | None
    """How its last batch travelled: pass, repack, or rebuild with the reason; null: nothing was copied yet, or by a
    version that does not tell."""
    owner: MemberId | None
    """The member that copies it; null: none does."""
    owner_name: str
    """The same, for people."""
    waits_for: MemberId | None
    """The previous owner, which has not released it yet: until then it is not copied."""
    open_gaps: tuple[Gap, ...]
    """They wait for an operator."""
    not_copied: tuple[NotCopied, ...]
    """Why it is not copied; empty: it is."""


def partition_copies(
    facts: FlowFacts,
    report: FlowReport,
    topic: TopicReport,
    state: GroupState | None,
    looks: Looks,
    *,
    starts: Mapping[int, int],
) -> list[PartitionCopy]:
    """Return the partitions of a topic, by number.

    Args:
        state: state of the group that runs the flow; None if no worker does.
        starts: the first offsets of partitions, as far as they are known.
    """
    gaps: dict[int, list[Gap]] = {}
    for gap in report.open_gaps:
        if gap.topic == topic.topic:
            gaps.setdefault(gap.partition, []).append(gap)
    reasons = [(one, frozenset(numbers(one.partitions))) for one in topic.not_copied]
    lags = lags_of(facts, topic, looks, report.lag_as_of_ms)
    found = []
    for partition in range(topic.partitions):
        key = (topic.topic, partition)
        position = facts.positions.get(key)
        end = end_of(facts, key, position)
        start = starts.get(partition, facts.starts.get(key))
        task = TaskName(facts.settings.flow, Kind.SOURCE, *key)
        owned = None if state is None else state.owners.get(task)
        owner = None if owned is None else owned.member
        found.append(
            PartitionCopy(
                partition,
                start,
                None if position is None else position.next_source,
                end,
                None if position is None else position.next_target,
                *lags[partition],
                report.lag_as_of_ms,
                None if lags[partition].records is None else partition_movement(facts, key, looks.at_ms),
                mode_of(position),
                owner,
                _name_of(owner, state),
                None if owned is None else owned.waits_for,
                tuple(gaps.get(partition, ())),
                tuple(one for one, about in reasons if not one.partitions or partition in about),
            )
        )
    return found


def _name_of(member: MemberId | None, state: GroupState | None) -> str:
    if member is None or state is None:
        return ""
    known = state.members.get(member)
    return str(member) if known is None else known.joined.name

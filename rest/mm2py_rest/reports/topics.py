"""Which topics of its source a flow really copies, after all filters; and why it does not copy the others. Pure.

MirrorMaker 2 reports neither. ``mm2py/status/not_copied.py`` has the reasons. Some are found only by workers, such as a
remote topic that is not empty; workers store these in the status topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport, TopicReport, left_out_of
from mm2py.status.not_copied import NotCopied, Reason
from mm2py_rest.reports.copy_modes import modes_of
from mm2py_rest.reports.lag import NO_OFFSETS, Lag, Looks, lags_of, sum_of


@dataclass(frozen=True, slots=True)
class TopicCopy:
    """One topic of the source."""

    topic: str
    """Its name on the source."""
    remote_topic: str
    """The name of its copy on the target, whether it is copied or not."""
    is_copied: bool
    """All of it is copied: each partition has a worker that copies it."""
    reason: Reason | None
    """Why it is not copied, or not all of it: the most urgent reason; null: it is."""
    why: str
    """The same in a sentence."""
    remedy: str
    """What to do about it; empty: nothing."""
    since_ms: int | None
    """Since when, by the clock of the worker that found it out; null: not known."""
    not_copied: tuple[NotCopied, ...]
    """All reasons, with the partitions that each is about."""
    lag_records: int | None
    """In offsets, summed over its partitions; null: not known of all of them, or it is left out."""
    lag_bytes: int | None
    """Estimated by the mean size of the records that were copied; null: see lag_note."""
    lag_s: float | None
    """The age of the last copied record in the partition that is furthest behind; null: see lag_note."""
    lag_note: str
    """Why a lag is not known."""
    lag_as_of_ms: int | None
    """The source does not answer: the lag is what workers knew at this time, or a little before. Null: as of now."""
    modes: Mapping[str, int]
    """How the last batches of its partitions travelled: pass, repack, or rebuild with the reason, and of how many
    partitions; those that do not tell are left out."""
    copy: TopicReport | None
    """Its partitions in numbers, and who copies them; null: the settings leave it out."""


def topic_copies(facts: FlowFacts, report: FlowReport, looks: Looks) -> list[TopicCopy]:
    """Return all topics of the source, topics copied from it before, and those in ``topics`` that do not exist."""
    remote = facts.settings.remote_topic
    found = [_left_out(topic, remote(topic), facts) for topic in facts.left_out]
    found += [_selected(topic, remote(topic.topic), facts, looks, report.lag_as_of_ms) for topic in report.topics]
    return sorted({copy.topic: copy for copy in found}.values(), key=lambda copy: copy.topic)


def _left_out(topic: str, remote: str, facts: FlowFacts) -> TopicCopy:
    reason, text = left_out_of(facts, topic)
    return TopicCopy(topic, remote, False, reason, text, "", None, (), None, None, None, "", None, {}, None)


def _selected(topic: TopicReport, remote: str, facts: FlowFacts, looks: Looks, as_of_ms: int | None) -> TopicCopy:
    lag = sum_of(lags_of(facts, topic, looks, as_of_ms))
    modes = modes_of(facts.positions.get((topic.topic, number)) for number in range(topic.partitions))
    if topic.is_copied:
        return TopicCopy(topic.topic, remote, True, None, "", "", None, (), *lag, as_of_ms, modes, topic)
    first = topic.not_copied[0]
    if first.is_left_out:
        lag = Lag(None, None, None, "")
    elif topic.lag is None and not topic.partitions:
        lag = Lag(None, None, None, NO_OFFSETS)
    return TopicCopy(
        topic.topic,
        remote,
        False,
        first.reason,
        first.why,
        first.remedy,
        first.since_ms,
        topic.not_copied,
        *lag,
        as_of_ms,
        modes,
        topic,
    )

"""How far a copy is behind in bytes and seconds, as far as the worker beside this process knows. Pure.

Offsets tell the lag in records. How old and how large records are is known to the worker that copies them, and to no
topic: so these are null, with a note, where another worker copies. None is made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mm2py.connector import Flow, TopicStatus
from mm2py.records.control_record import MemberId
from mm2py.status.flow_report import TopicReport
from mm2py.worker.facts import WorkerFacts

NO_OFFSETS: Final = "no position or no end is known"
ELSEWHERE: Final = "only the workers that copy it know age and size, see owners; ask the REST interface of each"
NOTHING_COPIED: Final = "nothing of it was copied here since the worker started, so its records' size is not known"
OF_TOPIC: Final = "the age is known of the whole topic only, see its lag_s"


@dataclass(frozen=True, slots=True)
class OwnCopies:
    """What the worker beside this process tells of one flow."""

    member: MemberId | None = None
    """Its id in the group; None: it has not joined, or does not answer."""
    topics: Mapping[str, TopicStatus] = field(default_factory=dict)
    """Of which it copies partitions."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Topics that it does not copy, or not wholly, and why."""


def own_copies(worker: WorkerFacts | None, flow: Flow) -> OwnCopies:
    """Return what a worker tells of a flow; None: it does not answer."""
    found = None if worker is None else next((one for one in worker.flows if one.flow == flow), None)
    if worker is None or found is None:
        return OwnCopies()
    topics = {status.topic: status for status in found.topics}
    return OwnCopies(worker.members.get(flow.target), topics, found.refused)


class Lag(NamedTuple):
    """How far a copy is behind; None is not known, and the note says why."""

    records: int | None
    bytes: int | None
    seconds: float | None
    note: str


def lag_of_topic(topic: TopicReport, own: OwnCopies) -> Lag:
    """Return the lag of a topic that is copied."""
    if topic.lag is None or topic.unknown:
        return Lag(topic.lag, None, None, NO_OFFSETS)
    status = own.topics.get(topic.topic)
    if topic.lag == 0:
        return Lag(0, 0, 0.0, "")
    if status is None or own.member is None or topic.owners.keys() != {own.member} or topic.unowned:
        return Lag(topic.lag, None, None, ELSEWHERE)
    size = _size(topic.lag, status)
    return Lag(topic.lag, size, status.lag_s, NOTHING_COPIED if size is None else "")


def lag_of_partition(records: int | None, topic: TopicReport, own: OwnCopies, owner: MemberId | None) -> Lag:
    """Return the lag of a partition; ``records`` is known from offsets, or not."""
    if records is None:
        return Lag(None, None, None, NO_OFFSETS)
    if records == 0:
        return Lag(0, 0, 0.0, "")
    status = own.topics.get(topic.topic)
    if status is None or owner is None or owner != own.member:
        return Lag(records, None, None, ELSEWHERE)
    size = _size(records, status)
    if topic.partitions > 1:
        return Lag(records, size, None, OF_TOPIC)
    return Lag(records, size, status.lag_s, NOTHING_COPIED if size is None else "")


def lag_of_flow(lags: Sequence[Lag]) -> Lag:
    """Return the sum over topics, and the largest age."""
    records = [lag.records for lag in lags if lag.records is not None]
    sizes = [lag.bytes for lag in lags if lag.bytes is not None]
    ages = [lag.seconds for lag in lags if lag.seconds is not None]
    note = next((lag.note for lag in lags if lag.note), "")
    return Lag(
        sum(records) if records or not lags else None,
        sum(sizes) if len(sizes) == len(lags) else None,
        max(ages, default=0.0) if len(ages) == len(lags) else None,
        note,
    )


def _size(records: int, status: TopicStatus) -> int | None:
    """Estimate the bytes of records that wait, by the mean size of those of the topic that this worker has copied."""
    return round(records * status.bytes / status.records) if status.records else None

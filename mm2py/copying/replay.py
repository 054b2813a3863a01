"""Exports records from quarantine to a file, or appends them to their remote topics.

MirrorMaker 2 has nothing like it. An appended record has lost its place among the others. It is written under a plain
producer id of its own, so the flow, which continues meanwhile, treats it as a foreign writer's.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from mm2py.clock import Clock
from mm2py.copying.reading.internal_table import each_record
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION, name_of
from mm2py.kafka.errors import BrokerRefused, Reaction
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.records.quarantined import NotQuarantined, QuarantineEntry, RecordOrigin, Replayed, decode, encode_replayed

CHANNEL: Final = "replay"
TIMEOUT_MS: Final = 15_000


class NowhereToReplay(Mm2Error):
    """The remote topic, or its partition, is not there."""


@dataclass(frozen=True, slots=True)
class ReplaySelection:
    """Which records of one source topic to take; None: all."""

    topic: str
    partition: int | None = None
    offset: int | None = None

    def holds(self, origin: RecordOrigin) -> bool:
        return (
            origin.topic == self.topic
            and self.partition in {None, origin.partition}
            and self.offset in {None, origin.offset}
        )


@dataclass(slots=True)
class QuarantineSurvey:
    """The records of a selection in quarantine."""

    selection: ReplaySelection
    remote: str
    origins: set[RecordOrigin] = field(default_factory=set)
    appended: set[RecordOrigin] = field(default_factory=set)
    """Those that were appended to the remote topic before."""
    unreadable: int = 0
    """Records in the quarantine topic that mm2py did not write."""

    @property
    def waiting(self) -> set[RecordOrigin]:
        """Those that were not appended before."""
        return self.origins - self.appended


@dataclass(slots=True)
class Appended:
    records: int = 0
    refused: list[str] = field(default_factory=list)
    """Records that the target still refuses, a sentence each."""


def order_lost(found: QuarantineSurvey, target: ClusterAlias) -> str:
    """Return what appending costs in any case."""
    return (
        f"{len(found.waiting)} record(s) go to the end of {found.remote} on {target}, behind what was copied since: "
        "their order among the others is given up."
    )


def partitions_stopped(found: QuarantineSurvey, flow: Flow, accept: str = "mm2py gaps FILE accept") -> str:
    """Return what appending costs a flow that must be exactly-once; ``accept``: the command that ends it."""
    numbers = sorted({origin.partition for origin in found.waiting})
    return (
        f"{flow} runs with exactly.once.source.support=enabled: as after any foreign writer it stops partition(s) "
        f"{', '.join(map(str, numbers))} of {found.selection.topic}, with the next record or at its next start, until "
        f"{accept} lets them go on."
    )


async def survey(brokers: Brokers, quarantine: str, selection: ReplaySelection, remote: str) -> QuarantineSurvey:
    """Read the quarantine. Raises: as ``read_table``."""
    found = QuarantineSurvey(selection, remote)
    replayed: set[RecordOrigin] = set()
    async for entry in _entries(brokers, quarantine):
        match entry:
            case None:
                found.unreadable += 1
            case Replayed():
                if entry.remote_topic == remote:
                    replayed.add(entry.origin)
            case QuarantineEntry():
                if selection.holds(entry.provenance.origin):
                    found.origins.add(entry.provenance.origin)
    found.appended = found.origins & replayed
    return found


async def export(brokers: Brokers, quarantine: str, selection: ReplaySelection, write: Callable[[str], None]) -> int:
    """Pass each selected record to ``write`` once, as a line of JSON. Return how many there were."""
    seen: set[RecordOrigin] = set()
    async for entry in _entries(brokers, quarantine):
        if isinstance(entry, QuarantineEntry) and _is_new(entry, selection, seen):
            write(as_line(entry))
    return len(seen)


def as_line(kept: QuarantineEntry) -> str:
    """Return a record as one line of JSON; key, value and header values in base64, null as null.

    A header name that is not UTF-8 has its odd bytes as ``\\udc80`` to ``\\udcff``.
    """
    record, provenance = kept.record, kept.provenance
    content = {
        **provenance.origin._asdict(),
        "timestamp_ms": record.timestamp_ms,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
        "flow": provenance.flow,
        "source_cluster": provenance.source_cluster,
        "error_code": provenance.error_code,
        "error_text": provenance.error_text,
        "quarantined_at_ms": provenance.quarantined_at_ms,
    }
    return json.dumps(content, separators=(",", ":")) + "\n"


async def append(
    brokers: Brokers, quarantine: str, found: QuarantineSurvey, *, clock: Clock, rng: random.Random
) -> Appended:
    """Append each selected record once to its partition of the remote topic, and mark it in quarantine.

    Args:
        found: the result of ``survey``. Records that were appended before are left out.
    Raises:
        NowhereToReplay: the remote topic or the partition is not there.
        BrokerRefused: a right is missing.
    Cancelling, or a crash, may leave one record appended and not marked. The next run appends it again.
    """
    remote = found.remote
    topic = (await fetch_metadata(brokers, [remote])).topics.get(remote)
    incarnation = Incarnation(brokers, None, clock=clock, rng=rng, report=_ignore, waiting=_ignore)
    await incarnation.start()
    writer = _writer(brokers, remote, incarnation, rng)
    marks = _writer(brokers, quarantine, incarnation, rng)
    seen = set(found.appended)
    done = Appended()
    async for entry in _entries(brokers, quarantine):
        if not isinstance(entry, QuarantineEntry) or not _is_new(entry, found.selection, seen):
            continue
        origin = entry.provenance.origin
        if topic is None or origin.partition not in topic.partitions:
            raise NowhereToReplay(
                f"{remote} has no partition {origin.partition}.", remedy="Export the records, or let the flow make it."
            )
        try:
            await writer.write({origin.partition: [entry.record]})
        except BrokerRefused as error:
            if error.reaction is not Reaction.FAIL:
                raise
            where = f"{origin.topic}-{origin.partition} at offset {origin.offset}"
            done.refused.append(f"{where}: {name_of(error.code)} ({error.code})")
        else:
            await marks.write({0: [encode_replayed(Replayed(origin, remote, clock.wall_ms()))]})
            done.records += 1
    return done


async def _entries(brokers: Brokers, quarantine: str) -> AsyncIterator[QuarantineEntry | Replayed | None]:
    """Yield the entries of the quarantine; None for records that mm2py did not write."""
    topic: TopicMetadata | None = (await fetch_metadata(brokers, [quarantine])).topics.get(quarantine)
    if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        return
    if topic.error_code:
        raise BrokerRefused(f"Reading {quarantine}", topic.error_code)
    async for record in each_record(brokers, topic, {}):
        entry = None
        with suppress(NotQuarantined):
            entry = decode(record)
        yield entry


def _is_new(entry: QuarantineEntry, selection: ReplaySelection, seen: set[RecordOrigin]) -> bool:
    """Whether a record is selected and was not seen before: a crash may have stored it twice."""
    origin = entry.provenance.origin
    if origin in seen or not selection.holds(origin):
        return False
    seen.add(origin)
    return True


def _writer(brokers: Brokers, topic: str, incarnation: Incarnation, rng: random.Random) -> TopicWriter:
    remedy = f"Grant WRITE on {topic}."
    return TopicWriter(brokers, topic, incarnation, rng=rng, timeout_ms=TIMEOUT_MS, remedy=remedy, channel=CHANNEL)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _ignore(text: str) -> None:
    """Ignore that there is only a plain producer id: it was asked for."""

"""Which flows have copied into a remote topic before, as the positions say that they stored on the target.

Answers to nothing in MM2. No source is asked, so none that is away or slow holds anybody up.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.flow import Flow, TopicName
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import Reaction, name_of, reaction_to
from mm2py.replication.position_store import PositionTable
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.selection import should_replicate

OUT_OF_RANGE: Final = 1
"""The topic was cut back: the next one who asks has it read from its start."""
UNKNOWN_TOPIC: Final = 3
NO_LEADER: Final = 5
WITHIN_S: Final = 0.25
"""Who asks waits so long for what is read. It goes on being read, and is there for whoever asks again."""

CopiedInto = Mapping[str, Collection[uuid.UUID | None]]
"""By source topic, the ids of the copies of which positions speak; None where one tells none."""


class Other(NamedTuple):
    """Another flow into the same target."""

    settings: FlowSettings
    is_settled: bool
    """Whether it is known that it runs by these; else it may lead anywhere."""


class Held(NamedTuple):
    """What was found; topics are source topics of the flow that asks."""

    by: Mapping[str, Collection[Flow]]
    """The flows that keep it out of a topic's remote topic; only topics that have some."""
    unknown: Mapping[str, uuid.UUID | None]
    """Topics that some flow may have, which cannot be told just now; with the ids of their remote topics."""


class Holders:
    """Of the remote topics of one flow. What was read before is not read again."""

    def __init__(
        self, flow: Flow, others: Callable[[], Iterable[Other]], target: Brokers, log: FilteringBoundLogger
    ) -> None:
        """``others`` returns the flows of this worker's file that are not switched off. One that is refused here may
        run elsewhere, or again when it is mended."""
        self._flow = flow
        self._others = others
        self._target = target
        self._log = log
        self._tables: dict[Flow, PositionTable] = {}
        self._reading: dict[Flow, asyncio.Task[CopiedInto | Mm2Error]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._said: dict[Flow, str] = {}

    async def run(self) -> None:
        """Read what is asked for, until cancelled. To be begun before anybody asks."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.Event().wait()

    async def of(self, remotes: Mapping[str, str], *, mixes: bool) -> Held:
        """Return who has remote topics by the positions that other flows have stored.

        The story: A->B and C->B keep the names of topics, and C->B has copied ``orders`` for months. After a restart A
        answers at once, and C not for a while. And the broker that keeps C's positions may not answer either: that is
        to hold up no topic of which this need not be known, nor any partition that is to begin just now.

        Args:
            remotes: by source topic, the remote topic. One that is not there is nobody's.
            mixes: whether our flow wants to be mixed with others.
        Raises:
            KafkaError: the target does not say which remote topics it has.
        """
        present = await self._present(remotes.values())
        there = {topic: remote for topic, remote in remotes.items() if remote in present}
        by: defaultdict[str, set[Flow]] = defaultdict(set)
        unknown: set[str] = set()
        asked: list[tuple[Flow, Mapping[str, str]]] = []
        for settings, is_settled in self._others() if there else ():
            if settings.flow == self._flow or (mixes and is_settled and settings.many_to_one):
                continue
            if not is_settled:
                unknown |= there.keys()
                continue
            upstream = {topic: name for topic, remote in there.items() if (name := upstream_of(settings, remote))}
            if upstream:
                self._begin_to_read(settings)
                asked.append((settings.flow, upstream))
        if asked:
            await asyncio.wait([self._reading[flow] for flow, _ in asked], timeout=WITHIN_S)
        for flow, names in asked:
            copied_into = self._read(flow)
            if copied_into is None:
                unknown |= names.keys()
                continue
            for topic, name in names.items():
                if any(may_be(present[there[topic]], copy) for copy in copied_into.get(name, ())):
                    by[topic].add(flow)
        return Held(by, {topic: present[there[topic]] for topic in unknown})

    def _begin_to_read(self, other: FlowSettings) -> None:
        if self._tasks is None:
            raise AssertionError("nothing is read before ``run`` has begun")
        if other.flow not in self._reading:
            reading = self._tasks.create_task(self._copied_into(other), name=f"{self._flow} positions of {other.flow}")
            self._reading[other.flow] = reading

    def _read(self, other: Flow) -> CopiedInto | None:
        """Return what a flow has copied into; None while that cannot be told."""
        if not self._reading[other].done():
            return None
        found = self._reading.pop(other).result()
        if not isinstance(found, Mm2Error):
            self._said.pop(other, None)
            return found
        self._note_unknown(other, found)
        return None if found.retriable or _may_pass(found) else {}

    async def _copied_into(self, other: FlowSettings) -> CopiedInto | Mm2Error:
        """Read what a flow has stored positions of."""
        name = other.offsets_topic
        try:
            topic = (await fetch_metadata(self._target, [name])).topics.get(name)
            if topic is None or topic.error_code == UNKNOWN_TOPIC:
                return {}
            if topic.error_code or any(part.leader is None for part in topic.partitions.values()):
                code = topic.error_code or NO_LEADER
                raise BrokerRefused(f"Reading {name}", code, name_of(code))
            table = self._tables.setdefault(other.flow, PositionTable(other.source.alias))
            await table.read(self._target, topic)
        except Mm2Error as error:
            return error
        found: defaultdict[str, set[uuid.UUID | None]] = defaultdict(set)
        for (source_topic, _), position in table.positions.items():
            found[source_topic].add(position.target_topic_id)
        for source_topic, _ in table.malformed_at:
            found[source_topic].add(None)
        return found

    async def _present(self, names: Collection[str]) -> dict[str, uuid.UUID | None]:
        """Return which of these topics the target has, with their ids, as far as it has ids."""
        if not names:
            return {}
        topics = (await fetch_metadata(self._target, sorted(names))).topics
        return {name: topic.topic_id for name, topic in topics.items() if topic.error_code != UNKNOWN_TOPIC}

    def _note_unknown(self, other: Flow, error: Mm2Error) -> None:
        if self._said.get(other) != error.what:
            self._said[other] = error.what
            self._log.warning(
                "holders.unknown",
                other=str(other),
                why=error.what,
                effect="remote topics that are there, into which both flows may lead and this one has not copied yet,"
                " wait while that may pass; else they are begun where they are empty",
                remedy=error.remedy,
            )


def may_be(present: uuid.UUID | None, copy: uuid.UUID | None) -> bool:
    """Whether a position may speak of a remote topic, by the two ids: some brokers have none, nor have MM2's
    positions."""
    return present is None or copy is None or present == copy


def _may_pass(error: Mm2Error) -> bool:
    if not isinstance(error, BrokerRefused):
        return False
    return error.code == OUT_OF_RANGE or reaction_to(error.code) in {Reaction.RETRY, Reaction.REFRESH}


def upstream_of(settings: FlowSettings, remote_topic: str) -> str | None:
    """Return from which source topic a flow may lead into a remote topic; None if from none.

    By the names of MirrorMaker 2's default policy no two sources meet, unless their separators differ.
    """
    upstream = settings.policy.upstream_topic(TopicName(remote_topic))
    if upstream is None or settings.policy.format_remote_topic(settings.flow.source, upstream) != remote_topic:
        return None
    try:
        decision = should_replicate(
            upstream,
            policy=settings.policy,
            topic_filter=settings.topic_filter,
            heartbeats_replication=settings.heartbeats_replication,
            target_alias=settings.flow.target,
        )
    except PatternTooSlow:
        return upstream
    return upstream if decision.replicate else None

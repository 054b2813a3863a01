"""Which flows have copied into a remote topic before, as the positions say that they stored on the target.

Answers to nothing in MM2. No source is asked, so none that is away or slow holds anybody up.
"""

from __future__ import annotations

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

UNKNOWN_TOPIC: Final = 3
NO_LEADER: Final = 5


class Held(NamedTuple):
    """What was found; topics are source topics of the flow that asks."""

    by: Mapping[str, Collection[Flow]]
    """The flows that keep it out of a topic's remote topic; only topics that have some."""
    unknown: Collection[str]
    """Topics that some flow may have, whose positions cannot be read just now."""


class Holders:
    """Of the remote topics of one flow. What was read before is not read again."""

    def __init__(
        self, flow: Flow, others: Callable[[], Iterable[FlowSettings]], target: Brokers, log: FilteringBoundLogger
    ) -> None:
        """``others`` returns by what other flows into this target run just now; those that are switched off, or
        refused, hold nothing."""
        self._flow = flow
        self._others = others
        self._target = target
        self._log = log
        self._tables: dict[Flow, PositionTable] = {}
        self._said: dict[Flow, str] = {}

    async def of(self, remotes: Mapping[str, str], *, mixes: bool) -> Held:
        """Return who has remote topics by the positions that other flows have stored.

        The story: A->B and C->B keep the names of topics, and C->B has copied ``orders`` for months. After a restart A
        answers at once, and C not for a while.

        Args:
            remotes: by source topic, the remote topic.
            mixes: whether our flow wants to be mixed with others.
        Raises:
            KafkaError: the target does not say which remote topics it has.
        """
        by: defaultdict[str, set[Flow]] = defaultdict(set)
        unknown: set[str] = set()
        for other in self._others():
            if other.flow == self._flow or (mixes and other.many_to_one):
                continue
            upstream = {topic: name for topic, remote in remotes.items() if (name := upstream_of(other, remote))}
            if upstream:
                try:
                    copied_into = await self._copied_into(other)
                except Mm2Error as error:
                    self._note_unknown(other.flow, error)
                    unknown |= upstream.keys() if error.retriable or _may_pass(error) else set()
                    continue
                self._said.pop(other.flow, None)
                asked = {topic: remotes[topic] for topic, name in upstream.items() if name in copied_into}
                present = await self._present(asked.values())
                for topic, remote in asked.items():
                    if remote in present and (
                        present[remote] is None or copied_into[upstream[topic]] & {None, present[remote]}
                    ):
                        by[topic].add(other.flow)
        return Held(by, unknown)

    async def _copied_into(self, other: FlowSettings) -> dict[str, set[uuid.UUID | None]]:
        """Return the source topics of which a flow has stored positions, with the ids of the copies; None where a
        position tells none."""
        name = other.offsets_topic
        topic = (await fetch_metadata(self._target, [name])).topics.get(name)
        if topic is None or topic.error_code == UNKNOWN_TOPIC:
            return {}
        if topic.error_code or any(part.leader is None for part in topic.partitions.values()):
            code = topic.error_code or NO_LEADER
            raise BrokerRefused(f"Reading {name}", code, name_of(code))
        table = self._tables.setdefault(other.flow, PositionTable(other.source.alias))
        await table.read(self._target, topic)
        found: defaultdict[str, set[uuid.UUID | None]] = defaultdict(set)
        for (source_topic, _), position in table.positions.items():
            found[source_topic].add(position.target_topic_id)
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
                effect="topics that both flows may lead into one remote topic, and that this flow has not copied yet,"
                " wait while that may pass; else they are begun where the remote topic is empty",
                remedy=error.remedy,
            )


def _may_pass(error: Mm2Error) -> bool:
    return isinstance(error, BrokerRefused) and reaction_to(error.code) in {Reaction.RETRY, Reaction.REFRESH}


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

"""Which flows have copied into a remote topic before, as the positions say that they stored on the target.

Answers to nothing in MM2. No source is asked, so none that is away or slow holds anybody up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import FlowSettings
from mm2py.flow import Flow, TopicName
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import Reaction, name_of, reaction_to
from mm2py.replication.position_store import PositionTable
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.selection import should_replicate

UNKNOWN_TOPIC = 3


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
        self._unreadable: set[Flow] = set()

    async def of(self, remotes: Mapping[str, str], *, mixes: bool) -> Mapping[str, Collection[Flow]]:
        """Return the flows that keep ours out of remote topics; those that are in nobody's way are left out.

        The story: A->B and C->B keep the names of topics, and C->B has copied ``orders`` for months. After a restart A
        answers at once, and C not for a while.

        Args:
            remotes: by source topic, the remote topic.
            mixes: whether our flow wants to be mixed with others.
        Raises:
            KafkaError: positions of another flow cannot be read just now; call it again.
        """
        found: defaultdict[str, set[Flow]] = defaultdict(set)
        for other in self._others():
            if other.flow != self._flow and not (mixes and other.many_to_one):
                upstream = {topic: name for topic, remote in remotes.items() if (name := upstream_of(other, remote))}
                held = await self._held(other) if upstream else set()
                for topic, name in upstream.items():
                    if name in held:
                        found[topic].add(other.flow)
        return found

    async def _held(self, other: FlowSettings) -> set[str]:
        """Return the source topics of which a flow has stored positions."""
        name = other.offsets_topic
        table = self._tables.setdefault(other.flow, PositionTable(other.source.alias))
        try:
            topic = (await fetch_metadata(self._target, [name])).topics.get(name)
            if topic is None or topic.error_code == UNKNOWN_TOPIC:
                return set()
            if topic.error_code:
                raise BrokerRefused(f"Reading {name}", topic.error_code, name_of(topic.error_code))
            await table.read(self._target, topic)
        except BrokerRefused as error:
            if reaction_to(error.code) is not Reaction.DENIED:
                raise
            self._note_unreadable(other.flow, error)
        else:
            self._unreadable.discard(other.flow)
        return {topic for topic, _ in table.positions}

    def _note_unreadable(self, other: Flow, error: BrokerRefused) -> None:
        if other not in self._unreadable:
            self._unreadable.add(other)
            self._log.warning(
                "holders.unknown",
                other=str(other),
                why=error.what,
                effect="a topic that both flows may lead into the same remote topic is kept from this one only while"
                " records of the other stand there",
                remedy=error.remedy or "Grant READ on that topic.",
            )


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

"""Reports topics that must be copied and that the source does not show: logs them, and stores them for status and REST.

These are the names in ``topics`` that match nothing, and topics that were copied and may not be described any more. In
a list of all topics the latter look as if they were deleted. A broker shows the difference only for a request by name.
MirrorMaker 2 reports neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from mm2py.flow import TopicName
from mm2py.kafka.cluster import ClusterMetadata, hidden_among
from mm2py.records.standstill import Cause
from mm2py.status.not_copied import Reason
from mm2py.topics.unmatched import Unmatched, unmatched_steps
from mm2py_connectors.source.context import FlowContext

NAMED_MOST: Final = 100
"""How many entries are named."""
HIDDEN_WHY: Final = "mm2py may not describe the source topic any more (TOPIC_AUTHORIZATION_FAILED)"
MISSING_MOST_S: Final = 30.0
"""How long, at most, a topic is missing before that is reported: it may be in the middle of its creation."""


class MissingTopics:
    """The entries of one flow's ``topics`` that match nothing."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._log = context.log
        self._clock = context.clock
        self._looked_at: tuple[object, frozenset[str]] | None = None
        self._since_ms: dict[Unmatched, int] = {}
        self._said: set[Unmatched] = set()
        self._copied: set[str] = set()
        """All topics that were copied since the start, or before."""
        self._hidden_since_ms: dict[str, int] = {}
        """Topics that may not be described, and since when."""
        self._asked_at_s = float("-inf")
        self._asked: list[str] = []

    async def look(self, metadata: ClusterMetadata, copied: Iterable[str]) -> None:
        """Update which topics the source shows. Topics that have been missing for a while are logged.

        Args:
            copied: topics that have positions, or are listed.
        Raises: KafkaError, the source does not answer.
        """
        self._copied.update(copied)
        await self._look_for_hidden(metadata)
        names = frozenset(name for name, topic in metadata.topics.items() if not topic.error_code)
        topic_filter = self._context.settings.topic_filter
        if self._looked_at != (topic_filter, names):
            self._looked_at = (topic_filter, names)
            found: list[Unmatched] = []
            for one in unmatched_steps(topic_filter.included, names, copy_of=self._copy_of):
                found += [] if one is None else [one]
                await asyncio.sleep(0)  # let heartbeats run
            now_ms = self._clock.wall_ms()
            self._since_ms = {one: self._since_ms.get(one, now_ms) for one in found[:NAMED_MOST]}
        self._say()

    def is_hidden(self, name: str) -> bool:
        """Return whether a topic that was copied exists, but may not be described."""
        return name in self._hidden_since_ms

    def causes(self) -> dict[str, Cause]:
        """Return the causes by missing topic; the empty name has the patterns that match nothing."""
        causes: dict[str, Cause] = {}
        source = self._context.flow.source
        for name, since_ms in self._hidden_since_ms.items():
            remedy = f"Grant DESCRIBE and READ on {name} on {source}."
            causes[name] = Cause(Reason.SOURCE_DENIED, HIDDEN_WHY, remedy, since_ms)
        patterns = [one for one in self._since_ms if not one.is_name]
        for one, since_ms in self._since_ms.items():
            if one.is_name and self._is_due(one) and one.entry not in causes:
                causes[one.entry] = Cause(Reason.MISSING, self._why(one), self._remedy(one), since_ms)
        if patterns:
            why = f"mm2py sees no topic on {source} that matches {' or '.join(one.entry for one in patterns)}."
            causes[""] = Cause(
                Reason.NO_MATCH, why, self._pattern_remedy(), min(self._since_ms[one] for one in patterns)
            )
        return causes

    async def _look_for_hidden(self, metadata: ClusterMetadata) -> None:
        """Ask for topics by name that were copied and are not in the list of all: are they deleted, or hidden?"""
        settings, now_s = self._context.settings, self._clock.monotonic()
        gone = sorted(name for name in self._copied if name not in metadata.topics and settings.replicates(name))
        if not self._context.ownership.is_coordinator:  # it would report only its own topics as deleted
            mine = {name for name, _ in self._context.ownership.mine()}
            gone = [name for name in gone if name in mine]
        if gone == self._asked and now_s - self._asked_at_s < MISSING_MOST_S:
            return
        self._asked, self._asked_at_s = gone, now_s
        denied = await hidden_among(self._context.source.brokers, gone, channel="watch")
        for name in sorted(denied - self._hidden_since_ms.keys()):
            remedy = f"Grant DESCRIBE and READ on it on {self._context.flow.source}."
            self._log.error("topic.hidden", topic=name, reason=str(Reason.SOURCE_DENIED), why=HIDDEN_WHY, remedy=remedy)
        now_ms = self._clock.wall_ms()
        self._hidden_since_ms = {name: self._hidden_since_ms.get(name, now_ms) for name in denied}

    def _say(self) -> None:
        for one in self._said - self._since_ms.keys():
            self._said.discard(one)
            if one.entry not in {entry for entry, _ in self._context.settings.topic_filter.included.singles}:
                continue  # it is not asked for any more
            self._log.info("topic.found" if one.is_name else "topics.found", topic=one.entry)
        for one in self._since_ms:
            if one in self._said or not self._is_due(one) or not self._context.ownership.is_coordinator:
                continue
            self._said.add(one)
            if one.is_name:
                reason, why = str(Reason.MISSING), self._why(one)
                self._log.warning("topic.missing", topic=one.entry, reason=reason, why=why, remedy=self._remedy(one))
            else:
                why = f"mm2py sees no topic on {self._context.flow.source} that matches it."
                reason, remedy = str(Reason.NO_MATCH), self._pattern_remedy()
                self._log.info("topics.none", pattern=one.entry, reason=reason, why=why, remedy=remedy)

    def _copy_of(self, name: str) -> str:
        settings = self._context.settings
        return settings.policy.format_remote_topic(settings.flow.target, TopicName(name))

    def _is_due(self, one: Unmatched) -> bool:
        """Return whether it is missing for longer than one refresh. Patterns are always due: they promise no topics."""
        after_s = min(MISSING_MOST_S, self._context.settings.refresh_topics_interval_s or MISSING_MOST_S)
        return not one.is_name or self._clock.wall_ms() - self._since_ms[one] >= after_s * 1000

    def _why(self, one: Unmatched) -> str:
        return f"topics names {one.entry}, and {self._context.flow.source} does not show it to mm2py."

    def _pattern_remedy(self) -> str:
        return (
            f"If {self._context.flow.source} has such topics, grant DESCRIBE and READ on them: it hides topics that"
            " mm2py may not describe. If it has none yet, there is nothing to do."
        )

    def _remedy(self, one: Unmatched) -> str:
        source = self._context.flow.source
        return f"Create it on {source}, grant DESCRIBE and READ on it, or remove it from topics of this flow."

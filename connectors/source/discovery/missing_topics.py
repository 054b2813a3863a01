"""What ``topics`` names and the source does not show: logged, and kept for everybody who asks.

MirrorMaker 2 says nothing of it. A topic that is not there, and one that mm2py may not describe, look the same.
"""

from __future__ import annotations

from typing import Final

from connectors.source.context import FlowContext
from mm2py.kafka.cluster import ClusterMetadata
from mm2py.records.standstill import Cause
from mm2py.status.not_copied import Reason
from mm2py.topics.unmatched import Unmatched, unmatched

NAMED_MOST: Final = 100
"""So many entries are named."""
MISSING_MOST_S: Final = 30.0
"""For how long, at most, a topic is missing before that is said: it may be created just now."""


class MissingTopics:
    """The entries of one flow's ``topics`` that match nothing."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._log = context.log
        self._clock = context.clock
        self._looked_at: tuple[object, frozenset[str]] | None = None
        self._since_ms: dict[Unmatched, int] = {}
        self._said: set[Unmatched] = set()

    def look(self, metadata: ClusterMetadata) -> None:
        """Take in which topics the source shows. What is missing is logged when it has been for a while."""
        names = frozenset(name for name, topic in metadata.topics.items() if not topic.error_code)
        topic_filter = self._context.settings.topic_filter
        if self._looked_at != (topic_filter, names):
            self._looked_at = (topic_filter, names)
            found = unmatched(topic_filter.included, names)
            now_ms = self._clock.wall_ms()
            self._since_ms = {one: self._since_ms.get(one, now_ms) for one in found[:NAMED_MOST]}
        self._say()

    def causes(self) -> dict[str, Cause]:
        """Return them by the name of the missing topic; patterns that match nothing are about the flow."""
        causes: dict[str, Cause] = {}
        patterns = [one for one in self._since_ms if not one.is_name]
        for one, since_ms in self._since_ms.items():
            if one.is_name and self._is_due(one):
                causes[one.entry] = Cause(Reason.MISSING, self._why(one), self._remedy(one), since_ms)
        if patterns:
            why = f"No topic of {self._context.flow.source} matches {' or '.join(one.entry for one in patterns)}."
            causes[""] = Cause(Reason.NO_MATCH, why, "", min(self._since_ms[one] for one in patterns))
        return causes

    def _say(self) -> None:
        for one in self._said - self._since_ms.keys():
            self._said.discard(one)
            self._log.info("topic.found" if one.is_name else "topics.found", topic=one.entry)
        for one in self._since_ms:
            if one in self._said or not self._is_due(one) or not self._context.ownership.is_coordinator:
                continue
            self._said.add(one)
            if one.is_name:
                reason, why = str(Reason.MISSING), self._why(one)
                self._log.warning("topic.missing", topic=one.entry, reason=reason, why=why, remedy=self._remedy(one))
            else:
                why = f"No topic of {self._context.flow.source} matches it."
                self._log.info("topics.none", pattern=one.entry, reason=str(Reason.NO_MATCH), why=why)

    def _is_due(self, one: Unmatched) -> bool:
        """Whether it has been missing for longer than one refresh. A pattern is no promise of topics."""
        after_s = min(MISSING_MOST_S, self._context.settings.refresh_topics_interval_s or MISSING_MOST_S)
        return not one.is_name or self._clock.wall_ms() - self._since_ms[one] >= after_s * 1000

    def _why(self, one: Unmatched) -> str:
        return f"topics names {one.entry}, and {self._context.flow.source} does not show it to mm2py."

    def _remedy(self, one: Unmatched) -> str:
        source = self._context.flow.source
        return f"Create it on {source}, grant DESCRIBE and READ on it, or remove it from topics."

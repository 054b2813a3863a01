"""Which copied topics are no longer what was copied: deleted upstream, out of sight, or made anew under the old name.

MM2 goes on with whatever bears the name. Here the remote topic is kept as it is, and copying stops.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from connectors.source.shared_lines import SharedLines
from mm2py.kafka.cluster import TopicMetadata
from mm2py.replication.copying.copied_partition import CopiedPartition

GONE_AFTER_ROUNDS: Final = 2
"""A topic is taken for deleted when so many rounds in a row do not show it."""


class Vanished:
    """Looks at what each round of metadata shows of the topics that are copied."""

    def __init__(self) -> None:
        self._rounds: dict[str, int] = {}

    def look(self, copied: Iterable[CopiedPartition], topics: Mapping[str, TopicMetadata]) -> Mapping[str, str | None]:
        """Return the topics whose copying is to stop: with how they were made anew, or None if they are not there."""
        widths: dict[str, int] = {}
        ids: dict[str, uuid.UUID | None] = {}
        for part in copied:
            widths[part.source_topic] = max(widths.get(part.source_topic, 0), part.partition + 1)
            ids[part.source_topic] = part.source_topic_id or ids.get(part.source_topic)
        self._rounds = {name: rounds for name, rounds in self._rounds.items() if name in widths}
        found: dict[str, str | None] = {}
        for name, width in widths.items():
            topic = topics.get(name)
            if topic is None or topic.error_code:
                if self._again(name):
                    found[name] = None
            elif ids[name] not in {None, topic.topic_id}:
                found[name] = f"it was deleted and made anew upstream{fewer(len(topic.partitions), width)}"
            elif ids[name] is None and len(topic.partitions) < width:
                # Where there was no id; an upgrade of the brokers may give it one. A broker that has not heard yet of a
                # topic's growth shows fewer, too.
                if self._again(name):
                    found[name] = f"it was deleted and made anew upstream{fewer(len(topic.partitions), width)}"
            else:
                self._rounds.pop(name, None)
        return found

    def _again(self, name: str) -> bool:
        self._rounds[name] = self._rounds.get(name, 0) + 1
        return self._rounds[name] >= GONE_AFTER_ROUNDS


def say_gone(names: Iterable[str], log: FilteringBoundLogger) -> None:
    """Say which topics are copied no more because they are not there."""
    lines = SharedLines(log)
    shared = {
        "why": "it was deleted, or mm2py may not see it any more",
        "effect": "copying stops; the remote topic and its position are kept",
    }
    for name in names:
        lines.say("topic.gone", name, level="warning", shared=shared)
    lines.end()


def fewer(partitions: int, before: int) -> str:
    """Return half a sentence about a topic that came back with fewer partitions; empty if it has as many or more."""
    return f", with {partitions} partition(s) instead of {before}" if partitions < before else ""


def gone_while_down(positions: Iterable[tuple[str, int]], topics: Collection[str]) -> list[str]:
    """Return the topics that have positions and are not on the source any more, in order."""
    return sorted({name for name, _ in positions} - set(topics))

"""Flows that lead back, from the target of a flow into its source. What they have made is not copied back. Pure.

Names show a ring only if both files give the clusters the same aliases. So a flow stores the id of its source cluster
beside its settings, and the flow in the other direction finds it there. MirrorMaker 2 has nothing like this: with other
aliases it copies back and forth, and gives each topic a longer name in every round.

A copy of a prefixing policy is known by its name. Under the identity policy a copy has the name of its original, and
only positions show which flow was first. If that flow renames topics, its positions show which topics it has made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mm2py.flow import ClusterAlias, Flow, TopicName
from mm2py.topics.filters import PatternTooSlow, TopicFilter, is_cycle
from mm2py.topics.names import ReplicationPolicy
from mm2py.topics.renaming import RenamingPolicy

NOT_KNOWN: Final = "?"
_CONFIGS, _OFFSETS, _END = "mm2-configs.", "mm2-offsets.", ".internal"


def configs_topic(alias: str) -> str:
    """Return the topic in which flows from a source store settings and owner, unless a file names another topic."""
    return f"{_CONFIGS}{alias}{_END}"


def offsets_topic(alias: str) -> str:
    """Return the topic in which they store their positions."""
    return f"{_OFFSETS}{alias}{_END}"


def sources_of(topics: Iterable[str]) -> list[ClusterAlias]:
    """Return the aliases from which flows lead into a cluster, by the internal topics that it has."""
    return sorted(
        {
            ClusterAlias(name[len(start) : -len(_END)])
            for name in topics
            for start in (_CONFIGS, _OFFSETS)
            if name.startswith(start) and name.endswith(_END) and len(name) > len(start) + len(_END)
        }
    )


@dataclass(frozen=True, slots=True)
class ReverseFlow:
    """A flow that leads back, as its records on the source describe it."""

    flow: Flow
    """By the aliases of its own file; its target is ``?`` if the records do not name it."""
    group: str
    """The group that runs it; empty: not known."""
    policy: ReplicationPolicy
    topic_filter: TopicFilter | None
    """None: it is switched off, or all copies that it makes are known by their names."""

    def __str__(self) -> str:
        return f"{self.flow} of group {self.group}" if self.group else str(self.flow)

    def selects(self, topic: str) -> bool:
        """Return whether it may make a topic of this name, by its settings."""
        try:
            return self.topic_filter is not None and (
                self.topic_filter.should_replicate(topic)
                or (isinstance(self.policy, RenamingPolicy) and self.policy.rules.may_make(topic))
            )
        except PatternTooSlow:
            return True

    def origins(self, brought: Iterable[str]) -> dict[str, str]:
        """Return, by the name of a copy, the topic that it was made of.

        Args:
            brought: the topics of which the flow has positions.
        """
        return {self.policy.format_remote_topic(self.flow.source, TopicName(name)): name for name in brought}


class NameOrigin(Enum):
    """What the name of a topic on the source shows about a flow that leads back."""

    OTHER = "it has not made the topic"
    COPY = "it has made the topic"
    UNKNOWN = "it keeps names, and may have made the topic"


def origin_of(topic: str, reverse: ReverseFlow) -> NameOrigin:
    """Return whether a flow that leads back has made a topic, as far as its name shows that."""
    name = TopicName(topic)
    if not is_cycle(name, reverse.policy, reverse.flow.source):
        return NameOrigin.OTHER
    return NameOrigin.UNKNOWN if reverse.policy.upstream_topic(name) == name else NameOrigin.COPY


class Verdict(Enum):
    """Whether a topic may be copied although a flow that keeps names leads back."""

    COPY = "it was not brought by that flow, and that flow leaves it alone"
    COPY_BEHIND = "it may, if that flow has ended: copying begins behind what it has brought"
    BACK = "records would come back"
    BOTH = "both flows select it, and none has begun"


def verdict_on(
    brought_to: Mapping[int, int | None], starts: Mapping[int, int], *, is_selected: bool, has_begun: bool
) -> Verdict:
    """Decide about a topic whose copy in the other direction would have the same name.

    Both flows decide by this rule. So the flow that has positions continues, and the other is refused. If none has
    begun, both are refused, as in one file.

    Args:
        brought_to: by partition, the offset after what the other flow has brought; None: its position does not say.
            Empty: it has no position of the topic.
        starts: by partition, where this flow continues; a partition without a position starts at 0.
        is_selected: the other flow would copy a topic of this name.
        has_begun: this flow has listed the topic, or has a position of it.
    """
    if not brought_to:
        return Verdict.BOTH if is_selected and not has_begun else Verdict.COPY
    is_behind = all(end is not None and starts.get(number, 0) >= end for number, end in brought_to.items())
    return Verdict.COPY_BEHIND if is_behind else Verdict.BACK

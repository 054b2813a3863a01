"""Selection: which topics of the source cluster a flow copies, and in which copy mode.

Answers to ``shouldReplicateTopic`` and ``isCycle`` of MM2's MirrorSourceConnector. MM2 has no copy modes: it decodes
and encodes every record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics.filters import FilteredOut, PatternList, PatternTooSlow, TopicFilter
from mm2py.topics.internal import is_own_topic
from mm2py.topics.replication_policy import ReplicationPolicy


class WhyNot(StrEnum):
    """The one word for a topic that is not copied; the first that applies, in this order."""

    OWN_TOPIC = "own topic"
    INTERNAL = "internal"
    CYCLE = "cycle"
    NOT_INCLUDED = "not included"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a flow copies a topic; ``why_not`` is None if it does."""

    why_not: WhyNot | None

    @property
    def replicate(self) -> bool:
        return self.why_not is None


def should_replicate(
    topic: TopicName,
    *,
    policy: ReplicationPolicy,
    topic_filter: TopicFilter,
    heartbeats_replication: bool,
    target_alias: ClusterAlias,
) -> Decision:
    """Decide about one topic of the source cluster. What no filter can change is asked first.

    Args:
        heartbeats_replication: copy heartbeats topics even if the filter does not let them pass.
    Raises:
        PatternTooSlow: the filter found no answer in time; the topic is undecided.
    """
    if is_own_topic(topic, separators=(policy.separator,)):
        return Decision(WhyNot.OWN_TOPIC)
    if policy.is_internal_topic(topic):
        return Decision(WhyNot.INTERNAL)
    if is_cycle(topic, policy, target_alias):
        return Decision(WhyNot.CYCLE)
    if heartbeats_replication and policy.is_heartbeats_topic(topic):
        return Decision(None)
    match topic_filter.why_not(topic):
        case FilteredOut.NOT_INCLUDED:
            return Decision(WhyNot.NOT_INCLUDED)
        case FilteredOut.EXCLUDED:
            return Decision(WhyNot.EXCLUDED)
        case None:
            return Decision(None)


def is_cycle(topic: TopicName, policy: ReplicationPolicy, target_alias: ClusterAlias) -> bool:
    """Return whether the topic's name shows that its records have been on the target: any hop of it is the target."""
    source = policy.topic_source(topic)
    while source is not None:
        if source == target_alias:
            return True
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:  # identity: the name shows nothing more
            return False
        topic, source = upstream, policy.topic_source(upstream)
    return False


PASS_TOPICS_KEY = "copy.mode.pass.topics"  # noqa: S105  (the name of a setting)
REPACK_TOPICS_KEY = "copy.mode.repack.topics"


class CopyMode(Enum):
    """What becomes of batches that could pass as they are."""

    AUTO = "auto"
    PASS = "pass"  # noqa: S105  (a way of copying)
    REPACK = "repack"


class CopyModes:
    """The copy mode of each topic of a flow: a list that names it comes before the flow's own mode, and pass first.

    Raises:
        ConfigError: an entry of a list is no pattern.
    """

    def __init__(
        self, mode: CopyMode = CopyMode.AUTO, pass_topics: Sequence[str] = (), repack_topics: Sequence[str] = ()
    ) -> None:
        self.mode = mode
        self._pass = PatternList(PASS_TOPICS_KEY, pass_topics)
        self._repack = PatternList(REPACK_TOPICS_KEY, repack_topics)

    def of(self, topic: str) -> CopyMode:
        """Return the mode of a topic. A pattern that finds no answer in time leaves the choice to the flow's mode."""
        try:
            if self._pass.matches(topic):
                return CopyMode.PASS
            return CopyMode.REPACK if self._repack.matches(topic) else self.mode
        except PatternTooSlow:
            return self.mode

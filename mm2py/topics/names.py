"""The names of topics: the replication policy, mm2py's and MM2's own topics, and flows that form a ring.

The policy is the rule between upstream topic names and remote topic names, both ways. Odd names (a trailing
separator, a name that merely ends in ``heartbeats``) are treated as in MM2, because both sides of a flow and MM2's
own tools must agree on every name.

Internal topics come in three groups: what the policy names (offset syncs, checkpoints, heartbeats), Kafka Connect's
three stores, which always use ``.``, and mm2py's own. None of them is ever mirrored, whatever separator and filters
say, except heartbeats, whose copies prove the path.

In a ring, flows bring a record back to its own topic, or give a topic a longer name in every round. The default policy
sees in a name which clusters the records come from, and stops this; the identity policy cannot, nor can two flows with
different separators. MM2 copies in such rings for ever.

Counterpart: ReplicationPolicy, DefaultReplicationPolicy and IdentityReplicationPolicy of MM2.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Protocol

from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, Flow, TopicName

POLICY_CLASS_KEY = "replication.policy.class"
SEPARATOR_KEY = "replication.policy.separator"

NAME_MAX_CHARS = 249
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")

DEFAULT_SEPARATOR = "."
HEARTBEATS = TopicName("heartbeats")


class ReplicationPolicy(Protocol):
    """What every part of mm2py may ask about a topic name. Each flow has a policy of its own."""

    @property
    def separator(self) -> str: ...

    @property
    def keeps_names(self) -> bool:
        """Whether no remote name shows where a topic comes from. It is the name on the source, but for ``renames``."""
        ...

    @property
    def renames(self) -> bool:
        """Whether rules give topics other names (``renaming.py``): a remote name alone does not tell its topic then."""
        ...

    @property
    def made_names(self) -> tuple[str, ...]:
        """Java patterns that match, among others, every new name that rules may give."""
        ...

    def format_remote_topic(self, source_alias: ClusterAlias, topic: TopicName) -> TopicName:
        """Return the name on the target of a topic of the source cluster."""
        ...

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        """Return the cluster from which a topic was copied last, None for a topic that was not copied."""
        ...

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        """Return the topic's name on ``topic_source``, None if it has no such cluster."""
        ...

    def original_topic(self, topic: TopicName) -> TopicName:
        """Return the name without any hop."""
        ...

    def heartbeats_topic(self) -> TopicName: ...

    def offset_syncs_topic(self, cluster_alias: ClusterAlias) -> TopicName:
        """Return the offset-syncs topic that is on one cluster and names the other one, ``cluster_alias``."""
        ...

    def checkpoints_topic(self, cluster_alias: ClusterAlias) -> TopicName:
        """Return the checkpoints topic, on the target, of flows from ``cluster_alias``."""
        ...

    def is_heartbeats_topic(self, topic: TopicName) -> bool: ...

    def is_checkpoints_topic(self, topic: TopicName) -> bool: ...

    def is_mm2_internal_topic(self, topic: TopicName) -> bool: ...

    def is_internal_topic(self, topic: TopicName) -> bool: ...


@dataclass(frozen=True)
class DefaultReplicationPolicy:
    """``orders`` of cluster A is ``A.orders`` on the target: every hop is in the name, so cycles can be seen and cut.

    ``internal_separator`` is used in offset-syncs and checkpoints topics; None means the separator itself.
    Source: DefaultReplicationPolicy, Apache Kafka, connect/mirror-client.
    """

    separator: str = field(default=DEFAULT_SEPARATOR, kw_only=True)
    internal_separator: str | None = field(default=None, kw_only=True)
    keeps_names: ClassVar[bool] = False
    renames: ClassVar[bool] = False
    made_names: ClassVar[tuple[str, ...]] = ()

    def format_remote_topic(self, source_alias: ClusterAlias, topic: TopicName) -> TopicName:
        return TopicName(f"{source_alias}{self.separator}{topic}")

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        first, *rest = topic.split(self.separator)
        # Java's split forgets empty parts at the end: "topic." and "a.." have one part, hence no source.
        return ClusterAlias(first) if any(rest) else None

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        source = self.topic_source(topic)
        return None if source is None else TopicName(topic[len(source) + len(self.separator) :])

    def original_topic(self, topic: TopicName) -> TopicName:
        upstream = self.upstream_topic(topic)
        while upstream is not None and upstream != topic:
            topic, upstream = upstream, self.upstream_topic(upstream)
        return topic

    def heartbeats_topic(self) -> TopicName:
        return HEARTBEATS

    def offset_syncs_topic(self, cluster_alias: ClusterAlias) -> TopicName:
        return TopicName(f"mm2-offset-syncs{self._internal}{cluster_alias}{self._internal}internal")

    def checkpoints_topic(self, cluster_alias: ClusterAlias) -> TopicName:
        return TopicName(f"{cluster_alias}{self._internal}checkpoints{self._internal}internal")

    def is_heartbeats_topic(self, topic: TopicName) -> bool:
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints_topic(self, topic: TopicName) -> bool:
        return topic.endswith(f"{self._internal}checkpoints{self._internal}internal")

    def is_mm2_internal_topic(self, topic: TopicName) -> bool:
        named_so = topic.startswith("mm2") and topic.endswith(f"{self._internal}internal")
        return named_so or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: TopicName) -> bool:
        return self.is_mm2_internal_topic(topic) or topic.startswith(("__", "."))

    @property
    def _internal(self) -> str:
        return self.separator if self.internal_separator is None else self.internal_separator


@dataclass(frozen=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """A topic keeps its name on the target, so nothing in a name shows a cycle; only heartbeats still carry their hops.

    Like MM2, it takes every name that ends with ``heartbeats`` for a heartbeats topic, also ``foo-heartbeats``.
    Source: IdentityReplicationPolicy, Apache Kafka, connect/mirror-client.
    """

    source_alias: ClusterAlias | None = None
    keeps_names: ClassVar[bool] = True

    def format_remote_topic(self, source_alias: ClusterAlias, topic: TopicName) -> TopicName:
        return super().format_remote_topic(source_alias, topic) if _looks_like_heartbeats(topic) else topic

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        return super().topic_source(topic) if _looks_like_heartbeats(topic) else self.source_alias

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        return super().upstream_topic(topic) if _looks_like_heartbeats(topic) else topic


def _looks_like_heartbeats(topic: TopicName) -> bool:
    return topic.endswith(HEARTBEATS)


_POLICIES = {
    "DefaultReplicationPolicy": DefaultReplicationPolicy,
    "IdentityReplicationPolicy": IdentityReplicationPolicy,
}


def make_policy(
    class_name: str,
    *,
    source_alias: ClusterAlias,
    separator: str | None,
    internal_separator_enabled: bool | None,
) -> ReplicationPolicy:
    """Return the policy of a flow out of ``source_alias``.

    Args:
        class_name: the name of one of MM2's two policy classes, with its package or without.
        source_alias: the flow's source cluster; with identity a name does not show where a topic comes from.
        separator: as configured, None when the setting is absent.
        internal_separator_enabled: as configured, None when the setting is absent, which means yes.
    Raises:
        ConfigError: the class is unknown, the names that would result are no topic names, or they could not be split
            again.
    """
    policy_class = _POLICIES.get(class_name.strip().removeprefix("org.apache.kafka.connect.mirror."))
    if policy_class is None:
        raise ConfigError(
            f"{POLICY_CLASS_KEY}: mm2py cannot load the Java class {class_name.strip()!r}.",
            remedy=f"Use one of: {', '.join(_POLICIES)}.",
        )
    if separator is not None:
        _check_separator(separator)
    policy = policy_class(
        separator=DEFAULT_SEPARATOR if separator is None else separator,
        internal_separator=DEFAULT_SEPARATOR if internal_separator_enabled is False else None,
    )
    if isinstance(policy, IdentityReplicationPolicy):  # only this one does not see in a name where a topic comes from
        policy = replace(policy, source_alias=source_alias)
    _check_names(policy, source_alias)
    return policy


def _check_separator(separator: str) -> None:
    problem = "it is empty" if not separator else remote_name_problem(f"A{separator}B")
    if problem is not None:
        raise ConfigError(
            f"{SEPARATOR_KEY}: {separator!r} cannot stand between an alias and a topic: {problem}.",
            remedy="Use letters, digits, '.', '_' or '-', for example '.' or '_'.",
        )


def _check_names(policy: DefaultReplicationPolicy, source_alias: ClusterAlias) -> None:
    for name in (
        DefaultReplicationPolicy.format_remote_topic(policy, source_alias, HEARTBEATS),
        policy.checkpoints_topic(source_alias),
        policy.offset_syncs_topic(source_alias),
    ):
        problem = remote_name_problem(name)
        if problem is not None:
            raise ConfigError(
                f"Cluster {source_alias} as a source, with the separator {policy.separator!r}, needs a topic {name!r},"
                f" which is no topic name: {problem}.",
                remedy="Rename the cluster in `clusters` and in every key that names it, or shorten the separator.",
            )
    if f"{source_alias}{policy.separator}".find(policy.separator) != len(source_alias):
        raise ConfigError(
            f"Cluster {source_alias}: with the separator {policy.separator!r} a remote topic's name does not show"
            " where the alias ends.",
            remedy=f"Rename the cluster, or choose another {SEPARATOR_KEY}.",
        )


def remote_name_problem(name: str) -> str | None:
    """Return why a broker would refuse to create a topic of that name, as half a sentence, or None if it would not."""
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return f"{name!r} alone is not allowed"
    if len(name) > NAME_MAX_CHARS:
        return f"it has {len(name)} characters, {NAME_MAX_CHARS} are allowed"
    illegal = _ILLEGAL.search(name)
    if illegal is not None:
        return f"it contains {illegal.group()!r}; only letters, digits, '.', '_' and '-' are allowed"
    return None


FENCE_TOPIC = TopicName("mm2-fence.internal")

COMPACT = {"cleanup.policy": "compact"}
QUARANTINED_MAX_BYTES = 100 * 1024 * 1024
"""Kafka's default for ``socket.request.max.bytes``: brokers close a connection on which a larger request comes."""
DAY_MS = 24 * 60 * 60 * 1000
CONTROL_LOG_RETENTION_MS = 7 * DAY_MS
CONTROL_LOG_SEGMENT_MS = 60 * 60 * 1000
CONTROL_LOG_MESSAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """What to create if the topic does not exist."""

    name: TopicName
    partitions: int
    configs: Mapping[str, str] = field(default_factory=lambda: dict(COMPACT))


def quarantine(source_alias: ClusterAlias) -> InternalTopic:
    """Records that the target refused, kept until an operator has looked at them: nothing expires.

    Its timestamps are ours, and its records may be as large as a request to a broker with default settings.
    """
    return InternalTopic(
        TopicName(f"mm2-quarantine.{source_alias}.internal"),
        partitions=1,
        configs={
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(QUARANTINED_MAX_BYTES),
            "message.timestamp.type": "CreateTime",
        },
    )


def control_log(group: str, *, producer_expiry_ms: int) -> InternalTopic:
    """Where the workers of a group join, send heartbeats and claim leadership.

    Cleaned by deletion, not compaction: all readers must see the same records. They are kept at least twice as long as
    the target remembers a producer (``producer_expiry_ms``). min.insync.replicas depends on the number of brokers.
    """
    return InternalTopic(
        TopicName(f"mm2-cluster.{group}.internal"),
        partitions=1,
        configs={
            "cleanup.policy": "delete",
            "retention.ms": str(max(CONTROL_LOG_RETENTION_MS, 2 * producer_expiry_ms)),
            "retention.bytes": "-1",
            "segment.ms": str(CONTROL_LOG_SEGMENT_MS),
            "max.message.bytes": str(CONTROL_LOG_MESSAGE_BYTES),
            "message.timestamp.type": "LogAppendTime",
            "unclean.leader.election.enable": "false",
        },
    )


def ledger_topic(source_alias: ClusterAlias) -> TopicName:
    """Return the topic on the target in which flows from a source store the target offset of each copied record."""
    return TopicName(f"mm2-ledger.{source_alias}.internal")


FLIGHT_RETENTION_BYTES = 256 * 1024 * 1024


def flight_topic(source_alias: ClusterAlias) -> InternalTopic:
    """What workers decided and met, for a day: see ``mm2py/flight``. The brokers' clocks say when a day is over."""
    return InternalTopic(
        TopicName(f"mm2-flight.{source_alias}.internal"),
        partitions=1,
        configs={
            "cleanup.policy": "delete",
            "retention.ms": str(DAY_MS),
            "retention.bytes": str(FLIGHT_RETENTION_BYTES),
            "segment.ms": str(60 * 60 * 1000),
            "message.timestamp.type": "LogAppendTime",
        },
    )


HISTORY_RETENTION_MS = DAY_MS + 60 * 60 * 1000


def history_topic(source_alias: ClusterAlias) -> InternalTopic:
    """The history of a flow, see ``mm2py/flow_history``. Compaction bounds it, and a flow that has ended leaves nothing
    behind: what is older than a day is deleted as well."""
    return InternalTopic(
        TopicName(f"mm2-history.{source_alias}.internal"),
        partitions=1,
        configs={
            "cleanup.policy": "compact,delete",
            "retention.ms": str(HISTORY_RETENTION_MS),
            "segment.ms": str(60 * 60 * 1000),
            "message.timestamp.type": "LogAppendTime",
        },
    )


def recovery_topic(flow: Flow) -> InternalTopic:
    """What ``mm2py dr`` remembers of a pair of clusters, in both directions, on both: nothing of it expires."""
    first, second = sorted((flow.source, flow.target))
    return InternalTopic(
        TopicName(f"mm2-recovery.{first}.{second}.internal"),
        partitions=1,
        configs={
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(CONTROL_LOG_MESSAGE_BYTES),
            "message.timestamp.type": "LogAppendTime",
            "unclean.leader.election.enable": "false",
        },
    )


def drills_topic(flow: Flow) -> InternalTopic:
    """What drills of a failover found out, of a pair of clusters, on both: see ``mm2py/dr/drill``. Nothing expires."""
    first, second = sorted((flow.source, flow.target))
    return InternalTopic(
        TopicName(f"mm2-drills.{first}.{second}.internal"),
        partitions=1,
        configs={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
    )


def fence_topic() -> InternalTopic:
    """The partition of empty aborted transactions that keep a transactional id alive; it never contains data."""
    return InternalTopic(
        FENCE_TOPIC,
        partitions=1,
        configs={"cleanup.policy": "delete", "retention.ms": str(DAY_MS)},
    )


DR_FENCE_RECORD_BYTES = 16 << 20


def dr_fences_topic() -> InternalTopic:
    """What fences of producers have added, and what was there before: see ``mm2py/dr/fence``. It is on both clusters.

    Nothing expires, and readers need every record in its order. There are few.
    """
    return InternalTopic(
        TopicName("mm2-dr-fences.internal"),
        partitions=1,
        configs={
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(DR_FENCE_RECORD_BYTES),
            "unclean.leader.election.enable": "false",
        },
    )


def spark_writes_topic() -> InternalTopic:
    """Which parts of writes from Spark were committed, on the cluster to which Spark wrote: one key a task."""
    return InternalTopic(TopicName("mm2-spark-writes.internal"), partitions=10)


_ALWAYS_DOTTED = re.compile(
    r"mm2-(?:(?:offsets|configs|status|ledger|quarantine|cluster|flight|history|recovery|drills)\..+\.internal|(?:fence|dr-fences|spark-writes)\.internal)",
    re.DOTALL,
)
_OFFSET_SYNCS = "mm2-offset-syncs"


def is_own_topic(name: str, separators: Collection[str] = (), *, aliases: Collection[str]) -> bool:
    """Return whether mm2py or MM2 writes the topic for itself, here or on the cluster it was mirrored from.

    Args:
        name: with or without hops in front; a hop ends with any separator that is no letter or digit.
        separators: those in use besides ``.``; only they, and ``.``, make a checkpoints topic.
        aliases: of all known clusters. Only they have checkpoints topics here: ``y.checkpoints.internal`` may be a
            user's, if the policy of a flow does not take it for one of its own (``is_checkpoints_topic``).

    Only the name counts, not the owner: a user's topic ``team.mm2-status.x.internal`` is taken for one of these. The
    name ``mm2-offsets_A_internal`` is not: Connect's stores never have another separator than ``.``.
    """
    if not name.endswith("internal"):
        return False
    known = {DEFAULT_SEPARATOR, *separators}
    for separator in known:
        owner = name.removesuffix(f"{separator}checkpoints{separator}internal")
        if owner != name and any(alias in _without_hops(owner, known, alias) for alias in aliases):
            return True
    return any(
        _ALWAYS_DOTTED.fullmatch(bare) is not None or _is_offset_syncs(bare)
        for bare in _without_hops(name, known, "mm2-")
    )


def _without_hops(name: str, separators: Collection[str], head: str) -> Iterator[str]:
    """Yield each possible name without hops that begins with ``head``: one for every place at which a hop may end."""
    for start in re.finditer(re.escape(head), name):
        before = name[: start.start()]
        if not before or not before[-1].isalnum() or before.endswith(tuple(separators)):
            yield name[start.start() :]


def _is_offset_syncs(bare: str) -> bool:
    """``mm2-offset-syncs`` S alias S ``internal``, whatever the separator S is."""
    if not bare.startswith(_OFFSET_SYNCS) or not bare.endswith("internal"):
        return False
    middle = bare[len(_OFFSET_SYNCS) : -len("internal")]
    longest = (len(middle) - 1) // 2
    return any(middle.startswith(middle[-length:]) for length in range(1, longest + 1))


_LITERAL = re.compile(r"(?:[A-Za-z0-9_-]|\\[.])*")
_MAKES_OPTIONAL = "*?{"
_BEYOND_ITS_ENTRY = "(?"
"""A list is one pattern, joined by ``|``: ``(?i)`` in the first entry changes what the other entries mean."""


def pairs_in_turns(
    policies: Mapping[Flow, ReplicationPolicy], topics: Mapping[Flow, Sequence[str]], standby: Collection[Flow]
) -> dict[Flow, Flow]:
    """Return the flows of which only one of two is on at any time, each with the flow back.

    They would be a ring: both keep names, and may have topics in common. One of them at least is standby. A flow that
    renames is in no such pair: the flow back would have to give the topics their old names.

    Args:
        policies, topics: see ``rings``.
        standby: the flows that are standby by the file.
    """
    backs = {flow: Flow(flow.target, flow.source) for flow in policies}
    return {
        flow: back
        for flow, back in backs.items()
        if back in policies
        and (flow in standby or back in standby)
        and policies[flow].keeps_names
        and policies[back].keeps_names
        and not (policies[flow].renames or policies[back].renames)
        and not _have_no_topic_in_common(flow, back, policies, topics)
    }


def rings(
    policies: Mapping[Flow, ReplicationPolicy],
    topics: Mapping[Flow, Sequence[str]],
    in_turns: Mapping[Flow, Flow] = MappingProxyType({}),
) -> dict[Flow, list[ClusterAlias]]:
    """Return the flows that are part of a ring.

    A ring is cut at a cluster that it enters and leaves under the default policy with one separator: the second flow
    sees in the name where the topic has been. It is also cut between two identity flows whose ``topics`` have no name
    in common. ``topics.exclude`` does not count.

    Args:
        policies: the policy of each enabled flow.
        topics: the ``topics`` list of each.
        in_turns: see ``pairs_in_turns``: what one of two brings, the other does not take back.
    Returns:
        For each such flow the clusters of one way back, from its target to its source.
    """
    following = {
        flow: [
            after
            for after in policies
            if flow.target == after.source
            and in_turns.get(flow) != after
            and not sees_hops(policies[flow], policies[after])
            and not _have_no_topic_in_common(flow, after, policies, topics)
        ]
        for flow in policies
    }
    ways = {flow: _shortest_way_back(flow, following) for flow in policies}
    return {flow: way for flow, way in sorted(ways.items()) if way}


def _shortest_way_back(start: Flow, following: Mapping[Flow, Sequence[Flow]]) -> list[ClusterAlias]:
    """Return the clusters from the target of a flow back to its source; nothing if there is no way."""
    ways = [[start]]
    seen: set[Flow] = set()
    for way in ways:
        for after in following[way[-1]]:
            if after == start:
                return [flow.target for flow in way]
            if after not in seen:
                seen.add(after)
                ways.append([*way, after])
    return []


def sees_hops(entering: ReplicationPolicy, leaving: ReplicationPolicy) -> bool:
    """Return whether the flow that leaves a cluster sees in a name where the flow that enters it comes from."""
    return not (entering.keeps_names or leaving.keeps_names) and entering.separator == leaving.separator


def _have_no_topic_in_common(
    flow: Flow, after: Flow, policies: Mapping[Flow, ReplicationPolicy], topics: Mapping[Flow, Sequence[str]]
) -> bool:
    """Return True only if both keep names, and certainly no name that ``flow`` makes matches a pattern of ``after``."""
    if not all(policies[each].keeps_names for each in (flow, after)):
        return False
    made = (*topics[flow], *policies[flow].made_names)
    if any(_BEYOND_ITS_ENTRY in pattern for pattern in (*made, *topics[after])):
        return False
    return not any(_may_meet(one, other) for one in made for other in topics[after])


def _may_meet(one: str, other: str) -> bool:
    (prefix, exact), (other_prefix, other_exact) = _literal_beginning(one), _literal_beginning(other)
    if exact and other_exact:
        return prefix == other_prefix
    if exact:
        return prefix.startswith(other_prefix)
    if other_exact:
        return other_prefix.startswith(prefix)
    return prefix.startswith(other_prefix) or other_prefix.startswith(prefix)


def _literal_beginning(pattern: str) -> tuple[str, bool]:
    """Return the text with which every match begins, and whether it is the whole match; if in doubt, a shorter text."""
    if "|" in pattern:
        return "", False
    match = _LITERAL.match(pattern)
    literal = match.group() if match is not None else ""
    exact = len(literal) == len(pattern)
    text = literal.replace("\\.", ".")
    if not exact and pattern[len(literal)] in _MAKES_OPTIONAL:
        text = text[:-1]
    return text, exact

"""The replication policy: the rule between upstream topic names and remote topic names, both ways.

Answers to MM2's ReplicationPolicy, DefaultReplicationPolicy and IdentityReplicationPolicy, to the letter; what they do
with odd names (a trailing separator, a name that merely ends in ``heartbeats``) is kept, because the two sides of a
flow, and MM2's own tools, must agree on every name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Protocol

from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, TopicName

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

    def format_remote_topic(self, source_alias: ClusterAlias, topic: TopicName) -> TopicName:
        """Return what a topic of the source cluster is called on the target."""
        ...

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        """Return the cluster a topic was copied from last, None for a topic that is at home where it is."""
        ...

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        """Return what the topic is called on ``topic_source``, None when it has none."""
        ...

    def original_topic(self, topic: TopicName) -> TopicName:
        """Return the name without any hop."""
        ...

    def heartbeats_topic(self) -> TopicName: ...

    def offset_syncs_topic(self, cluster_alias: ClusterAlias) -> TopicName:
        """Return the offset-syncs topic that lies on one cluster and names the other one, ``cluster_alias``."""
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

    MM2 takes every name that ends with ``heartbeats`` for one of them, ``foo-heartbeats`` too, and so does this.
    Source: IdentityReplicationPolicy, Apache Kafka, connect/mirror-client.
    """

    source_alias: ClusterAlias | None = None

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
        source_alias: the flow's source cluster; identity cannot tell from a name where a topic comes from.
        separator: as configured, None when the setting is absent.
        internal_separator_enabled: as configured, None when the setting is absent, which means yes.
    Raises:
        ConfigError: the class is unknown, the names that would result are no topic names, or they could not be taken
            apart again.
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
    if isinstance(policy, IdentityReplicationPolicy):
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

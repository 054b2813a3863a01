"""Which checkpoint of a group is emitted, and under which topic name. Pure.

Counterpart: MM2's MirrorCheckpointTask.
"""

from __future__ import annotations

from collections.abc import Iterable

from mm2py.flow import Flow, TopicName
from mm2py.topics.names import ReplicationPolicy
from mm2py.topics.renaming import RenamingPolicy


def is_more_recent(last: tuple[int, int] | None, new: tuple[int, int], *, is_exact: bool = False) -> bool:
    """Return whether a checkpoint is emitted after the last one of the same group and partition.

    The downstream offset goes back only if the group itself went back, or if the ledger says so. A translation that
    became less exact, because the store dropped syncs, is not emitted. One that became more exact is higher, and is
    emitted.

    Args:
        last: upstream and downstream offset of the checkpoint that was emitted last, None if there is none.
        new: the same for the checkpoint that could be emitted now.
        is_exact: the new translation is exact. The story of a lower one: the remote topic lost its end, or was deleted,
            and was copied again. By MM2's rule the group would keep its old checkpoint, and skip records.
    Source: MirrorCheckpointTask.checkpointIsMoreRecent, Apache Kafka, connect/mirror.
    """
    if last is None:
        return True
    (last_upstream, last_downstream), (upstream, downstream) = last, new
    return upstream < last_upstream or downstream > last_downstream or (is_exact and downstream < last_downstream)


def remote_topic_of(topic: TopicName, policy: ReplicationPolicy, flow: Flow) -> TopicName:
    """Return the topic of the target cluster in which a group continues that read ``topic`` on the source cluster.

    It is the remote topic. If the flow's target is where ``topic`` was copied from, it is the original topic there:
    a group that read ``B.orders`` on A reads ``orders`` on B.
    Source: MirrorCheckpointTask.renameTopicPartition, Apache Kafka, connect/mirror.
    """
    if policy.topic_source(topic) == flow.target:
        return policy.original_topic(topic)
    return policy.format_remote_topic(flow.source, topic)


def upstream_topic_of(
    remote: TopicName, policy: ReplicationPolicy, flow: Flow, known: Iterable[str]
) -> TopicName | None:
    """Return the topic of the source cluster for which ``remote_topic_of`` returns ``remote``; None: there is none.

    Args:
        known: topics of the source that are or were copied. Only they tell if rules have given topics other names.
    """
    own = policy.upstream_topic(remote) if policy.topic_source(remote) == flow.source else None
    if isinstance(policy, RenamingPolicy):
        own = policy.upstream_among(remote, known)
        if policy.keeps_names:
            return own
    for topic in (own, policy.format_remote_topic(flow.target, remote)):
        if topic is not None and remote_topic_of(topic, policy, flow) == remote:
            return topic
    return None

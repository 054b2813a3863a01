"""Which clusters a topic came through, according to its name. Pure."""

from __future__ import annotations

from mm2py.flow import TopicName
from mm2py.topics.names import ReplicationPolicy


def replication_hops(topic: str, upstream_alias: str, policy: ReplicationPolicy) -> int | None:
    """Return the number of flows between a cluster and this topic; None if the topic did not come from there.

    Source: MirrorClient.countHopsForTopic, Apache Kafka, connect/mirror-client.
    """
    sources = source_clusters(topic, policy)
    return sources.index(upstream_alias) + 1 if upstream_alias in sources else None


def source_clusters(topic: str, policy: ReplicationPolicy) -> list[str]:
    """Return the clusters that a topic came through, the nearest first. The list ends before a cluster would repeat.

    Under the identity policy a name does not change with a hop, so its only cluster would repeat without end.
    Source: MirrorClient.allSources, Apache Kafka, connect/mirror-client.
    """
    found: list[str] = []
    name: TopicName | None = TopicName(topic)
    while name is not None:
        source = policy.topic_source(name)
        if source is None or source in found:
            break
        found.append(source)
        name = policy.upstream_topic(name)
    return found

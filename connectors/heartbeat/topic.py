"""The topic ``heartbeats`` on a pair's target: found, or made as MirrorMaker 2 makes it; one that is there is left.

Answers to MirrorUtils.createSinglePartitionCompactedTopic of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import HeartbeatSettings
from mm2py.kafka import internal_topic
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.topics.internal import InternalTopic
from mm2py.topics.replication_policy import HEARTBEATS

PARTITION: Final = 0


async def find_or_make(settings: HeartbeatSettings, brokers: Brokers, log: FilteringBoundLogger) -> BrokerId:
    """Return who leads the partition that heartbeats are written to, making the topic where there is none.

    Raises:
        BrokerRefused: it cannot be made, or it has no leader yet: ask again. The error names what is missing.
        BrokerUnreachable, RequestTimedOut, ...: as ``Brokers.send``.
    """
    found = await internal_topic.find_or_make(
        brokers,
        InternalTopic(HEARTBEATS, 1),
        settings.replication_factor,
        setting="heartbeats.topic.replication.factor",
        made=lambda: log.info("heartbeats.topic_created", cluster=settings.flow.target),
    )
    leader = found.partitions[PARTITION].leader
    assert leader is not None  # noqa: S101  (find_or_make sees to it)
    return leader

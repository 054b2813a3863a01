"""The topic ``heartbeats`` on a pair's target: found, or made as MirrorMaker 2 makes it; one that is there is left.

Answers to MirrorUtils.createSinglePartitionCompactedTopic of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import HeartbeatSettings
from mm2py.kafka import admin
from mm2py.kafka.admin import NewTopic
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.kafka.retry import Reaction, reaction_to
from mm2py.topics.internal import COMPACT
from mm2py.topics.replication_policy import HEARTBEATS

PARTITION: Final = 0


async def find_or_make(settings: HeartbeatSettings, brokers: Brokers, log: FilteringBoundLogger) -> BrokerId:
    """Return who leads the partition that heartbeats are written to, making the topic where there is none.

    Raises:
        BrokerRefused: it cannot be made, or it has no leader yet: ask again. The error names what is missing.
        BrokerUnreachable, RequestTimedOut, ...: as ``Brokers.send``.
    """
    topic = (await fetch_metadata(brokers, [HEARTBEATS])).topics.get(HEARTBEATS)
    if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        if await _make(settings, brokers):
            log.info("heartbeats.topic_created", cluster=settings.flow.target)
        raise BrokerRefused(f"Waiting for {HEARTBEATS}", LEADER_NOT_AVAILABLE)
    part = topic.partitions.get(PARTITION)
    if topic.error_code or part is None or part.leader is None:
        code = topic.error_code or (part.error_code if part is not None else 0) or LEADER_NOT_AVAILABLE
        raise BrokerRefused(
            f"Finding the leader of {HEARTBEATS} on {settings.flow.target}",
            code,
            remedy=_rights(settings) if reaction_to(code) is Reaction.DENIED else "",
        )
    return part.leader


async def _make(settings: HeartbeatSettings, brokers: Brokers) -> bool:
    """Return whether it was made; False if somebody was faster."""
    new = NewTopic(HEARTBEATS, partitions=1, replication_factor=settings.replication_factor, configs=COMPACT)
    refusal = (await admin.create_topics(brokers, [new]))[HEARTBEATS]
    if refusal is None or refusal.code == TOPIC_ALREADY_EXISTS:
        return refusal is None
    if refusal.retriable:
        raise refusal
    by_hand = f"create it on {settings.flow.target} by hand, with one partition and cleanup.policy=compact."
    if refusal.reaction is Reaction.DENIED:
        remedy = f"Grant mm2py CREATE on topic {HEARTBEATS}, or {by_hand}"
    else:
        remedy = f"Set heartbeats.topic.replication.factor to what {settings.flow.target} can hold, or {by_hand}"
    raise BrokerRefused(refusal.what.removesuffix("."), refusal.code, remedy=remedy)


def _rights(settings: HeartbeatSettings) -> str:
    return f"Grant mm2py DESCRIBE and WRITE on topic {HEARTBEATS} of {settings.flow.target}."

"""The topics that a flow makes for itself if they are missing: names, partitions and replicas by its settings. Pure.

``mm2py/topics/names.py`` has their names and configurations. The control log of a group is in
``mm2py/group/control_topic.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from mm2py.config import keys
from mm2py.config.settings import CheckpointSettings, FlowSettings, HeartbeatSettings, OffsetSyncSettings
from mm2py.flow import TopicName
from mm2py.topics.names import HEARTBEATS, InternalTopic, fence_topic, flight_topic, history_topic, ledger_topic


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """One of these topics."""

    topic: InternalTopic
    replication_factor: int
    """-1: the cluster decides. See ``AtMost``."""
    setting: str
    """The setting for it."""
    on_source: bool = False
    is_table: bool = False
    """It keeps the newest record of each key: with another cleanup.policy the flow does not use it."""


def positions_topic(settings: FlowSettings) -> WantedTopic:
    """Return where the flow keeps its positions."""
    topic = InternalTopic(TopicName(settings.offsets_topic), settings.offsets_topic_partitions)
    setting = keys.OFFSETS_REPLICATION_FACTOR.name
    return WantedTopic(topic, settings.offsets_topic_replication_factor, setting, is_table=True)


def ledgers_topic(settings: FlowSettings) -> WantedTopic:
    """Return where it keeps the ledger of offsets."""
    topic = InternalTopic(ledger_topic(settings.flow.source), settings.offsets_topic_partitions)
    setting = keys.OFFSETS_REPLICATION_FACTOR.name
    return WantedTopic(topic, settings.offsets_topic_replication_factor, setting, is_table=True)


def gaps_topic(settings: FlowSettings) -> WantedTopic:
    """Return where it keeps gaps, and what operators decide about them."""
    topic = InternalTopic(TopicName(settings.status_topic), settings.status_topic_partitions)
    setting = keys.STATUS_REPLICATION_FACTOR.name
    return WantedTopic(topic, settings.status_topic_replication_factor, setting, is_table=True)


def recorder_topic(settings: FlowSettings) -> WantedTopic:
    """Return where workers record what they decide."""
    topic, setting = flight_topic(settings.flow.source), keys.STATUS_REPLICATION_FACTOR.name
    return WantedTopic(topic, settings.status_topic_replication_factor, setting)


def numbers_topic(settings: FlowSettings) -> WantedTopic:
    """Return where the REST process of its coordinator keeps its history."""
    topic, setting = history_topic(settings.flow.source), keys.STATUS_REPLICATION_FACTOR.name
    return WantedTopic(topic, settings.status_topic_replication_factor, setting)


def settings_topic(settings: FlowSettings) -> WantedTopic:
    """Return where it keeps the settings that its workers share."""
    topic = InternalTopic(TopicName(settings.configs_topic), 1)
    setting = keys.CONFIGS_REPLICATION_FACTOR.name
    return WantedTopic(topic, settings.configs_topic_replication_factor, setting, is_table=True)


def fences_topic(settings: FlowSettings) -> WantedTopic:
    """Return the topic that keeps transactional ids alive."""
    return WantedTopic(fence_topic(), settings.offsets_topic_replication_factor, keys.OFFSETS_REPLICATION_FACTOR.name)


def syncs_topic(settings: OffsetSyncSettings) -> WantedTopic:
    """Return where it writes offset syncs."""
    topic = InternalTopic(TopicName(settings.topic), 1)
    setting = keys.OFFSET_SYNCS_REPLICATION_FACTOR.name
    return WantedTopic(topic, settings.replication_factor, setting, on_source=settings.on_source)


def checkpoints_topic(settings: CheckpointSettings) -> WantedTopic:
    """Return where it emits checkpoints."""
    topic = InternalTopic(TopicName(settings.topic), 1)
    return WantedTopic(topic, settings.replication_factor, keys.CHECKPOINTS_REPLICATION_FACTOR.name)


def heartbeats_topic(settings: HeartbeatSettings) -> WantedTopic:
    """Return where heartbeats of a pair are emitted; it is made even if none are."""
    topic = InternalTopic(HEARTBEATS, 1)
    return WantedTopic(topic, settings.replication_factor, keys.HEARTBEATS_REPLICATION_FACTOR.name)


def topics_of_flow(settings: FlowSettings) -> list[WantedTopic]:
    """Return the topics that a flow makes when it starts. The quarantine is made with its first record, the history
    by the REST process of its coordinator, and the topic that keeps transactional ids alive an hour later."""
    found = [
        settings_topic(settings),
        positions_topic(settings),
        ledgers_topic(settings),
        gaps_topic(settings),
        recorder_topic(settings),
    ]
    if settings.offset_syncs is not None:
        found.append(syncs_topic(settings.offset_syncs))
    if settings.checkpoints is not None:
        found.append(checkpoints_topic(settings.checkpoints))
    return found

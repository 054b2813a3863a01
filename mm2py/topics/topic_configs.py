"""The settings of a remote topic, chosen from those of its upstream topic.

Answers to ``targetConfig`` of MM2's MirrorSourceConnector.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from mm2py.topics.filters import ConfigPropertyFilter


class ConfigSource(IntEnum):
    """Where a broker has a topic setting from, by the codes of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class TopicConfigEntry:
    """One setting of a topic, as DescribeConfigs answers; ``value`` is None when it is secret."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT


def remote_topic_configs(entries: Iterable[TopicConfigEntry], config_filter: ConfigPropertyFilter) -> dict[str, str]:
    """Return the settings with which a remote topic is created, from those of its upstream topic.

    Left out are what the filter excludes, what cannot be set or read, what the source's brokers have in their own file,
    and defaults, unless the filter asks for the source's. A broker-wide setting changed at run time does travel.
    Raises:
        PatternTooSlow: the filter found no answer in time.
    Source: MirrorSourceConnector.targetConfig, Apache Kafka, connect/mirror.
    """
    return {
        entry.name: entry.value
        for entry in entries
        if entry.value is not None
        and not entry.read_only
        and not entry.sensitive
        and entry.source != ConfigSource.STATIC_BROKER
        and (not entry.is_default or config_filter.replicates_source_defaults)
        and config_filter.should_replicate(entry.name)
    }

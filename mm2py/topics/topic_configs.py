"""The settings of a remote topic, chosen from those of its upstream topic: when it is created, and after each change.

Counterpart: ``targetConfig`` of MM2's MirrorSourceConnector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from mm2py.topics.filters import PatternList

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
TELLING_THE_COPIER: Final = frozenset({"cleanup.policy", "compression.type", MAX_MESSAGE_BYTES})
"""Settings of a remote topic that decide how batches are written to it."""

FENCE_MESSAGE_BYTES: Final = 1
"""The limit that a fence of producers sets (``mm2py/dr/fence``): no batch is so small. So a topic that has it is
fenced, and the limit stays where it is: syncing it would fence the copy, or lift the fence of a topic that is one."""

CONFIG_PROPERTIES_EXCLUDE_KEY = "config.properties.exclude"
DEFAULT_CONFIG_PROPERTIES_EXCLUDE = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)
"""As in Kafka 4.3. Two name broker settings: on a topic they lack the ``log.``, so they exclude nothing."""
TIMESTAMP_LIMITS: Final = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
"""How far the timestamp of a record may be from the time at which a broker accepts it."""
TIMESTAMP_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
"""The one limit for both before Kafka 3.6. Until 3.9 it overrides the other two, if it is set."""
NO_LIMIT: Final = 2**63 - 1
DEFAULT_USE_DEFAULTS_FROM = "target"


class ConfigPropertyFilter:
    """Which settings of a topic its remote topic gets, and whether the source cluster's defaults are among them."""

    def __init__(
        self,
        exclude: Sequence[str] = DEFAULT_CONFIG_PROPERTIES_EXCLUDE,
        use_defaults_from: str = DEFAULT_USE_DEFAULTS_FROM,
    ) -> None:
        self._exclude = PatternList(CONFIG_PROPERTIES_EXCLUDE_KEY, exclude)
        self.replicates_source_defaults = use_defaults_from == "source"  # anything else means the target's, as in MM2

    def should_replicate(self, name: str) -> bool:
        """Raises: PatternTooSlow."""
        return not self._exclude.matches(name)


class ConfigSource(IntEnum):
    """Where a broker takes a topic setting from, by the codes of DescribeConfigs."""

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
    and defaults, unless the filter asks for the source's. A broker-wide setting that was changed at run time is copied.
    Limits of timestamps are compared with the remote topic's own once it exists (``looser_timestamp_limits``).
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
        and not limits_timestamps(entry.name)
        and not _is_fence(entry)
        and config_filter.should_replicate(entry.name)
    }


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One setting of a remote topic that is to change; ``new`` None resets it to the target's default."""

    name: str
    old: str | None
    """The remote topic's own value; None: it has the target's default."""
    new: str | None

    def __str__(self) -> str:
        return f"{self.name}: {_shown(self.old)} -> {_shown(self.new)}"


def carried_names(
    source: Iterable[TopicConfigEntry], remote: Iterable[TopicConfigEntry], before: frozenset[str]
) -> frozenset[str]:
    """Return which settings the source is known to have set for a topic, from those known ``before`` and those of now.

    A setting that the source has reset stays among them until the remote topic has no value of its own for it any more.
    """
    own = {entry.name for entry in remote if entry.source == ConfigSource.DYNAMIC_TOPIC}
    set_now = {entry.name for entry in source if entry.source not in {ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT}}
    return frozenset(set_now | (before & own))


def config_changes(
    source: Sequence[TopicConfigEntry],
    remote: Sequence[TopicConfigEntry],
    config_filter: ConfigPropertyFilter,
    *,
    carried: frozenset[str] = frozenset(),
) -> list[ConfigChange]:
    """Return what has to change so that a remote topic has the settings of its upstream topic, by name.

    MM2 sets every setting and deletes every default each time. Here the same end is reached with the differences only.
    A setting needs no change if the remote topic has it *of its own*, with that value. If it only equals the target's
    default by chance, it is set, because that default may change.

    A setting that the source's brokers have in their own file says nothing about the topic, as in MM2, unless the topic
    had it of its own before (``carried``): then it was reset on the source, and is reset here. MM2 leaves it. Limits of
    timestamps are only ever raised (``looser_timestamp_limits``).
    Args:
        source, remote: all settings of both topics, defaults included, as DescribeConfigs answers.
        carried: names that the source is known to have set for the topic, by ``carried_names``.
    Raises:
        PatternTooSlow: the filter found no answer in time.
    Source: MirrorSourceConnector.targetConfig, incrementalAlterConfigs, Apache Kafka, connect/mirror.
    """
    own = {entry.name: entry.value for entry in remote if entry.source == ConfigSource.DYNAMIC_TOPIC}
    is_fenced = any(map(_is_fence, remote))
    changes = looser_timestamp_limits(source, remote, config_filter)
    for entry in source:
        from_file = entry.source == ConfigSource.STATIC_BROKER
        if limits_timestamps(entry.name) or _is_fence(entry) or (entry.name == MAX_MESSAGE_BYTES and is_fenced):
            continue
        if entry.read_only or entry.sensitive or (from_file and entry.name not in carried):
            continue
        if from_file or (entry.is_default and not config_filter.replicates_source_defaults):
            if entry.name in own and config_filter.should_replicate(entry.name):
                changes.append(ConfigChange(entry.name, own[entry.name], None))
        elif entry.value not in {None, own.get(entry.name)} and config_filter.should_replicate(entry.name):
            changes.append(ConfigChange(entry.name, own.get(entry.name), entry.value))
    return sorted(changes, key=lambda change: change.name)


def looser_timestamp_limits(
    source: Iterable[TopicConfigEntry], remote: Iterable[TopicConfigEntry], config_filter: ConfigPropertyFilter
) -> list[ConfigChange]:
    """Return the limits to raise so that a remote topic accepts every timestamp that its upstream topic accepts.

    What counts is the value in effect for each topic, its cluster's default included. A limit is never lowered: records
    that the source accepted in time are older when they are copied. ``config.properties.exclude`` applies by the two
    names of ``TIMESTAMP_LIMITS``: MM2's own list has the older name, which it does not mean for a copy that needs it.
    Args:
        source, remote: all settings of both topics, defaults included, as DescribeConfigs answers.
    Raises:
        PatternTooSlow: the filter found no answer in time.
    """
    upstream = _limits({entry.name: entry.value for entry in source})
    wanted = {name: limit for name, limit in upstream.items() if config_filter.should_replicate(name)}
    if wanted:
        wanted[TIMESTAMP_DIFFERENCE] = max(wanted.values())
    return [
        ConfigChange(entry.name, entry.value if entry.source == ConfigSource.DYNAMIC_TOPIC else None, str(limit))
        for entry in remote
        if (limit := wanted.get(entry.name)) is not None
        and entry.value is not None
        and _milliseconds(entry.value) < limit
    ]


def _limits(values: Mapping[str, str | None]) -> dict[str, int]:
    """Return the limits in effect for a topic with these settings, in ms, as far as its brokers report them."""
    told = {name: _milliseconds(value) for name in TIMESTAMP_LIMITS if (value := values.get(name)) is not None}
    difference = values.get(TIMESTAMP_DIFFERENCE)
    if difference is None or (told and _milliseconds(difference) == NO_LIMIT):
        return told
    return dict.fromkeys(TIMESTAMP_LIMITS, _milliseconds(difference))


def _milliseconds(value: str) -> int:
    """Return a limit, in ms. A value that is no number is no reason to raise another limit: it counts as 0."""
    return min(int(value), NO_LIMIT) if value.isdecimal() and len(value) < 20 else 0


def _is_fence(entry: TopicConfigEntry) -> bool:
    """Whether a setting is the fence of a topic's producers."""
    return (
        entry.name == MAX_MESSAGE_BYTES
        and entry.value == str(FENCE_MESSAGE_BYTES)
        and entry.source == ConfigSource.DYNAMIC_TOPIC
    )


def limits_timestamps(name: str) -> bool:
    """Whether a setting of a topic is one of the limits that are only ever raised."""
    return name in TIMESTAMP_LIMITS or name == TIMESTAMP_DIFFERENCE


def too_many_in_sync(name: str, value: str | None, replicas: int | None) -> str | None:
    """Return why a setting must not be given to a topic with this many replicas (None or -1: unknown), or None.

    Brokers accept a min.insync.replicas that can never be reached, and then refuse every record.
    """
    if name != MIN_INSYNC_REPLICAS or value is None or replicas is None or replicas < 1:
        return None
    if not value.isdecimal() or int(value) <= replicas:
        return None
    return f"the remote topic has {replicas} replica(s): with {name}={value} no record could be written to it"


class Tried:
    """What to send to the target, round by round, for topics of which some settings may be refused. Pure.

    Brokers refuse all settings of a topic for a single bad one, and their message need not say which. So each topic's
    changes go first together; those of a refused topic then one by one, in the order of their names.
    """

    def __init__(self, changes: Mapping[str, Sequence[ConfigChange]]) -> None:
        self.done: dict[str, list[ConfigChange]] = {}
        self.refused: dict[str, list[tuple[ConfigChange, str]]] = {}
        self._left = {topic: [list(wanted)] for topic, wanted in changes.items() if wanted}

    def next_round(self) -> dict[str, list[ConfigChange]]:
        """Return the next changes of each topic, at most one group a topic; empty when nothing is left."""
        return {topic: groups[0] for topic, groups in self._left.items() if groups}

    def taken(self, topic: str) -> None:
        """Note that the target accepted the topic's group of this round."""
        self.done.setdefault(topic, []).extend(self._left[topic].pop(0))

    def turned_down(self, topic: str, why: str) -> None:
        """Note that the target refused the topic's group of this round because of its content."""
        group = self._left[topic].pop(0)
        if len(group) == 1:
            self.refused.setdefault(topic, []).append((group[0], why))
        else:
            self._left[topic] = [[change] for change in group]

    def give_up(self, topic: str) -> None:
        """Send nothing more for this topic: no other value would help."""
        self._left.pop(topic, None)


def _shown(value: str | None) -> str:
    return "(the target's default)" if value is None else repr(value) if value == "" else value

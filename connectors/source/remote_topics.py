"""Makes the remote topics of a flow: created with the source's partitions and configuration, widened when it grows.

Answers to MirrorSourceConnector.createTopicPartitions of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from connectors.source.refusals import NotPermitted, RemoteTopicTooNarrow, TopicRefused
from mm2py.config.settings import FlowSettings
from mm2py.kafka import admin
from mm2py.kafka.admin import ConfigEntry, NewTopic
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import Reaction, reaction_to
from mm2py.topics.topic_configs import TopicConfigEntry, remote_topic_configs

_UNKNOWN_TOPIC: Final = 3
_ALREADY_EXISTS: Final = 36
_INVALID_PARTITIONS: Final = 37
_INVALID_REPLICATION_FACTOR: Final = 38
CHUNK: Final = 200
"""Topics in one admin request: a cluster of ten thousand is described in pages."""


@dataclass(frozen=True, slots=True)
class RemoteTopics:
    """What a round found and made. Topics in neither map wait for the next round: the target was not ready."""

    ready: Mapping[str, TopicMetadata]
    """Remote metadata of each source topic that can be copied; it may have fewer partitions, see ``too_narrow``."""
    refused: Mapping[str, TopicRefused]
    too_narrow: Mapping[str, RemoteTopicTooNarrow]
    created: Sequence[str]
    widened: Sequence[str]


async def ensure(
    settings: FlowSettings, source: Brokers, target: Brokers, topics: Mapping[str, tuple[str, TopicMetadata]]
) -> RemoteTopics:
    """See to it that every remote topic exists and is wide enough.

    Args:
        topics: for each source topic its remote topic's name and its own metadata.
    Raises: as ``Brokers.send``; the next round takes up what was left.
    """
    refused: dict[str, TopicRefused] = {}
    too_narrow: dict[str, RemoteTopicTooNarrow] = {}
    remotes = await _describe(target, [remote for remote, _ in topics.values()])
    missing = [name for name, (remote, _) in topics.items() if _is_missing(remotes.get(remote))]
    created, there = await _create(settings, source, target, {name: topics[name] for name in missing}, refused)
    widened = await _widen(target, topics, remotes, too_narrow)
    if created or there or widened:
        again = [topics[name][0] for name in [*created, *there, *widened]]
        remotes |= await _describe(target, again)
    ready: dict[str, TopicMetadata] = {}
    for name, (remote, _) in topics.items():
        found = remotes.get(remote)
        if name in refused or found is None or _is_missing(found):
            continue
        if found.error_code == 0:
            ready[name] = found
        elif reaction_to(found.error_code) is Reaction.DENIED:
            refused[name] = NotPermitted(
                settings.flow,
                name,
                f"mm2py may not see {remote} on {settings.target.alias}.",
                f"Grant DESCRIBE on {remote}.",
            )
    return RemoteTopics(ready, refused, too_narrow, created, widened)


async def _describe(target: Brokers, names: Sequence[str]) -> dict[str, TopicMetadata]:
    found: dict[str, TopicMetadata] = {}
    for at in range(0, len(names), CHUNK):
        found.update((await fetch_metadata(target, names[at : at + CHUNK])).topics)
    return found


def _is_missing(topic: TopicMetadata | None) -> bool:
    return topic is None or topic.error_code == _UNKNOWN_TOPIC


async def _create(
    settings: FlowSettings,
    source: Brokers,
    target: Brokers,
    topics: Mapping[str, tuple[str, TopicMetadata]],
    refused: dict[str, TopicRefused],
) -> tuple[list[str], list[str]]:
    """Return the topics whose remote topics were made, and those whose remote topics turned out to be there."""
    created: list[str] = []
    there: list[str] = []
    names = list(topics)
    for at in range(0, len(names), CHUNK):
        page = names[at : at + CHUNK]
        configs = await admin.describe_topic_configs(source, page)
        wanted: dict[str, NewTopic] = {}
        for name in page:
            found = configs.get(name)
            if found is None or isinstance(found, BrokerRefused):
                if found is not None and reaction_to(found.code) is Reaction.DENIED:
                    refused[name] = NotPermitted(settings.flow, name, str(found), f"Grant DESCRIBE_CONFIGS on {name}.")
                continue
            remote, upstream = topics[name]
            wanted[remote] = NewTopic(
                remote, len(upstream.partitions), settings.replication_factor, _configs(settings, found)
            )
        origin = {topics[name][0]: name for name in page}
        answers = await admin.create_topics(target, wanted.values()) if wanted else {}
        for remote, refusal in answers.items():
            name = origin[remote]
            if refusal is None:
                created.append(name)
            elif refusal.code == _ALREADY_EXISTS:  # made a round ago, and not in the metadata yet
                there.append(name)
            elif reaction_to(refusal.code) in {Reaction.DENIED, Reaction.FAIL}:
                remedy = f"Grant CREATE on {remote} on {settings.target.alias}, or create it by hand."
                if reaction_to(refusal.code) is Reaction.FAIL:
                    remedy = f"Correct the cause, or create {remote} on {settings.target.alias} by hand."
                if refusal.code == _INVALID_REPLICATION_FACTOR:
                    remedy = f"Set replication.factor to what {settings.target.alias} can hold."
                refused[name] = NotPermitted(settings.flow, name, str(refusal), remedy)
    return created, there


def _configs(settings: FlowSettings, entries: Sequence[ConfigEntry]) -> dict[str, str]:
    return remote_topic_configs(
        (
            TopicConfigEntry(entry.name, entry.value, entry.source, entry.read_only, entry.sensitive)
            for entry in entries
        ),
        settings.config_filter,
    )


async def _widen(
    target: Brokers,
    topics: Mapping[str, tuple[str, TopicMetadata]],
    remotes: Mapping[str, TopicMetadata],
    too_narrow: dict[str, RemoteTopicTooNarrow],
) -> list[str]:
    """Add partitions where the source has more; never fewer, and never hashed into fewer."""
    narrow = {
        remote: (name, len(upstream.partitions))
        for name, (remote, upstream) in topics.items()
        if remote in remotes
        and remotes[remote].error_code == 0
        and len(remotes[remote].partitions) < len(upstream.partitions)
    }
    if not narrow:
        return []
    widened: list[str] = []
    answers = await admin.create_partitions(target, {remote: count for remote, (_, count) in narrow.items()})
    for remote, refusal in answers.items():
        name, count = narrow[remote]
        if refusal is None or refusal.code == _INVALID_PARTITIONS:
            widened.append(name)
        elif reaction_to(refusal.code) in {Reaction.DENIED, Reaction.FAIL}:
            too_narrow[name] = RemoteTopicTooNarrow(
                remote,
                upstream_partitions=count,
                remote_partitions=len(remotes[remote].partitions),
                why=str(refusal),
            )
    return widened

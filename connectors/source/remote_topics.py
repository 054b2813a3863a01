"""Makes the remote topics of a flow: created with the source's partitions and configuration, widened when it grows.

Answers to MirrorSourceConnector.createTopicPartitions of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from connectors.source.refusals import NotPermitted, RemoteTopicTooNarrow, TooManyPartitions, TopicRefused, Undecided
from mm2py.config.settings import FlowSettings
from mm2py.kafka import admin
from mm2py.kafka.admin import ConfigEntry, NewTopic
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import Reaction, reaction_to
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.topic_configs import TopicConfigEntry, remote_topic_configs, too_many_in_sync

_UNKNOWN_TOPIC: Final = 3
_ALREADY_EXISTS: Final = 36
_INVALID_PARTITIONS: Final = 37
_INVALID_REPLICATION_FACTOR: Final = 38
_REFUSED_CONTENT: Final = frozenset({40, 42, 44})
"""INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION: it may be the settings that the target does not want."""
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
    left_out: Sequence[LeftOut] = ()
    """Settings without which remote topics were created, because the target refuses them."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A setting that a new remote topic does not have, and why."""

    remote: str
    setting: str
    value: str
    why: str


@dataclass(slots=True)
class _Round:
    """What one call of ``ensure`` found so far; ``room`` is how many partitions may still be made."""

    settings: FlowSettings
    source: Brokers
    target: Brokers
    room: int
    refused: dict[str, TopicRefused] = field(default_factory=dict)
    too_narrow: dict[str, RemoteTopicTooNarrow] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def has_room(self, partitions: int) -> bool:
        """Take so many partitions out of what may still be made, if there are so many."""
        if partitions > self.room:
            return False
        self.room -= partitions
        return True


async def ensure(
    settings: FlowSettings,
    source: Brokers,
    target: Brokers,
    topics: Mapping[str, tuple[str, TopicMetadata]],
    *,
    partitions_elsewhere: int = 0,
) -> RemoteTopics:
    """See to it that every remote topic exists and is wide enough.

    Args:
        topics: for each source topic its remote topic's name and its own metadata.
        partitions_elsewhere: how many partitions the flow's other remote topics have; with all that are made here they
            are never more than ``remote.partitions.max``, whatever the source cluster comes up with (S23).
    Raises: as ``Brokers.send``; the next round takes up what was left.
    """
    remotes = await _describe(target, [remote for remote, _ in topics.values()])
    missing = [name for name, (remote, _) in topics.items() if _is_missing(remotes.get(remote))]
    in_place = sum(len(topic.partitions) for topic in remotes.values())
    now = _Round(settings, source, target, settings.remote_partitions_max - partitions_elsewhere - in_place)
    widened = await _widen(now, topics, remotes)
    created, there = await _create(now, {name: topics[name] for name in missing})
    if created or there or widened:
        again = [topics[name][0] for name in [*created, *there, *widened]]
        remotes |= await _describe(target, again)
    ready: dict[str, TopicMetadata] = {}
    for name, (remote, _) in topics.items():
        found = remotes.get(remote)
        if name in now.refused or found is None or _is_missing(found):
            continue
        if found.error_code == 0:
            ready[name] = found
        elif reaction_to(found.error_code) is Reaction.DENIED:
            now.refused[name] = NotPermitted(
                settings.flow,
                name,
                f"mm2py may not see {remote} on {settings.target.alias}.",
                f"Grant DESCRIBE on {remote}.",
            )
    return RemoteTopics(ready, now.refused, now.too_narrow, created, widened, now.left_out)


async def _describe(target: Brokers, names: Sequence[str]) -> dict[str, TopicMetadata]:
    found: dict[str, TopicMetadata] = {}
    for at in range(0, len(names), CHUNK):
        found.update((await fetch_metadata(target, names[at : at + CHUNK])).topics)
    return found


def _is_missing(topic: TopicMetadata | None) -> bool:
    return topic is None or topic.error_code == _UNKNOWN_TOPIC


async def _create(now: _Round, topics: Mapping[str, tuple[str, TopicMetadata]]) -> tuple[list[str], list[str]]:
    """Return the topics whose remote topics were made, and those whose remote topics turned out to be there."""
    settings, refused = now.settings, now.refused
    created: list[str] = []
    there: list[str] = []
    names = sorted(topics)
    for at in range(0, len(names), CHUNK):
        page = names[at : at + CHUNK]
        configs = await admin.describe_topic_configs(now.source, page)
        wanted: dict[str, NewTopic] = {}
        for name in page:
            found = configs.get(name)
            if found is None or isinstance(found, BrokerRefused):
                if found is not None and reaction_to(found.code) is Reaction.DENIED:
                    refused[name] = NotPermitted(settings.flow, name, str(found), f"Grant DESCRIBE_CONFIGS on {name}.")
                continue
            remote, upstream = topics[name]
            count = len(upstream.partitions)
            try:
                chosen = _configs(now, remote, found)
            except PatternTooSlow as error:
                refused[name] = Undecided(settings.flow, name, error)
                continue
            if not now.has_room(count):
                refused[name] = TooManyPartitions(settings.flow, name, count, most=settings.remote_partitions_max)
                continue
            wanted[remote] = NewTopic(remote, count, settings.replication_factor, chosen)
        origin = {topics[name][0]: name for name in page}
        answers = await admin.create_topics(now.target, wanted.values()) if wanted else {}
        unwanted = [
            wanted[remote]
            for remote, refusal in answers.items()
            if refusal is not None and refusal.code in _REFUSED_CONTENT and wanted[remote].configs
        ]
        if unwanted:
            answers |= await _create_with_less(now, unwanted)
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


async def _create_with_less(now: _Round, topics: Sequence[NewTopic]) -> dict[str, BrokerRefused | None]:
    """Create topics without those of their settings that the target refuses; a single one must not keep a topic out.

    Brokers judge a topic's settings together, so each is asked for beside those that passed before it. Nothing is
    created until all that can be had is known: a topic is never there without its settings.
    """
    answers: dict[str, BrokerRefused | None] = {}
    bare = await admin.create_topics(now.target, [replace(one, configs={}) for one in topics], validate_only=True)
    kept: dict[str, dict[str, str]] = {}
    for name, refusal in bare.items():
        if refusal is None:
            kept[name] = {}
        else:
            answers[name] = refusal
    left_out: list[LeftOut] = []
    queues = {topic.name: sorted(topic.configs.items()) for topic in topics if topic.name in kept}
    shapes = {topic.name: topic for topic in topics}
    while any(queues.values()):
        asked = {name: queue.pop(0) for name, queue in queues.items() if queue}
        found = await admin.create_topics(
            now.target,
            [replace(shapes[name], configs={**kept[name], setting: value}) for name, (setting, value) in asked.items()],
            validate_only=True,
        )
        for name, (setting, value) in asked.items():
            refusal = found.get(name)
            if refusal is None:
                kept[name][setting] = value
            else:
                left_out.append(LeftOut(name, setting, value, str(refusal)))
    if kept:
        answers |= await admin.create_topics(
            now.target, [replace(shapes[name], configs=configs) for name, configs in kept.items()]
        )
    now.left_out += [one for one in left_out if answers.get(one.remote) is None]
    return answers


def _configs(now: _Round, remote: str, entries: Sequence[ConfigEntry]) -> dict[str, str]:
    chosen = remote_topic_configs(
        (
            TopicConfigEntry(entry.name, entry.value, entry.source, entry.read_only, entry.sensitive)
            for entry in entries
        ),
        now.settings.config_filter,
    )
    for setting, value in list(chosen.items()):
        why = too_many_in_sync(setting, value, now.settings.replication_factor)
        if why is not None:
            now.left_out.append(LeftOut(remote, setting, chosen.pop(setting), why))
    return chosen


async def _widen(
    now: _Round, topics: Mapping[str, tuple[str, TopicMetadata]], remotes: Mapping[str, TopicMetadata]
) -> list[str]:
    """Add partitions where the source has more; never fewer, and never hashed into fewer."""
    narrow = {
        remote: (name, len(upstream.partitions))
        for name, (remote, upstream) in topics.items()
        if remote in remotes
        and remotes[remote].error_code == 0
        and len(remotes[remote].partitions) < len(upstream.partitions)
    }
    for remote, (name, count) in sorted(narrow.items()):
        has = len(remotes[remote].partitions)
        if not now.has_room(count - has):
            del narrow[remote]
            now.too_narrow[name] = RemoteTopicTooNarrow(
                remote,
                upstream_partitions=count,
                remote_partitions=has,
                why=f"it would take the flow beyond remote.partitions.max={now.settings.remote_partitions_max}.",
                remedy="Raise remote.partitions.max; the others are copied meanwhile.",
            )
    if not narrow:
        return []
    widened: list[str] = []
    answers = await admin.create_partitions(now.target, {remote: count for remote, (_, count) in narrow.items()})
    for remote, refusal in answers.items():
        name, count = narrow[remote]
        if refusal is None or refusal.code == _INVALID_PARTITIONS:
            widened.append(name)
        elif reaction_to(refusal.code) in {Reaction.DENIED, Reaction.FAIL}:
            now.too_narrow[name] = RemoteTopicTooNarrow(
                remote,
                upstream_partitions=count,
                remote_partitions=len(remotes[remote].partitions),
                why=str(refusal),
            )
    return widened

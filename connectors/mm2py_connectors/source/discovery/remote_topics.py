"""Creates and widens the remote topics of a flow, and looks up how to write to them (``RemoteRules``). This module also
notices upstream topics that were deleted or created again.

When an upstream topic is created again under its old name, MM2 continues to copy into the same remote topic. Here
copying stops, and the remote topic is kept.

Counterpart: MirrorSourceConnector.createTopicPartitions of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import FlowSettings
from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.planning.steps import TargetRules
from mm2py.kafka import admin
from mm2py.kafka.admin import ConfigEntry, NewTopic
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import (
    CONTENT_REFUSED,
    INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from mm2py.kafka.errors import BrokerRefused, Reaction, reaction_to
from mm2py.kafka.port import Brokers
from mm2py.records.compression import Codec
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.replicas import replicas_on
from mm2py.topics.topic_configs import (
    MIN_INSYNC_REPLICAS,
    ConfigChange,
    TopicConfigEntry,
    Tried,
    remote_topic_configs,
    too_many_in_sync,
)
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.notices import Notices
from mm2py_connectors.source.refusals import (
    NotPermitted,
    RemoteTopicTooNarrow,
    TooManyPartitions,
    TopicRefused,
    Undecided,
)
from mm2py_connectors.source.timestamp_limits import entries_of, looser_limits_if_decided

KnownDefaults = dict[frozenset[tuple[str, str]], Sequence[TopicConfigEntry]]
"""The settings that the target gives a new topic, with its own defaults, by the settings that were asked for."""
KNOWN_MOST: Final = 1_000
CHUNK: Final = 200
"""Topics in one admin request; more are described in pages."""


@dataclass(frozen=True, slots=True)
class RemoteTopics:
    """What a round found and created. A topic in neither map waits for the next round: the target was not ready."""

    ready: Mapping[str, TopicMetadata]
    """The remote topic of each source topic that can be copied; it may have fewer partitions, see ``too_narrow``."""
    refused: Mapping[str, TopicRefused]
    too_narrow: Mapping[str, RemoteTopicTooNarrow]
    created: Sequence[str]
    widened: Sequence[str]
    left_out: Sequence[SettingLeftOut] = ()
    """Settings that new remote topics lack, because the target refuses them."""


@dataclass(frozen=True, slots=True)
class SettingLeftOut:
    """A setting that a new remote topic does not have, and why."""

    remote: str
    setting: str
    value: str
    why: str


@dataclass(slots=True)
class _Round:
    """What one call of ``ensure`` has found so far; ``room`` is how many partitions may still be created."""

    settings: FlowSettings
    source: Brokers
    target: Brokers
    room: int
    replicas: int
    """How many replicas a new topic gets; -1 leaves that to the target."""
    known: KnownDefaults
    refused: dict[str, TopicRefused] = field(default_factory=dict)
    too_narrow: dict[str, RemoteTopicTooNarrow] = field(default_factory=dict)
    left_out: list[SettingLeftOut] = field(default_factory=list)

    def has_room(self, partitions: int) -> bool:
        """Reserve room for partitions; returns whether there is enough."""
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
    known: KnownDefaults,
    partitions_elsewhere: int = 0,
) -> RemoteTopics:
    """Make sure that every remote topic exists and has enough partitions.

    Args:
        topics: for each source topic its remote topic's name and its own metadata.
        known: what earlier calls have learnt; this one adds to it.
        partitions_elsewhere: how many partitions the flow's other remote topics have. Together with those created here
            there are never more than ``remote.partitions.max``, whatever the source cluster shows.
    Raises: as ``Brokers.send``; the next round continues.
    """
    remotes, brokers = await _describe(target, [remote for remote, _ in topics.values()])
    missing = [name for name, (remote, _) in topics.items() if _is_missing(remotes.get(remote))]
    in_place = sum(len(topic.partitions) for topic in remotes.values())
    room = settings.remote_partitions_max - partitions_elsewhere - in_place
    now = _Round(settings, source, target, room, replicas_on(brokers, settings.replication_factor), known)
    widened = await _widen(now, topics, remotes)
    created, there = await _create(now, {name: topics[name] for name in missing})
    if created or there or widened:
        again = [topics[name][0] for name in [*created, *there, *widened]]
        remotes |= (await _describe(target, again))[0]
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


async def _describe(target: Brokers, names: Sequence[str]) -> tuple[dict[str, TopicMetadata], int]:
    """Return the topics, and how many brokers the target has; 0 if no topic is asked for."""
    found: dict[str, TopicMetadata] = {}
    brokers = 0
    for at in range(0, len(names), CHUNK):
        metadata = await fetch_metadata(target, names[at : at + CHUNK])
        found.update(metadata.topics)
        brokers = len(metadata.brokers)
    return found, brokers


def _is_missing(topic: TopicMetadata | None) -> bool:
    return topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION


async def _create(now: _Round, topics: Mapping[str, tuple[str, TopicMetadata]]) -> tuple[list[str], list[str]]:
    """Return the topics whose remote topics were created, and those whose remote topics existed already."""
    settings, refused = now.settings, now.refused
    created: list[str] = []
    there: list[str] = []
    names = sorted(topics)
    for at in range(0, len(names), CHUNK):
        page = names[at : at + CHUNK]
        configs = await admin.describe_topic_configs(now.source, page)
        wanted: dict[str, NewTopic] = {}
        upstreams: dict[str, Sequence[ConfigEntry]] = {}
        for name in page:
            found = configs.get(name)
            if found is None or isinstance(found, BrokerRefused):
                if found is not None and found.reaction is Reaction.DENIED:
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
            wanted[remote] = NewTopic(remote, count, now.replicas, chosen)
            upstreams[remote] = found
        origin = {topics[name][0]: name for name in page}
        wanted = await _with_looser_limits(now, wanted, upstreams) if wanted else {}
        answers = await admin.create_topics(now.target, wanted.values()) if wanted else {}
        unwanted = {
            remote: refusal
            for remote, refusal in answers.items()
            if refusal is not None and refusal.code in CONTENT_REFUSED and wanted[remote].configs
        }
        if unwanted:
            others = {remote: refusal for remote, refusal in answers.items() if remote not in unwanted}
            answers = others | await _create_with_less(now, wanted, unwanted)
        for remote, refusal in answers.items():
            name = origin[remote]
            if refusal is None:
                created.append(name)
            elif refusal.code == TOPIC_ALREADY_EXISTS:  # created a round ago, and not in the metadata yet
                there.append(name)
            elif not refusal.retriable:
                remedy = f"Grant CREATE on {remote} on {settings.target.alias}, or create it by hand."
                if refusal.reaction is Reaction.FAIL:
                    remedy = f"Correct the cause, or create {remote} on {settings.target.alias} by hand."
                if refusal.code == INVALID_REPLICATION_FACTOR:
                    remedy = f"Set replication.factor ({now.replicas}) to what {settings.target.alias} can hold."
                refused[name] = NotPermitted(settings.flow, name, str(refusal), remedy)
    return created, there


async def _with_looser_limits(
    now: _Round, wanted: Mapping[str, NewTopic], upstreams: Mapping[str, Sequence[ConfigEntry]]
) -> dict[str, NewTopic]:
    """Return the new topics, with the upstream topics' timestamp limits where their own would be stricter.

    If the target does not return the settings of a topic, its limits are left to the configuration sync.

    Brokers charge the partitions of such a question to ``controller_mutation_rate``, as if they were created. The
    story: under a low quota the question used up, in every round, what the creation needed. So it is asked once for all
    topics with the same settings, for one partition, and not again in later rounds.
    """
    alike = {frozenset(topic.configs.items()): topic for topic in wanted.values()}
    new = {configs: replace(topic, partitions=1) for configs, topic in alike.items() if configs not in now.known}
    if new:
        found = await admin.configs_if_created(now.target, new.values())
        if len(now.known) + len(new) > KNOWN_MOST:
            now.known.clear()
        now.known.update(
            {configs: entries_of(found[topic.name]) for configs, topic in new.items() if topic.name in found}
        )
    looser = {
        remote: looser_limits_if_decided(
            entries_of(upstreams[remote]),
            now.known.get(frozenset(topic.configs.items()), ()),
            now.settings.config_filter,
        )
        for remote, topic in wanted.items()
    }
    return {
        remote: replace(topic, configs={**topic.configs, **_values(looser.get(remote, ()))})
        for remote, topic in wanted.items()
    }


async def _create_with_less(
    now: _Round, wanted: Mapping[str, NewTopic], refused: Mapping[str, BrokerRefused]
) -> dict[str, BrokerRefused | None]:
    """Create topics without the settings that the target refuses: one setting must not prevent a topic.

    Brokers judge a topic's settings together, so each setting is tried together with those that passed before it. The
    topic is created only when all settings have been tried, so it never exists without the accepted ones. The story:
    the controller is throttled, or moves, just when it is asked about ``cleanup.policy``. A topic created without that
    setting would lose its old records to the default policy. So only a refusal of the content leaves a setting out;
    after any other error, or no answer, the topic waits for the next round.

    Args:
        wanted: the topics with all their settings.
        refused: the answers to creating them with all settings.
    Returns: the last answer for each topic that was answered.
    """
    answers: dict[str, BrokerRefused | None] = {}
    bare = [replace(wanted[name], configs={}) for name in refused]
    found = await admin.create_topics(now.target, bare, validate_only=True)
    fit = [name for name in refused if name in found and found[name] is None]
    answers |= {name: refusal for name, refusal in found.items() if refusal is not None}
    tried = Tried({name: [ConfigChange(*one) for one in _in_order(wanted[name].configs)] for name in fit})
    for name in tried.next_round():
        tried.turned_down(name, str(refused[name]))  # the answer to all settings together
    while asked := tried.next_round():
        found = await admin.create_topics(
            now.target,
            [replace(wanted[name], configs=_values([*tried.done.get(name, ()), *asked[name]])) for name in asked],
            validate_only=True,
        )
        for name in asked:
            refusal = found.get(name)
            if name in found and refusal is None:
                tried.taken(name)
            elif refusal is not None and refusal.code in CONTENT_REFUSED:
                tried.turned_down(name, str(refusal))
            else:
                tried.give_up(name)
                fit.remove(name)
                if refusal is not None:
                    answers[name] = refusal
    if fit:
        made = [replace(wanted[name], configs=_values(tried.done.get(name, ()))) for name in fit]
        answers |= await admin.create_topics(now.target, made)
    for name in fit:
        if name in answers and answers[name] is None:
            left_out = tried.refused.get(name, ())
            now.left_out += [SettingLeftOut(name, change.name, change.new or "", why) for change, why in left_out]
    return answers


def _in_order(configs: Mapping[str, str]) -> list[tuple[str, None, str]]:
    return [(setting, None, value) for setting, value in sorted(configs.items())]


def _values(changes: Sequence[ConfigChange]) -> dict[str, str]:
    return {change.name: change.new for change in changes if change.new is not None}


def _configs(now: _Round, remote: str, entries: Sequence[ConfigEntry]) -> dict[str, str]:
    chosen = remote_topic_configs(entries_of(entries), now.settings.config_filter)
    if now.replicas < 1 and MIN_INSYNC_REPLICAS in chosen:
        # The number of replicas is not known yet, and a higher min.insync.replicas would stop all writing. The
        # configuration sync sets it when it can count them. Without the sync it is left out, and that is logged.
        in_sync = chosen.pop(MIN_INSYNC_REPLICAS)
        if now.settings.sync_topic_configs_interval_s is None or now.settings.sync_topic_configs_dry_run:
            off = "with replication.factor=-1 it is left to the configuration sync, which is switched off"
            now.left_out.append(SettingLeftOut(remote, MIN_INSYNC_REPLICAS, in_sync, off))
    for setting, value in list(chosen.items()):
        why = too_many_in_sync(setting, value, now.replicas)
        if why is not None:
            now.left_out.append(SettingLeftOut(remote, setting, chosen.pop(setting), why))
    return chosen


async def _widen(
    now: _Round, topics: Mapping[str, tuple[str, TopicMetadata]], remotes: Mapping[str, TopicMetadata]
) -> list[str]:
    """Add partitions to remote topics that have fewer than their source topics."""
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
        if refusal is None or refusal.code == INVALID_PARTITIONS:
            widened.append(name)
        elif not refusal.retriable:
            now.too_narrow[name] = RemoteTopicTooNarrow(
                remote,
                upstream_partitions=count,
                remote_partitions=len(remotes[remote].partitions),
                why=str(refusal),
            )
    return widened


GONE_AFTER_ROUNDS: Final = 2
"""A topic counts as deleted when this many rounds in a row do not show it."""


class Vanished:
    """Compares the copied topics with each round of metadata."""

    def __init__(self) -> None:
        self._rounds: dict[str, int] = {}

    def look(self, copied: Iterable[CopiedPartition], topics: Mapping[str, TopicMetadata]) -> Mapping[str, str | None]:
        """Return the topics whose copying must stop, each with how it was created again, or None if it is gone."""
        widths: dict[str, int] = {}
        ids: dict[str, uuid.UUID | None] = {}
        for part in copied:
            widths[part.source_topic] = max(widths.get(part.source_topic, 0), part.partition + 1)
            ids[part.source_topic] = part.source_topic_id or ids.get(part.source_topic)
        self._rounds = {name: rounds for name, rounds in self._rounds.items() if name in widths}
        found: dict[str, str | None] = {}
        for name, width in widths.items():
            topic = topics.get(name)
            if topic is None or topic.error_code:
                if self._again(name):
                    found[name] = None
            elif ids[name] not in {None, topic.topic_id}:
                found[name] = f"it was deleted and recreated upstream{fewer(len(topic.partitions), width)}"
            elif ids[name] is None and len(topic.partitions) < width:
                # For brokers without topic ids. A broker that does not know new partitions yet shows fewer, too.
                if self._again(name):
                    found[name] = f"it was deleted and recreated upstream{fewer(len(topic.partitions), width)}"
            else:
                self._rounds.pop(name, None)
        return found

    def _again(self, name: str) -> bool:
        self._rounds[name] = self._rounds.get(name, 0) + 1
        return self._rounds[name] >= GONE_AFTER_ROUNDS


def say_gone(names: Iterable[str], log: FilteringBoundLogger) -> None:
    """Log the topics whose copying stops because they are gone."""
    lines = Notices(log)
    shared = {
        "why": "it was deleted, or mm2py may not see it any more",
        "effect": "copying stops; the remote topic and its position are kept",
    }
    for name in names:
        lines.say("topic.gone", name, level="warning", shared=shared)
    lines.end()


def fewer(partitions: int, before: int) -> str:
    """Return half a sentence about a topic that was created again with fewer partitions; else an empty one."""
    return f", with {partitions} partition(s) instead of {before}" if partitions < before else ""


def gone_while_down(positions: Iterable[tuple[str, int]], topics: Collection[str]) -> list[str]:
    """Return the topics that have positions and do not exist on the source any more, in order."""
    return sorted({name for name, _ in positions} - set(topics))


DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588


class RemoteRules:
    """Looks up how to write to the remote topics of one flow. It stores nothing: each partition keeps its own rules.

    MirrorMaker 2 leaves that to its producer: a batch that the remote topic refuses fails the task.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._source = context.source.brokers
        self._target = context.target.brokers

    async def learn(self, settings_of: Mapping[str, Mapping[str, str]], copied: Iterable[CopiedPartition]) -> None:
        """Give copied partitions new rules after settings of their remote topics have changed.

        Args:
            settings_of: the remote topics, with the new values that are known; brokers may still show the old ones.
        """
        parts = [part for part in copied if part.target_topic in settings_of]
        upstreams = {part.target_topic: part.source_topic for part in parts}
        rules = await self.of(upstreams, known=settings_of, channel="sync")
        for part in parts:
            found = rules[part.target_topic]
            part.rules = replace(
                part.rules,
                max_message_bytes=found.max_message_bytes,
                is_compacted=found.is_compacted,
                refuses_null_keys=found.refuses_null_keys,
            )

    async def of(
        self,
        upstreams: Mapping[str, str],
        *,
        known: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        channel: str = "control",
    ) -> dict[str, TargetRules]:
        """Return the rules for writing to each remote topic.

        Args:
            upstreams: the upstream topic of each remote topic.
            known: settings of remote topics; they take precedence over what the target answers.
        Raises: KafkaError.
        """
        compression = self._context.settings.compression
        codec = None if compression is None else int(Codec[compression.upper()])
        names = list(upstreams)
        rules: dict[str, TargetRules] = {}
        for at in range(0, len(names), CHUNK):
            page = names[at : at + CHUNK]
            targets = await admin.describe_topic_configs(
                self._target, page, keys=["max.message.bytes", "cleanup.policy"], channel=channel
            )
            sources = await admin.describe_topic_configs(
                self._source, [upstreams[name] for name in page], keys=["cleanup.policy"], channel=channel
            )
            for name in page:
                ours = {**values_of(targets.get(name)), **known.get(name, {})}
                theirs = values_of(sources.get(upstreams[name]))
                compacted = "compact" in ours.get("cleanup.policy", "")
                rules[name] = TargetRules(
                    max_message_bytes=int(ours.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
                    compression=codec,
                    is_compacted=compacted,
                    refuses_null_keys=compacted and "compact" not in theirs.get("cleanup.policy", "delete"),
                )
        return rules


def values_of(found: Sequence[admin.ConfigEntry] | BrokerRefused | None) -> dict[str, str]:
    """Return the settings of a topic in a broker's answer; none if the broker has refused to answer."""
    known = () if found is None or isinstance(found, BrokerRefused) else found
    return {entry.name: entry.value for entry in known if entry.value is not None}

"""Asks both clusters of a flow about its topics, groups, positions and clocks. Nothing is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mm2py.checks import questions
from mm2py.checks.asking_cluster import asked
from mm2py.checks.checked_topics import CheckedTopic
from mm2py.checks.facts import ClockAnswer, ClusterAnswers, FlowAnswers, PartitionAnswer, TopicAnswer, Unanswered
from mm2py.checks.judge_topics import ASKED_CONFIGS, CLEANUP_POLICY, MIN_INSYNC_REPLICAS, RETENTION_MS
from mm2py.checks.rights import rights_needed
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings, HeartbeatSettings
from mm2py.copying.positions import read_positions
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.consumer_groups import list_groups
from mm2py.kafka.list_offsets import find_bounds, list_offsets
from mm2py.kafka.port import BrokerId, Brokers, TopicPartition
from mm2py.records.source_offset import StoredPosition
from mm2py.shared_settings.running_mm2 import CONNECT, only_emits_heartbeats
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.names import control_log, remote_name_problem
from mm2py.topics.unmatched import unmatched

LATEST_TIME: Final = -3
"""Asks for the newest timestamp of a partition."""
LEFT_AT_LEAST: Final = 0.25
"""The part of its retention that a record should still have when it is copied."""
CLOCK_LOOKS: Final = 3
"""How many heartbeat intervals are waited for a heartbeat."""
TOPICS_AT_ONCE: Final = 500
NOT_FOLLOWED: Final = frozenset({"share", "streams"})


@dataclass(slots=True)
class FlowAsking:
    """Asks about one flow. Both clusters have been asked already whether they answer."""

    settings: FlowSettings
    wanted: Sequence[CheckedTopic]
    heartbeats: Sequence[HeartbeatSettings]
    worker_group_there: str
    heartbeat_interval_s: float
    source: Brokers
    target: Brokers
    clock: Clock

    async def ask(self, source: ClusterAnswers, target: ClusterAnswers) -> FlowAnswers:
        """Return what the clusters tell. What a cluster that does not answer would tell is left out."""
        answers = FlowAnswers(self.settings, source, target)
        if source.away is None:
            answers = await self._ask_source(answers)
        if target.away is None:
            answers = await self._ask_target(answers)
        if source.away is None and target.away is None:
            answers = await self._ask_partitions(answers)
        return answers

    async def _ask_source(self, answers: FlowAnswers) -> FlowAnswers:
        alias = str(answers.source.alias)
        listed = await asked("listing its topics", alias, lambda: fetch_metadata(self.source, None))
        if isinstance(listed, Unanswered):
            return replace(answers, source=replace(answers.source, silent=listed))
        selected, undecided = await self._selected(listed.topics)
        hidden = self._named_and_unseen(listed.topics, selected)
        own = [one.name for one in self.wanted if one.on_source]
        needs = self._needed_names(on_source=True, topics=selected)
        topics = await asked(
            "asking about its topics",
            alias,
            lambda: questions.topics_named(self.source, [*selected, *hidden, *own, *needs]),
        )
        if isinstance(topics, Unanswered):
            return replace(answers, source=replace(answers.source, silent=topics))
        # A topic that may not be seen is one that the flow is meant to copy: its right is missing.
        denied = [name for name in hidden if topics.get(name) is not None and topics[name].is_hidden]
        topics, unread = await self._configs(self.source, alias, topics, [*selected, *own])
        groups, group_unread = await self._source_groups(answers)
        return replace(
            answers,
            source=await self._may_create(answers.source, self.source, topics),
            selected=tuple(sorted([*selected, *denied])),
            undecided=tuple(undecided),
            hidden=tuple(sorted(set(hidden) - {*denied})),
            unmatched=tuple(
                one.entry for one in unmatched(self.settings.topic_filter.included, listed.topics) if not one.is_name
            ),
            source_topics=topics,
            source_groups=groups,
            unread={**answers.unread, **_why("source configs", unread), **_why("source groups", group_unread)},
        )

    async def _selected(self, topics: Mapping[str, TopicMetadata]) -> tuple[list[str], list[str]]:
        selected: list[str] = []
        undecided: list[str] = []
        for at, name in enumerate(sorted(topics)):
            if topics[name].error_code:
                continue
            try:
                if self.settings.replicates(name):
                    selected.append(name)
            except PatternTooSlow:
                undecided.append(name)
            if at % TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return selected, undecided

    def _named_and_unseen(self, topics: Mapping[str, TopicMetadata], selected: Sequence[str]) -> list[str]:
        """Return the topics that the file names by their full names, and that are not shown."""
        found = []
        for entry in self.settings.topic_filter.included.entries:
            name = entry.replace("\\.", ".")
            if name in topics or remote_name_problem(name) is not None:
                continue
            try:
                if not any(_could_mean(name, one) for one in selected) and self.settings.replicates(name):
                    found.append(name)
            except PatternTooSlow:
                continue
        return found

    def _needed_names(self, *, on_source: bool, topics: Sequence[str]) -> list[str]:
        needs = rights_needed(
            self.settings,
            self.heartbeats,
            topics=topics,
            source_groups=(),
            worker_group_there=self.worker_group_there,
        )
        return [name for one in needs if one.row.kind == "topic" and one.on_source is on_source for name in one.names]

    async def _configs(
        self, brokers: Brokers, alias: str, topics: dict[str, TopicAnswer], names: Iterable[str]
    ) -> tuple[dict[str, TopicAnswer], str]:
        keys = {*ASKED_CONFIGS, MIN_INSYNC_REPLICAS}
        keys |= {key for one in self.wanted for key in one.must_be}
        found = await asked(
            "reading settings of topics",
            alias,
            lambda: questions.with_configs(brokers, topics, names, sorted(keys)),
        )
        return (topics, found.what) if isinstance(found, Unanswered) else found

    async def _source_groups(self, answers: FlowAnswers) -> tuple[dict[str, Any], str]:
        checkpoints = self.settings.checkpoints
        if checkpoints is None:
            return {}, ""
        alias = str(answers.source.alias)
        listed = await asked("listing its groups", alias, lambda: list_groups(self.source))
        names = set()
        why = listed.what if isinstance(listed, Unanswered) else ""
        shown = {} if isinstance(listed, Unanswered) else listed
        for name, group in shown.items():
            try:
                if group.protocol_type not in NOT_FOLLOWED and checkpoints.group_filter.should_replicate(name):
                    names.add(name)
            except PatternTooSlow:
                continue
        names |= {
            entry for entry in checkpoints.group_filter.included.entries if re.fullmatch(r"[A-Za-z0-9_-]+", entry)
        }
        found = await asked(
            "asking about its groups",
            alias,
            lambda: questions.groups_named(self.source, _ids(answers.source), names),
        )
        return ({}, found.what) if isinstance(found, Unanswered) else (found, why)

    async def _ask_target(self, answers: FlowAnswers) -> FlowAnswers:
        alias, settings = str(answers.target.alias), self.settings
        listed = await asked("listing its topics", alias, lambda: fetch_metadata(self.target, None))
        if isinstance(listed, Unanswered):
            return replace(answers, target=replace(answers.target, silent=listed))
        remotes = [settings.remote_topic(topic) for topic in answers.selected]
        own = [one.name for one in self.wanted if not one.on_source]
        needs = self._needed_names(on_source=False, topics=answers.selected)
        legal = [name for name in {*remotes, *own, *needs, TRANSACTIONS} if remote_name_problem(name) is None]
        topics = await asked("asking about its topics", alias, lambda: questions.topics_named(self.target, legal))
        if isinstance(topics, Unanswered):
            return replace(answers, target=replace(answers.target, silent=topics))
        topics, unread = await self._configs(self.target, alias, topics, [*remotes, *own])
        group_names = {settings.mm2_group_id}
        if settings.checkpoints is not None and settings.checkpoints.group_sync is not None:
            group_names |= set(answers.source_groups)
        groups = await asked(
            "asking about groups",
            alias,
            lambda: questions.groups_named(self.target, _ids(answers.target), group_names),
        )
        denied = await asked(
            "asking about transactions",
            alias,
            lambda: questions.is_transactional_id_denied(self.target, f"mm2py-{settings.group}-check"),
        )
        target = await self._may_create(answers.target, self.target, topics)
        found_groups = {} if isinstance(groups, Unanswered) else groups
        mm2 = found_groups.get(settings.mm2_group_id)
        harmless = False
        if mm2 is not None and mm2.members and mm2.protocol_type == CONNECT:
            looked = await asked(
                "reading settings", alias, lambda: only_emits_heartbeats(settings.configs_topic, self.target)
            )
            harmless = looked is True
        return replace(
            answers,
            target=target,
            target_topics=topics,
            target_names=frozenset(listed.topics),
            target_groups=found_groups,
            mm2_only_emits_heartbeats=harmless,
            transactional_id_denied=None if isinstance(denied, Unanswered) else denied,
            clock=await self._clock(listed.topics),
            unread={
                **answers.unread,
                **_why("target configs", unread),
                **_why("target groups", groups),
                **_why("transactions", denied),
            },
        )

    async def _may_create(
        self, cluster: ClusterAnswers, brokers: Brokers, topics: Mapping[str, TopicAnswer]
    ) -> ClusterAnswers:
        """Find out whether CREATE is granted on the cluster, if a topic lacks it and the cluster does not tell."""
        lacking = [
            one.name
            for one in topics.values()
            if not one.is_there and one.operations is not None and "CREATE" not in one.operations
        ]
        if cluster.may_create_topics is not None or not lacking:
            return cluster
        found = await asked(
            "asking for CREATE", str(cluster.alias), lambda: questions.may_create_topics(brokers, lacking[0])
        )
        return replace(cluster, may_create_topics=None if isinstance(found, Unanswered) else found)

    async def _clock(self, topics: Mapping[str, TopicMetadata]) -> ClockAnswer | None:
        """Look whether a heartbeat comes, whose time the broker sets. Without a worker none does."""
        topic = topics.get(str(control_log(self.settings.group, producer_expiry_ms=0).name))
        if topic is None or topic.error_code or 0 not in topic.partitions:
            return None
        first = await self._newest_ms(topic)
        first_seen_ms = self.clock.wall_ms()
        if first is None:
            return None
        newest, before_ms = first, first_seen_ms
        recent_ms = 1_000 * CLOCK_LOOKS * max(1.0, self.heartbeat_interval_s)
        for _ in range(2 * CLOCK_LOOKS if abs(first_seen_ms - first) < 2 * 60 * 60 * 1000 + recent_ms else 0):
            await asyncio.sleep(self.heartbeat_interval_s / 2)
            asked_ms = self.clock.wall_ms()
            found = await self._newest_ms(topic)
            if found is not None and found > newest:
                return ClockAnswer(found, before_ms, self.clock.wall_ms())
            before_ms = asked_ms
        return ClockAnswer(newest, None, first_seen_ms)

    async def _newest_ms(self, topic: TopicMetadata) -> int | None:
        key = (topic.name, 0)
        found = await asked(
            "reading the time of the newest heartbeat",
            str(self.settings.flow.target),
            lambda: list_offsets(self.target, {key: topic.partitions[0].leader}, LATEST_TIME),
        )
        if isinstance(found, Unanswered) or key not in found or found[key].error_code or found[key].timestamp_ms < 0:
            return None
        return found[key].timestamp_ms

    async def _ask_partitions(self, answers: FlowAnswers) -> FlowAnswers:
        """Ask where partitions begin and end, and from where they are copied."""
        bounds = await asked(
            "looking at remote topics", str(answers.target.alias), lambda: self._remote_bounds(answers)
        )
        filled, unlooked = self._filled(answers, {} if isinstance(bounds, Unanswered) else bounds)
        positions, unread = await self._positions(answers)
        here = {key: stored for key, stored in positions.items() if key[0] in set(answers.selected)}
        placed: dict[str, set[int]] = {}
        for topic, number in here:
            placed.setdefault(topic, set()).add(number)
        partitions = await asked(
            "looking at the backlog", str(answers.source.alias), lambda: self._backlog(answers, here)
        )
        return replace(
            answers,
            filled=filled,
            unlooked=unlooked,
            positions_unread=unread,
            placed={topic: frozenset(numbers) for topic, numbers in placed.items()},
            partitions={} if isinstance(partitions, Unanswered) else partitions,
            unread={**answers.unread, **_why("filled", bounds), **_why("offsets", partitions)},
        )

    async def _remote_bounds(self, answers: FlowAnswers) -> dict[TopicPartition, tuple[int, int]]:
        remotes = [self.settings.remote_topic(topic) for topic in answers.selected]
        there = [name for name in remotes if name in answers.target_topics and answers.target_topics[name].is_there]
        return await find_bounds(self.target, _leaders(await _metadata_of(self.target, there))) if there else {}

    def _filled(
        self, answers: FlowAnswers, bounds: Mapping[TopicPartition, tuple[int, int]]
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        """Return, by source topic, the partitions whose remote partitions hold records, and those that did not tell."""
        filled: dict[str, tuple[int, ...]] = {}
        unlooked: dict[str, tuple[int, ...]] = {}
        for topic in answers.selected:
            remote = answers.target_topics.get(self.settings.remote_topic(topic))
            if remote is None or not remote.is_there:
                continue
            upstream = answers.source_topics[topic]
            width = remote.partitions if upstream.is_hidden else min(upstream.partitions, remote.partitions)
            ends = {number: bounds.get((remote.name, number)) for number in range(width)}
            full = tuple(number for number, end in ends.items() if end is not None and end[1] > end[0])
            silent = tuple(number for number, end in ends.items() if end is None)
            filled |= {topic: full} if full else {}
            unlooked |= {topic: silent} if silent else {}
        return filled, unlooked

    async def _positions(self, answers: FlowAnswers) -> tuple[dict[TopicPartition, StoredPosition], str]:
        topic = answers.target_topics.get(self.settings.offsets_topic)
        if topic is None or topic.is_hidden:
            return {}, f"DESCRIBE and READ on {self.settings.offsets_topic} are missing"
        if not topic.is_there:
            return {}, ""

        async def read() -> dict[TopicPartition, StoredPosition]:
            metadata = await _metadata_of(self.target, [topic.name])
            return (await read_positions(self.target, metadata[topic.name], self.settings.flow.source))[0]

        found = await asked("reading positions", str(answers.target.alias), read)
        return ({}, found.what) if isinstance(found, Unanswered) else (found, "")

    async def _backlog(
        self, answers: FlowAnswers, positions: Mapping[TopicPartition, StoredPosition]
    ) -> dict[TopicPartition, PartitionAnswer]:
        if not positions:
            return {}
        topics = await _metadata_of(self.source, {topic for topic, _ in positions})
        leaders = {key: leader for key, leader in _leaders(topics).items() if key in positions}
        bounds = await find_bounds(self.source, leaders)
        now_ms = self.clock.wall_ms()
        old_ms, ageless = {}, set()
        for key in bounds:
            retention = answers.source_topics[key[0]].config(RETENTION_MS)
            policy = answers.source_topics[key[0]].config(CLEANUP_POLICY)
            if retention is None or policy is None:
                ageless.add(key)
            elif int(retention) > 0 and "delete" in policy:
                old_ms[key] = now_ms - int(int(retention) * (1 - LEFT_AT_LEAST))
        times = await list_offsets(self.source, {key: leaders[key] for key in old_ms}, old_ms, skip_silent=True)
        old = {
            key: answer.offset if answer.offset >= 0 else bounds[key][1]
            for key, answer in times.items()
            if not answer.error_code
        }
        ageless |= old_ms.keys() - old.keys()
        return {
            key: PartitionAnswer(first, last, positions[key].next_source, old.get(key), key not in ageless)
            for key, (first, last) in bounds.items()
        }


TRANSACTIONS: Final = "__transaction_state"


def _could_mean(name: str, topic: str) -> bool:
    """Whether a name, read as a pattern of letters, digits, ``_``, ``-`` and dots for any character, means a topic."""
    return len(name) == len(topic) and all(one in (other, ".") for one, other in zip(name, topic, strict=True))


def _ids(answers: ClusterAnswers) -> list[BrokerId]:
    return [BrokerId(one.broker) for one in answers.brokers if one.unanswered is None]


def _why(question: str, answer: object) -> dict[str, str]:
    """Return why a question was not answered, under its name; nothing if it was."""
    text = answer.what if isinstance(answer, Unanswered) else answer if isinstance(answer, str) else ""
    return {question: text} if text else {}


async def _metadata_of(brokers: Brokers, names: Iterable[str]) -> dict[str, TopicMetadata]:
    found: dict[str, TopicMetadata] = {}
    asked_names = sorted(set(names))
    for at in range(0, len(asked_names), TOPICS_AT_ONCE):
        found.update((await fetch_metadata(brokers, asked_names[at : at + TOPICS_AT_ONCE])).topics)
    return found


def _leaders(topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, BrokerId | None]:
    return {(name, number): part.leader for name, topic in topics.items() for number, part in topic.partitions.items()}

"""Asks both clusters what a backfill would copy: logs, sizes, retention, and what the target has already.

The survey only reads. It refuses a topic that the live flow writes already: two writers would repeat its records.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mm2py.backfill.plan import SLOTS_ASSUMED, BackfillFacts, expected_seconds, retention_warned_of
from mm2py.config.settings import FlowSettings
from mm2py.copying.positions import read_positions
from mm2py.errors import ConfigError, Mm2Error
from mm2py.kafka import admin, list_offsets
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import EARLIEST, LATEST, Leaders
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.records.source_offset import StoredPosition

EARLIEST_WORD: Final = "earliest"
NOW_WORD: Final = "now"
Where = str | int | Mapping[TopicPartition, int]
"""A word, a time in ms, or offsets by partition."""


class AlreadyCopied(Mm2Error):
    """The live flow writes to the copy of a topic, or has written to it."""

    def __init__(self, flow: str, topic: str, why: str) -> None:
        super().__init__(
            f"{topic} cannot be backfilled: {why}.",
            remedy=f"{flow} copies it from where it stands; only a topic that it has not begun can be backfilled.",
        )


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What is to be backfilled."""

    topics: Sequence[str]
    """As the source names them."""
    begin: Where = EARLIEST_WORD
    until: Where = NOW_WORD


@dataclass(frozen=True, slots=True)
class SurveyResult:
    """What a survey has found."""

    partitions: tuple[BackfillFacts, ...]
    missing_topics: tuple[str, ...]
    """Remote topics that do not exist yet."""
    positions: Mapping[TopicPartition, StoredPosition]


class BackfillSurvey:
    """Asks the two clusters of a flow."""

    def __init__(self, settings: FlowSettings, source: Brokers, target: Brokers) -> None:
        self._settings = settings
        self._source = source
        self._target = target

    async def look(
        self, asked: BackfillRequest, *, slots: int | None, bytes_per_second_max: int | None
    ) -> SurveyResult:
        """Return what there is to copy.

        Raises:
            ConfigError: a topic does not exist, or the flow does not select it; offsets name no such partition.
            KafkaError: a cluster does not answer.
        """
        upstream = await self._upstream(asked.topics)
        leaders: Leaders = {
            (name, number): part.leader for name, topic in upstream.items() for number, part in topic.partitions.items()
        }
        _refuse_strangers(asked, leaders)
        starts = await self._offsets(leaders, EARLIEST)
        ends = await self._offsets(leaders, LATEST, read_committed=self._settings.read_committed)
        lasts = await self._offsets(leaders, LATEST)
        firsts = await self._places(asked.begin, leaders, starts, ends)
        seams = await self._places(asked.until, leaders, ends, ends)
        sizes = await self._sizes(upstream)
        partitions = []
        for key in leaders:
            first = min(max(firsts[key], starts[key]), ends[key])
            seam = min(max(seams[key], first), ends[key])
            partitions.append(BackfillFacts(*key, starts[key], lasts[key], first, seam, sizes.get(key)))
        partitions = await self._expiring(partitions, leaders, slots=slots, bytes_per_second_max=bytes_per_second_max)
        remotes = await self._remotes(sorted(upstream))
        missing = [name for name, topic in remotes.items() if topic is None]
        return SurveyResult(tuple(partitions), tuple(missing), await self.positions())

    async def bytes_an_offset(self, topics: Sequence[str]) -> float | None:
        """Return how many bytes an offset of these topics has on average; None: not known. Raises: as ``look``."""
        upstream = await self._upstream(topics)
        leaders: Leaders = {
            (name, number): part.leader for name, topic in upstream.items() for number, part in topic.partitions.items()
        }
        starts, ends = await self._offsets(leaders, EARLIEST), await self._offsets(leaders, LATEST)
        sizes, offsets = await self._sizes(upstream), sum(ends.values()) - sum(starts.values())
        return sum(sizes.values()) / offsets if sizes and offsets > 0 else None

    async def positions(self) -> dict[TopicPartition, StoredPosition]:
        """Return the stored positions of the flow."""
        name = self._settings.offsets_topic
        topic = (await fetch_metadata(self._target, [name])).topics.get(name)
        if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            return {}
        if topic.error_code:
            raise BrokerRefused(f"Reading {name}", topic.error_code)
        found, _ = await read_positions(self._target, topic, self._settings.flow.source)
        return found

    async def refuse_copied(self, topics: Sequence[str], positions: Mapping[TopicPartition, StoredPosition]) -> None:
        """Refuse topics of which records were copied already.

        Raises:
            AlreadyCopied: a topic has a position, or its remote topic is not empty.
        """
        flow = str(self._settings.flow)
        into = {self._settings.remote_topic(name): name for name in sorted({name for name, _ in positions})}
        for topic in topics:
            remote = self._settings.remote_topic(topic)
            if (other := into.setdefault(remote, topic)) != topic:
                raise AlreadyCopied(
                    flow, topic, f"{other} is copied into {remote}, too: topics.rename gives both that name"
                )
        for topic, number in sorted(positions):
            if topic in topics:
                raise AlreadyCopied(flow, topic, f"{flow} has a position of {topic}-{number}, so it copies it already")
        remotes = {name: remote for name, remote in (await self._remotes(topics)).items() if remote is not None}
        leaders: Leaders = {
            (name, number): part.leader
            for name, remote in remotes.items()
            for number, part in remote.partitions.items()
        }
        bounds = await list_offsets.find_bounds(self._target, leaders)
        for (name, number), (start, end) in sorted(bounds.items()):
            if end > start:
                upstream = next(topic for topic in topics if self._settings.remote_topic(topic) == name)
                raise AlreadyCopied(flow, upstream, f"{name}-{number} on {self._settings.flow.target} is not empty")

    async def _upstream(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        for name in names:
            if not self._settings.replicates(name):
                raise ConfigError(
                    f"{self._settings.flow} does not copy {name!r}, so the live flow would not go on after a backfill.",
                    remedy=f"Add it to {self._settings.flow}.topics in this file: this command then selects it for the"
                    " workers behind its hold.",
                )
        metadata: ClusterMetadata = await fetch_metadata(self._source, names)
        found: dict[str, TopicMetadata] = {}
        for name in names:
            topic = metadata.topics.get(name)
            if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION or not topic.partitions:
                raise ConfigError(
                    f"There is no topic {name!r} on {self._settings.flow.source}.", remedy="Name one that it has."
                )
            if topic.error_code:
                raise BrokerRefused(f"Looking at {name}", topic.error_code)
            found[name] = topic
        return found

    async def _remotes(self, topics: Sequence[str]) -> dict[str, TopicMetadata | None]:
        names = sorted(map(self._settings.remote_topic, topics))
        found = (await fetch_metadata(self._target, names)).topics
        return {
            name: None
            if (topic := found.get(name)) is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
            else topic
            for name in names
        }

    async def _offsets(self, leaders: Leaders, when: int, *, read_committed: bool = False) -> dict[TopicPartition, int]:
        answers = await list_offsets.list_offsets(self._source, leaders, when, read_committed=read_committed)
        missing = [key for key in leaders if key not in answers or answers[key].error_code]
        if missing:
            topic, number = missing[0]
            code = answers[missing[0]].error_code if missing[0] in answers else 0
            raise BrokerRefused(f"Asking for offsets of {topic}-{number}, which may have no leader", code)
        return {key: answer.offset for key, answer in answers.items()}

    async def _places(
        self,
        where: Where,
        leaders: Leaders,
        otherwise: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        if isinstance(where, str):
            return dict(otherwise)
        if isinstance(where, Mapping):
            return {key: where.get(key, otherwise[key]) for key in leaders}
        found = await self._offsets(leaders, where)
        return {key: ends[key] if offset < 0 else offset for key, offset in found.items()}

    async def _sizes(self, topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, int]:
        """Return the sizes of logs in bytes; empty if mm2py may not ask for them (DESCRIBE on the cluster)."""
        found: dict[TopicPartition, int] = {}
        brokers = (await fetch_metadata(self._source, [])).brokers
        partitions = {name: sorted(topic.partitions) for name, topic in topics.items()}
        for broker in brokers:
            try:
                sizes = await admin.describe_log_sizes(self._source, broker, partitions)
            except BrokerRefused:
                return {}
            for key, size in sizes.items():
                found[key] = max(size, found.get(key, 0))
        return found

    async def _expiring(
        self,
        partitions: Sequence[BackfillFacts],
        leaders: Leaders,
        *,
        slots: int | None,
        bytes_per_second_max: int | None,
    ) -> list[BackfillFacts]:
        """Note the offset before which retention may delete records while the backfill runs.

        Without a known size the backfill counts as taking no time: only records that are due now are noted.
        """
        takes_s = expected_seconds(
            sum(one.bytes or 0 for one in partitions),
            tasks_at_once=max(1, min(slots or SLOTS_ASSUMED, len(partitions))),
            bytes_per_second_max=bytes_per_second_max,
        )
        topics = sorted({one.topic for one in partitions})
        keys = ["retention.ms", "cleanup.policy"]
        configs = await admin.describe_topic_configs(self._source, topics, keys=keys)
        before: dict[TopicPartition, int] = {}
        for topic in topics:
            entries = configs.get(topic)
            if entries is None or isinstance(entries, BrokerRefused):
                continue
            values = {entry.name: entry.value or "" for entry in entries}
            retention_ms = values.get("retention.ms", "-1")
            if "delete" not in values.get("cleanup.policy", "") or not retention_ms.isdecimal():
                continue
            of_topic: Leaders = {key: leader for key, leader in leaders.items() if key[0] == topic}
            at_ms = int(time.time() * 1000 + takes_s * 1000) - int(retention_ms)
            before |= await list_offsets.find_offsets(self._source, of_topic, max(0, at_ms))
        ends = {one.key: one.log_end for one in partitions}
        expiring = retention_warned_of(ends, before)
        return [replace(one, expires_before=expiring.get(one.key, 0)) for one in partitions]


def _refuse_strangers(asked: BackfillRequest, leaders: Leaders) -> None:
    for where in (asked.begin, asked.until):
        for topic, number in where if isinstance(where, Mapping) else ():
            if (topic, number) not in leaders:
                raise ConfigError(
                    f"Offsets name {topic}-{number}, which is not to be backfilled.", remedy="Leave it out."
                )

"""Asks both clusters of a flow for the facts that a verification plan needs. Asks no worker, and writes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.backfill.verifying.planning import NOT_RETURNED, NotCompared, VerifyFacts, Why
from mm2py.backfill.verifying.ranges import Interval
from mm2py.backfill.verifying.reading import CHANNEL, Sides
from mm2py.backfill.verifying.returned import Returned, returned_by
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.copying.gap_log import GapTable
from mm2py.copying.reading.internal_table import each_record
from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.copying.reading.log_reader import LogReader, LogStretch
from mm2py.errors import ConfigError
from mm2py.flow import TopicName
from mm2py.kafka.admin import describe_topic_configs
from mm2py.kafka.cluster import ClusterMetadata, fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, Reaction
from mm2py.kafka.list_offsets import LATEST, find_bounds, find_offsets
from mm2py.kafka.port import FetchedPartition, TopicPartition
from mm2py.offsets.partition_ledger import TopicId
from mm2py.records.batch import read_header, split
from mm2py.records.quarantined import NotQuarantined, QuarantineEntry, decode
from mm2py.records.varints import CorruptBatch
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.topics.names import ledger_topic, quarantine

LEDGER_LAG_S: Final = 2.0
"""How long to wait for the ledger to reach the end of the remote partitions, while workers copy."""
AGAIN_S: Final = 0.5
PROBED_OFFSETS: Final = 10_000
"""Of longer partitions a few batches are read, to find out how large the records are."""
_CLEANUP: Final = "cleanup.policy"
_TIMESTAMPS: Final = "message.timestamp.type"


@dataclass(slots=True)
class Surveyed:
    """The result of a survey."""

    facts: list[VerifyFacts] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    """Partitions that cannot be compared at all."""
    reasons: list[str] = field(default_factory=list)
    """For each of them one sentence that says why."""


class VerifySurvey:
    """One survey of a flow."""

    def __init__(self, settings: FlowSettings, sides: Sides, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._source, self._target = sides.brokers
        self._clock = clock
        self._rng = rng
        self._on_source = self._on_target = ClusterMetadata(None, {}, {})

    async def look(
        self,
        topics: Collection[str],
        since_ms: int | None,
        log: FilteringBoundLogger,
        *,
        last_records: int | None = None,
    ) -> Surveyed:
        """Ask both clusters.

        Args:
            topics: as the source names them; empty: all topics that the flow copies.
            since_ms: only records of that time or later, in epoch milliseconds.
            last_records: only this many offsets at the end of each source partition; None: all.
        Raises:
            ConfigError: a topic is not on the source.
            NewerLedgerFormat: a newer mm2py has written the ledger.
            DamagedTopic, KafkaError: as ``read_table``.
        """
        settings, found = self._settings, Surveyed()
        keys = await self._keys(topics)
        remotes = {key: (settings.remote_topic(key[0]), key[1]) for key in keys}
        self._on_target = await fetch_metadata(self._target, sorted({topic for topic, _ in remotes.values()}) or [""])
        keys = [key for key in keys if self._exists(key, remotes[key], found)]
        target_bounds = await find_bounds(
            self._target, {remotes[key]: self._on_target.leader_of(*remotes[key]) for key in keys}
        )
        source_bounds = await find_bounds(self._source, {key: self._on_source.leader_of(*key) for key in keys})
        ledgers = LedgerTable(self._target, ledger_topic(settings.flow.source), log)
        await self._follow(
            ledgers, keys, {key: target_bounds[remotes[key]][1] for key in keys if remotes[key] in target_bounds}
        )
        returned = await self._returned(keys, log)
        ends = [
            await find_offsets(self._source, {key: self._on_source.leader_of(*key) for key in keys}, LATEST),
            await find_offsets(
                self._target, {remotes[key]: self._on_target.leader_of(*remotes[key]) for key in keys}, LATEST
            ),
        ]
        since = await self._since(source_bounds, since_ms, last_records)
        configs = await self._configs(sorted({topic for topic, _ in keys}))
        gaps = GapTable(self._target, settings.status_topic)
        await gaps.read()
        kept = await self._quarantined(keys)
        filtered = await self._filtered()
        sizes = await self._sizes(source_bounds)
        for key in keys:
            remote = remotes[key]
            if key not in source_bounds or remote not in target_bounds:
                self._leave_out(found, key, source_bounds.get(key, (0, 1)), "a leader of it does not answer")
                continue
            ids = self._topic_id(self._on_source, key), self._topic_id(self._on_target, remote)
            on_source, on_target = configs.get((0, key[0]), {}), configs.get((1, remote[0]), {})
            found.facts.append(
                VerifyFacts(
                    *key,
                    remote[0],
                    [one for one in ledgers.of(key).ledgers if one.is_of(*ids)],
                    source_bounds[key],
                    target_bounds[remote],
                    (ends[0][key], ends[1][remote]) if key in ends[0] and remote in ends[1] else None,
                    since=since.get(key),
                    is_last_wanted=last_records is not None,
                    gaps=[gap for gap in gaps.gaps() if (gap.topic, gap.partition) == key],
                    quarantined=kept.get(key, ()),
                    is_compacted=any("compact" in (one.get(_CLEANUP) or "") for one in (on_source, on_target)),
                    is_shared=settings.many_to_one,
                    read_committed=settings.read_committed,
                    own_timestamps=on_target.get(_TIMESTAMPS) != "LogAppendTime",
                    bytes_per_offset=sizes.get(key, 1000.0),
                    returned=returned.get(key, NOT_RETURNED),
                    filtered=filtered.get(key, ()),
                )
            )
        return found

    async def _since(
        self, bounds: Mapping[TopicPartition, Interval], since_ms: int | None, last_records: int | None
    ) -> dict[TopicPartition, int]:
        """Return the first source offset that is wanted of each partition; nothing: all are."""
        if last_records is not None:
            return {key: max(start, end - last_records) for key, (start, end) in bounds.items()}
        if since_ms is None:
            return {}
        found = await find_offsets(self._source, {key: self._on_source.leader_of(*key) for key in bounds}, since_ms)
        return {key: found[key] if found.get(key, -1) >= 0 else end for key, (_, end) in bounds.items()}

    async def _keys(self, wanted: Collection[str]) -> list[TopicPartition]:
        settings = self._settings
        self._on_source = await fetch_metadata(self._source, sorted(wanted) or None)
        found: list[TopicPartition] = []
        for name, topic in sorted(self._on_source.topics.items()):
            if wanted and (topic.error_code or not topic.partitions):
                raise ConfigError(
                    f"{settings.flow.source} shows no topic {name!r}: it does not exist, or DESCRIBE is missing.",
                    remedy="Name topics, not patterns.",
                )
            if settings.replicates(name) and (wanted or not settings.policy.is_heartbeats_topic(TopicName(name))):
                found += [(name, number) for number in sorted(topic.partitions)]
        return found

    def _exists(self, key: TopicPartition, remote: TopicPartition, found: Surveyed) -> bool:
        topic = self._on_target.topics.get(remote[0])
        if topic is not None and remote[1] in topic.partitions:
            return True
        self._leave_out(found, key, (0, 1), f"{remote[0]} has no such partition on {self._settings.flow.target}")
        return False

    def _leave_out(self, found: Surveyed, key: TopicPartition, interval: Interval, why: str) -> None:
        found.not_compared.append(NotCompared(Why.UNREADABLE, *key, *interval, max(interval[1] - interval[0], 1)))
        found.reasons.append(f"{key[0]}-{key[1]}: {why}.")

    async def _follow(
        self, ledgers: LedgerTable, keys: Sequence[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Read the ledgers until they reach the end of the remote partitions, or do not grow for a while."""
        until_s = self._clock.monotonic() + LEDGER_LAG_S
        while True:
            await ledgers.follow()
            await ledgers.prepare(keys)
            behind = [key for key in ends if (one := ledgers.of(key).newest) is not None and one.target_end < ends[key]]
            if not behind or self._clock.monotonic() >= until_s:
                return
            await asyncio.sleep(AGAIN_S)

    async def _returned(
        self, keys: Sequence[TopicPartition], log: FilteringBoundLogger
    ) -> dict[TopicPartition, Returned]:
        """Return what the flow back has brought, if copies have the names of their originals.

        Its ledgers are on our source. Without the right to read them nothing is left out because of it.
        """
        settings = self._settings
        if not settings.policy.keeps_names or settings.policy.renames:
            return {}
        ledgers = LedgerTable(self._source, ledger_topic(settings.flow.target), log)
        try:
            await ledgers.follow()
            await ledgers.prepare(keys)
        except BrokerRefused as error:
            if error.reaction is not Reaction.DENIED:
                raise
            return {}
        found: dict[TopicPartition, Returned] = {}
        for key in keys:
            ids = self._topic_id(self._on_target, key), self._topic_id(self._on_source, key)
            found[key] = returned_by(one.ledger for one in ledgers.of(key).ledgers if one.is_of(*ids))
        return found

    async def _configs(self, topics: Sequence[str]) -> dict[tuple[int, str], dict[str, str | None]]:
        """Return the settings for cleaning and timestamps on both sides, by side and topic."""
        found: dict[tuple[int, str], dict[str, str | None]] = {}
        if not topics:
            return found
        remotes = [self._settings.remote_topic(topic) for topic in topics]
        for side, (brokers, names) in enumerate(((self._source, topics), (self._target, remotes))):
            for name, told in (
                await describe_topic_configs(brokers, list(names), keys=[_CLEANUP, _TIMESTAMPS])
            ).items():
                if isinstance(told, BrokerRefused):
                    raise told
                found[side, name] = {one.name: one.value for one in told}
        return found

    async def _filtered(self) -> dict[TopicPartition, list[Interval]]:
        """Return the ranges of backfills with ``--where`` or ``--select``.

        If such a backfill was abandoned, workers copied the rest of its range.
        """
        configs = ConfigTable(self._target, self._settings.configs_topic)
        await configs.read()
        found: dict[TopicPartition, list[Interval]] = {}
        for backfill in configs.records.backfills.values():
            for key, (first, seam) in backfill.ranges().items() if backfill.is_filtered else ():
                found.setdefault(key, []).append((first, seam))
        return found

    async def _quarantined(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, set[int]]:
        name = quarantine(self._settings.flow.source).name
        topic = (await fetch_metadata(self._target, [name])).topics.get(name)
        found: dict[TopicPartition, set[int]] = {}
        if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            return found
        if topic.error_code:
            raise BrokerRefused(f"Reading {name}", topic.error_code, remedy=f"mm2py needs READ on {name}.")
        wanted = set(keys)
        async for record in each_record(self._target, topic):
            try:
                entry = decode(record)
            except NotQuarantined:
                continue
            if isinstance(entry, QuarantineEntry):
                origin = entry.provenance.origin
                ids = (origin.topic_id, self._topic_id(self._on_source, (origin.topic, origin.partition)))
                is_old = None not in ids and ids[0] != str(ids[1])
                if (origin.topic, origin.partition) in wanted and not is_old:
                    found.setdefault((origin.topic, origin.partition), set()).add(origin.offset)
        return found

    async def _sizes(self, bounds: Mapping[TopicPartition, Interval]) -> dict[TopicPartition, float]:
        """Return about how many bytes an offset of a partition takes, measured by one read in its middle."""
        probes = [
            _Probe(key, self._topic_id(self._on_source, key), (start + end) // 2, self._clock)
            for key, (start, end) in bounds.items()
            if end - start > PROBED_OFFSETS
        ]
        reader = LogReader(self._source, read_committed=False, rng=self._rng, channel=CHANNEL)
        await reader.read(probes, lambda _: None)
        return {one.key: one.size for one in probes if one.size}

    @staticmethod
    def _topic_id(metadata: ClusterMetadata, key: TopicPartition) -> TopicId:
        topic = metadata.topics.get(key[0])
        return None if topic is None else topic.topic_id


class _Probe(LogStretch):
    """Reads once, to find out how many bytes an offset takes."""

    def __init__(self, key: TopicPartition, topic_id: TopicId, offset: int, clock: Clock) -> None:
        super().__init__(key[0], topic_id, key[1], clock)
        self._offset = offset
        self.size = 0.0

    @property
    def offset(self) -> int:
        return self._offset

    def take(self, fetched: FetchedPartition) -> bool:
        """The read is over with the first whole batch, or when it is given up."""
        try:
            read = [read_header(batch) for batch in split(fetched.records)]
        except CorruptBatch:
            return True
        if not read:
            return not len(fetched.records) or not self._is_patient(1.0)
        self.size = sum(one.size_bytes for one in read) / max(read[-1].next_offset - read[0].base_offset, 1)
        return True

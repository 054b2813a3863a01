"""Finds the partitions whose ledger does not reach back to their start, and where a rebuilt ledger must join it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.copying.positions import read_positions
from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.errors import ConfigError
from mm2py.flow import TopicName
from mm2py.kafka.admin import describe_topic_configs
from mm2py.kafka.cluster import ClusterMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import find_bounds
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.own_ledger import LedgerOf
from mm2py.offsets.partition_ledger import PartitionLedger, TopicId
from mm2py.rebuilding.pairing import NotRebuildable
from mm2py.records.source_offset import StoredPosition
from mm2py.topics.names import ledger_topic

_CLEANUP: Final = "cleanup.policy"


class RebuildOutcome(StrEnum):
    """The result for one partition."""

    WHOLE = "whole"
    """Nothing is missing."""
    REBUILT = "rebuilt"
    MISSING = "missing"
    """Of a dry run: the ledger would be rebuilt."""
    REFUSED = "refused"
    """The ledger cannot be made exact."""
    FAILED = "failed"
    """A cluster did not answer."""


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What the command reports about one partition."""

    topic: str
    """As the source names it."""
    partition: int
    remote_topic: str
    outcome: RebuildOutcome
    text: str = ""
    records: int = 0
    """How many were compared."""


@dataclass(frozen=True, slots=True)
class MissingPart:
    """The beginning of a partition that is missing in its ledger."""

    of: LedgerOf
    remote_topic: str
    number: int
    """Of the ledger that is to be made."""
    source_end: int
    """Where the ledgers that workers kept begin; without any, the stored position. ``target_end`` likewise."""
    target_end: int | None
    """None: the position has no target offset."""

    @property
    def key(self) -> TopicPartition:
        return self.of.topic, self.of.partition

    def report(self, outcome: RebuildOutcome, text: str, records: int = 0) -> RebuildReport:
        return RebuildReport(self.of.topic, self.of.partition, self.remote_topic, outcome, text, records)


class PartitionSelection(NamedTuple):
    """Which partitions are wanted."""

    topics: Collection[str] = ()
    """As the source names them; empty: all topics that the flow copies."""
    partition: int | None = None


class Join(NamedTuple):
    """Where a rebuilt ledger must end, and from which source offset on the present ledgers answer."""

    source_end: int
    target_end: int | None
    reaches_back_to: int


def join_of(
    ledger: PartitionLedger, stored: StoredPosition | None, source_topic_id: TopicId, target_topic_id: TopicId
) -> Join | None:
    """Return where a rebuilt ledger would have to end; None if nothing is missing.

    Args:
        stored: the position of the partition; None if there is none.
    Raises:
        NotRebuildable: the stored ledger or position belongs to topics that were deleted.
    """
    kept, rebuilt = ledger.kept, ledger.rebuilt
    if kept and not kept[-1].is_of(source_topic_id, target_topic_id):
        raise NotRebuildable("its ledger is of topics that were deleted since; no worker has copied the new ones yet")
    if kept:
        first = kept[0].ledger
        if first.is_whole:
            return None
        join = Join(first.source_start, first.target_start, first.source_start)
    elif stored is None:
        return None
    elif _differ(stored.source_topic_id, source_topic_id) or _differ(stored.target_topic_id, target_topic_id):
        raise NotRebuildable("its stored position is of topics that were deleted since")
    else:
        join = Join(stored.next_source, stored.next_target, stored.next_source)
    if rebuilt is None or not rebuilt.is_of(source_topic_id, target_topic_id):
        return join
    if rebuilt.ledger.copied_to < join.source_end:
        return join  # it is half written, or the oldest of the kept ledgers are gone
    return join._replace(reaches_back_to=rebuilt.ledger.source_start)


class LedgerSurvey:
    """Finds the missing parts of a flow's ledgers, and makes the reports on all other partitions."""

    def __init__(self, settings: FlowSettings, source: Brokers, target: Brokers, clock: Clock) -> None:
        self.missing: list[MissingPart] = []
        self.reports: list[RebuildReport] = []
        self._settings = settings
        self._source = source
        self._target = target
        self._clock = clock
        self._on_source = self._on_target = ClusterMetadata(None, {}, {})

    async def look(self, selection: PartitionSelection, log: FilteringBoundLogger) -> None:
        """Ask both clusters. No record of the topics themselves is read.

        Raises:
            ConfigError: a topic of the selection is not on the source.
            KafkaError: a cluster does not answer; ask again with a new survey if it is ``retriable``.
        """
        keys = await self._keys(selection)
        remotes = sorted({self._settings.remote_topic(topic) for topic, _ in keys})
        self._on_target = await fetch_metadata(self._target, [*remotes, self._settings.offsets_topic])
        ledgers = LedgerTable(self._target, ledger_topic(self._settings.flow.source), log)
        await ledgers.follow()
        await ledgers.prepare(keys)
        positions = await self._positions()
        joins: dict[TopicPartition, Join] = {}
        for key in keys:
            ids = self._topic_id(self._on_source, key[0]), self._topic_id(self._on_target, self._remote(key)[0])
            try:
                join = join_of(ledgers.of(key), positions.get(key), *ids)
            except NotRebuildable as error:
                self._note(key, RebuildOutcome.REFUSED, error.why)
                continue
            if join is None:
                self._note(key, RebuildOutcome.WHOLE)
            else:
                joins[key] = join
        await self._judge(joins, ledgers)

    async def _keys(self, selection: PartitionSelection) -> list[TopicPartition]:
        settings, wanted = self._settings, selection.topics
        self._on_source = await fetch_metadata(self._source, wanted or None)
        found: list[TopicPartition] = []
        for name, topic in sorted(self._on_source.topics.items()):
            if wanted and (topic.error_code or not topic.partitions):
                raise ConfigError(f"{settings.flow.source} does not show a topic {name!r}.", remedy="Name another one.")
            if settings.replicates(name) and (wanted or not settings.policy.is_heartbeats_topic(TopicName(name))):
                found += [(name, number) for number in sorted(topic.partitions)]
        if selection.partition is not None:
            found = [key for key in found if key[1] == selection.partition]
            if not found:
                raise ConfigError(f"There is no partition {selection.partition}.", remedy="Name another one.")
        return found

    async def _positions(self) -> dict[TopicPartition, StoredPosition]:
        topic = self._on_target.topics.get(self._settings.offsets_topic)
        if topic is None or not topic.partitions:
            return {}
        return (await read_positions(self._target, topic, self._settings.flow.source))[0]

    async def _judge(self, joins: dict[TopicPartition, Join], ledgers: LedgerTable) -> None:
        remote = {key: self._remote(key) for key in joins}
        on_source = await find_bounds(self._source, {key: self._on_source.leader_of(*key) for key in joins})
        on_target = await find_bounds(self._target, {one: self._on_target.leader_of(*one) for one in remote.values()})
        compacted = await self._compacted(sorted({topic for topic, _ in joins}))
        for key, join in joins.items():
            topic = self._on_target.topics.get(remote[key][0])
            if topic is None or key[1] not in topic.partitions:
                self._note(
                    key, RebuildOutcome.REFUSED, f"{remote[key][0]} has no such partition, or mm2py may not see it"
                )
                continue
            if key not in on_source or remote[key] not in on_target:
                self._note(key, RebuildOutcome.FAILED, "a leader of it does not answer")
                continue
            source_start, target_start = on_source[key][0], on_target[remote[key]][0]
            if join.reaches_back_to <= source_start:
                self._note(key, RebuildOutcome.WHOLE)
            elif why := self._why_not(key, source_start, target_start, compacted):
                self._note(key, RebuildOutcome.REFUSED, why)
            else:
                rebuilt = ledgers.of(key).rebuilt
                self.missing.append(
                    MissingPart(
                        LedgerOf(
                            TopicName(key[0]),
                            key[1],
                            self._topic_id(self._on_source, key[0]),
                            self._topic_id(self._on_target, remote[key][0]),
                        ),
                        remote[key][0],
                        max(self._clock.wall_ms(), -1 if rebuilt is None else rebuilt.number + 1),
                        join.source_end,
                        join.target_end,
                    )
                )

    def _why_not(
        self, key: TopicPartition, source_start: int, target_start: int, compacted: dict[str, str]
    ) -> str | None:
        flow, remote = self._settings.flow, self._remote(key)
        if self._settings.many_to_one:
            return "several flows write to its remote topic (many.to.one=true)"
        for alias, (topic, number), start in (
            (flow.source, key, source_start),
            (flow.target, remote, target_start),
        ):
            if start > 0:
                return f"{topic}-{number} on {alias} begins at offset {start}: records before it were deleted"
        return compacted.get(key[0])

    async def _compacted(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the topics that are compacted on either side, or may be, each with the reason as text."""
        if not topics:
            return {}
        remotes = {self._settings.remote_topic(topic): topic for topic in topics}
        flow, found = self._settings.flow, {}
        for alias, brokers, names in (
            (flow.source, self._source, {topic: topic for topic in topics}),
            (flow.target, self._target, remotes),
        ):
            for name, told in (await describe_topic_configs(brokers, list(names), keys=[_CLEANUP])).items():
                if isinstance(told, BrokerRefused):
                    if told.retriable:
                        raise told
                    found[names[name]] = f"{alias} does not tell whether {name} is compacted: {told.what}"
                elif any(one.name == _CLEANUP and "compact" in (one.value or "") for one in told):
                    found[names[name]] = f"{name} on {alias} is compacted"
        return found

    def _remote(self, key: TopicPartition) -> TopicPartition:
        return self._settings.remote_topic(key[0]), key[1]

    def _note(self, key: TopicPartition, outcome: RebuildOutcome, text: str = "") -> None:
        self.reports.append(RebuildReport(*key, self._remote(key)[0], outcome, text))

    @staticmethod
    def _topic_id(metadata: ClusterMetadata, topic: str) -> TopicId:
        found = metadata.topics.get(topic)
        return None if found is None else found.topic_id


def _differ(one: TopicId, other: TopicId) -> bool:
    return None not in {one, other} and one != other

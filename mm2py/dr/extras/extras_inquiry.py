"""Asks both clusters what the old side has and the new side never got. It changes nothing.

Where the last worker was killed, copies lie behind its stored position. They are counted on the new side by their
sequences, and then on the old side (``copying/recovery.py``), as the next owner of the partition would do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mm2py.clock import Clock
from mm2py.connector_offsets.turning import stored_positions
from mm2py.copying.reading.internal_table import each_placed_record
from mm2py.copying.reading.log_reader import LogReader, PlannedStretch
from mm2py.copying.recovery import LastWriter, SourceWalk, Tail, TailStretch
from mm2py.dr.cutover.pair import RecoveryPair, turned
from mm2py.dr.extras.found import ExtrasFound, OldSideFacts, PartitionExtras, judged
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka import admin
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata, until_answered
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import by_leader, find_bounds
from mm2py.kafka.port import Brokers, FetchedPartition, TopicPartition
from mm2py.records.batch import Record
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition

CHANNEL: Final = "extras"
END_PATIENCE_S: Final = 3.0
"""How long the old side's log may seem shorter than what was copied from it."""


LEADERS_WITHIN_S: Final = 30.0


class NoLeader(Mm2Error):
    """A partition has no leader that answers."""

    retriable = True

    def __init__(self, cluster: str, key: TopicPartition) -> None:
        super().__init__(f"{key[0]}-{key[1]} on {cluster} has no leader that answers.", remedy="Ask again.")


@dataclass(slots=True)
class _Reached:
    """How far a partition is copied, while it is being found out."""

    next_source: int = 0
    leader_epoch: int = -1
    """Of the record before that; -1: not known."""
    unclear: str = ""


class ExtrasInquiry:
    """What the source of one flow has, and its target not."""

    def __init__(self, pair: RecoveryPair, flow: Flow) -> None:
        self._pair = pair
        self._flow = flow
        self._settings = pair.settings[flow]
        self._source = pair.brokers[flow.source]
        self._target = pair.brokers[flow.target]

    async def look(self, topics: Sequence[str]) -> ExtrasFound:
        """Return what was found in topics, by their names on the source.

        A cluster that has just come back elects leaders for a while: it is asked again for ``LEADERS_WITHIN_S``.

        Raises: NoLeader; DamagedTopic, a batch cannot be read; KafkaError, a cluster does not answer, or refuses.
        """
        until_s = self._pair.clock.monotonic() + LEADERS_WITHIN_S
        while True:
            try:
                return await self._look(topics)
            except NoLeader:
                if self._pair.clock.monotonic() >= until_s:
                    raise
            await asyncio.sleep(1.0)

    async def _look(self, topics: Sequence[str]) -> ExtrasFound:
        rng, policy = self._pair.rng, self._settings
        positions = await stored_positions(self._settings, self._target, rng=rng)
        arrived: Mapping[TopicPartition, StoredPosition] = {}
        if self._pair.keeps_names(self._flow):
            back = turned(self._flow)
            arrived = await stored_positions(self._pair.settings[back], self._source, rng=rng)
        remote_names = {name: policy.remote_topic(name) for name in topics}
        there = await until_answered(lambda: _topics(self._source, topics), rng=rng)
        remotes = await until_answered(lambda: _topics(self._target, [*remote_names.values()]), rng=rng)
        bounds = await self._bounds(there)
        known = {key: at for key, at in positions.items() if key[0] in set(topics)}
        reached = {key: _Reached(at.next_source, _epoch(at)) for key, at in known.items()}
        await self._add_tails({key: known[key] for key in known if key in bounds}, reached, there, remotes)
        for key in bounds.keys() & arrived.keys():
            brought = arrived[key].next_target
            if brought is not None and brought > reached.get(key, _Reached()).next_source:
                reached[key] = _Reached(brought)
        epoch_ends = await self._epoch_ends({key: reached[key] for key in bounds if key in reached}, there)
        found = []
        for key in sorted({*bounds, *known}):
            start, end = bounds.get(key, (0, 0))
            at, position = reached.get(key, _Reached(start)), known.get(key)
            facts = OldSideFacts(
                at.next_source,
                start,
                end,
                epoch_ends.get(key),
                is_anew=_is_anew(position, there.get(key[0])),
                unclear=at.unclear or self._recreated(position, remotes.get(remote_names[key[0]])),
            )
            found.append(judged(*key, facts))
        return ExtrasFound(self._flow, tuple([one async for one in self._counted(found, there)]))

    async def records(self, part: PartitionExtras) -> AsyncIterator[Record]:
        """Yield the records of data of a partition that only the source has, in order. Raises: as ``look``."""
        there = await until_answered(lambda: _topics(self._source, [part.topic]), rng=self._pair.rng)
        only = _only(there[part.topic], [part.number])
        async for _, record in each_placed_record(self._source, only, {part.number: part.first}):
            if record.offset >= part.end:
                return
            yield record

    async def _bounds(self, there: Mapping[str, TopicMetadata]) -> dict[TopicPartition, tuple[int, int]]:
        leaders = {(name, n): part.leader for name, topic in there.items() for n, part in topic.partitions.items()}
        bounds = await find_bounds(self._source, leaders)
        for key in leaders:
            if key not in bounds:
                raise NoLeader(self._flow.source, key)
        return bounds

    async def _add_tails(
        self,
        known: Mapping[TopicPartition, StoredPosition],
        reached: dict[TopicPartition, _Reached],
        there: Mapping[str, TopicMetadata],
        remotes: Mapping[str, TopicMetadata],
    ) -> None:
        """Add what the last producer has written behind its stored positions."""
        clock, rng = self._pair.clock, self._pair.rng
        tails: dict[TopicPartition, TailStretch] = {}
        for key, at in known.items():
            remote = remotes.get(self._settings.remote_topic(key[0]))
            if remote is None or key[1] not in remote.partitions or not _is_open(at):
                continue
            assert at.producer_id is not None and at.producer_epoch is not None and at.next_target is not None  # noqa: S101
            writer = LastWriter(at.producer_id, at.producer_epoch, at.next_sequence or 0)
            tail = Tail(at.next_target, writer, fence_epoch=None)
            tails[key] = TailStretch(remote.name, remote.topic_id, key[1], tail, clock)
        reader = LogReader(self._target, read_committed=False, rng=rng, channel=CHANNEL)
        await reader.read(tails.values(), lambda _: None)
        walks: dict[TopicPartition, _CountedStretch] = {}
        for key, stretch in tails.items():
            tail = stretch.tail
            if not tail.is_whole or tail.cut_at is not None or tail.has_holes:
                reached[key].unclear = f"{self._flow.target} has lost copies of it, or cannot be read to its end"
            elif tail.stored and known[key].transforms is not None:
                reached[key].unclear = (
                    f"{tail.stored:,} copies lie behind the stored position {reached[key].next_source:,}, and they were"
                    " changed by transforms"
                )
            elif tail.stored:
                walk = SourceWalk(reached[key].next_source, reached[key].leader_epoch, tail.stored)
                committed = self._settings.read_committed
                walks[key] = _CountedStretch(there[key[0]], key[1], walk, read_committed=committed, clock=clock)
        walker = LogReader(self._source, read_committed=self._settings.read_committed, rng=rng, channel=CHANNEL)
        await walker.read(walks.values(), lambda _: None)
        for key, counted in walks.items():
            walk, stored = counted.walk, tails[key].tail.stored
            if walk.is_over and walk.is_proven_by(tails[key].tail):
                reached[key] = _Reached(walk.resume_offset, walk.leader_epoch)
            else:
                reached[key].unclear = (
                    f"{stored:,} copies lie behind the stored position {reached[key].next_source:,}, and"
                    f" {self._flow.source} has other records there"
                )

    async def _epoch_ends(
        self, reached: Mapping[TopicPartition, _Reached], there: Mapping[str, TopicMetadata]
    ) -> dict[TopicPartition, int]:
        asked = {key: at.leader_epoch for key, at in reached.items() if at.leader_epoch >= 0 and at.next_source > 0}
        found: dict[TopicPartition, int] = {}
        leaders = {key: there[key[0]].partitions[key[1]].leader for key in asked}
        for leader, keys in by_leader(leaders).items():
            found |= await admin.epoch_ends(self._source, leader, {key: asked[key] for key in keys})
        for key in asked:
            if key not in found:
                raise NoLeader(self._flow.source, key)
        return found

    def _recreated(self, position: StoredPosition | None, remote: TopicMetadata | None) -> str:
        if position is None or position.target_topic_id is None:
            return ""
        if remote is None or remote.topic_id != position.target_topic_id:
            return f"the copy on {self._flow.target} was deleted, or made anew"
        return ""

    async def _counted(
        self, found: Sequence[PartitionExtras], there: Mapping[str, TopicMetadata]
    ) -> AsyncIterator[PartitionExtras]:
        """Yield the partitions with the number of their records."""
        by_topic: dict[str, list[PartitionExtras]] = {}
        for one in found:
            by_topic.setdefault(one.topic, []).append(one)
        for name, parts in by_topic.items():
            wanted = {one.number: one for one in parts if one.first < one.end}
            counts, read_to = dict.fromkeys(wanted, 0), {number: one.first for number, one in wanted.items()}
            if wanted:
                async for number, record in each_placed_record(self._source, _only(there[name], wanted), read_to):
                    counts[number] += record.offset < wanted[number].end
            for one in parts:
                read = read_to.get(one.number, one.end)
                is_open = one.number in wanted and read < one.end
                yield replace(one, records=counts.get(one.number, 0), open_from=read if is_open else None)


class _CountedStretch(PlannedStretch):
    """A source partition from its stored position to where its copies end."""

    def __init__(
        self, topic: TopicMetadata, partition: int, walk: SourceWalk, *, read_committed: bool, clock: Clock
    ) -> None:
        super().__init__(
            topic.name,
            topic.topic_id,
            partition,
            offset=walk.resume_offset,
            read_committed=read_committed,
            clock=clock,
            transforms=None,
        )
        self.walk = walk

    def decode(self, fetched: FetchedPartition) -> None:
        super().decode(fetched)
        self.walk.take(self.planned.steps)

    def take(self, fetched: FetchedPartition) -> bool:
        if self.walk.is_over or fetched.error_code == OFFSET_OUT_OF_RANGE:
            return True
        end = fetched.last_stable_offset if self.read_committed else fetched.high_watermark
        return not self._is_patient(END_PATIENCE_S) and (self.planned.fault is not None or self.offset >= end)


def _is_anew(position: StoredPosition | None, topic: TopicMetadata | None) -> bool:
    """Whether the source's topic is gone, or another one than was copied."""
    if position is None or position.source_topic_id is None:
        return False
    return topic is None or topic.topic_id != position.source_topic_id


def _epoch(at: StoredPosition) -> int:
    return -1 if at.source_leader_epoch is None else at.source_leader_epoch


def _is_open(at: StoredPosition) -> bool:
    """Whether copies may lie behind a position."""
    is_known = at.producer_id is not None and at.producer_epoch is not None and at.next_target is not None
    return is_known and not at.drained and at.by != BY_OPERATOR


async def _topics(brokers: Brokers, names: Sequence[str]) -> dict[str, TopicMetadata]:
    """Return the topics that are there. Raises: BrokerRefused, it is not known of one."""
    if not names:
        return {}
    found = (await fetch_metadata(brokers, sorted(set(names)))).topics
    for name in names:
        code = found[name].error_code if name in found else UNKNOWN_TOPIC_OR_PARTITION
        if code not in {0, UNKNOWN_TOPIC_OR_PARTITION}:
            raise BrokerRefused(f"Looking at {name}", code, remedy=f"mm2py dr needs DESCRIBE and READ on {name}.")
    return {name: found[name] for name in names if name in found and not found[name].error_code}


def _only(topic: TopicMetadata, numbers: Sequence[int] | Mapping[int, object]) -> TopicMetadata:
    return replace(topic, partitions={number: topic.partitions[number] for number in numbers})

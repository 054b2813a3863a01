"""Asks both clusters of a flow, or the target alone, where offsets of a program are exactly. It writes nothing.

The program has stopped, so its offsets are known first. Then the ledgers are read, and then the logs: so no place is
beyond an end that was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.flow import TopicName
from mm2py.kafka.cluster import ClusterMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused, Reaction
from mm2py.kafka.list_offsets import find_bounds
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.checkpoint_rule import remote_topic_of, upstream_topic_of
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.relocate.placing import KeptOffset, PlacedOffset, PlaceInLog, TwoLogs, place_exactly, refused
from mm2py.status.ledger_topics import missing, recreated, side_of, unknown_side
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.names import ledger_topic

LEDGER_LATE_S: Final = 2.0
"""How long after a record was copied the ledger may not have it yet."""
_NO_LEDGER: Final = PartitionLedger()


class _Looked(NamedTuple):
    """What was read at one look."""

    outward: LedgerTable
    homeward: LedgerTable | None
    """None: it cannot be read."""
    here: ClusterMetadata | None
    """None: the cluster does not answer."""
    there: ClusterMetadata
    bounds: Mapping[TopicPartition, tuple[int, int]] | None
    bounds_there: Mapping[TopicPartition, tuple[int, int]]


class PlaceInquiry:
    """Offsets of a program that leaves the source of a flow and goes on on its target."""

    def __init__(self, settings: FlowSettings, source: Brokers, target: Brokers, log: FilteringBoundLogger) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self._log = log

    async def look(self, kept: Iterable[KeptOffset], *, is_target_alone: bool) -> list[PlacedOffset]:
        """Return where offsets are there, in the same order. An offset that is not found is looked up once more.

        Raises:
            BrokerRefused: a right is missing; the error names it.
            NewerLedgerFormat: a newer mm2py has written a ledger.
            DamagedTopic, KafkaError: as ``read_table``.
        """
        asked = list(kept)
        found = await self._look(asked, is_target_alone=is_target_alone)
        if any(one.place.offset is None for one in found):
            await asyncio.sleep(LEDGER_LATE_S)  # the ledger may not have the last copies yet
            found = await self._look(asked, is_target_alone=is_target_alone)
        return found

    async def _look(self, kept: list[KeptOffset], *, is_target_alone: bool) -> list[PlacedOffset]:
        flow = self._settings.flow
        outward = LedgerTable(self._target, ledger_topic(flow.source), self._log)
        await outward.follow()
        homeward = None if is_target_alone else await self._homeward()
        there = await fetch_metadata(self._target, None)
        here = None if is_target_alone else await fetch_metadata(self._source, None)
        names = [one.topic or self._name_of(one, outward, here, there) for one in kept]
        keys = {(name, one.partition) for name, one in zip(names, kept, strict=True) if name}
        await outward.prepare(keys)
        bounds = None if here is None else await find_bounds(self._source, {key: here.leader_of(*key) for key in keys})
        others = {(self._other(topic), number) for topic, number in keys}
        if homeward is not None:
            await homeward.prepare(others)
        bounds_there = await find_bounds(self._target, {key: there.leader_of(*key) for key in others})
        looked = _Looked(outward, homeward, here, there, bounds, bounds_there)
        return [self._placed(one, name, looked) for one, name in zip(kept, names, strict=True)]

    async def _homeward(self) -> LedgerTable | None:
        """Return the ledger of the flow in the other direction, which need not exist; None: it may not be read."""
        table = LedgerTable(self._source, ledger_topic(self._settings.flow.target), self._log)
        try:
            await table.follow()
        except BrokerRefused as error:
            if error.reaction is not Reaction.DENIED:
                raise
            return None
        return table

    def _name_of(
        self, kept: KeptOffset, outward: LedgerTable, here: ClusterMetadata | None, there: ClusterMetadata
    ) -> str:
        """Return the name of the topic with an id; empty: there is none. Without its cluster the ledger tells."""
        if here is not None:
            return next((one.name for one in here.topics.values() if str(one.topic_id) == kept.topic_id), "")
        flow, policy = self._settings.flow, self._settings.policy
        for name in there.topics:
            topic = upstream_topic_of(TopicName(name), policy, flow, outward.topics())
            ledgers = outward.of((topic, kept.partition)).ledgers if topic is not None else []
            if ledgers and str(ledgers[-1].source_topic_id) == kept.topic_id:
                return str(topic)
        return ""

    def _other(self, topic: str) -> str:
        return str(remote_topic_of(TopicName(topic), self._settings.policy, self._settings.flow))

    def _placed(self, kept: KeptOffset, topic: str, looked: _Looked) -> PlacedOffset:
        flow = self._settings.flow
        if not topic:
            text = f"no topic that {flow.source} has, or {flow} copies, has the id {kept.topic_id}"
            remedy = f"Is the query one of {flow.source}, and was the topic not recreated since? Else begin anew."
            return PlacedOffset(kept, "", "", "", refused(text, remedy))
        key, other = (topic, kept.partition), (self._other(topic), kept.partition)
        there = looked.there.topics.get(other[0])
        topic_id = "" if there is None or there.topic_id is None else str(there.topic_id)
        return PlacedOffset(kept, topic, other[0], topic_id, self._place(kept.offset, key, other, looked))

    def _place(self, offset: int, key: TopicPartition, other: TopicPartition, looked: _Looked) -> PlaceInLog:
        flow = self._settings.flow
        if why := self._not_copied(key, looked):
            return refused(why, f"Let {flow} copy it, or leave it out of the query and begin anew.")
        here = unknown_side(key, flow.source)
        if looked.here is not None:
            here = side_of(key, flow.source, looked.here.topics.get(key[0]))
        there = side_of(other, flow.target, looked.there.topics.get(other[0]))
        outward, homeward = looked.outward.of(key), looked.homeward.of(other) if looked.homeward else None
        why = missing(here, there) or recreated(outward, here, there) or recreated(homeward or _NO_LEDGER, there, here)
        if why:
            return refused(why, f"Start the query on {flow.target} with a new checkpoint, when {flow} has copied it.")
        if other not in looked.bounds_there or (looked.bounds is not None and key not in looked.bounds):
            return refused(f"{key[0]}-{key[1]} or its copy has no leader now", "Ask again when both have one.")
        facts = TwoLogs(
            here=flow.source,
            there=flow.target,
            name=f"{key[0]}-{key[1]}",
            name_there=f"{other[0]}-{other[1]}",
            outward=outward,
            homeward=homeward,
            bounds=None if looked.bounds is None else looked.bounds[key],
            bounds_there=looked.bounds_there[other],
        )
        return place_exactly(offset, facts)

    def _not_copied(self, key: TopicPartition, looked: _Looked) -> str:
        """Return that no flow copies a topic; empty if one does, or has."""
        flow, other = self._settings.flow, (self._other(key[0]), key[1])
        if looked.outward.of(key).ledgers or (looked.homeward is not None and looked.homeward.of(other).ledgers):
            return ""
        try:
            return "" if self._settings.replicates(key[0]) else f"{flow} does not copy {key[0]}"
        except PatternTooSlow as error:
            return str(error)

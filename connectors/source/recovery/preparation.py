"""How an incarnation of a flow starts: what must hold is seen to, in order, until no other can change its positions.

Answers to what Connect's worker and DistributedHerder do before MirrorSourceConnector starts: internal topics are made,
offsets read. Unless told to be exact they trust a rebalance to have stopped the previous tasks; here previous
producers are fenced, and only then the positions count.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from connectors.source import start
from connectors.source.errors import ExactlyOnceImpossible, OneCluster, TableUnusable, refuse_another_source
from connectors.source.gap_keeper import GapKeeper
from connectors.source.recovery.previous_producers import PreviousProducers
from connectors.source.resume_from_mm2 import refuse_running_mm2
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connector import Side
from mm2py.group.ownership import Ownership
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import ProducerIdentity
from mm2py.kafka.producer import transactions
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.position_store import read_positions

T = TypeVar("T")

PATIENCE_S: Final = 15.0
"""How long a flow waits for the status topic to be read, and for coordinators to list transactional ids, before it
starts without. What a dead broker led is led again by then."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a life knows when it may copy."""

    source_id: str | None
    target_id: str | None
    identity: ProducerIdentity
    """Under what it writes first."""
    previous: PreviousProducers
    offsets_partitions: int
    positions: dict[tuple[str, int], StoredPosition]
    """What was stored, by source topic and partition; nobody else can change it any more."""
    fence_and_prove: Callable[[TopicMetadata], Awaitable[bool]]
    """Fences all previous producers in a topic, and tells whether there are any."""
    fence_unknown: Callable[[], Awaitable[object]]
    """Fences the producers in the positions that the group does not know; for the head, before it lists anything."""


class Preparation:
    """Of one incarnation of a flow."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Side,
        target: Side,
        *,
        name: TransactionalId,
        ended: Collection[int],
        ownership: Ownership,
        incarnation: Incarnation,
        gaps: GapKeeper,
        note: Callable[[str], None],
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``ended`` as in ``PreviousProducers``; ``note`` gets the reason of each wait, for the flow's status."""
        self._settings = settings
        self._flow = settings.flow
        self._source = source
        self._target = target
        self._brokers = target.brokers
        self._name = name
        self._ended = ended
        self._ownership = ownership
        self._incarnation = incarnation
        self._gaps = gaps
        self._patience = start.Patience(clock=clock, rng=rng, log=log, note=note)
        self._clock = clock
        self._rng = rng
        self._log = log

    async def run(self) -> Prepared:
        """Wait until the flow may copy. Cancelling loses nothing: the next attempt does all of it again.

        Raises:
            FlowRefused: the flow must not run; the error names the way out.
            Mm2Error: it cannot go on as it is, but may when it is started again.
        """
        settings, target, until_answered = self._settings, self._brokers, self._patience.until_answered
        source_id, target_id = await asyncio.gather(
            self._patience.reach(self._source, "source"), self._patience.reach(self._target, "target")
        )
        if source_id is not None and source_id == target_id:
            raise OneCluster(self._flow, source_id)
        refuse_another_source(self._flow, settings.group, here=source_id, there=self._ownership.source_cluster)
        await until_answered(
            lambda: refuse_running_mm2(settings, target, self._log), "looking for a live MirrorMaker 2"
        )
        offsets_partitions = await until_answered(
            lambda: start.ensure_offsets_topic(settings, target), "creating the offsets topic"
        )
        await self._with_patience(self._gaps.open, "opening the status topic", _status_why(settings.status_topic))
        identity = await self._incarnation.start()
        unfenced = self._incarnation.degraded or self._ownership.fates.unfenced
        if unfenced and settings.exactly_once == "enabled":
            raise ExactlyOnceImpossible(self._flow, unfenced)
        previous = PreviousProducers(
            target, self._incarnation, self._name, ended=self._ended, ownership=self._ownership, rng=self._rng
        )
        positions = await self._take_over(previous)
        return Prepared(
            source_id=source_id,
            target_id=target_id,
            identity=identity,
            previous=previous,
            offsets_partitions=offsets_partitions,
            positions=positions,
            fence_and_prove=functools.partial(self._fence_and_prove, previous),
            fence_unknown=functools.partial(self._take_over, previous),
        )

    async def _take_over(self, previous: PreviousProducers) -> dict[tuple[str, int], StoredPosition]:
        """Fence the producers that may still write, and return positions that no other can change any more."""
        listed = await self._with_patience(
            functools.partial(self._list_transactions, previous),
            "asking coordinators for previous producers",
            "a coordinator has not listed its transactional ids yet",
        )
        if listed is None:
            previous.unfenced = (
                f"a coordinator did not list its transactional ids within {PATIENCE_S:g} s, so a previous process that"
                " has left no position may still write"
            )
            self._log.warning("producers.not_listed", why=previous.unfenced, effect="the flow is at-least-once")
        return await self._patience.until_answered(
            lambda: self._fence_and_read(previous, listed), "fencing previous producers and reading positions"
        )

    async def _list_transactions(self, previous: PreviousProducers) -> dict[str, int]:
        """Return the producer ids that coordinators know, by transactional id, and let ``previous`` know of them."""
        listed: dict[str, int] = {}
        for broker in (await fetch_metadata(self._brokers, [])).brokers:
            for one in await transactions.list_transactions(self._brokers, broker):
                listed[one.transactional_id] = one.producer_id
        previous.learn_listed(listed)
        return listed

    async def _fence_and_read(
        self, previous: PreviousProducers, listed: Mapping[str, int] | None
    ) -> dict[tuple[str, int], StoredPosition]:
        positions, metadata = await self._read_positions()
        if listed is not None:
            await previous.find_expired(positions.values(), listed)
        previous.learn(positions.values())
        if await self._fence_and_prove(previous, metadata.topics[self._settings.offsets_topic]):
            positions, _ = await self._read_positions()
            previous.learn(positions.values())
        return positions

    async def _with_patience(self, ask: Callable[[], Coroutine[Any, Any, T]], what: str, why: str) -> T | None:
        """Wait for an answer for a while. Without it copying goes on, unless exactly-once is a must: None then."""
        must = self._settings.exactly_once == "enabled"
        try:
            async with asyncio.timeout(None if must else PATIENCE_S):
                return await self._patience.accompany(self._patience.until_answered(ask, what), what, why)
        except TimeoutError:
            return None
        except (BrokerRefused, TableUnusable) as error:
            if must:
                raise ExactlyOnceImpossible(self._flow, str(error)) from error
            return None

    async def _fence_and_prove(self, previous: PreviousProducers, topic: TopicMetadata) -> bool:
        return await self._patience.accompany(
            previous.fence_and_prove(
                topic, clock=self._clock, unfenced=lambda why: self._say_unfenced(topic.name, why)
            ),
            f"fencing previous producers in {topic.name}",
            "their markers have not come; it takes WRITE on that topic, and a transaction coordinator that answers",
        )

    def _say_unfenced(self, topic: str, why: str) -> None:
        if self._settings.exactly_once == "enabled":
            raise ExactlyOnceImpossible(self._flow, why)
        holds_positions = topic == self._settings.offsets_topic
        does = "its positions may replace ours" if holds_positions else "records may be there twice"
        self._log.warning("writer.unfenced", topic=topic, why=why, effect=f"if that process still runs, {does}")

    async def _read_positions(self) -> tuple[dict[tuple[str, int], StoredPosition], ClusterMetadata]:
        name = self._settings.offsets_topic
        metadata = await fetch_metadata(self._brokers, [name])
        positions, malformed = await read_positions(self._brokers, metadata.topics[name], self._settings.source.alias)
        if malformed:
            self._log.warning("positions.malformed", topic=name, records=len(malformed), first=malformed[0])
        return positions, metadata


def _status_why(topic: str) -> str:
    return (
        f"{topic} has not been read yet; it takes READ and WRITE on it, and as many replicas in sync as its"
        " min.insync.replicas wants"
    )

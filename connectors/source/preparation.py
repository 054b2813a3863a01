"""How a life of a flow begins: what must be so is seen to, in order, until nobody else can change its positions.

Answers to what Connect's worker and DistributedHerder do before MirrorSourceConnector starts: internal topics are made,
offsets read. Unless told to be exact they trust a rebalance to have stopped whoever ran the flow before; here earlier
lives are shut out, and only then positions are believed.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from connectors.source import start
from connectors.source.gap_keeper import GapKeeper
from connectors.source.incarnations import Incarnations, UnrecordedLives
from connectors.source.own_record import OwnRecord
from connectors.source.refusals import ExactlyOnceImpossible, OneCluster, TableUnusable, refuse_another_source
from connectors.source.resume_from_mm2 import refuse_running_mm2
from connectors.source.takeover import EarlierLives
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connector import Side
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import ProducerIdentity
from mm2py.kafka.producer.expiry import find_producer_expiry_ms
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.kafka.producer.transactional_ids import TransactionalId
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.position_store import read_positions
from mm2py.replication.status_log import StatusLog
from mm2py.worker.ownership import Ownership

T = TypeVar("T")

STATUS_PATIENCE_S: Final = 15.0
"""How long a flow waits for the status topic to be read, and how long for its record there to be taken, before it
begins without. What a dead broker led is led again by then."""
PATIENCE_GROWS_MOST: Final = 4
"""A process waits longer in each of its lives, up to so many times as long. Else two whose status topic opens slowly
would shut each other out for ever, and neither would read of the other."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a life knows when it may copy."""

    source_id: str | None
    target_id: str | None
    identity: ProducerIdentity
    """Under what it writes first."""
    producer_expiry_ms: int
    """How long the target remembers producers."""
    lives: EarlierLives
    record: OwnRecord
    """That of this life, if it could be written, and what is missing if not."""
    offsets_partitions: int
    positions: dict[tuple[str, int], StoredPosition]
    """What was stored, by source topic and partition; nobody else can change it any more."""
    shut_out: Callable[[TopicMetadata], Awaitable[bool]]
    """Shuts all earlier lives out of a topic, and tells whether there are any."""
    meet_strangers: Callable[[], Awaitable[None]]
    """Shuts those out of the positions whom the group does not know; for the head, before it lists anything."""


class Preparation:
    """Of one life of a flow."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Side,
        target: Side,
        *,
        name: TransactionalId,
        ownership: Ownership,
        incarnation: Incarnation,
        gaps: GapKeeper,
        note: Callable[[str], None],
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``note`` gets the reason of each wait, for the flow's status."""
        self._settings = settings
        self._flow = settings.flow
        self._source = source
        self._target = target
        self._brokers = target.brokers
        self._name = name
        self._ownership = ownership
        self._incarnation = incarnation
        self._gaps = gaps
        self._patience = start.Patience(clock=clock, rng=rng, log=log, note=note)
        self._clock = clock
        self._rng = rng
        self._log = log
        self._incarnations: Incarnations | None = None

    async def run(self) -> Prepared:
        """Wait until the flow may copy. Cancelling loses nothing: a next life does all of it again.

        One that fails has written neither a record nor a position, and says so: thousands of attempts, while a right
        is missing, would all have to be shut out by the first that succeeds.

        Raises:
            FlowRefused: the flow must not run; the error names the way out.
            Mm2Error: it cannot go on as it is, but may when begun anew.
        """
        try:
            return await self._prepare()
        except Exception:
            if self._incarnations is not None:
                await self._incarnations.leave()
            raise

    async def _prepare(self) -> Prepared:
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
            lambda: start.ensure_table(settings, start.offsets_table(settings), target), "creating the offsets topic"
        )
        self._incarnations = incarnations = await self._open_incarnations()
        identity = await self._incarnation.start()
        producer_expiry_ms = await until_answered(
            lambda: find_producer_expiry_ms(target, self._log), "asking how long the target remembers producers"
        )
        if self._incarnation.degraded and settings.exactly_once == "enabled":
            raise ExactlyOnceImpossible(self._flow, self._incarnation.degraded)
        lives = EarlierLives(target, self._incarnation, self._name, ownership=self._ownership, rng=self._rng)
        record = self._own_record(lives)
        if incarnations is not None and await self._enter(incarnations, identity, lives):
            record.entered(incarnations)
        self._gaps.on_read, self._gaps.on_made_anew = record.look, record.write_again
        positions = await self._succeed(lives, record)
        return Prepared(
            source_id=source_id,
            target_id=target_id,
            identity=identity,
            producer_expiry_ms=producer_expiry_ms,
            lives=lives,
            record=record,
            offsets_partitions=offsets_partitions,
            positions=positions,
            shut_out=functools.partial(self._shut_out, lives),
            meet_strangers=functools.partial(self._meet_strangers, lives, record),
        )

    async def _meet_strangers(self, lives: EarlierLives, record: OwnRecord) -> None:
        incarnations = record.incarnations
        if incarnations is not None:
            await self._patience.until_answered(functools.partial(incarnations.meet, lives), "looking for strangers")
        await self._succeed(lives, record)

    async def _succeed(self, lives: EarlierLives, record: OwnRecord) -> dict[tuple[str, int], StoredPosition]:
        """Shut those out that ``lives`` knows of, or coordinators do, and return what they have stored."""
        if record.incarnations is None:
            unrecorded = UnrecordedLives(self._name, self._brokers, clock=self._clock, log=self._log)
            await self._patience.until_answered(
                functools.partial(unrecorded.meet, {str(self._name)}, lives), "asking coordinators for earlier lives"
            )
        positions = await self._patience.until_answered(
            lambda: self._take_over(lives), "shutting earlier lives out and reading positions"
        )
        if record.incarnations is not None:
            await self._record_others(record.incarnations, lives, positions.values())
        return positions

    def _own_record(self, lives: EarlierLives) -> OwnRecord:
        return OwnRecord(
            self._flow,
            self._gaps,
            self._incarnation,
            lives,
            topic=self._settings.status_topic,
            make=self._make_incarnations,
            log=self._log,
        )

    def _make_incarnations(self, status: StatusLog) -> Incarnations:
        return Incarnations(
            self._flow,
            self._name,
            self._brokers,
            status,
            ownership=self._ownership,
            clock=self._clock,
            log=self._log,
        )

    async def _open_incarnations(self) -> Incarnations | None:
        status = await self._with_status(self._gaps.open, "opening the status topic")
        if status is None:
            return None
        found = self._make_incarnations(status)
        found.refuse_if_taken_over()
        return found

    async def _enter(self, incarnations: Incarnations, identity: ProducerIdentity, lives: EarlierLives) -> bool:
        """Leave a record of this life, and meet those before it; returns whether it could be done soon."""

        async def enter() -> bool:
            await incarnations.enter(identity, lives)
            return True

        return await self._with_status(enter, "looking for earlier lives") or False

    async def _record_others(
        self, incarnations: Incarnations, lives: EarlierLives, positions: Iterable[StoredPosition]
    ) -> None:
        """Record what became of those before this life. What is not taken soon, a next one does."""

        async def record() -> None:
            await incarnations.shut_out(lives)
            await incarnations.forget({at.producer_id for at in positions if at.producer_id is not None})

        await self._with_status(record, "recording what became of earlier lives")

    async def _with_status(self, ask: Callable[[], Coroutine[Any, Any, T]], what: str) -> T | None:
        """Do what takes the status topic. Without it copying goes on, unless exactly-once is a must: None then."""
        must, topic = self._settings.exactly_once == "enabled", self._settings.status_topic
        try:
            patience_s = STATUS_PATIENCE_S * min(1 + self._name.life, PATIENCE_GROWS_MOST)
            async with asyncio.timeout(None if must else patience_s):
                return await self._patience.accompany(
                    self._patience.until_answered(ask, what),
                    what,
                    f"{topic} has not been read, or has not taken a record, yet; it takes READ and WRITE on it, and as"
                    " many replicas in sync as its min.insync.replicas wants",
                )
        except TimeoutError:
            return None
        except (BrokerRefused, TableUnusable) as error:
            if must:
                raise ExactlyOnceImpossible(self._flow, str(error)) from error
            return None  # the gaps say so

    async def _take_over(self, lives: EarlierLives) -> dict[tuple[str, int], StoredPosition]:
        """Return positions that nobody else can change any more, where the target lets us see to that."""
        positions, metadata = await self._read_positions()
        lives.learn(positions.values())
        if await self._shut_out(lives, metadata.topics[self._settings.offsets_topic]):
            positions, _ = await self._read_positions()
            lives.learn(positions.values())
        return positions

    async def _shut_out(self, lives: EarlierLives, topic: TopicMetadata) -> bool:
        return await self._patience.accompany(
            lives.shut_out(topic, clock=self._clock, unfenced=lambda why: self._say_unfenced(topic.name, why)),
            f"shutting earlier lives out of {topic.name}",
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

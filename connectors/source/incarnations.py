"""The lives of a flow: who wrote before, who has taken over, and when this one ends.

Each life writes a record of itself to ``mm2-status.A.internal`` before its first batch, all into one partition: their
order there says who is younger. The younger shuts the older out; the older, when it notices, stops and says so. What
has lost its record is found by asking the coordinators which transactional ids they know. MirrorMaker 2's workers have
their group for this; a control log will.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from connectors.source.refusals import TakenOver
from connectors.source.takeover import EarlierLives
from mm2py.clock import Clock
from mm2py.flow import Flow
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import Brokers, ProducerIdentity
from mm2py.kafka.producer import transactions
from mm2py.kafka.producer.incarnation import Fenced, Incarnation
from mm2py.kafka.producer.transactional_ids import TransactionalId, parse
from mm2py.records.status_record import IncarnationRecord, Life
from mm2py.replication.status_log import StatusLog
from mm2py.worker.ownership import Ownership

LEAVE_S: Final = 3.0
"""How long a life that ends waits until it is known to have ended well."""


class UnrecordedLives:
    """Those of a flow that left no record of themselves, or of which none can be read: the coordinators tell."""

    def __init__(self, own: TransactionalId, target: Brokers, *, clock: Clock, log: FilteringBoundLogger) -> None:
        self.met: list[IncarnationRecord] = []
        """What to record of them once they are shut out."""
        self._own = own
        self._target = target
        self._clock = clock
        self._log = log

    async def meet(self, known: Collection[str], earlier: EarlierLives) -> Mapping[str, int] | None:
        """Let ``earlier`` know of those whose transactional ids are not ``known``.

        Returns: producer ids by transactional id, all of this flow; None if a coordinator does not tell.
        """
        listed = await self._listed()
        if listed is None:
            return None
        unknown = [text for text in listed if text not in known and not earlier.spares(text)]
        for transactional_id in unknown:
            earlier.meet(transactional_id, listed[transactional_id], -1)
            self.met.append(self.fenced(transactional_id, listed[transactional_id], -1))
        if unknown:
            self._log.info("incarnation.without_record", incarnations=len(unknown), first=unknown[0])
        return listed

    def fenced(self, transactional_id: str, producer_id: int, epoch: int) -> IncarnationRecord:
        """Return a record of one of them that was shut out."""
        flows, now_ms = (self._own.flow,), self._clock.wall_ms()
        return IncarnationRecord(transactional_id, producer_id, epoch, flows, now_ms, Life.FENCED)

    async def _listed(self) -> dict[str, int] | None:
        """Return producer ids by transactional id of this flow, as all coordinators know them; None if one does not
        tell."""
        found: dict[str, int] = {}
        try:
            for broker in (await fetch_metadata(self._target, [])).brokers:
                for listed in await transactions.list_transactions(self._target, broker):
                    name = parse(listed.transactional_id, self._own.group)
                    if name is not None and name.flow == self._own.flow:
                        found[listed.transactional_id] = listed.producer_id
        except KafkaError as error:
            self._log.warning(
                "incarnations.not_listed",
                why=str(error),
                effect="a process of this flow that has left neither a record nor a position is not noticed",
            )
            return None
        return found


class Incarnations:
    """What is known of this flow's lives."""

    def __init__(
        self,
        flow: Flow,
        own: TransactionalId,
        target: Brokers,
        status: StatusLog,
        *,
        ownership: Ownership,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._flow = flow
        self._own = own
        self._status = status
        self._ownership = ownership
        self._clock = clock
        self._unrecorded = UnrecordedLives(own, target, clock=clock, log=log)
        self._records: list[IncarnationRecord] = []
        """Of this life, one for each of its producer ids."""
        self._listed: Mapping[str, int] | None = None
        """What coordinators knew when this life began, see ``UnrecordedLives.meet``."""

    def refuse_if_taken_over(self) -> None:
        """Before this process begins the flow once more: somebody else may have begun it since.

        Raises:
            TakenOver: a younger process runs it, as far as is known.
        """
        lives = self._lives()
        own = [at for at, (name, _) in enumerate(lives) if name.process == self._own.process]
        if not own:
            return
        for name, record in lives[own[-1] + 1 :]:
            if record.life is Life.WRITING and self._is_stranger(name):
                raise TakenOver(self._flow, str(name), record.started_at_ms)

    async def enter(self, identity: ProducerIdentity, earlier: EarlierLives) -> None:
        """Make this life known, and let ``earlier`` know of those that may still be writing.

        Raises: KafkaError; as ``StatusLog.put`` and ``read``.
        """
        own = self._make_record(str(self._own), identity)
        self._records = [own]
        await self._status.put([own])
        while own.key not in self._status.records:
            await self._status.read()
        await self.meet(earlier)

    async def meet(self, earlier: EarlierLives) -> None:
        """Let ``earlier`` know of those that may still be writing, as far as they are for us to shut out.

        Raises: KafkaError.
        """
        for _, record in self._earlier():
            if record.life is Life.WRITING and earlier.spares(record.transactional_id):
                continue
            if record.life is Life.WRITING:
                earlier.meet(record.transactional_id, record.producer_id, record.epoch)
            elif record.life is Life.DRAINED:
                earlier.drained.add(record.producer_id)
        recorded = {record.transactional_id for _, record in self._named()}
        self._listed = listed = await self._unrecorded.meet(recorded, earlier)
        if listed is not None:
            earlier.forgotten |= {
                record.producer_id
                for _, record in self._named()
                if record.life is Life.FENCED and listed.get(record.transactional_id) != record.producer_id
            }

    async def enter_late(self, incarnation: Incarnation, earlier: EarlierLives) -> list[TransactionalId]:
        """Make a life known that has begun without a record, and all of its producer ids.

        Returns:
            Those before it that may still be writing, and of which ``earlier`` does not know: the flow was not taken
            over from them.
        Raises:
            TakenOver: as ``refuse_if_taken_over``; nothing was written.
            KafkaError: as ``StatusLog.put`` and ``read``; call it again.
        """
        self.refuse_if_taken_over()
        while len(self._records) < len(records := self._records_of(incarnation)):
            await self._status.put(records)
            self._records = records
        incarnation.announce = self.announce  # no further id came in between
        while records[0].key not in self._status.records:
            await self._status.read()
        return [
            name
            for name, record in self._earlier()
            if record.life is Life.WRITING
            and record.producer_id not in earlier.known_ids
            and not earlier.spares(record.transactional_id)
        ]

    def is_own(self, other: TransactionalId) -> bool:
        """Whether another life is one of this process."""
        return other.process == self._own.process

    def is_behind(self, other: TransactionalId) -> bool:
        """Whether a life of this process before this one has begun later than another: its process has been told."""
        names = [name for name, _ in self._lives()]
        later = names[names.index(other.first) + 1 :] if other.first in names else names
        return any(self.is_own(name) and name != self._own for name in later)

    async def forget(self, named: Collection[int]) -> None:
        """End the records of lives that coordinators have forgotten, unless a position still names them.

        The story: a topic is deleted upstream, and its last position names a life that drained. Without that one's
        record, a start after a week takes it for one that may still write, and its id can be fenced no more.

        Args:
            named: producer ids in stored positions.
        Raises: as ``StatusLog.put``.
        """
        if self._listed is None:
            return
        gone = [
            record.key
            for _, record in self._named()
            if record.life is not Life.WRITING
            and record.transactional_id not in self._listed
            and record.producer_id not in named
        ]
        await self._status.remove(gone)

    async def announce(self, identity: ProducerIdentity) -> None:
        """Make a further producer id of this life known. Raises: as ``StatusLog.put``."""
        if identity.transactional_id is None:
            raise AssertionError("nobody can fence a plain producer id, so nobody asks for it")
        record = self._make_record(identity.transactional_id, identity)
        await self._status.put([record])
        self._records.append(record)

    async def shut_out(self, earlier: EarlierLives) -> None:
        """Record that those that were met are shut out of the positions. Who could not be is met by the next life.

        Raises: as ``StatusLog.put``.
        """
        met, self._unrecorded.met = self._unrecorded.met, []
        met += [replace(record, life=Life.FENCED) for _, record in self._earlier() if record.life is Life.WRITING]
        older = {record.transactional_id: record for record in met if record.producer_id in earlier.proven}
        recorded = {record.producer_id for record in [*met, *(record for _, record in self._named())]}
        for producer in earlier.proven.values():
            text = producer.transactional_id
            if producer.producer_id in recorded or text is None or parse(text, self._own.group) is None:
                continue
            # Only a position tells of it. Coordinators may know its transactional id once more, under another producer
            # id, since somebody tried to fence it: that one has never written anything.
            older[text] = self._unrecorded.fenced(text, producer.producer_id, producer.epoch)
        await self._status.put(older.values())

    async def enter_again(self) -> None:
        """Make this life known once more: the topic with its record was deleted. Raises: as ``StatusLog.put``."""
        await self._status.put(self._records)

    def notice(self) -> None:
        """Look whether a younger life has begun.

        Raises:
            Fenced: so it has.
        """
        mine = [name for name, _ in self._lives()]
        if self._own not in mine:
            return
        for name, record in self._lives()[mine.index(self._own) + 1 :]:
            if name.process != self._own.process and record.life is Life.WRITING and self._is_stranger(name):
                raise Fenced(str(self._own))

    async def leave(self) -> None:
        """Say that this life needs not be shut out: all that it sent was answered, or it has sent nothing.

        If the target does not take that soon, the next life shuts this one out all the same.
        """
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._status.put([replace(record, life=Life.DRAINED) for record in self._records])

    def _records_of(self, incarnation: Incarnation) -> list[IncarnationRecord]:
        first, *further = incarnation.identities
        named = [(one.transactional_id, one) for one in further]
        return [
            self._make_record(str(self._own), first),
            *(self._make_record(text, one) for text, one in named if text is not None),
        ]

    def _make_record(self, transactional_id: str, identity: ProducerIdentity) -> IncarnationRecord:
        return IncarnationRecord(
            transactional_id, identity.producer_id, identity.epoch, (str(self._flow),), self._clock.wall_ms()
        )

    def _is_stranger(self, name: TransactionalId) -> bool:
        """Whether a life is one of a process that our group has never heard of."""
        return name.process not in self._ownership.fates.known

    def _lives(self) -> list[tuple[TransactionalId, IncarnationRecord]]:
        """Return the lives of this flow in this group, oldest first, by the record that each began with.

        What a life adds later makes it no younger. The story: w2 begins; w1, which has not heard of it yet, needs a
        further id; its record stands behind that of w2, which must not take itself for the older of the two.
        """
        return [(name, record) for name, record in self._named() if name == name.first]

    def _earlier(self) -> list[tuple[TransactionalId, IncarnationRecord]]:
        """Return the records of all lives but this one and the younger ones; what came later of older ones too."""
        lives = [name for name, _ in self._lives()]
        younger = lives[lives.index(self._own) :] if self._own in lives else [self._own]
        return [(name, record) for name, record in self._named() if name.first not in younger]

    def _named(self) -> list[tuple[TransactionalId, IncarnationRecord]]:
        named = ((parse(record.transactional_id, self._own.group), record) for record in self._status.incarnations())
        return [(name, record) for name, record in named if name is not None and name.flow == self._own.flow]

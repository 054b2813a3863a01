"""The lives of a flow: who wrote before, who has taken over, and when this one ends.

Each life writes a record of itself to ``mm2-status.A.internal`` before its first batch, all into one partition: their
order there says who is younger. The younger shuts the older out; the older, when it notices, stops and says so. What
has lost its record is found by asking the coordinators which transactional ids they know. MirrorMaker 2's workers have
their group for this; a control log will.
"""

from __future__ import annotations

from dataclasses import replace

from structlog.typing import FilteringBoundLogger

from connectors.source.refusals import TakenOver
from connectors.source.takeover import EarlierLives
from mm2py.clock import Clock
from mm2py.flow import Flow
from mm2py.kafka import transactions
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.incarnation import Fenced
from mm2py.kafka.port import Brokers, ProducerIdentity
from mm2py.kafka.transactional_ids import TransactionalId, parse
from mm2py.records.status_record import IncarnationRecord, Life
from mm2py.replication.status_log import StatusLog


class Incarnations:
    """What is known of this flow's lives."""

    def __init__(
        self,
        flow: Flow,
        own: TransactionalId,
        target: Brokers,
        status: StatusLog,
        *,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._flow = flow
        self._own = own
        self._target = target
        self._status = status
        self._clock = clock
        self._log = log
        self._record: IncarnationRecord | None = None
        self._found: list[IncarnationRecord] = []
        """Lives whose records were lost."""

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
            if record.life is Life.WRITING:
                raise TakenOver(self._flow, str(name), record.started_at_ms)

    async def enter(self, identity: ProducerIdentity, earlier: EarlierLives) -> None:
        """Make this life known, and let ``earlier`` know of those that may still be writing.

        Raises: KafkaError; as ``StatusLog.put`` and ``read``.
        """
        self._record = IncarnationRecord(
            str(self._own), identity.producer_id, identity.epoch, (str(self._flow),), self._clock.wall_ms()
        )
        await self._status.put([self._record])
        while self._record.key not in self._status.records:
            await self._status.read()
        for name, record in self._lives():
            if name == self._own:
                break
            if record.life is Life.WRITING:
                earlier.meet(record.transactional_id, record.producer_id, record.epoch)
            elif record.life is Life.DRAINED:
                earlier.drained.add(record.producer_id)
        listed = await self._listed()
        if listed is None:
            return
        known = {record.transactional_id for _, record in self._lives()}
        for transactional_id, producer_id in listed.items():
            if transactional_id not in known:
                self._log.info("incarnation.without_record", transactional_id=transactional_id)
                earlier.meet(transactional_id, producer_id, -1)
                found = IncarnationRecord(
                    transactional_id, producer_id, -1, (str(self._flow),), self._clock.wall_ms(), Life.FENCED
                )
                self._found.append(found)
        gone = [
            record.key
            for _, record in self._lives()
            if record.life is not Life.WRITING and record.transactional_id not in listed
        ]
        await self._status.remove(gone)

    async def shut_out(self) -> None:
        """Those that were met are shut out of the positions. Raises: as ``StatusLog.put``."""
        older, self._found = self._found, []
        for name, record in self._lives():
            if name == self._own:
                break
            if record.life is Life.WRITING:
                older.append(replace(record, life=Life.FENCED))
        await self._status.put(older)

    def notice(self) -> None:
        """Look whether a younger life has begun.

        Raises:
            Fenced: so it has.
        """
        if self._record is None:
            return
        mine = [name for name, _ in self._lives()]
        if self._own not in mine:
            return
        for name, record in self._lives()[mine.index(self._own) + 1 :]:
            if name.process != self._own.process and record.life is Life.WRITING:
                raise Fenced(str(self._own))

    async def leave(self) -> None:
        """All that this life sent was answered, and its positions are stored. Raises: as ``StatusLog.put``."""
        if self._record is not None:
            await self._status.put([replace(self._record, life=Life.DRAINED)])

    def _lives(self) -> list[tuple[TransactionalId, IncarnationRecord]]:
        """Return the lives of this flow in this group, oldest first."""
        named = ((parse(record.transactional_id, self._own.group), record) for record in self._status.incarnations())
        return [(name, record) for name, record in named if name is not None and name.flow == self._own.flow]

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

"""One attempt of a backfill's task: the flow's source connector copies ranges of partitions, then ends.

Spark may kill an attempt, try it again, or start a second one beside it. Each attempt has a transactional id of its own
under the process of its task. It fences the earlier ones, finds out what they have stored, and continues there, as the
next owner of a partition does in the live flow. So no record is repeated or lost. MirrorMaker 2 has no backfill.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.backfill.copy_job import ATTEMPTS_A_RUN
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connector import Side
from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.partition_errors import refusal_remedy
from mm2py.copying.planning.steps import DigestTally
from mm2py.copying.positions import PositionBudget, read_positions
from mm2py.copying.reading.limits import MemoryBudget
from mm2py.copying.states import Stopped
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.cluster import fetch_metadata, until_answered
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import TopicPartition
from mm2py.kafka.producer.fencing import TransactionalId, find_producer_expiry_ms, parse
from mm2py.kafka.producer.incarnation import Incarnation, IncarnationFenced
from mm2py.kafka.write_gate import gated_alone
from mm2py.metrics.counters import Metrics
from mm2py.records.backfill_record import ID_CHARS, Range
from mm2py.records.source_offset import StoredPosition
from mm2py.shared_settings.config_log import ConfigTable
from mm2py_connectors.backfill.ownership import TaskOwnership
from mm2py_connectors.source.connector import SourceConnector
from mm2py_connectors.source.context import AttemptState, FlowContext

LOOK_EVERY_S: Final = 0.1
BLOCKED_S: Final = 30.0
"""How long a topic may be refused, or a partition wait for an operator, before the attempt fails with the reason."""
HOLD_EVERY_S: Final = 1.0
"""How often an attempt checks whether the workers still wait for it."""
OTHER_EVERY_S: Final = 1.0
OTHER_SILENT_S: Final = 60.0
"""How long an attempt that has fenced this one may store no position before it counts as dead."""


class RangeNotCopied(Mm2Error):
    """A partition of a backfill cannot be copied to its seam."""

    def __init__(self, topic: str, partition: int | None, why: str) -> None:
        place = topic if partition is None else f"{topic}-{partition}"
        super().__init__(
            f"{place} cannot be copied: {why.rstrip('.')}.",
            remedy="Mend that and resume the backfill, or abandon it: the live flow then goes on where it stands.",
        )


class BackfillEnded(Mm2Error):
    """The workers do not wait any more for this run of the backfill."""

    def __init__(self, backfill_id: str, how: str) -> None:
        super().__init__(
            f"Backfill {backfill_id} {how}, so this task copies no more.",
            remedy="Nothing is to be done, and nothing is lost: the next owner fences this task first.",
        )


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """What was copied of one partition. A range includes its first offset and excludes its next offset.

    Fields are None where other attempts have copied the range, whose results are lost.
    """

    topic: str
    partition: int
    source_first: int
    source_next: int
    target_first: int | None = None
    """Where the target's log ended when the range was begun."""
    target_next: int | None = None
    records: int | None = None
    bytes: int | None = None
    """Of batches as they were sent."""
    digest: int | None = None
    """CRC-32C over the records as they were sent, without the headers of their batches."""
    seconds: float | None = None
    attempt: int | None = None


class Attempt:
    """One attempt to copy ranges of partitions."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Side,
        target: Side,
        name: TransactionalId,
        ranges: Mapping[TopicPartition, Range],
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one; ``run`` starts it.

        Args:
            target: requests to it must not pass a gate yet.
            name: its process is the task's, and its attempt is higher than those of earlier attempts.
            ranges: by source partition.
        """
        self._settings = settings
        self._source = source
        self._target = replace(target, brokers=gated_alone(target.brokers, clock))
        self._name = name
        self._ranges = ranges
        self._clock = clock
        self._log = log
        self._rng = rng
        self._configs = ConfigTable(self._target.brokers, settings.configs_topic)

    async def run(self, memory_max_bytes: int) -> list[CopiedRange]:
        """Copy up to the seams, store the last positions, and return what was copied.

        Raises:
            RangeNotCopied: an operator has to do something first.
            BackfillEnded: it was stopped, abandoned or resumed; an executor may outlive its driver.
            IncarnationFenced: another attempt of this task has fenced this one, and does not finish either.
            Mm2Error: another attempt may succeed.
        Cancelling loses nothing: the next attempt fences this one, and continues.
        """
        brokers = self._target.brokers
        await until_answered(self._refuse_ended, rng=self._rng)
        expiry_ms = await until_answered(lambda: find_producer_expiry_ms(brokers, self._log), rng=self._rng)
        ownership = TaskOwnership(self._settings, self._ranges, expiry_ms)
        incarnation = Incarnation(
            brokers,
            self._name.at,
            clock=self._clock,
            rng=self._rng,
            report=lambda text: self._log.warning("producer.degraded", why=text),
            waiting=lambda text: self._log.warning("flow.waiting", doing="getting a producer id", why=text),
        )
        connector = SourceConnector(
            FlowContext(
                AttemptState(self._settings),
                self._source,
                self._target,
                producer_name=self._name,
                ended=frozenset(),
                ownership=ownership,
                incarnation=incarnation,
                memory=MemoryBudget(memory_max_bytes),
                position_budget=PositionBudget(),
                allow_recopy=frozenset(),
                metrics=Metrics(),
                clock=self._clock,
                rng=self._rng,
                log=self._log,
                ranges=self._ranges,
            )
        )
        try:
            return await self._copy(connector)
        except IncarnationFenced:
            self._log.warning("attempt.fenced", why="another attempt of this task has begun", effect="it is waited for")
            return await self._wait_for_other()

    async def _copy(self, connector: SourceConnector) -> list[CopiedRange]:
        begun_s = self._clock.monotonic()
        run = asyncio.create_task(connector.run(), name="connector")
        watch = asyncio.create_task(self._watch(connector, begun_s), name="seams")
        try:
            await asyncio.wait([run, watch], return_when=asyncio.FIRST_COMPLETED)
            if run.done():
                await run
                raise AssertionError("a connector does not end by itself")
            copied = await watch
            drain = asyncio.create_task(connector.drain(), name="drain")
            try:
                await asyncio.wait([run, drain], return_when=asyncio.FIRST_COMPLETED)
                if run.done():
                    await run
                await drain
            finally:
                drain.cancel()
                await asyncio.gather(drain, return_exceptions=True)
            return copied
        finally:
            for task in (run, watch):
                task.cancel()
            await asyncio.gather(run, watch, return_exceptions=True)

    async def _watch(self, connector: SourceConnector, begun_s: float) -> list[CopiedRange]:
        """Return when all partitions are copied up to their seams.

        Raises:
            RangeNotCopied: one of them does not get there.
        """
        blocked_since_s: dict[TopicPartition, float] = {}
        asked_s = self._clock.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._clock.monotonic() - asked_s > HOLD_EVERY_S:
                asked_s = self._clock.monotonic()
                with suppress(KafkaError):  # it is asked again; the fence counts, and this only ends the task sooner
                    await self._refuse_ended()
            parts = {} if connector.task is None else connector.task.partitions
            now_s = self._clock.monotonic()
            refused = connector.status(with_topics=False).refused
            for key in self._ranges:
                part = parts.get(key)
                why = refused.get(key[0], "") if part is None else _why_blocked(part, self._settings.flow)
                if not why:
                    blocked_since_s.pop(key, None)
                elif now_s - blocked_since_s.setdefault(key, now_s) > BLOCKED_S:
                    raise await self._superseded() or RangeNotCopied(*key, why)
            if parts.keys() >= self._ranges.keys() and all(part.is_over for part in parts.values()):
                return [row for part in parts.values() for row in self._copied(part, now_s - begun_s)]

    async def _refuse_ended(self) -> None:
        """Check that the workers still wait for this run. Raises: BackfillEnded; KafkaError, if it is not known."""
        await self._configs.read()
        backfill_id = self._name.process[:ID_CHARS]
        found = self._configs.records.backfills.get(backfill_id)
        if found is None or not found.holds:
            raise BackfillEnded(backfill_id, "is unknown" if found is None else f"is {found.state}")
        if found.run != self._name.attempt // ATTEMPTS_A_RUN:
            raise BackfillEnded(backfill_id, "was resumed by another driver")

    async def _superseded(self) -> IncarnationFenced | None:
        """Return an error if a later attempt of the task has begun: this one is refused because of what that one
        wrote."""
        stored = await until_answered(self._read_positions, rng=self._rng)
        is_later = any((self._attempt_of(one) or 0) > self._name.attempt for one in stored.values())
        return IncarnationFenced(str(self._name)) if is_later else None

    def _attempt_of(self, stored: StoredPosition) -> int | None:
        """Return which attempt of this task has stored a position; None: none of them has."""
        name = None if stored.by is None else parse(stored.by, self._name.group)
        return None if name is None or name.process != self._name.process else name.attempt

    def _copied(self, part: CopiedPartition, seconds: float) -> list[CopiedRange]:
        """Return what this attempt has copied of a partition, and before that what earlier ones have."""
        position, tally, first = part.copier.position, part.copier.tally, self._ranges[part.key].first
        if not isinstance(tally, DigestTally) or tally.begun is None:
            raise AssertionError("a partition that is copied has begun")
        begun, target_begun = tally.begun
        own = CopiedRange(
            *part.key,
            begun,
            position.source_offset,
            target_begun,
            position.target_offset,
            tally.records,
            tally.bytes,
            tally.digest,
            seconds,
            self._name.attempt,
        )
        return [own] if begun <= first else [CopiedRange(*part.key, first, begun, None, target_begun), own]

    async def _wait_for_other(self) -> list[CopiedRange]:
        """Wait until the attempt that has fenced this one has finished, as its positions show.

        The story: Spark starts a second attempt beside a slow one. If the fenced one failed at once, Spark would start
        a third, which fences the second, and so on. Spark ends this one when the other has succeeded.

        Raises:
            IncarnationFenced: the other one stores no positions any more.
        """
        seen: dict[TopicPartition, StoredPosition] = {}
        changed_s = self._clock.monotonic()
        while True:
            await asyncio.sleep(OTHER_EVERY_S)
            stored = await until_answered(self._read_positions, rng=self._rng)
            if stored != seen:
                seen, changed_s = stored, self._clock.monotonic()
            if seen.keys() >= self._ranges.keys() and all(map(self._is_final, seen.values())):
                return [self._found(key, at) for key, at in seen.items()]
            if self._clock.monotonic() - changed_s > OTHER_SILENT_S:
                raise IncarnationFenced(str(self._name))

    def _found(self, key: TopicPartition, at: StoredPosition) -> CopiedRange:
        return CopiedRange(*key, self._ranges[key].first, at.next_source, None, at.next_target)

    def _is_final(self, stored: StoredPosition) -> bool:
        """Whether another attempt of this task has drained the partition."""
        return stored.drained and self._attempt_of(stored) not in {None, self._name.attempt}

    async def _read_positions(self) -> dict[TopicPartition, StoredPosition]:
        topic = self._settings.offsets_topic
        metadata = (await fetch_metadata(self._target.brokers, [topic])).topics[topic]
        positions, _ = await read_positions(self._target.brokers, metadata, self._settings.flow.source)
        return {key: at for key, at in positions.items() if key in self._ranges}


def _why_blocked(part: CopiedPartition, flow: Flow) -> str:
    copier = part.copier
    code = copier.state.refused_with
    if copier.is_blocked and code:
        return f"{copier.reason}. {refusal_remedy(code, flow, part.source_topic, part.target_topic)}"
    return copier.reason if isinstance(copier.state, Stopped) or copier.is_blocked else ""

"""Stores the positions of a task's partitions on the target, at most a second late.

Before a partition's first batch under a producer id, a position that names this id is stored. So the stored position
always names the producer that may have written last. Before each position, the part of the ledger that ends there is
stored. The worker stores a limited number of positions a second. If more partitions are busy, those that have waited
longest come first, and a crash leaves more to reconcile.

Each partition of the offsets topic is written separately: a partition without a leader delays only its own positions. A
position is *owed* if it must still be stored although its partition is not copied just now: its last one, or one at
which an operator lets it start again. A stop waits only a few seconds for owed positions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.events import PositionStored
from mm2py.copying.positions import Position, PositionStore
from mm2py.copying.states import Storing
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.port import ProducerIdentity, TopicPartition
from mm2py.metrics.windows import Window
from mm2py.records.ledger_record import LedgerChunk
from mm2py.records.source_offset import StoredPosition
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.task.ledger_keeper import LedgerKeeper

GONE_REPORT_S: Final = 10.0
"""How long the topic may be missing before it is reported as deleted: a broker may not know it yet."""
HELD_UP_S: Final = 5.0
"""How long a write to a partition of the topic may take before it is reported, and a stop no longer waits for it."""


@dataclass(slots=True)
class _Write:
    """The positions of one write to one partition of the topic."""

    since_s: float
    owed: list[TopicPartition] = field(default_factory=list)
    starting: list[CopiedPartition] = field(default_factory=list)
    changed: list[CopiedPartition] = field(default_factory=list)


class PositionKeeper:
    """Stores the positions of one task's partitions."""

    def __init__(
        self,
        context: FlowContext,
        source_id: str | None,
        store: PositionStore,
        ledger: LedgerKeeper,
        partitions: Mapping[TopicPartition, CopiedPartition],
        *,
        before_first: Callable[[], Awaitable[None]],
    ) -> None:
        """Make one; ``run`` starts it, and ``look`` is called from time to time.

        Args:
            partitions: the copied partitions; the mapping may change meanwhile.
            before_first: is awaited before first positions and owed ones are stored.
        """
        self._context = context
        self._source_id = source_id
        self._store = store
        self._ledger = ledger
        self._partitions = partitions
        self._before_first = before_first
        self._account = context.position_budget.open()
        self._clock = context.clock
        self._log = context.log
        self._times_recreated = store.times_recreated
        self._gone_since_s: float | None = None
        self._said_gone = False
        self._held_up: dict[int, str] = {}
        """Partitions of the topic that could not be written to for a while, and why."""
        self._said_held_up: set[int] = set()
        self._missing_at_s = float("-inf")
        self._stored: dict[TopicPartition, Position] = {}
        self._moved: dict[TopicPartition, tuple[int, int | None]] = {}
        """The last known next source offset of each partition, and when it got there (wall clock, in ms)."""
        self._behind_since_s: dict[TopicPartition, float] = {}
        self._starting: dict[CopiedPartition, None] = {}
        """Partitions that wait until their first position is stored."""
        self._owed: dict[TopicPartition, StoredPosition] = {}
        self._owed_chunks: dict[TopicPartition, Sequence[LedgerChunk]] = {}
        """Ledger chunks that must be stored before the owed positions."""
        self._under_way: dict[int, _Write] = {}
        """The write in progress to each partition of the topic; one at a time."""
        self._numbers: dict[TopicPartition, int] = {}
        self._round_at_s = 0.0
        self._now = asyncio.Event()
        self._settled = asyncio.Event()
        self._is_over = False
        self.writes_ms = Window()
        """How long successful writes took, in ms, including the ledger chunks before the positions."""

    @property
    def problem(self) -> str:
        """Which partitions of the topic cannot be written to, and why; empty while all can."""
        if self._said_gone:
            back = ", and is back without some positions" if not self._store.is_missing else ""
            return f"{self._store.topic} was deleted{back}"
        return "; ".join(
            f"{self._store.topic}, partition(s) {_named(numbers)}: {why}"
            for why, numbers in _by_reason(self._held_up).items()
        )

    def age_s(self) -> float:
        """Return how long the oldest change of a position has waited to be stored; 0.0 if none waits."""
        return self._clock.monotonic() - min(self._behind_since_s.values(), default=self._clock.monotonic())

    def form(self, part: CopiedPartition) -> StoredPosition:
        """Return the position that would be stored for a partition now."""
        position, identity, tally, before = part.copier.position, part.copier.identity, part.copier.tally, part.stored
        if tally.records:
            record_bytes: int | None = round(tally.bytes / tally.records)
        else:
            record_bytes = None if before is None else before.record_bytes
        now_s, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        part.look_at_lag(now_s, now_ms)
        is_behind = part.lag_trend.behind_since_ms is not None
        return StoredPosition(
            next_source=position.source_offset,
            source_cluster=self._source_id,
            source_topic_id=part.source_topic_id,
            source_leader_epoch=None if position.source_leader_epoch < 0 else position.source_leader_epoch,
            next_target=position.target_offset,
            target_topic_id=part.target_topic_id,
            target_topic=self._context.settings.renamed(part.source_topic),
            target_leader_epoch=position.target_leader_epoch,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            next_sequence=position.sequence,
            by=identity.transactional_id,
            skipped=position.skipped,
            ledger=part.ledger.number,
            ledger_run=part.ledger.run,
            newest_ms=part.newest_ms,
            record_bytes=record_bytes,
            mode=tally.last_mode or (None if before is None else before.mode),
            source_end=part.known_end(now_s),
            moved_ms=self._moved_ms(part),
            behind_since_ms=part.lag_trend.behind_since_ms,
            lag_before=part.lag_trend.before(now_ms) if is_behind else None,
            transforms=part.transforms_digest,
            unknown={} if before is None else before.unknown,
        )

    def _moved_ms(self, part: CopiedPartition) -> int | None:
        """Return when a partition reached its source offset, also under previous owners; None if they stored none."""
        at, before = part.copier.position.source_offset, part.stored
        known = self._moved.get(part.key)
        if known is None and before is not None:
            known = before.next_source, before.moved_ms
        if known is None or known[0] != at:
            known = at, self._clock.wall_ms()
        self._moved[part.key] = known
        return known[1]

    # What the task asks for

    def store_first(self, part: CopiedPartition) -> None:
        """Store a position before anything is sent; the copier waits for it."""
        self._starting[part] = None
        self._owed.pop(part.key, None)
        self._now.set()

    async def store_final(self, parts: Iterable[CopiedPartition], *, patience_s: float = 0.0) -> int:
        """Store the final positions of partitions, and the positions that are owed already.

        Returns how many could not be stored yet. While ``run`` lasts they are stored as soon as possible; after that
        the next incarnation finds them from the remote partitions. A partition that a gap has stopped, and whose
        position is not known yet, keeps its stored position.

        Args:
            patience_s: how long to wait also for a partition of the topic that has accepted nothing for a while.
        """
        self.owe_final(parts)
        return await self._settle(list(self._owed), patience_s)

    def owe_final(self, parts: Iterable[CopiedPartition]) -> None:
        """Do the same as ``store_final``, without waiting."""
        for part in parts:
            writing = self._under_way.get(self._number_of(part.key))
            is_first = part in self._starting or (writing is not None and part in writing.starting)
            if not part.copier.may_store_position:
                continue
            drained = not part.copier.is_unsettled
            if drained or is_first or self._stored.get(part.key) != part.copier.position:
                self._owed_chunks[part.key] = (*self._owed_chunks.get(part.key, ()), *self._ledger.chunks(part))
                self._owed[part.key] = replace(self.form(part), drained=drained)
                self._stored[part.key] = part.copier.position
                self._starting.pop(part, None)
                self._behind_since_s.pop(part.key, None)
        self._now.set()

    def owes(self, key: TopicPartition) -> bool:
        """Return whether a position of a partition is owed, or is being written."""
        writing = self._under_way.get(self._number_of(key))
        under_way = () if writing is None else (*writing.starting, *writing.changed)
        return key in self._owed or any(part.key == key for part in under_way)

    async def store(self, positions: Mapping[TopicPartition, StoredPosition]) -> None:
        """Store positions of partitions that are not copied just now; those that cannot be stored soon stay owed.

        A partition that starts meanwhile stores its own position after this one, or instead of it, before it sends.
        """
        self._owed |= positions
        await self._settle(list(positions), 0.0)

    def forget(self, part: CopiedPartition) -> None:
        """Forget a partition that is not copied any more; its owed position is still stored."""
        self._stored.pop(part.key, None)
        self._moved.pop(part.key, None)
        self._behind_since_s.pop(part.key, None)
        self._starting.pop(part, None)
        self._numbers.pop(part.key, None)
        part.position_problem = ""

    async def _settle(self, keys: Iterable[TopicPartition], patience_s: float) -> int:
        """Wait until owed positions are stored, but not for slow writes. Returns how many are not stored."""
        begun_s = self._clock.monotonic()
        self._now.set()

        def waits_for(key: TopicPartition, now_s: float) -> bool:
            if key not in self._owed or self._is_over:
                return False
            writing = self._under_way.get(self._number_of(key))
            return now_s - (begun_s if writing is None else writing.since_s) < HELD_UP_S or now_s - begun_s < patience_s

        while any(waits_for(key, self._clock.monotonic()) for key in keys):
            self._settled.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._context.settings.position_interval_s):
                    await self._settled.wait()
        return sum(key in self._owed for key in keys)

    # Storing

    async def run(self) -> None:
        """Store until cancelled. Raises: as ``PositionStore.store``."""
        try:
            async with FirstErrorGroup() as tasks:
                while True:
                    self._now.clear()
                    pause_s = self._begin_writes(tasks)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            await self._now.wait()
        finally:
            self._is_over = True
            self._settled.set()
            self._account.close()

    def _begin_writes(self, tasks: asyncio.TaskGroup) -> float:
        """Start a write to each partition of the topic that has positions due and no write under way.

        Returns the seconds until more positions are due.
        """
        now_s = self._clock.monotonic()
        writes: dict[int, _Write] = {}
        for key in self._owed:
            if (number := self._number_of(key)) not in self._under_way:
                writes.setdefault(number, _Write(now_s)).owed.append(key)
        for part in list(self._starting):
            if (number := self._number_of(part.key)) not in self._under_way:
                writes.setdefault(number, _Write(now_s)).starting.append(part)
                del self._starting[part]
        if now_s >= self._round_at_s:
            self._round_at_s = now_s + self._choose_changed(writes, now_s)
        for number, write in writes.items():
            self._under_way[number] = write
            tasks.create_task(self._write(number, write), name=f"{self._store.topic}-{number} positions")
        return max(0.0, self._round_at_s - now_s)

    def _choose_changed(self, writes: dict[int, _Write], now_s: float) -> float:
        """Add changed positions, as many as the worker may store. Returns the seconds until the next look."""
        first = {part for write in (*writes.values(), *self._under_way.values()) for part in write.starting}
        changed = [part for part in self._changed(first, now_s) if self._number_of(part.key) not in self._under_way]
        most = self._account.take(len(changed), now_s)
        pause_s = self._context.settings.position_interval_s
        if most < len(changed):
            changed = sorted(changed, key=lambda part: self._behind_since_s[part.key])[:most]
            pause_s = min(pause_s, self._account.again_in_s(now_s))
        for part in changed:
            writes.setdefault(self._number_of(part.key), _Write(now_s)).changed.append(part)
        return pause_s

    def _changed(self, first: Iterable[CopiedPartition], now_s: float) -> list[CopiedPartition]:
        changed = []
        for key, part in self._partitions.items():
            copier = part.copier
            if part in first or part in self._starting or not copier.may_store_position:
                continue
            if self._stored.get(key) != part.copier.position:
                self._behind_since_s.setdefault(key, now_s)
                changed.append(part)
        return changed

    async def _write(self, number: int, write: _Write) -> None:
        try:
            if write.owed or write.starting:
                await self._before_first()
                write.since_s = self._clock.monotonic()
            owed = {key: self._owed[key] for key in write.owed if key in self._owed}
            still = (part for part in write.changed if not part.copier.has_untold_gaps)  # a gap may have been met
            changed = [part for part in still if part not in self._starting]
            parts = [part for part in (*write.starting, *changed) if self._partitions.get(part.key) is part]
            chunks = {part: self._ledger.chunks(part) for part in parts}
            seen = [(part, part.copier.position, part.copier.identity) for part in parts]
            positions = owed | {part.key: self.form(part) for part in parts}
            await self._store_ledger(owed, chunks)
            if positions:
                await self._store.store(positions)
            for key, stored in owed.items():
                if self._owed.get(key) is stored:
                    del self._owed[key]
            for part, position, identity in seen:
                if self._partitions.get(part.key) is part:
                    self._note_stored(part, position, identity, is_first=part in write.starting)
            now_s = self._clock.monotonic()
            self.writes_ms.add((now_s - write.since_s) * 1000, now_s)
        finally:
            del self._under_way[number]
            self._settled.set()
        if self._times_recreated != self._store.times_recreated:
            self._times_recreated = self._store.times_recreated
            self._stored.clear()  # so that those of idle partitions are stored as well
            self._round_at_s = 0.0
        self._now.set()

    async def _store_ledger(
        self, owed: Iterable[TopicPartition], chunks: Mapping[CopiedPartition, Sequence[LedgerChunk]]
    ) -> None:
        """Store the ledger up to the positions that are stored next."""
        keys = {*owed, *(part.key for part in chunks)}
        left = {key: self._owed_chunks[key] for key in keys if key in self._owed_chunks}
        ours = {part.key: found for part, found in chunks.items() if found}
        both = {key: (*left.get(key, ()), *ours.get(key, ())) for key in {**left, **ours}}
        if both:
            await self._ledger.store(both)
        for key, found in left.items():
            if self._owed_chunks.get(key) is found:
                del self._owed_chunks[key]
        for part, found in chunks.items():
            self._ledger.written(part, found)

    def _note_stored(
        self, part: CopiedPartition, position: Position, identity: ProducerIdentity, *, is_first: bool
    ) -> None:
        self._stored[part.key] = position
        self._behind_since_s.pop(part.key, None)
        if is_first:
            part.tell(PositionStored(identity))

    def _ledger_trouble(self, write: _Write) -> str | None:
        parts = (*write.starting, *write.changed)
        return next((why for part in parts if (why := self._ledger.trouble(part.key)) is not None), None)

    def _number_of(self, key: TopicPartition) -> int:
        if key not in self._numbers:
            self._numbers[key] = self._store.number_of(key)
        return self._numbers[key]

    # What cannot be stored

    def look(self) -> None:
        """Log why positions cannot be stored, and when that is over. ``run`` cannot: it waits for the writes."""
        now_s = self._clock.monotonic()
        self._say_gone(now_s)
        self._say_held_up(now_s)

    def _say_gone(self, now_s: float) -> None:
        if not self._store.is_missing:
            if self._said_gone and not self._is_whole_again():
                return
            if self._said_gone:
                self._log.warning(
                    "positions.back", topic=self._store.topic, effect="all positions are stored in it again"
                )
            self._gone_since_s, self._said_gone = None, False
            return
        self._gone_since_s = now_s if self._gone_since_s is None else self._gone_since_s
        if not self._said_gone and now_s - self._gone_since_s >= GONE_REPORT_S:
            self._said_gone = True
            self._log.error(
                "positions.topic_gone",
                topic=self._store.topic,
                why="the topic was deleted, and all positions with it",
                effect="no position is stored, though records may be copied; if mm2py ended now, it would refuse all"
                " topics at its next start instead of copying them twice",
                remedy="Create it again by hand, with as many partitions and cleanup.policy=compact, while mm2py runs:"
                " it then stores all positions again.",
            )

    def _is_whole_again(self) -> bool:
        """Return whether a topic that was created again has all positions. If mm2py crashed before that, its next start
        would refuse topics without a position."""
        if self._times_recreated != self._store.times_recreated:
            return False
        owned = (part for part in self._partitions.values() if part.copier.owns_position)
        return all(part.key in self._stored or part.copier.has_untold_gaps for part in owned)

    def _say_held_up(self, now_s: float) -> None:
        """Log one line for each reason: a broker that fails leads many partitions of the topic."""
        before = self._held_up
        self._held_up = {
            number: self._store.trouble(number) or self._ledger_trouble(write) or "the target does not answer"
            for number, write in self._under_way.items()
            if now_s - write.since_s >= HELD_UP_S
        }
        parts: dict[int, list[CopiedPartition]] = {}
        for part in self._partitions.values() if before or self._held_up else ():
            number = self._number_of(part.key)
            why = self._held_up.get(number)
            part.position_problem = "" if why is None else f"{self._store.topic}-{number}: {why}"
            parts.setdefault(number, []).append(part)
        if self._store.is_missing:
            self._missing_at_s = now_s  # which is logged for the whole topic
        if now_s - self._missing_at_s < HELD_UP_S:
            return
        fresh = {number: why for number, why in self._held_up.items() if number not in self._said_held_up}
        for why, numbers in _by_reason(fresh).items():
            kept = [part for number in numbers for part in parts.get(number, ())]
            waiting = sum(isinstance(part.copier.state, Storing) for part in kept)
            self._log.warning(
                "positions.held_up",
                topic=self._store.topic,
                partitions=_named(numbers),
                why=why,
                effect=f"{waiting} copied partitions wait until their first position is stored;"
                f" {len(kept) - waiting} are copied, and their positions are stored later: a crash before that leaves"
                " more to reconcile",
            )
        over = self._said_held_up - self._held_up.keys()
        if over:
            self._log.info("positions.stored_again", topic=self._store.topic, partitions=_named(over))
        self._said_held_up = set(self._held_up)


def _by_reason(held_up: Mapping[int, str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, why in sorted(held_up.items()):
        found.setdefault(why, []).append(number)
    return found


def _named(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))

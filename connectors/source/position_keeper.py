"""Keeps the positions of a task's partitions on the target, at most a second behind.

Before a partition's first batch under a producer id a position that names it is stored: so the stored one always
names whoever may have written last. Of very many busy partitions so many positions a second are stored as the
target is asked to take, those that are furthest behind first; what a crash then has to reconcile grows with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.events import PositionStored
from mm2py.replication.lane import CopiedPartition, Handler
from mm2py.replication.position import Position
from mm2py.replication.position_store import PositionStore

PER_SECOND_MAX: Final = 1000
"""Positions of a flow that are stored in a second. First and final ones do not count."""

GONE_REPORT_S: Final = 10.0
"""How long the topic may be out of sight before it is said to be gone: a broker may not have heard of it yet."""

Key = tuple[str, int]


class PositionKeeper:
    """Stores what has changed."""

    def __init__(
        self,
        store: PositionStore,
        partitions: Mapping[Key, CopiedPartition],
        *,
        interval_s: float,
        form: Callable[[CopiedPartition], StoredPosition],
        handle: Handler,
        before_first: Callable[[], Awaitable[None]],
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one; ``run`` starts it, and ``look`` is called now and then.

        Args:
            partitions: those that are copied; it may change meanwhile.
            form: what would be stored of a partition now.
            handle: gets ``PositionStored`` for each first act.
            before_first: is waited for before first acts and final positions are stored.
        """
        self._store = store
        self._partitions = partitions
        self._interval_s = interval_s
        self._form = form
        self._handle = handle
        self._before_first = before_first
        self._clock = clock
        self._log = log
        self._times_made_anew = store.times_made_anew
        self._gone_since_s: float | None = None
        self._said_gone = False
        self._stored: dict[Key, Position] = {}
        self._behind_since_s: dict[Key, float] = {}
        self._first_acts: set[CopiedPartition] = set()
        self._now = asyncio.Event()

    def age_s(self) -> float:
        """How long ago the position changed that waits longest to be stored; 0.0 if none does."""
        return self._clock.monotonic() - min(self._behind_since_s.values(), default=self._clock.monotonic())

    def look(self) -> None:
        """Say that the topic is gone, and when it is back. Not part of ``run``, which waits for it."""
        if not self._store.is_missing:
            if self._said_gone:
                self._log.warning(
                    "positions.back", topic=self._store.topic, effect="all positions are stored in it again"
                )
            self._gone_since_s, self._said_gone = None, False
            return
        now_s = self._clock.monotonic()
        self._gone_since_s = now_s if self._gone_since_s is None else self._gone_since_s
        if not self._said_gone and now_s - self._gone_since_s >= GONE_REPORT_S:
            self._said_gone = True
            self._log.error(
                "positions.topic_gone",
                topic=self._store.topic,
                why="the topic was deleted, and all positions with it",
                effect="records are copied, and no position is stored; were mm2py to end now, it would refuse all"
                " topics at its next start rather than copy them twice",
                remedy="Create it again by hand, with as many partitions and cleanup.policy=compact, while mm2py runs:"
                " it then stores all positions once more.",
            )

    def store_first(self, part: CopiedPartition) -> None:
        """Store a position before anything is sent; the copier waits for it."""
        self._first_acts.add(part)
        self._now.set()

    def forget(self, part: CopiedPartition) -> None:
        """This partition is copied no more."""
        self._stored.pop(part.key, None)
        self._behind_since_s.pop(part.key, None)
        self._first_acts.discard(part)

    async def run(self) -> None:
        """Store until cancelled. Raises: as ``PositionStore.store``."""
        most = max(1, int(PER_SECOND_MAX * self._interval_s))
        while True:
            await self.store_changed(most)
            if self._first_acts:
                continue
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._now.wait()
            except TimeoutError:
                pass

    async def store_changed(self, most: int | None = None) -> None:
        """Store first acts and what has changed; returns when the target has acknowledged it.

        Args:
            most: so many of the latter, the oldest; None: all.
        Raises: as ``PositionStore.store``.
        """
        self._now.clear()
        first_acts, self._first_acts = self._first_acts, set()
        if first_acts or most is None:
            await self._before_first()
        changed = self._changed(first_acts)
        if most is not None and len(changed) > most:
            changed = sorted(changed, key=lambda part: self._behind_since_s[part.key])[:most]
        parts = [part for part in self._partitions.values() if part in first_acts] + changed
        if not parts:
            return
        seen = [(part, part.copier.position, part.copier.identity) for part in parts]
        await self._store.store({part.key: self._form(part) for part in parts})
        for part, position, identity in seen:
            self._stored[part.key] = position
            self._behind_since_s.pop(part.key, None)
            if part in first_acts:
                self._handle(part, PositionStored(identity))
        if self._times_made_anew != self._store.times_made_anew:
            self._times_made_anew = self._store.times_made_anew
            self._stored.clear()  # of partitions that stand still as well
            self._now.set()

    def _changed(self, first_acts: Iterable[CopiedPartition]) -> list[CopiedPartition]:
        now_s = self._clock.monotonic()
        changed = []
        for key, part in self._partitions.items():
            copier = part.copier
            if part in first_acts or part in self._first_acts or not copier.owns_position or copier.stop.is_pending:
                continue
            if self._stored.get(key) != part.copier.position:
                self._behind_since_s.setdefault(key, now_s)
                changed.append(part)
        return changed

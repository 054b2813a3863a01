"""Follows the group's assignment of partitions in one attempt of a flow: positions, releases, and measured loads.

In Connect a rebalance stops whole tasks, and a task that starts reads all its offsets. Here each partition moves by
itself. The worker that gets it first reads the position that the previous owner stored (``AssignedPositions``). The
worker that loses it releases it when all its requests are answered (``Releases``). How many bytes per second each
partition carries decides where it goes (``LoadMeter``); MM2 spreads partitions by their number.

The story: a broker of the target freezes, and a worker joins. That broker leads one of the twenty partitions that move,
and draining its partition takes half a minute. The nineteen others drain in milliseconds, and are released at once.

A partition whose requests are not answered in time is not released. The attempt ends instead, and the next owner fences
it before it continues (docs/broker-facts.md#m7).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mm2py.clock import Clock
from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.positions import PositionTable
from mm2py.copying.states import Drained, Reconciling, Storing
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.group.ownership import OwnershipView
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import TopicPartition
from mm2py.records.source_offset import StoredPosition
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.discovery.starting_offsets import StartingOffsets
from mm2py_connectors.source.gap_keeper import GapKeeper
from mm2py_connectors.source.recovery.previous_producers import PreviousProducers
from mm2py_connectors.source.recovery.reconciliation import RestartState
from mm2py_connectors.source.task.source_task import FINAL_POSITIONS_S, PARTITIONS_DRAIN_S, SourceTask


class AssignedPositions:
    """Reads the stored positions of partitions when they are assigned.

    The position of a partition that this attempt copies is known without reading; the one in the topic may be older.
    """

    def __init__(
        self, context: FlowContext, starting_offsets: StartingOffsets, gaps: GapKeeper, previous: PreviousProducers
    ) -> None:
        self._context = context
        self._starting_offsets = starting_offsets
        self._gaps = gaps
        self._previous = previous
        self._table = PositionTable(context.flow.source)
        self._held: set[TopicPartition] = set()

    async def receive(self, keys: Collection[TopicPartition]) -> None:
        """Read the positions and gaps of partitions that are assigned to this worker now. Raises: KafkaError; call it
        again."""
        new = [key for key in keys if key not in self._held]
        if not new:
            return
        await self._read()
        await self._gaps.stored.read_again(new)
        for key in {*self._table.positions, *self._starting_offsets.positions} - self._held:
            if key in self._table.positions:
                self._starting_offsets.positions[key] = self._table.positions[key]
            else:
                del self._starting_offsets.positions[key]
        for key in new:  # before an operator's position replaces the one that names the previous producer
            stored = self._table.positions.get(key)
            self._previous.learn_asked(stored)
            self._starting_offsets.assign(key, stored)
        self._held.update(new)

    async def positions_of(self, topics: Collection[str]) -> dict[str, dict[int, StoredPosition]]:
        """Return the positions that any worker has stored of topics. Raises: KafkaError."""
        await self._read()
        found: dict[str, dict[int, StoredPosition]] = {name: {} for name in topics}
        for (name, number), stored in self._table.positions.items():
            if name in found:
                found[name][number] = stored
        return found

    async def _read(self) -> None:
        name, target = self._context.settings.offsets_topic, self._context.target.brokers
        topic = (await fetch_metadata(target, [name])).topics.get(name)
        if topic is None or topic.error_code:
            code = UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
            raise BrokerRefused(f"Reading {name}", code)
        await self._table.read(target, topic)

    def release(self, keys: Iterable[TopicPartition]) -> None:
        """Forget partitions that are released."""
        keys = list(keys)
        self._held.difference_update(keys)
        self._gaps.forget(keys)


BEFORE_COPYING: Final = (Reconciling, Storing)
MEASURE_EVERY_S: Final = 5.0
HALF_LIFE_S: Final = 30.0
"""After this time a burst counts half: partitions must not move with every burst."""
SETTLED_S: Final = HALF_LIFE_S / math.log(2)
"""The limit of the summed weights after a long time, in seconds."""


@dataclass(slots=True)
class _Measured:
    """A partition carried ``carried`` bytes in ``over_s`` seconds; both decay alike."""

    carried: float = 0.0
    over_s: float = 0.0
    part: CopiedPartition | None = None
    copied: int = 0
    """How many bytes of ``part`` had been copied at the last look."""


class LoadMeter:
    """Measures what each partition carries, in bytes per second, and tells the group.

    The story: one of two equal workers gives half of its partitions to a third one. If their loads started at zero,
    they would look idle for a minute, and the next worker that joins would relieve the wrong worker. So a partition
    starts with the load that its previous owner reported.
    """

    def __init__(
        self, partitions: Mapping[TopicPartition, CopiedPartition], ownership: OwnershipView, clock: Clock
    ) -> None:
        self._partitions = partitions
        self._ownership = ownership
        self._clock = clock
        self._measured: dict[TopicPartition, _Measured] = {}

    async def run(self) -> None:
        before_s = self._clock.monotonic()
        while True:
            await asyncio.sleep(MEASURE_EVERY_S)
            now_s = self._clock.monotonic()
            self.measure(now_s - before_s)
            before_s = now_s

    def measure(self, passed_s: float) -> None:
        """Add what was copied in the last ``passed_s`` seconds, and tell the group."""
        keeps = math.exp2(-passed_s / HALF_LIFE_S)
        measured: dict[TopicPartition, _Measured] = {}
        for key, part in self._partitions.items():
            copied = part.copier.tally.bytes
            one = measured[key] = self._measured.get(key) or self._first(key)
            was_copied = not isinstance(part.copier.state, BEFORE_COPYING)
            if one.part is part and was_copied:  # otherwise it was not copied all that time
                one.carried = one.carried * keeps + copied - one.copied
                one.over_s = one.over_s * keeps + passed_s
            one.part, one.copied = part, copied
        self._measured = measured
        self._ownership.measure({key: one.carried / one.over_s for key, one in measured.items() if one.over_s})

    def _first(self, key: TopicPartition) -> _Measured:
        told = self._ownership.load_of(key)
        return _Measured() if told is None else _Measured(told * SETTLED_S, SETTLED_S)


LOOK_FIRST_S: Final = 0.005
LOOK_MOST_S: Final = 0.05
"""How often drained partitions are looked for: those that drain together are released in one record."""


class ReleaseOutcomeUnknown(Mm2Error):
    """Partitions move to another worker, and the target has not answered all requests for them."""

    def __init__(self, flow: Flow, partitions: int) -> None:
        super().__init__(
            f"Flow {flow} restarts: {partitions} partition(s) move to another worker, and the target did not answer all"
            " requests for them in time.",
            remedy="Nothing is lost: their next owner fences this producer and looks up what was stored.",
        )


@dataclass(slots=True)
class _Leaving:
    until_s: float
    """The deadline of its present step."""
    is_drained: bool = False
    """It waits until its last position is stored."""


class Releases:
    """Releases the partitions of one attempt that the group gives to other workers."""

    def __init__(
        self,
        context: FlowContext,
        task: SourceTask,
        *,
        assigned_positions: AssignedPositions,
        restart_state: RestartState,
        gaps: GapKeeper,
        gained: Callable[[], None],
    ) -> None:
        """``gained`` is called when partitions have become ours, or when the flow's coordinator has changed."""
        self._flow = context.flow
        self._task = task
        self._ownership = context.ownership
        self._assigned_positions = assigned_positions
        self._restart_state = restart_state
        self._gaps = gaps
        self._gained = gained
        self._clock = context.clock
        self._log = context.log
        self._leaving: dict[CopiedPartition, _Leaving] = {}
        self._pause_s = LOOK_FIRST_S

    async def run(self) -> None:
        """Release partitions until cancelled, also while the task is drained.

        Raises:
            ReleaseOutcomeUnknown: a request was not answered; this attempt ends.
            KafkaError: this worker is not a member of the group any more.
        """
        group, task = self._ownership, self._task
        ours, was_coordinator = set(group.mine()), group.is_coordinator
        is_news = True  # there may be 50,000 partitions: they are all checked only after news
        while True:
            async with task.settling:
                if is_news:
                    group.changed.clear()
                    self._start_leaving()
                try:
                    is_waiting = await self._release()
                except KafkaError:
                    if not task.is_draining:
                        raise
                    return  # the worker has left, or its last record says which partitions are settled
            if is_news:
                before, ours = (ours, was_coordinator), set(group.mine())
                task.lanes.take_part_of_rate(len(ours) / max(1, sum(group.listed.values())))
                was_coordinator = group.is_coordinator
                if not ours <= before[0] or was_coordinator is not before[1]:
                    self._gained()
            is_news = await self._news(is_waiting)

    def _start_leaving(self) -> None:
        """Stop copying partitions that are not assigned to this worker any more."""
        partitions = self._task.partitions.items()
        leaving = [part for key, part in partitions if part not in self._leaving and not self._ownership.may_copy(key)]
        if leaving:
            until_s = self._clock.monotonic() + PARTITIONS_DRAIN_S
            self._leaving.update({part: _Leaving(until_s) for part in leaving})
            self._restart_state.add(leaving)
            self._task.start_draining(leaving)
            self._pause_s = LOOK_FIRST_S

    async def _release(self) -> bool:
        """Release drained partitions, and those that the group waits for and that are not copied here.

        Returns whether to look again soon.

        The story: w2 joins. While w1 drains the partitions for w2, w3 joins, and the group waits for further partitions
        of w1. Those are still being copied: if w1 released them too, two workers would write there.
        """
        task = self._task
        drained = self._take_drained()
        awaited = [key for key in self._ownership.to_release() if key not in task.partitions]
        unsettled = [key for key in awaited if key in task.unsettled]
        if unsettled and not task.is_draining:
            raise ReleaseOutcomeUnknown(self._flow, len(unsettled))
        owed = [key for key in awaited if task.positions.owes(key)]
        kept = {*unsettled, *owed}
        released = [key for key in dict.fromkeys([*drained, *awaited]) if key not in kept]
        if released:
            await self._gaps.stored.written()
            self._assigned_positions.release(released)
        await self._ownership.release(released)
        if drained:
            name, number = drained[0]
            self._log.info("partitions.released", partitions=len(drained), first=f"{name}-{number}")
        return bool(self._leaving or owed)

    def _take_drained(self) -> list[TopicPartition]:
        """Forget the partitions whose requests are answered and whose positions are stored, and return them.

        Raises:
            ReleaseOutcomeUnknown: all that are left have an unanswered request or position.
        """
        task, now_s = self._task, self._clock.monotonic()
        gone: list[CopiedPartition] = []
        unanswered: list[CopiedPartition] = []
        for part, leaving in list(self._leaving.items()):
            if task.partitions.get(part.key) is not part:
                del self._leaving[part]  # its topic was deleted meanwhile, and it was drained for that
                continue
            if not leaving.is_drained and isinstance(part.copier.state, Drained):
                leaving.is_drained, leaving.until_s = True, now_s + FINAL_POSITIONS_S
                task.positions.owe_final([part])
            if leaving.is_drained and part.copier.is_unsettled:
                unanswered.append(part)
            elif leaving.is_drained and not task.positions.owes(part.key):
                gone.append(part)
            elif now_s >= leaving.until_s:
                unanswered.append(part)
        for part in gone:
            del self._leaving[part]
        task.forget(gone)
        if unanswered and len(unanswered) == len(self._leaving) and not gone and not task.is_draining:
            task.settle_gaps(unanswered)
            raise ReleaseOutcomeUnknown(self._flow, len(unanswered))
        return [part.key for part in gone]

    async def _news(self, is_waiting: bool) -> bool:
        """Wait for news of the group (returns True), or until it is time to look for drained partitions."""
        pause_s = self._pause_s if is_waiting else None
        self._pause_s = min(2 * self._pause_s, LOOK_MOST_S) if is_waiting else LOOK_FIRST_S
        try:
            async with asyncio.timeout(pause_s):
                await self._ownership.changed.wait()
        except TimeoutError:
            return False
        return True

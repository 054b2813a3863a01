"""Positions of partitions that other workers may have copied: what they stored is read before a partition begins here.

Answers to nothing in MM2, whose tasks read all their offsets when they start, and are all begun anew when one moves.

What each partition of a task carries, in bytes/s: by that the group spreads partitions over its workers.

Answers to nothing in MM2, which spreads partitions by their number.

Partitions of one flow go to other workers: each is let go by itself, once all that was sent for it is answered.

Answers to what Connect does with tasks that a rebalance takes away: they are stopped as wholes, all their partitions
together. The story that is told here: a broker of the target freezes, and a worker joins. Of twenty partitions that
move one is led by that broker, and its drain takes half a minute. The nineteen others have drained in milliseconds;
waited they for the one, nobody would copy them meanwhile.

What is not answered in time is in doubt, and never let go: this life of the flow ends then, and who goes on with such a
partition shuts it out (M7 of docs/broker-facts.md).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from connectors.source.context import FlowContext
from connectors.source.copying.task import DRAIN_S, FINAL_POSITIONS_S, SourceTask
from connectors.source.discovery.starting_offsets import StartingOffsets
from connectors.source.gap_keeper import GapKeeper
from connectors.source.recovery.previous_producers import PreviousProducers
from connectors.source.recovery.reconciliation import RestartState
from mm2py.clock import Clock
from mm2py.connector import Flow
from mm2py.errors import Mm2Error
from mm2py.group.ownership import Ownership
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import TopicPartition
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.copying.states import Drained, Reconciling, Storing
from mm2py.replication.position_store import PositionTable


class AssignedPositions:
    """Of one life of a flow. What this life itself has begun, and not let go since, it knows better than the topic."""

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
        """Learn where partitions stand that are ours now, and what their earlier owners met there.

        Raises:
            KafkaError: nothing is known of those that were not known before; call it again.
        """
        new = [key for key in keys if key not in self._held]
        if not new:
            return
        await self._read()
        await self._gaps.read_again(new)
        for key in {*self._table.positions, *self._starting_offsets.positions} - self._held:
            if key in self._table.positions:
                self._starting_offsets.positions[key] = self._table.positions[key]
            else:
                del self._starting_offsets.positions[key]
        for key in new:  # an operator's word may replace the position, and nobody would know any more whom it named
            self._previous.learn_asked(self._starting_offsets.positions.get(key))
        self._held.update(new)

    async def positions_of(self, topics: Collection[str]) -> dict[str, dict[int, StoredPosition]]:
        """Return what anybody has stored of topics. Raises: KafkaError."""
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

    def let_go(self, keys: Iterable[TopicPartition]) -> None:
        """These are no longer ours."""
        keys = list(keys)
        self._held.difference_update(keys)
        self._gaps.forget(keys)


BEFORE_COPYING: Final = (Reconciling, Storing)
MEASURE_EVERY_S: Final = 5.0
HALF_LIFE_S: Final = 30.0
"""A burst counts half after so long: partitions are not to follow every wave."""
SETTLED_S: Final = HALF_LIFE_S / math.log(2)
"""Over so many seconds goes what has been measured for ever: with their weight, which fades, they add up to this."""


@dataclass(slots=True)
class _Measured:
    """What a partition carried: ``carried`` bytes in ``over_s`` seconds, of which both fade alike."""

    carried: float = 0.0
    over_s: float = 0.0
    part: CopiedPartition | None = None
    copied: int = 0
    """What of ``part`` was copied when it was looked at last."""


class Loads:
    """Measures until cancelled.

    The story: of two equal workers one gives half of its partitions to a third. Did these begin with nothing carried,
    they would look idle for a minute: the next worker that joins would relieve the wrong one. So a partition begins
    with what its last owner told of it; one of which nobody has told is measured over its own time only.
    """

    def __init__(
        self, partitions: Mapping[TopicPartition, CopiedPartition], ownership: Ownership, clock: Clock
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
        """Take in what was copied in the last ``passed_s`` seconds, and tell the group."""
        keeps = math.exp2(-passed_s / HALF_LIFE_S)
        measured: dict[TopicPartition, _Measured] = {}
        for key, part in self._partitions.items():
            copied = part.copier.tally.bytes
            one = measured[key] = self._measured.get(key) or self._begun(key)
            was_copied = not isinstance(part.copier.state, BEFORE_COPYING)
            if one.part is part and was_copied:  # else it was not copied all that time
                one.carried = one.carried * keeps + copied - one.copied
                one.over_s = one.over_s * keeps + passed_s
            one.part, one.copied = part, copied
        self._measured = measured
        self._ownership.measure({key: one.carried / one.over_s for key, one in measured.items() if one.over_s})

    def _begun(self, key: TopicPartition) -> _Measured:
        told = self._ownership.load_of(key)
        return _Measured() if told is None else _Measured(told * SETTLED_S, SETTLED_S)


LOOK_FIRST_S: Final = 0.005
LOOK_MOST_S: Final = 0.05
"""How often it is looked which partitions have drained: those that do together are let go in one record."""


class ReleaseOutcomeUnknown(Mm2Error):
    """Partitions are to go to another worker, and something sent for them was not answered."""

    def __init__(self, flow: Flow, partitions: int) -> None:
        super().__init__(
            f"Flow {flow} is begun anew: {partitions} partition(s) are to go to another worker, and the target did not"
            " answer for all of them in time.",
            remedy="Nothing is lost: who goes on shuts this one out, and looks up what has arrived.",
        )


@dataclass(slots=True)
class _Leaving:
    until_s: float
    """When what it waits for now has taken too long."""
    is_drained: bool = False
    """It waits for its last position to be stored."""


class Releases:
    """Of one life of a flow. ``run`` it."""

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
        """Hand partitions over that are to go to other workers until cancelled; also while the task is drained.

        Raises:
            ReleaseOutcomeUnknown: something that was sent was not answered; this life ends.
            KafkaError: the group could not be told, which is tried for as long as this worker is part of it.
        """
        group, task = self._ownership, self._task
        ours, was_coordinator = set(group.mine()), group.is_coordinator
        is_news = True  # what goes through all partitions is done for news only: there may be 50,000
        while True:
            async with task.settling:
                if is_news:
                    group.changed.clear()
                    self._begin()
                try:
                    is_waiting = await self._let_go()
                except KafkaError:
                    if not task.is_draining:
                        raise
                    return  # the worker has left, or says by its leaving how it stands with all of them
            if is_news:
                before, ours = (ours, was_coordinator), set(group.mine())
                task.lanes.take_part_of_rate(len(ours) / max(1, sum(group.listed.values())))
                was_coordinator = group.is_coordinator
                if not ours <= before[0] or was_coordinator is not before[1]:
                    self._gained()
            is_news = await self._news(is_waiting)

    def _begin(self) -> None:
        """Stop copying what is not ours any more."""
        partitions = self._task.partitions.items()
        leaving = [part for key, part in partitions if part not in self._leaving and not self._ownership.may_copy(key)]
        if leaving:
            until_s = self._clock.monotonic() + DRAIN_S
            self._leaving.update({part: _Leaving(until_s) for part in leaving})
            self._restart_state.add(leaving)
            self._task.start_draining(leaving)
            self._pause_s = LOOK_FIRST_S

    async def _let_go(self) -> bool:
        """Let go of what has drained, and of what is awaited of us and was not copied here. Returns whether to look
        again soon.

        The story: w2 joins, and while w1 drains what goes there w3 joins. What goes to w3 is awaited of w1 by now, and
        still being copied: said w1 that it has let that go as well, two would write there.
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
            await self._gaps.written()
            self._assigned_positions.let_go(released)
        await self._ownership.release(released)
        if drained:
            name, number = drained[0]
            self._log.info("partitions.handed_over", partitions=len(drained), first=f"{name}-{number}")
        return bool(self._leaving or owed)

    def _take_drained(self) -> list[TopicPartition]:
        """Forget the partitions of which all is answered and stored, and return them.

        Raises:
            ReleaseOutcomeUnknown: of all that are left something is not, and will not be for now.
        """
        task, now_s = self._task, self._clock.monotonic()
        gone: list[CopiedPartition] = []
        doubtful: list[CopiedPartition] = []
        for part, leaving in list(self._leaving.items()):
            if task.partitions.get(part.key) is not part:
                del self._leaving[part]  # its topic was deleted meanwhile: it was drained for that
                continue
            if not leaving.is_drained and isinstance(part.copier.state, Drained):
                leaving.is_drained, leaving.until_s = True, now_s + FINAL_POSITIONS_S
                task.positions.owe_final([part])
            if leaving.is_drained and part.copier.is_unsettled:
                doubtful.append(part)
            elif leaving.is_drained and not task.positions.owes(part.key):
                gone.append(part)
            elif now_s >= leaving.until_s:
                doubtful.append(part)
        for part in gone:
            del self._leaving[part]
        task.forget(gone)
        if doubtful and len(doubtful) == len(self._leaving) and not gone and not task.is_draining:
            task.settle_gaps(doubtful)
            raise ReleaseOutcomeUnknown(self._flow, len(doubtful))
        return [part.key for part in gone]

    async def _news(self, is_waiting: bool) -> bool:
        """Until the group says something (returns True), or until it is time to look what has drained since."""
        pause_s = self._pause_s if is_waiting else None
        self._pause_s = min(2 * self._pause_s, LOOK_MOST_S) if is_waiting else LOOK_FIRST_S
        try:
            async with asyncio.timeout(pause_s):
                await self._ownership.changed.wait()
        except TimeoutError:
            return False
        return True

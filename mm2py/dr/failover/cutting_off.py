"""Ends a flow on its target when the source is lost: marked, drained or fenced, and watched until nothing is written.

The mark is the record that says whether the flow is on (``shared_settings/direction.py``): it is off, by ``mm2py dr
failover``. All workers follow it, also those that start later, and those that come back with the source. A worker that
does not say that it has drained may be dead, or frozen: then all producers of the flow that are known are fenced in its
remote topics and in the topics of its positions and ledgers. They are found by the positions and by the coordinators'
lists of transactional ids, as the next incarnation of the flow would find them.

Counterpart: none in MirrorMaker 2.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connector_offsets.altering import StillRunning
from mm2py.connector_offsets.open_tails import end_of, open_tails
from mm2py.connector_offsets.turning import TurnedFlow, TurnedMeanwhile, stored_positions, turn_off
from mm2py.copying.recovery import Tail, fence_and_prove
from mm2py.dr.states import PartitionOffsets, RecoveryFacts
from mm2py.errors import Mm2Error, for_each
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata, until_answered
from mm2py.kafka.list_offsets import LATEST, find_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.kafka.producer import transactions
from mm2py.kafka.producer.fencing import FENCES_AT_ONCE, PreviousProducer, parse
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.author import Author
from mm2py.records.source_offset import StoredPosition
from mm2py.topics.names import ledger_topic

DRAIN_MOST_S: Final = 15.0
"""How long workers may take to say that they have drained. Then their producers are fenced."""
ASK_AGAIN_S: Final = 0.5
STILL_S: Final = 5.0
"""So long no end of a copy may move."""


class StillWritten(Mm2Error):
    """Something writes into a copy although the flow has ended."""


@dataclass(frozen=True, slots=True)
class EndedFlow:
    """What a flow leaves on its target."""

    facts: RecoveryFacts
    waited_for: str
    """Which worker did not say that it has drained; empty: all have."""
    fenced: int
    """How many producers were fenced because of that."""
    at_least: tuple[str, ...]
    """Partitions of which the target may have more than ``facts.copied_to`` says."""


@dataclass(frozen=True, slots=True)
class CopiesLeft:
    """Where the copies of a flow end. Partitions have their names on the source."""

    copied_to: PartitionOffsets
    source_epochs: PartitionOffsets
    target_ends: PartitionOffsets
    at_least: tuple[str, ...]


def copies_left(
    positions: Mapping[TopicPartition, StoredPosition],
    tails: Mapping[TopicPartition, Tail],
    ends: Mapping[TopicPartition, int] | None,
) -> CopiesLeft:
    """Return where the copies end. Pure.

    A worker that was killed has written records behind its last position. They are counted: the target has at least so
    many source records more. If the source has holes there, as where transactions end, it has more than that.

    Args:
        tails: what killed workers have written behind their positions.
        ends: where the logs of the copies end, of those that are there; None: clients may write to them already, so it
            counts where the last copy ends.
    """
    copied: dict[str, int] = {}
    epochs: dict[str, int] = {}
    target_ends: dict[str, int] = {}
    at_least: list[str] = []
    for key, at in sorted(positions.items()):
        name, tail = f"{key[0]}-{key[1]}", tails.get(key)
        behind = 0 if tail is None else tail.stored
        copied[name] = at.next_source + behind
        if behind:
            at_least.append(name)
        elif at.source_leader_epoch is not None and at.source_leader_epoch >= 0:
            epochs[name] = at.source_leader_epoch
        end = (at.next_target if tail is None else end_of(tail)) if ends is None else ends.get(key)
        if end is not None:
            target_ends[name] = end
    return CopiesLeft(copied, epochs, target_ends, tuple(at_least))


def moved(before: PartitionOffsets, after: PartitionOffsets) -> list[str]:
    """Return which ends have moved, or are not known any more, in words. Pure."""
    return [
        f"{name} ended at {end:,}, and {_now(after.get(name))}"
        for name, end in sorted(before.items())
        if after.get(name) != end
    ]


def by_name(ends: Mapping[TopicPartition, int]) -> PartitionOffsets:
    """Return ends by partition, as ``orders-3``. Pure."""
    return {f"{name}-{number}": end for (name, number), end in ends.items()}


def _now(end: int | None) -> str:
    return "no leader says where it ends now" if end is None else f"ends at {end:,} now"


class FlowEnding:
    """Ends one flow. Each step may be repeated."""

    def __init__(self, flow: TurnedFlow, *, by: str, author: Author) -> None:
        self._flow = flow
        self._settings: FlowSettings = flow.settings
        self._target: Brokers = flow.clusters.target
        self._clock: Clock = flow.clusters.clock
        self._rng: random.Random = flow.clusters.rng
        self._by = by
        self._author = author

    async def is_marked(self) -> bool:
        """Whether the flow is off by what is stored now. Raises: Mm2Error, if the target does not answer."""
        seen = await self._flow.seen()
        return seen.stored is not None and not seen.claims

    async def end(self, renew: Callable[[], Awaitable[None]], *, watches: bool) -> EndedFlow:
        """Mark the flow as ended, and return when nothing of it can write any more.

        Args:
            watches: see that no end of a copy moves. False: clients may have been sent there already.
            renew: is called before something is changed: it raises if another process may have begun.
        Raises:
            StillWritten: an end moves all the same.
            NotFenceable, Mm2IsRunning, FlowOfAnotherGroup; Mm2Error, if the target does not answer.
        Cancelling leaves the mark at most, and fences.
        """
        waited_for = await self._drained()
        positions = await self.positions()
        topics = await self._topics(self._remote(key)[0] for key in positions)
        fenced = 0
        if waited_for:
            await renew()
            fenced = await self._fence(positions, topics)
            positions = await self.positions()  # none comes later
        await renew()
        of_remote = {self._remote(key): key for key in positions}
        by_remote = {self._remote(key): at for key, at in positions.items()}
        gated = gated_alone(self._target, self._clock)
        tails = await open_tails(by_remote, topics, gated, clock=self._clock, rng=self._rng)
        ends = await self._still(topics, set(by_remote)) if watches else None
        left = copies_left(
            positions,
            {of_remote[key]: tail for key, tail in tails.items()},
            None if ends is None else {of_remote[key]: end for key, end in ends.items() if key in of_remote},
        )
        facts = RecoveryFacts(copied_to=left.copied_to, target_ends=left.target_ends, source_epochs=left.source_epochs)
        return EndedFlow(facts, waited_for, fenced, left.at_least)

    async def positions(self) -> Mapping[TopicPartition, StoredPosition]:
        """Return the stored positions in what the flow copies, by source partition."""
        found = await stored_positions(self._settings, self._target, rng=self._rng)
        return {key: at for key, at in found.items() if self._settings.replicates(key[0])}

    async def ends(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return where the copies of these topics end, by source partition. Partitions without a leader that answers
        are left out."""
        names = {self._settings.remote_topic(topic): topic for topic in topics}
        found = await self._ends(await self._topics(names))
        return {(names[name], number): end for (name, number), end in found.items()}

    def _remote(self, key: TopicPartition) -> TopicPartition:
        return self._settings.remote_topic(key[0]), key[1]

    async def _drained(self) -> str:
        """Store the mark, and wait for the workers. Return which of them has not drained in time."""
        until_s = self._clock.monotonic() + DRAIN_MOST_S
        while True:
            try:
                await turn_off(self._flow, by=self._by, author=self._author, marks=True)
            except (StillRunning, TurnedMeanwhile) as error:
                if self._clock.monotonic() >= until_s:
                    if isinstance(error, TurnedMeanwhile):
                        raise
                    return error.what.rstrip(".")
            else:
                return ""
            await asyncio.sleep(ASK_AGAIN_S)

    async def _fence(
        self, positions: Mapping[TopicPartition, StoredPosition], remotes: Mapping[str, TopicMetadata]
    ) -> int:
        """Fence every producer of the flow that is known, and return how many these are."""
        producers: dict[int, PreviousProducer] = {}
        gated = gated_alone(self._target, self._clock)

        def meet(name: str | None, producer_id: int, epoch: int) -> None:
            known = producers.setdefault(producer_id, PreviousProducer(gated, name, producer_id, epoch, rng=self._rng))
            known.epoch = max(known.epoch, epoch)

        for at in positions.values():
            if at.producer_id is not None and at.producer_epoch is not None and not at.drained:
                meet(at.producer_name, at.producer_id, at.producer_epoch)
        for name, producer_id in (await self._listed()).items():
            meet(name, producer_id, -1)
        own = await self._topics([self._settings.offsets_topic, ledger_topic(self._settings.flow.source)])
        topics = [*remotes.values(), *own.values()]

        async def fence(producer: PreviousProducer) -> None:
            await until_answered(
                lambda: fence_and_prove(gated, producer, topics, clock=self._clock, rng=self._rng), rng=self._rng
            )

        await for_each(list(producers.values()), fence, at_once=FENCES_AT_ONCE, name="fencing")
        return len(producers)

    async def _listed(self) -> dict[str, int]:
        """Return the producer ids of the flow's transactional ids that coordinators know."""

        async def ask() -> dict[str, int]:
            found: dict[str, int] = {}
            for broker in (await fetch_metadata(self._target, [])).brokers:
                for one in await transactions.list_transactions(self._target, broker):
                    name = parse(one.transactional_id, self._settings.group)
                    if name is not None and name.flow == str(self._settings.flow):
                        found[one.transactional_id] = one.producer_id
            return found

        return await until_answered(ask, rng=self._rng)

    async def _still(
        self, topics: Mapping[str, TopicMetadata], wanted: set[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the ends when none has moved for ``STILL_S``. Raises: StillWritten."""
        before = await self._ends(topics)
        silent = sorted(key for key in wanted if key[0] in topics and key not in before)
        if silent:
            raise StillWritten(
                f"{silent[0][0]}-{silent[0][1]} has no leader on {self._settings.flow.target} that answers.",
                remedy="Call the same verb again when it has.",
            )
        await asyncio.sleep(STILL_S)
        if late := moved(by_name(before), by_name(await self._ends(topics))):
            raise StillWritten(
                f"{late[0]}: {self._settings.flow} has ended there, and its producers are fenced, so something else"
                " writes.",
                remedy="Stop clients that write there until the failover is through, and call the same verb again.",
            )
        return before

    async def _ends(self, topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, int]:
        fresh = await self._topics(topics)
        leaders = {
            (name, number): part.leader for name, one in fresh.items() for number, part in one.partitions.items()
        }
        return await until_answered(lambda: find_offsets(self._target, leaders, LATEST), rng=self._rng)

    async def _topics(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        """Return fresh metadata of those of these topics that exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        found = await until_answered(lambda: fetch_metadata(self._target, wanted), rng=self._rng)
        return {name: one for name, one in found.topics.items() if not one.error_code and one.partitions}

"""Turns a flow on or off, for all its workers and for good; of two flows that lead back and forth, one at a time.

``shared_settings/direction.py`` has the rules. A turn changes records on the flow's own target only, and reads those of
the flow back on the source. It can be repeated after any failure: it goes on from what is stored.

MirrorMaker 2 has no counterpart: its flows run as long as its processes do.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings, GroupSettings
from mm2py.connector_offsets.altering import Clusters, ConnectorOffsets, StillRunning, why_not_drained
from mm2py.connector_offsets.open_tails import with_tails
from mm2py.copying.positions import read_positions
from mm2py.errors import Mm2Error
from mm2py.flow import Kind
from mm2py.kafka.cluster import fetch_metadata, until_answered
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import EARLIEST, LATEST, Leaders, find_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.author import UNKNOWN, Author
from mm2py.records.direction_record import Direction, DirectionState
from mm2py.records.operator_request import Target, TargetState
from mm2py.shared_settings.config_log import ConfigLog
from mm2py.shared_settings.direction import (
    Positions,
    Seen,
    TurnFacts,
    TurnRefused,
    extras,
    refuse_turn,
    starts_behind,
)
from mm2py.shared_settings.flow_owner import refuse_another_group
from mm2py.shared_settings.follow import merged_or_file
from mm2py.shared_settings.running_mm2 import look_for_mm2
from mm2py.status.cluster_inquiry import GroupInquiry, InquirySide

COMMAND: Final = "mm2py dr"


class TurnedMeanwhile(Mm2Error):
    """Someone else has turned the flow at the same time. What they stored counts."""

    retriable = True


@dataclass(frozen=True, slots=True)
class TurnedFlow:
    """A flow that is turned, or the flow back."""

    settings: FlowSettings
    """Those by which its workers run."""
    log: ConfigLog
    clusters: Clusters

    async def seen(self) -> Seen:
        """Read what is stored of its direction."""
        await self.log.read_patiently(self.clusters.rng)
        return self.known

    @property
    def known(self) -> Seen:
        """What was read of its direction last."""
        records = self.log.records.direction
        return Seen(records.current, self.settings.standby, records.offset)

    def holds(self) -> Sequence[Target]:
        """Return what holds it, by what was read last."""
        hold, stop = self.log.records.direction.hold, self.log.records.target_of(Kind.SOURCE)
        return [one for one in (hold, stop) if one is not None and one.state is not TargetState.STARTED]


async def turned_flow(
    file: SettingsFile,
    by_file: FlowSettings,
    group: GroupSettings,
    *,
    source: Brokers,
    target: Brokers,
    clock: Clock,
    rng: random.Random,
) -> TurnedFlow:
    """Read what is stored of a flow on its target.

    Args:
        by_file: its settings in the file.
        group: of its target.
    Raises: Mm2Error, if the target does not answer.
    """
    log = ConfigLog(gated_alone(target, clock), by_file, worker=COMMAND, clock=clock, rng=rng)
    await log.read_patiently(rng)
    inquiry = GroupInquiry(group, InquirySide(by_file.flow.target, target), clock=clock, rng=rng)
    settings = merged_or_file(file, by_file, log.config)
    return TurnedFlow(settings, log, Clusters(source, target, log, inquiry, clock, rng))


@dataclass(frozen=True, slots=True)
class Turned:
    """A flow was turned, or was so before."""

    direction: Direction
    """What counts now."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where it begins on its source: behind what the flow back has brought."""
    extras: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How many records its target has that the flow back has not copied, by partition."""


async def turn_off(flow: TurnedFlow, *, by: str, author: Author = UNKNOWN, marks: bool = False) -> Turned:
    """Turn a flow off, and return when all its workers have drained it.

    Args:
        marks: store who has done it also if the flow is off already, by another one.
    Raises:
        StillRunning: it is off, and a worker has not said that it has drained; ask again.
        TurnedMeanwhile, FlowOfAnotherGroup, Mm2IsRunning; Mm2Error, if the target does not answer.
    Cancelling may leave it off.
    """
    await _refuse_others(flow)
    seen = await flow.seen()
    stored = seen.stored
    if stored is None or stored.state is not DirectionState.OFF or (marks and stored.by != by):
        stored = await _store(flow, DirectionState.OFF, seen.stored, by, author)
    await ConnectorOffsets(flow.settings, flow.clusters).drained()
    return Turned(stored)


async def turn_on(
    flow: TurnedFlow,
    back: TurnedFlow | None,
    *,
    by: str,
    author: Author = UNKNOWN,
    force: bool = False,
    leaves_out: Sequence[int] = (),
) -> Turned:
    """Turn a flow on. If the flow back must not be on at the same time, this one begins behind what that one brought.

    Args:
        back: the flow back, if ``flow.settings.flow_back`` names one.
        force: see ``refuse_turn``.
        leaves_out: producers on its source whose records it does not copy, beside those that were left out before.
    Raises:
        TurnRefused, StillRunning: nothing was changed.
        TurnedMeanwhile, FlowOfAnotherGroup, Mm2IsRunning; Mm2Error, if a cluster does not answer. Ask again.
    Cancelling may leave it being turned on: it copies nothing then, and the next turn goes on.
    """
    assert (back is None) == (flow.settings.flow_back is None), "the flow back belongs to the turn"  # noqa: S101
    await _refuse_others(flow)
    own = await flow.seen()
    if own.stored is not None and own.is_on:
        if back is not None and (other := await back.seen()).is_on and other.stored is not None:
            raise TurnRefused(
                f"{flow.settings.flow} is {own.text}, and {back.settings.flow} is {other.text}: both have stopped.",
                remedy=f"Turn one of them off: mm2py dr turn FILE '{back.settings.flow}' --off.",
            )
        return Turned(own.stored)
    if back is None:
        return Turned(await _store(flow, DirectionState.ON, own.stored, by, author, leaves_out))
    await _look(flow, back, force=force)
    begun = await _store(flow, DirectionState.TURNING_ON, own.stored, by, author, leaves_out)
    try:
        missing, brought, own_positions = await _look(flow, back, force=force)  # the other turn may be quicker
        starts = await _starts(flow, back, brought, own_positions)
        await ConnectorOffsets(flow.settings, flow.clusters).begin_at(starts)
    except Mm2Error:
        with suppress(Mm2Error):
            await _store(flow, DirectionState.OFF, begun, by, author)
        raise
    return Turned(await _store(flow, DirectionState.ON, begun, by, author), starts, missing)


async def _refuse_others(flow: TurnedFlow) -> None:
    """Raises: Mm2IsRunning, FlowOfAnotherGroup."""
    settings, clusters = flow.settings, flow.clusters
    await until_answered(lambda: look_for_mm2(settings, clusters.target), rng=clusters.rng)
    await flow.log.read_patiently(clusters.rng)
    await refuse_another_group(settings, flow.log, clusters.target, clock=clusters.clock, rng=clusters.rng)


async def _store(
    flow: TurnedFlow,
    state: DirectionState,
    instead_of: Direction | None,
    by: str,
    author: Author,
    leaves_out: Sequence[int] = (),
) -> Direction:
    generation = 1 if instead_of is None else instead_of.generation + 1
    known = () if instead_of is None else instead_of.leaves_out
    wanted = Direction(state, generation, by, 0, author=author, leaves_out=tuple(sorted({*known, *leaves_out})))
    stored = await flow.log.turn(wanted, instead_of=instead_of)
    if (stored.state, stored.generation, stored.by) != (state, generation, by):
        raise TurnedMeanwhile(
            f"{flow.settings.flow} was turned at the same time: it is {stored.text}.",
            remedy="Look what counts, and ask again.",
        )
    return stored


async def _look(
    flow: TurnedFlow, back: TurnedFlow, *, force: bool
) -> tuple[Mapping[TopicPartition, int], Positions, Positions]:
    """Return what the flow back has not copied, and the positions of both. Raises: TurnRefused, StillRunning."""
    other = await back.seen()
    runs = "" if other.claims else await why_not_drained(back.settings.flow, back.clusters, back.holds())
    if flow.log.records.direction.hold is not None:
        await ConnectorOffsets(flow.settings, flow.clusters).drained()
    brought, own = await _positions(back), await _with_own_tails(flow, await _positions(flow))
    missing = await _extras(back, brought, own)
    refuse_turn(TurnFacts(flow.settings.flow, back.settings.flow, other, runs, missing), force=force)
    return missing, brought, own


async def _positions(flow: TurnedFlow) -> Positions:
    return await stored_positions(flow.settings, flow.clusters.target, rng=flow.clusters.rng)


async def stored_positions(settings: FlowSettings, target: Brokers, *, rng: random.Random) -> Positions:
    """Return the stored positions of a flow; none if their topic is not there."""
    name = settings.offsets_topic

    async def read() -> Positions:
        topic = (await fetch_metadata(target, [name])).topics.get(name)
        if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            return {}
        if topic.error_code:
            raise BrokerRefused(f"Reading {name}", topic.error_code, remedy=f"mm2py needs DESCRIBE and READ on {name}.")
        return (await read_positions(target, topic, settings.flow.source))[0]

    return await until_answered(read, rng=rng)


async def _with_own_tails(flow: TurnedFlow, own: Positions) -> Positions:
    """Return the positions of a flow that is standby with the target offsets at which its copies really end.

    The story: the worker of A->B is killed while it is turned off, and its last copies on B are behind its positions.
    B->A cannot be turned on, because A->B seems not to have copied all. A->B cannot be turned on again, because B seems
    to have records that B->A has not copied: they are those copies.
    """
    target, clock, rng = flow.clusters.target, flow.clusters.clock, flow.clusters.rng
    names = sorted({name for name, _ in own if flow.settings.remote_topic(name) == name})
    metadata = await until_answered(lambda: fetch_metadata(target, names), rng=rng)
    topics = {name: topic for name, topic in metadata.topics.items() if name in names and not topic.error_code}
    return await with_tails(own, topics, gated_alone(target, clock), clock=clock, rng=rng)


async def _extras(back: TurnedFlow, brought: Positions, own: Positions) -> dict[TopicPartition, int]:
    """Return what the flow back has not copied. Raises: StillRunning, if a leader does not answer."""
    source = back.clusters.source
    metadata = await until_answered(lambda: fetch_metadata(source, None), rng=back.clusters.rng)
    leaders = {
        (name, number): partition.leader
        for name, topic in metadata.topics.items()
        if not topic.error_code and back.settings.replicates(name) and back.settings.remote_topic(name) == name
        for number, partition in topic.partitions.items()
    }
    ends = await _offsets(back.settings.flow.source, source, leaders, LATEST)
    without = {key: leader for key, leader in leaders.items() if key not in brought}
    return extras(brought, own, await _offsets(back.settings.flow.source, source, without, EARLIEST), ends)


async def _starts(flow: TurnedFlow, back: TurnedFlow, brought: Positions, own: Positions) -> dict[TopicPartition, int]:
    """Return where a flow begins in what the flow back brought. A producer of that flow that did not drain is fenced.

    Raises: StillRunning, if a leader does not answer; as ``with_tails``.
    """
    source = flow.clusters.source
    names = sorted(
        name
        for name in {name for name, _ in brought}
        if back.settings.remote_topic(name) == name and flow.settings.replicates(name)
    )
    metadata = await until_answered(lambda: fetch_metadata(source, names), rng=flow.clusters.rng)
    topics = {name: topic for name, topic in metadata.topics.items() if not topic.error_code}
    leaders = {
        (name, number): partition.leader
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
        if (name, number) in brought
    }
    ends = await _offsets(flow.settings.flow.source, source, leaders, LATEST)
    of_these = {key: brought[key] for key in leaders}
    gated, clock, rng = gated_alone(source, back.clusters.clock), back.clusters.clock, back.clusters.rng
    return starts_behind(await with_tails(of_these, topics, gated, clock=clock, rng=rng), own, ends)


async def _offsets(alias: str, brokers: Brokers, leaders: Leaders, when: int) -> dict[TopicPartition, int]:
    """Return the offsets of all these partitions. Raises: StillRunning, if a leader does not answer."""
    found = await find_offsets(brokers, leaders, when)
    silent = sorted(leaders.keys() - found.keys())
    if silent:
        name, number = silent[0]
        raise StillRunning(f"{name}-{number} on {alias} has no leader that answers.", remedy="Ask again.")
    return found

"""Alters the offsets of a flow's connectors as KIP-875 says: only while they are stopped, and for good.

An altered offset N is an operator's position: copying continues at N + 1, whatever the copy contains. A deleted offset
counts as ``--allow-recopy`` for the partition. Checkpoint and heartbeat connectors store no offsets, so nothing changes
for them.

All workers of the flow must have reported that they have drained, and the group must have fenced the workers that died
before they reported it: so no late position replaces ours. The new position names a producer that may still write to
the remote partition: the next owner fences that producer there before it copies.

Counterpart: alterConnectorOffsets and resetConnectorOffsets of Connect's DistributedHerder, which first fences the
tasks of a source connector.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mm2py.clock import Clock
from mm2py.config.keys import OFFSETS_REPLICATION_FACTOR
from mm2py.config.settings import FlowSettings
from mm2py.connector_offsets.offsets_body import Offsets, OffsetsInvalid, read_offsets
from mm2py.copying.positions import PositionStore, operators_position, read_positions
from mm2py.errors import Mm2Error
from mm2py.flow import Flow, Kind, TopicName
from mm2py.group.membership import GroupState
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata, until_answered
from mm2py.kafka.internal_topic import TopicWriter, find_or_make
from mm2py.kafka.list_offsets import LATEST, find_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.operator_request import Target, TargetState
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition
from mm2py.secret import shown_name
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.flow_owner import refuse_another_group
from mm2py.shared_settings.running_mm2 import look_for_mm2
from mm2py.status.cluster_inquiry import GroupInquiry
from mm2py.topics.names import InternalTopic

DRAINED_AGAIN_S: Final = 0.25
DRAINED_WITHIN_S: Final = 5.0
"""How long a request waits for workers that have just got the order to stop."""
ALTERED: Final = "The offsets for this connector have been altered successfully"
RESET: Final = "The offsets for this connector have been reset successfully"

NONE_KEPT: Final = "mm2py keeps none for it: what it emits follows from the two clusters."


class NotStopped(Mm2Error):
    """The connector may run. REST answers 400, as Connect does."""

    def __init__(self, flow: Flow, kind: Kind) -> None:
        super().__init__(
            "Connectors must be in the STOPPED state before their offsets can be modified.",
            remedy=f"This can be done by issuing a 'PUT' request to the '/connectors/{flow}.{kind}/stop' endpoint.",
        )


class NotStandby(Mm2Error):
    """The flow is on. Nothing was changed."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(f"{flow} is not standby.", remedy="Turn it off first.")


class StillRunning(Mm2Error):
    """Something may still write for the flow. REST answers 409: ask again."""

    retriable = True


@dataclass(frozen=True, slots=True)
class Clusters:
    """Access to the two clusters of a flow, its stored settings and its group."""

    source: Brokers
    target: Brokers
    configs: ConfigTable
    group: GroupInquiry
    clock: Clock
    rng: random.Random


def why_running(state: GroupState | None, flow: Flow, *holds: Target) -> str:
    """Return who may still write for a flow that was stopped; empty if all have drained.

    Args:
        state: of the flow's group; None: no worker ever joined it.
        holds: the records that hold the flow now. A worker says one of them.
    """
    if state is None:
        return ""
    offsets = {hold.offset for hold in holds}
    members = [one for one in state.members.values() if flow in one.joined.flows]
    running = sorted(one.joined.name for one in members if one.held.get(flow) not in offsets)
    if running:
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        return f"worker {running[0]}{more} has not said that {flow} is drained there"
    fenced = [name for name, writers in state.to_fence.items() if any(one.flow == flow for one in writers.values())]
    return f"member {fenced[0]} is not fenced yet" if fenced else ""


async def why_not_drained(flow: Flow, clusters: Clusters, holds: Sequence[Target]) -> str:
    """Return who may still write for a flow; empty: nobody. Workers that were just told to stop get a little time.

    Args:
        holds: see ``why_running``.
    Raises: Mm2Error, if the target does not answer.
    """
    until_s = clusters.clock.monotonic() + DRAINED_WITHIN_S
    while True:
        facts = await clusters.group.look()
        why = facts.unread or why_running(facts.state, flow, *holds)
        owner = clusters.configs.records.owner.current
        if facts.state is None and not why and owner is not None and owner.group == facts.name:
            why = f"workers of group {facts.name} have run it, and its control log {facts.topic} is gone"
        if not why or clusters.clock.monotonic() >= until_s:
            return why
        await asyncio.sleep(DRAINED_AGAIN_S)


class ConnectorOffsets:
    """The offsets of one flow's connectors."""

    def __init__(self, settings: FlowSettings, clusters: Clusters) -> None:
        """``settings`` are the flow's settings that the workers use."""
        self._settings = settings
        self._flow = settings.flow
        self._clusters = clusters
        self._target = clusters.target
        self._rng = clusters.rng

    async def alter(self, kind: Kind, body: object) -> str:
        """Set the offsets that a body names. Returns the message for the client.

        Raises:
            OffsetsInvalid: nothing was altered; the body asks for something impossible.
            NotStopped, StillRunning, Mm2IsRunning, FlowOfAnotherGroup: nothing was altered; see there.
            Mm2Error: a cluster does not answer, or refuses. Ask again, or read the stored offsets.
        Cancelling may leave all or some of the offsets altered.
        """
        wanted = read_offsets(body, kind, self._flow.source)
        await self._store(kind, functools.partial(self._stopped, kind), lambda _: wanted)
        return ALTERED if kind is Kind.SOURCE else f"{ALTERED}. {NONE_KEPT}"

    async def reset(self, kind: Kind) -> str:
        """Delete all offsets of a connector. Returns, raises: as ``alter``."""
        await self._store(kind, functools.partial(self._stopped, kind), dict.fromkeys)
        return RESET if kind is Kind.SOURCE else f"{RESET}. {NONE_KEPT}"

    async def begin_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """Store where a flow that is standby begins once it is turned on, whatever its remote partitions hold.

        Args:
            starts: the next source offsets.
        Raises: as ``alter``; NotStandby.
        """
        wanted: Offsets = {key: start - 1 for key, start in starts.items()}
        await self._store(Kind.SOURCE, self.standing_by, lambda _: wanted)

    async def drained(self) -> None:
        """Return when nothing of a flow that is standby runs any more, and all that it sent was answered.

        Raises: NotStandby; StillRunning, if workers have not said that soon.
        """
        await self._drained(await self.standing_by())

    async def standing_by(self) -> Sequence[Target]:
        """Return what holds a flow that is standby. Raises: NotStandby."""
        configs = self._clusters.configs
        await configs.read_patiently(self._rng)
        hold, stop = configs.records.direction.hold, configs.records.target_of(Kind.SOURCE)
        if hold is None:
            raise NotStandby(self._flow)
        return [hold] if stop.state is TargetState.STARTED else [hold, stop]

    async def _store(
        self,
        kind: Kind,
        holding: Callable[[], Awaitable[Sequence[Target]]],
        wanted_of: Callable[[Iterable[TopicPartition]], Offsets],
    ) -> None:
        """Store offsets. ``holding`` returns what holds the flow, and raises if nothing does."""
        holds = await holding()
        if kind is not Kind.SOURCE:
            return
        await until_answered(lambda: look_for_mm2(self._settings, self._target), rng=self._rng)
        await refuse_another_group(
            self._settings, self._clusters.configs, self._target, clock=self._clusters.clock, rng=self._rng
        )
        await self._drained(holds)
        topic = await until_answered(self._ensure_topic, rng=self._rng)
        stored = await self._positions(topic)
        wanted = wanted_of(stored)
        if not wanted:
            return
        positions = await self._positions_for(wanted, stored)
        await self._write(topic, positions)
        if await holding() != holds:
            raise StillRunning(
                f"{self._flow} was resumed while its offsets were altered.",
                remedy="Stop it again, and look which of them it has used.",
            )

    async def _stopped(self, kind: Kind) -> Sequence[Target]:
        """Return the record that stops a connector. Raises: NotStopped."""
        configs = self._clusters.configs
        await configs.read_patiently(self._rng)
        target = configs.records.target_of(kind)
        if target.state is not TargetState.STOPPED:
            raise NotStopped(self._flow, kind)
        return [target]

    async def _drained(self, holds: Sequence[Target]) -> None:
        """Wait a little until all workers have said that they have drained. Raises: StillRunning."""
        if why := await why_not_drained(self._flow, self._clusters, holds):
            raise StillRunning(
                f"{self._flow} may still write: {why}.",
                remedy="Ask again. If that worker is dead, start one: it evicts and fences the other, and stays"
                " stopped.",
            )

    # The offsets topic

    async def _ensure_topic(self) -> TopicMetadata:
        settings = self._settings
        return await find_or_make(
            self._target,
            InternalTopic(TopicName(settings.offsets_topic), settings.offsets_topic_partitions),
            settings.offsets_topic_replication_factor,
            setting=OFFSETS_REPLICATION_FACTOR.name,
        )

    async def _positions(self, topic: TopicMetadata) -> dict[TopicPartition, StoredPosition]:
        return (await read_positions(self._target, topic, self._flow.source))[0]

    async def _positions_for(
        self, wanted: Offsets, stored: Mapping[TopicPartition, StoredPosition]
    ) -> dict[TopicPartition, StoredPosition | None]:
        """Return the positions to store. Raises: OffsetsInvalid, if a partition is absent or ends before its offset."""
        settings = self._settings
        names = sorted({name for name, _ in wanted})
        source = await fetch_metadata(self._clusters.source, names)
        upstreams = source.topics
        remotes = (await fetch_metadata(self._target, sorted(map(settings.remote_topic, names)))).topics
        ends = await self._ends(wanted, upstreams)
        positions: dict[TopicPartition, StoredPosition | None] = {}
        for key, offset in wanted.items():
            upstream, remote, known = upstreams.get(key[0]), remotes.get(settings.remote_topic(key[0])), stored.get(key)
            is_there = upstream is not None and not upstream.error_code and key[1] in upstream.partitions
            if offset is None:
                positions[key] = replace(_RESET, **_producer_of(known)) if is_there else None
                continue
            if not is_there or upstream is None:
                raise OffsetsInvalid(f"{shown_name(key[0])}-{key[1]} is no partition of {self._flow.source}.")
            if offset >= ends[key]:
                raise OffsetsInvalid(f"Offset {offset} is beyond {key[0]}-{key[1]}, which ends before {ends[key]}.")
            at = offset + 1
            position = operators_position(
                at,
                source_cluster=source.cluster_id,
                source_topic_id=upstream.topic_id,
                target_topic_id=None if remote is None or remote.error_code else remote.topic_id,
                target_topic=settings.renamed(key[0]),
                behind=known if known is not None and _skips(known, position_at=at, upstream=upstream) else None,
            )
            positions[key] = replace(position, **_producer_of(known))
        return positions

    async def _ends(self, wanted: Offsets, upstreams: Mapping[str, TopicMetadata]) -> dict[TopicPartition, int]:
        """Return the ends of the partitions that get an offset. Raises: StillRunning, if a leader does not answer."""
        there = {
            key: upstreams[key[0]].partitions[key[1]].leader
            for key, offset in wanted.items()
            if offset is not None and key[0] in upstreams and key[1] in upstreams[key[0]].partitions
        }
        ends = await find_offsets(self._clusters.source, there, LATEST)
        silent = sorted(there.keys() - ends.keys())
        if silent:
            name, number = silent[0]
            raise StillRunning(
                f"{name}-{number} on {self._flow.source} has no leader that tells where it ends.", remedy="Ask again."
            )
        return ends

    async def _write(self, topic: TopicMetadata, positions: Mapping[TopicPartition, StoredPosition | None]) -> None:
        """Write under a transactional id of the flow: if an answer is missing, the next start of a worker fences this
        writer like any previous incarnation, before it reads positions."""
        clock, settings = self._clusters.clock, self._settings
        brokers = gated_alone(self._target, clock)
        name = TransactionalId(settings.group, f"{self._rng.getrandbits(48):012x}", 0, str(self._flow))
        incarnation = Incarnation(
            brokers, name.at, clock=clock, rng=self._rng, report=lambda _: None, waiting=lambda _: None
        )
        await incarnation.start()
        writer = TopicWriter(
            brokers,
            topic.name,
            incarnation,
            rng=self._rng,
            timeout_ms=int(settings.target_request_timeout_s * 500),
            channel="offsets",
        )
        await PositionStore(self._flow.source, len(topic.partitions), writer, clock).store(positions)


_RESET: Final = StoredPosition(next_source=0, by=BY_OPERATOR, recopy=True)


def _producer_of(stored: StoredPosition | None) -> dict[str, Any]:
    """Return the fields that name a producer that may still write; none if all its requests were answered."""
    if stored is None or stored.producer_id is None or stored.drained:
        return {}
    return {
        "producer_id": stored.producer_id,
        "producer_epoch": stored.producer_epoch,
        "previous_by": stored.producer_name,
    }


def _skips(known: StoredPosition, *, position_at: int, upstream: TopicMetadata) -> bool:
    """Whether all records before the known position are copied, and those between the two positions are skipped."""
    is_same = known.source_topic_id in {None, upstream.topic_id}
    return known.drained and is_same and position_at >= known.next_source

"""Carries the positions of a flow from the mirror that ran to mm2py.

The positions become those of a MirrorMaker 2 in the flow's offsets topic: so the worker that starts compares the end of
each copy with the source, as behind any MirrorMaker 2 (``resume_from_mm2``), and goes on at the exact record.

Counterpart: KIP-875 of Apache Kafka, by which an operator carries offsets from one connector to another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mm2py.clock import Clock
from mm2py.config.keys import OFFSETS_REPLICATION_FACTOR
from mm2py.config.settings import FlowSettings
from mm2py.connector_offsets.offsets_body import OffsetsInvalid, read_offsets
from mm2py.copying.positions import read_positions
from mm2py.copying.reading.internal_table import read_table
from mm2py.errors import Mm2Error
from mm2py.flow import Kind, TopicName
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata, until_answered
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION, name_of
from mm2py.kafka.internal_topic import TopicWriter, find_or_make
from mm2py.kafka.list_offsets import LATEST, Leaders, find_bounds, find_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.batch import NewRecord
from mm2py.records.source_offset import (
    CONNECTOR,
    MalformedPosition,
    SourcePartition,
    StoredPosition,
    decode_key,
    decode_value,
    encode_key,
    encode_mm2_value,
    partition_of,
)
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.running_mm2 import Mm2IsRunning, look_for_mm2
from mm2py.takeover.connect_rest import ConnectRest
from mm2py.takeover.positions_plan import FoundPosition, JudgedPosition, PositionOutcome, judge_position
from mm2py.takeover.what_runs import RunningFlow
from mm2py.topics.names import InternalTopic
from mm2py.uninstall.asking import workers_of_flow

STOPPED_WITHIN_S: Final = 90.0
"""How long connectors may take to stop: Connect waits for the requests of their tasks."""
LOOK_AGAIN_S: Final = 0.5

NextOffsets = Mapping[TopicPartition, int]
"""By source topic and partition: the source offset at which a mirror goes on."""


class SwitchRefused(Mm2Error):
    """A flow is not carried over: something runs that must not, or positions cannot be told."""


class FlowTakeover:
    """One flow that is carried over."""

    def __init__(
        self,
        settings: FlowSettings,
        running: RunningFlow | None,
        rest: ConnectRest | None,
        *,
        source: Brokers,
        target: Brokers,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """Make one; nothing is asked yet.

        Args:
            settings: of the file of mm2py.
            running: the same flow where the mirror runs; None: a dedicated MirrorMaker 2.
            rest: of the Connect cluster that runs it; None: its offsets topic is read.
        """
        self.settings = settings
        self.flow = settings.flow
        self.running = running
        self._rest = rest
        self._source = source
        self._target = target
        self._clock = clock
        self._rng = rng

    async def refuse_running(self) -> None:
        """Check that no worker of mm2py runs the flow, and no mirror that only an operator can stop.

        Raises:
            SwitchRefused: one does, or it is not known.
        """
        table = ConfigTable(self._target, self.settings.configs_topic)
        await table.read()
        owner = table.records.owner.current
        topics = (await fetch_metadata(self._target, None)).topics
        users = await workers_of_flow(
            self.settings, "" if owner is None else owner.group, topics, self._target, self._clock, self._rng
        )
        if users:
            raise SwitchRefused(users[0], remedy="Positions are carried only while nothing runs the flow.")
        if why := await self.why_mirror_runs():
            raise SwitchRefused(why, remedy=self.how_to_stop)

    async def why_mirror_runs(self) -> str:
        """Return why the group of the mirror's workers is not empty, as far as an operator has to empty it."""
        try:
            look = await look_for_mm2(self.settings, self._target)
        except Mm2IsRunning as error:
            return f"{self.flow} still runs: group {error.group} on {self.flow.target} has {error.members} member(s)."
        if look.unknown:
            return f"It is not known whether {self.flow} still runs. {look.remedy}"
        if look.emits_heartbeats and self.running is not None:
            return f"{self.flow} still runs: group {look.group} on {self.flow.target} has members."
        return ""

    @property
    def how_to_stop(self) -> str:
        """What an operator does before the switch."""
        if self.running is not None and self.running.stop_command:
            return f"Stop it through its resource, else Strimzi starts it again: {self.running.stop_command}"
        return "Stop all its processes in order (SIGTERM), so that it stores where it stands."

    async def stop(self) -> list[str]:
        """Stop the connectors over REST, and return their names when they have stopped.

        Raises:
            SwitchRefused: they do not stop in time.
            ConnectFailed: Connect does not answer, or refuses.
        Cancelling leaves them as they are; some may have stopped.
        """
        if self._rest is None or self.running is None:
            return []
        names = [self.running.connectors[kind] for kind in self.running.connectors]
        for name in names:
            await self._rest.stop(name)
        until_s = self._clock.monotonic() + STOPPED_WITHIN_S
        for name in names:
            while not (found := await self._rest.runs(name)).is_stopped:
                if self._clock.monotonic() >= until_s:
                    raise SwitchRefused(
                        f"Connector {name} is {found.state} with {found.tasks} task(s), and has not stopped in"
                        f" {STOPPED_WITHIN_S:g} s.",
                        remedy="Look at its worker's log, and call the command again.",
                    )
                await asyncio.sleep(LOOK_AGAIN_S)
        return names

    async def look(self) -> list[JudgedPosition]:
        """Return the positions where the mirror runs, each judged. Waits for partitions that have no leader just now.

        Raises:
            Mm2Error: something cannot be read.
        """
        return await until_answered(self._look, rng=self._rng)

    async def _look(self) -> list[JudgedPosition]:
        found = await self._positions()
        names = sorted({name for name, _ in found})
        remote_of = {name: self.settings.remote_topic(name) for name in names}
        remote = {(remote_of[name], number) for name, number in found}
        source = await fetch_metadata(self._source, names)
        target = await fetch_metadata(self._target, sorted(set(remote_of.values())))
        bounds = await find_bounds(self._source, _leaders(source, found))
        ends = await find_offsets(self._target, _leaders(target, remote), LATEST)
        _refuse_untold(source, found, bounds, str(self.flow.source))
        _refuse_untold(target, remote, ends, str(self.flow.target))
        stored = await self._stored()
        return [
            judge_position(
                FoundPosition(
                    *key,
                    next_source=next_source,
                    remote_topic=remote_of[key[0]],
                    is_selected=self.settings.replicates(key[0]),
                    source=bounds.get(key),
                    target_end=ends.get((remote_of[key[0]], key[1])),
                    stored=stored[key].next_source if key in stored else None,
                )
            )
            for key, next_source in sorted(found.items())
        ]

    async def _positions(self) -> dict[TopicPartition, int]:
        """Return the positions of the mirror, by source topic and partition."""
        name = CONNECTOR if self.running is None else self.running.connectors.get(Kind.SOURCE, "")
        if self._rest is not None:
            body = await self._rest.offsets(name)
            if isinstance(body, dict) and not body.get("offsets"):
                return {}
            try:
                offsets = read_offsets(body, Kind.SOURCE, self.flow.source)
            except OffsetsInvalid as error:
                raise SwitchRefused(
                    f"The offsets of connector {name} cannot be used: {error.what}", remedy="Correct them there."
                ) from error
            return {key: offset + 1 for key, offset in offsets.items() if offset is not None and offset >= 0}
        topic = self.settings.offsets_topic if self.running is None else self.running.offsets_topic
        return await positions_in(self._target, topic, name, self.flow.source)

    async def _stored(self) -> Mapping[TopicPartition, StoredPosition]:
        """Return the positions that are stored for mm2py."""
        topic = await topic_named(self._target, self.settings.offsets_topic)
        return {} if topic is None else (await read_positions(self._target, topic, self.flow.source))[0]

    async def store(self, judged: Sequence[JudgedPosition]) -> int:
        """Store the positions that are taken over, and return how many there are.

        Raises:
            Mm2Error: the target refuses, or what is stored differs from what was to be stored. Call it again.
        Cancelling may leave some of them stored. They are the same after the next call.
        """
        taken = {
            (one.found.topic, one.found.partition): one.found.next_source
            for one in judged
            if one.outcome is PositionOutcome.TAKEN
        }
        if not taken:
            return 0
        settings = self.settings
        topic = await until_answered(
            lambda: find_or_make(
                self._target,
                InternalTopic(TopicName(settings.offsets_topic), settings.offsets_topic_partitions),
                settings.offsets_topic_replication_factor,
                setting=OFFSETS_REPLICATION_FACTOR.name,
            ),
            rng=self._rng,
        )
        await write_positions(settings, self._target, topic, CONNECTOR, taken, clock=self._clock, rng=self._rng)
        stored = await until_answered(self._stored, rng=self._rng)  # leaders of a new topic may not know it yet
        wrong = sorted(key for key, at in taken.items() if key not in stored or stored[key].next_source != at)
        if wrong:
            raise SwitchRefused(
                f"The position of {wrong[0][0]}-{wrong[0][1]} is not what was stored: another process writes"
                f" {settings.offsets_topic}.",
                remedy="End it, and call the command again.",
            )
        return len(taken)


async def topic_named(brokers: Brokers, name: str) -> TopicMetadata | None:
    """Return a topic; None: there is none."""
    found = (await fetch_metadata(brokers, [name])).topics.get(name)
    return None if found is None or found.error_code else found


async def positions_in(brokers: Brokers, name: str, connector: str, source: str) -> dict[TopicPartition, int]:
    """Return the positions that a connector has in an offsets topic of Connect.

    Raises:
        SwitchRefused: there is no such topic, or a position cannot be understood.
        DamagedTopic, KafkaError: as ``read_table``.
    """
    topic = await topic_named(brokers, name)
    if topic is None:
        raise SwitchRefused(f"There is no topic {name} with positions.", remedy="Has the mirror run with this target?")
    latest: dict[bytes, bytes | None] = {}

    def take(key: bytes | None, value: bytes | None) -> None:
        if key is not None:
            latest[key] = value

    await read_table(brokers, topic, take)
    found: dict[TopicPartition, int] = {}
    for key, value in latest.items():
        try:
            partition = decode_key(key, connector)
            position = None if partition is None else decode_value(value)
        except MalformedPosition as error:
            if connector.encode() in key:
                raise SwitchRefused(
                    f"{name} has a position that cannot be understood.", remedy="Correct it."
                ) from error
            continue  # of another connector, whose keys may look as they like
        if partition is not None and position is not None and partition.cluster == source:
            found[partition.topic, partition.partition] = position.next_source
    return found


async def write_positions(
    settings: FlowSettings,
    brokers: Brokers,
    topic: TopicMetadata,
    connector: str,
    positions: NextOffsets,
    *,
    clock: Clock,
    rng: random.Random,
) -> None:
    """Write positions as Connect does, under the name of a connector.

    They are written under a transactional id of the flow: if an answer is missing, the next start of a worker fences
    this writer before it reads positions.

    Raises: as ``TopicWriter.write``.
    """
    name = TransactionalId(settings.group, f"{rng.getrandbits(48):012x}", 0, str(settings.flow))
    gated = gated_alone(brokers, clock)
    incarnation = Incarnation(gated, name.at, clock=clock, rng=rng, report=lambda _: None, waiting=lambda _: None)
    await incarnation.start()
    timeout_ms = int(settings.target_request_timeout_s * 500)
    writer = TopicWriter(gated, topic.name, incarnation, rng=rng, timeout_ms=timeout_ms, channel="offsets")
    records: dict[int, list[NewRecord]] = {}
    for (source_topic, number), next_source in positions.items():
        key = encode_key(SourcePartition(settings.flow.source, source_topic, number), connector)
        record = NewRecord(key, encode_mm2_value(next_source), clock.wall_ms())
        records.setdefault(partition_of(key, len(topic.partitions)), []).append(record)
    await writer.write(records)


def _leaders(metadata: ClusterMetadata, wanted: Iterable[TopicPartition]) -> Leaders:
    """Return the leaders of the partitions that are there."""
    return {
        (name, number): metadata.leader_of(name, number)
        for name, number in wanted
        if name in metadata.topics and number in metadata.topics[name].partitions
    }


def _refuse_untold(
    metadata: ClusterMetadata, wanted: Iterable[TopicPartition], told: Mapping[TopicPartition, object], cluster: str
) -> None:
    """Raise if the ends of a partition are not known, which is something else than that there is none.

    Raises:
        SwitchRefused: a partition has no leader, or we may not see its topic.
    """
    for name, number in sorted(wanted):
        topic = metadata.topics.get(name)
        if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if topic.error_code:
            raise SwitchRefused(f"{cluster} answers {name_of(topic.error_code)} for {name}.", remedy="Grant DESCRIBE.")
        if number in topic.partitions and (name, number) not in told:
            raise SwitchRefused(f"{name}-{number} on {cluster} has no leader that tells its ends.", remedy="Ask again.")

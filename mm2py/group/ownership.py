"""Which partitions of a flow this worker may copy now, and what its source connector reports to the group.

Counterpart: what a task of Connect learns from its herder's assignment; there a task gets all its partitions when it
starts, and restarts for each change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from mm2py.flow import Flow, Kind
from mm2py.group.member_handle import MemberHandle
from mm2py.group.membership import GroupState
from mm2py.kafka.list_offsets import chunks
from mm2py.kafka.port import ProducerIdentity, TopicPartition
from mm2py.kafka.producer.fencing import TransactionalId, parse
from mm2py.records.control_record import Listed, NotStarted, Released, TaskName, TopicClaim, Writer, Writes
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse
from mm2py.records.safe_point import SafePoint

RELEASED_A_RECORD: Final = 2000
LISTED_A_RECORD: Final = 1000
"""How many topics a record has: a name has up to 249 characters, and may occur three times."""
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class KnownProducers:
    """What the group knows of the processes and producers that a flow finds in its records."""

    live: frozenset[str] = frozenset()
    """Processes (``TransactionalId.process``) that are members: only the leader fences them."""
    known: frozenset[str] = frozenset()
    """Processes that are or were members."""
    drained: frozenset[str] = frozenset()
    """Processes that have left, and all that they sent was answered."""
    writing: frozenset[int] = frozenset()
    """The producer ids of members' present attempts. What such a producer wrote to a partition that this worker owns
    now was answered, because its member has released the partition."""
    producers: frozenset[int] = frozenset()
    """All producer ids of this flow that members have or had."""
    fence_epochs: Mapping[int, int] = field(default_factory=dict)
    """By producer id: the epoch to which it was raised. Later fences of this producer use this epoch."""
    unfenced: str = ""
    """Why the leader could not fence one of these producers; empty if it could."""


class OwnershipView(Protocol):
    """Which partitions a source connector may copy, and what it reports. ``Ownership`` implements this for a group; a
    backfill implements it for partitions of its own."""

    changed: asyncio.Event

    @property
    def producer_expiry_ms(self) -> int: ...
    @property
    def is_coordinator(self) -> bool: ...
    @property
    def listed(self) -> Mapping[str, int]: ...
    @property
    def known_producers(self) -> KnownProducers: ...
    @property
    def source_cluster(self) -> str | None: ...
    def may_copy(self, key: TopicPartition) -> bool: ...
    def speaks_for(self, key: TopicPartition) -> bool: ...
    def mine(self) -> Collection[TopicPartition]: ...
    def to_release(self) -> Collection[TopicPartition]: ...
    def width(self, topic: str) -> int | None: ...
    def claim(self, topic: str) -> TopicClaim | None: ...
    def conflicting_flows(self, topic: str, claim: TopicClaim) -> frozenset[Flow]: ...
    def conflicting_topic(self, topic: str, claim: TopicClaim) -> str | None: ...
    def measure(self, bytes_per_s: Mapping[TopicPartition, float]) -> None: ...
    def uses(self, link: LinkUse | None) -> None: ...
    @property
    def version(self) -> tuple[int, int]: ...
    def is_safe_to(self, safe: SafePoint) -> None: ...
    def waits_for(self, waits: FlowWaits | None) -> None: ...
    def cannot_store(self, why: str) -> None: ...
    @property
    def not_started(self) -> NotStarted | None: ...
    def cannot_start(self, why: NotStarted | None) -> None: ...
    def started(self) -> None: ...
    def load_of(self, key: TopicPartition) -> float | None: ...
    async def list_partitions(
        self,
        partitions: Mapping[str, int],
        widths: Mapping[str, int],
        claims: Mapping[str, TopicClaim],
        *,
        source_cluster: str | None = None,
    ) -> None: ...
    async def release(self, keys: Collection[TopicPartition]) -> None: ...
    async def announce(self, identity: ProducerIdentity) -> None: ...


class Ownership:
    """One flow's part of a member's group. Methods that append to the control log raise IncarnationEnded once the
    member has ended."""

    def __init__(self, member: MemberHandle, flow: Flow, group: str, producer_expiry_ms: int) -> None:
        self.producer_expiry_ms = producer_expiry_ms
        """How long the target remembers producers."""
        self.changed = asyncio.Event()
        """Set when an answer may have changed; a reader clears it before it waits. Only one task waits for it."""
        self._member = member
        self._flow = flow
        self._group = group
        self._coordinator_task = TaskName(flow, Kind.SOURCE)
        self._known = KnownProducers()
        self._known_at: tuple[object, ...] = ()

    @property
    def is_coordinator(self) -> bool:
        """Whether this worker finds topics for the flow, lists their partitions, and keeps remote topics in step."""
        return self._may_run(self._coordinator_task)

    def may_copy(self, key: TopicPartition) -> bool:
        """Whether a partition is ours, and no previous owner may write to its copy any more."""
        return self._may_run(self._task(key))

    def speaks_for(self, key: TopicPartition) -> bool:
        """Whether this worker decides what becomes of a partition: it is ours, or has no owner and we coordinate."""
        if self._member.is_over:
            return False
        owner = self._member.view.owner(self._task(key))
        return self.may_copy(key) or (owner is None and self.is_coordinator)

    def mine(self) -> Collection[TopicPartition]:
        """Return the partitions that may be copied here, as far as the coordinator has listed them."""
        owned = () if self._member.is_over else self._member.view.owned_by(self._member.id)
        return [
            (task.topic, task.partition)
            for task in owned
            if task.is_partition and task.flow == self._flow and self._may_run(task)
        ]

    def to_release(self) -> Collection[TopicPartition]:
        """Return the partitions that other members wait for us to release."""
        awaited = () if self._member.is_over else self._member.view.awaited_of(self._member.id)
        return [(task.topic, task.partition) for task in awaited if task.is_partition and task.flow == self._flow]

    @property
    def listed(self) -> Mapping[str, int]:
        """How many partitions of each topic the coordinator has listed."""
        return self._member.view.topics.get(self._flow, {})

    def width(self, topic: str) -> int | None:
        """Return how many partitions a topic had when the flow first copied it, as its coordinator said; the others
        came later. None if the flow has to find that out itself."""
        return self._member.view.widths.get(self._flow, {}).get(topic)

    def claim(self, topic: str) -> TopicClaim | None:
        """Return where a topic is copied to, as the coordinator has listed it; None if it has not."""
        return self._member.view.topic_claims.by_flow.get(self._flow, {}).get(topic)

    def conflicting_flows(self, topic: str, claim: TopicClaim) -> frozenset[Flow]:
        """Return the flows because of which a topic must not be copied there: they were listed first, and they or this
        flow do not want to be mixed."""
        return self._member.view.topic_claims.conflicting_flows(self._flow, topic, claim)

    def conflicting_topic(self, topic: str, claim: TopicClaim) -> str | None:
        """Return the flow's topic that was listed first with the same remote topic; None: there is none."""
        return self._member.view.topic_claims.conflicting_topic(self._flow, topic, claim)

    @property
    def known_producers(self) -> KnownProducers:
        """What the group knows now. Computed again only after a change: each of 50,000 positions asks for it."""
        view = self._member.view
        now = view, view.member_changes, view.other_changes
        if now != self._known_at:
            self._known_at, self._known = now, self._find_known(view)
        return self._known

    def _find_known(self, view: GroupState) -> KnownProducers:
        writers = [writer for member in view.members.values() for writer in member.writers.values()]
        former = {producer_id for producer_id, (writer, _) in view.retired.items() if writer.flow == self._flow}
        out = {producer_id for writers_of_one in view.to_fence.values() for producer_id in writers_of_one}
        return KnownProducers(
            live=frozenset(view.members),
            known=frozenset({*view.members, *view.to_fence, *view.gone}),
            drained=frozenset(view.drained),
            writing=self._writing(writers),
            producers=frozenset({*(writer.producer_id for writer in writers), *out, *view.retired, *view.fences}),
            fence_epochs={producer_id: epoch for producer_id, (epoch, _) in view.fences.items()},
            unfenced=next((why for producer_id, why in view.unfenced.items() if producer_id in former), ""),
        )

    @property
    def source_cluster(self) -> str | None:
        """Return the id of the cluster from which the group copies the flow; None if no coordinator has said it yet."""
        return self._member.view.sources.get(self._flow)

    def measure(self, bytes_per_s: Mapping[TopicPartition, float]) -> None:
        """Report the present load of our partitions, in bytes/s: the leader spreads partitions by load."""
        self._member.measure({self._task(key): rate for key, rate in bytes_per_s.items()})

    def uses(self, link: LinkUse | None) -> None:
        """See ``Member.uses``."""
        self._member.uses(self._flow, link)

    def waits_for(self, waits: FlowWaits | None) -> None:
        """See ``Member.waits_for``."""
        self._member.waits_for(self._flow, waits)

    @property
    def version(self) -> tuple[int, int]:
        """Return up to which offset the control log was read, and the offset of the last record that moved a task."""
        return self._member.view.next_offset, self._member.view.moved_at

    def is_safe_to(self, safe: SafePoint) -> None:
        """See ``Member.is_safe_to``."""
        self._member.is_safe_to(self._flow, safe)

    def cannot_store(self, why: str) -> None:
        """See ``Member.cannot_store``."""
        self._member.cannot_store(self._flow, why)

    @property
    def not_started(self) -> NotStarted | None:
        """Return why the flow does not start on this worker; None: it runs, or is not to run."""
        return self._member.not_started.get(self._flow)

    def cannot_start(self, why: NotStarted | None) -> None:
        """See ``Member.cannot_start``."""
        self._member.cannot_start(self._flow, why)

    def started(self) -> None:
        """See ``Member.started``."""
        self._member.started(self._flow)

    def load_of(self, key: TopicPartition) -> float | None:
        """Return the load of a partition, in bytes/s, that its owners reported last; None if none has."""
        return self._member.view.loads.get(self._task(key))

    async def list_partitions(
        self,
        partitions: Mapping[str, int],
        widths: Mapping[str, int],
        claims: Mapping[str, TopicClaim],
        *,
        source_cluster: str | None = None,
    ) -> None:
        """Let the group know how many partitions of topics are copied; 0: the topic is not copied any more. Topics that
        are not named do not change.

        Only the coordinator appends this, and only what has changed.

        Args:
            widths: see ``width``; those that are known do not change.
            claims: where these topics are copied to. A topic that conflicts with a flow listed earlier is not listed.
            source_cluster: the id of the cluster on which they were found, as far as it has one.
        Raises: KafkaError; call it again.
        """
        known = self.listed
        news = {
            topic: number
            for topic, number in partitions.items()
            if known.get(topic, 0) != number or (topic in claims and self.claim(topic) != claims[topic])
        }
        if news and self.is_coordinator:
            await self._member.say(
                [
                    Listed(
                        self._member.id,
                        self._flow,
                        dict(part),
                        {topic: widths[topic] for topic, _ in part if topic in widths and self.width(topic) is None},
                        source_cluster if self.source_cluster is None else None,
                        {topic: claims[topic] for topic, _ in part if topic in claims},
                    )
                    for part in chunks(sorted(news.items()), LISTED_A_RECORD)
                ]
            )

    async def release(self, keys: Collection[TopicPartition]) -> None:
        """Release partitions: nothing more is written to them here, and all that was sent is answered.

        Partitions that no worker waits for are left out. The coordinator's task is released with them if it was
        reassigned; two coordinators for a moment do no harm.

        Raises: KafkaError; call it again.
        """
        awaited = self._member.view.awaited_of(self._member.id)
        tasks = [task for task in [self._coordinator_task, *sorted(map(self._task, keys))] if task in awaited]
        if tasks:
            me, generation = self._member.id, self._member.view.generation
            await self._member.say(
                [Released(me, generation, frozenset(part)) for part in chunks(tasks, RELEASED_A_RECORD)]
            )

    async def announce(self, identity: ProducerIdentity) -> None:
        """Let the group know of a producer id; writing may start when this returns.

        From now on that producer is fenced when this member is evicted.

        Raises: KafkaError.
        """
        writer = Writer(self._flow, identity.transactional_id, identity.producer_id, identity.epoch)
        await self._member.say([Writes(self._member.id, writer)])

    def _writing(self, writers: Sequence[Writer]) -> frozenset[int]:
        """Return the producer ids of each member's present attempt. Ids that name no attempt count as present."""
        attempts: dict[str, int] = {}
        named: list[tuple[int, TransactionalId | None]] = []
        for writer in writers:
            if writer.flow == self._flow:
                name = None if writer.transactional_id is None else parse(writer.transactional_id, self._group)
                named.append((writer.producer_id, name))
                if name is not None:
                    attempts[name.process] = max(name.attempt, attempts.get(name.process, 0))
        return frozenset(
            producer_id for producer_id, name in named if name is None or name.attempt == attempts[name.process]
        )

    def _may_run(self, task: TaskName) -> bool:
        return not self._member.is_over and self._member.view.may_run(task, self._member.id)

    def _task(self, key: TopicPartition) -> TaskName:
        return TaskName(self._flow, Kind.SOURCE, *key)

"""Which partitions of a flow this worker may copy just now: what a source connector asks its group, and tells it.

Answers to what a task of Connect learns from its herder's assignment; there a task gets all its partitions when it
starts, and is begun anew for each change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from mm2py.connector import Flow, Kind
from mm2py.group.membership import View
from mm2py.kafka.port import ProducerIdentity, TopicPartition
from mm2py.kafka.producer.fencing import TransactionalId, parse
from mm2py.records.control_record import Listed, Released, TaskName, TopicClaim, Writer, Writes

if TYPE_CHECKING:
    from mm2py.group.member import Member

RELEASED_A_RECORD: Final = 2000
LISTED_A_RECORD: Final = 1000
"""So many topics stand in a record: their names have up to 249 characters, and may stand there three times."""
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Fates:
    """What the group knows of the processes and producers that a flow meets in its records."""

    live: frozenset[str] = frozenset()
    """Processes (``TransactionalId.process``) that are members: nobody else shuts them out."""
    known: frozenset[str] = frozenset()
    """Processes that are or were members: they take nothing over from anybody."""
    drained: frozenset[str] = frozenset()
    """Those that have left, and all that they sent was answered."""
    writing: frozenset[int] = frozenset()
    """Producer ids under which members write in the life of the flow that they are in. What such a one wrote to a
    partition that is ours now was answered: it has let the partition go."""
    producers: frozenset[int] = frozenset()
    """All producer ids of this flow that members have or had."""
    fence_epochs: Mapping[int, int] = field(default_factory=dict)
    """By producer id: its epoch was raised to this one, and whoever shuts it out of a partition goes on with it."""
    unfenced: str = ""
    """Why the leader could not shut one out of them, if so."""


class Ownership:
    """One flow's part of a member's group. All of it ends with the member.

    What the group is told raises IncarnationEnded once the member is over.
    """

    def __init__(self, member: Member, flow: Flow, group: str, producer_expiry_ms: int) -> None:
        self.producer_expiry_ms = producer_expiry_ms
        """How long the target remembers producers."""
        self.changed = asyncio.Event()
        """Set when any answer may be another; a reader clears it before it waits. Only one waits for it."""
        self._member = member
        self._flow = flow
        self._group = group
        self._coordinator_task = TaskName(flow, Kind.SOURCE)
        self._fates = Fates()
        self._fates_of: tuple[object, ...] = ()

    @property
    def is_coordinator(self) -> bool:
        """Whether this worker is the one that finds topics for the flow, lists their partitions, and keeps remote
        topics in step."""
        return self._may_run(self._coordinator_task)

    def may_copy(self, key: TopicPartition) -> bool:
        """Whether a partition is ours, and nobody else writes to its copy any more."""
        return self._may_run(self._share(key))

    def speaks_for(self, key: TopicPartition) -> bool:
        """Whether it is for us to say what becomes of a partition: it is ours, or nobody's and we are the head."""
        if self._member.is_over:
            return False
        owner = self._member.view.owner(self._share(key))
        return self.may_copy(key) or (owner is None and self.is_coordinator)

    def mine(self) -> Collection[TopicPartition]:
        """Return the partitions that may be copied here, as far as the head has listed them."""
        owned = () if self._member.is_over else self._member.view.owned_by(self._member.id)
        return [
            (share.topic, share.partition)
            for share in owned
            if share.is_partition and share.flow == self._flow and self._may_run(share)
        ]

    def to_release(self) -> Collection[TopicPartition]:
        """Return the partitions that the group waits for us to let go."""
        awaited = () if self._member.is_over else self._member.view.awaited_of(self._member.id)
        return [(share.topic, share.partition) for share in awaited if share.is_partition and share.flow == self._flow]

    @property
    def listed(self) -> Mapping[str, int]:
        """How many partitions of each topic the head has listed."""
        return self._member.view.topics.get(self._flow, {})

    def width(self, topic: str) -> int | None:
        """Return how many partitions a topic had when the flow first copied it, as its head says; those beyond came
        later. None if that is for the flow itself to find out."""
        return self._member.view.widths.get(self._flow, {}).get(topic)

    def claim(self, topic: str) -> TopicClaim | None:
        """Return where a topic is copied to, as the head has listed it; None if it has not."""
        return self._member.view.topic_claims.by_flow.get(self._flow, {}).get(topic)

    def conflicting_flows(self, topic: str, claim: TopicClaim) -> frozenset[Flow]:
        """Return the flows because of which a topic must not be copied there: they were listed first, and do not want
        to be mixed, or we do not."""
        return self._member.view.topic_claims.conflicting_flows(self._flow, topic, claim)

    @property
    def fates(self) -> Fates:
        """As of now. Made again only when something changed: each of 50,000 positions asks for it."""
        view = self._member.view
        now = view, view.member_changes, view.other_changes
        if now != self._fates_of:
            self._fates_of, self._fates = now, self._find_fates(view)
        return self._fates

    def _find_fates(self, view: View) -> Fates:
        writers = [writer for member in view.members.values() for writer in member.writers.values()]
        out = {producer_id for writers_of_one in view.to_fence.values() for producer_id in writers_of_one}
        return Fates(
            live=frozenset(view.members),
            known=frozenset({*view.members, *view.to_fence, *view.gone}),
            drained=frozenset(view.drained),
            writing=self._writing(writers),
            producers=frozenset({*(writer.producer_id for writer in writers), *out, *view.retired, *view.fences}),
            fence_epochs={producer_id: epoch for producer_id, (epoch, _) in view.fences.items()},
            unfenced=next((why for producer_id, why in view.unfenced.items() if self._wrote(producer_id)), ""),
        )

    @property
    def source_cluster(self) -> str | None:
        """Return the id of the cluster from which the group copies the flow; None if nobody has said so yet."""
        return self._member.view.sources.get(self._flow)

    def measure(self, bytes_per_s: Mapping[TopicPartition, float]) -> None:
        """Tell what our partitions carry just now: the group spreads them by that."""
        self._member.measure({self._share(key): rate for key, rate in bytes_per_s.items()})

    def load_of(self, key: TopicPartition) -> float | None:
        """Return what a partition carries, in bytes/s, as its owners have told last; None if nobody has."""
        return self._member.view.loads.get(self._share(key))

    async def list_partitions(
        self,
        partitions: Mapping[str, int],
        widths: Mapping[str, int],
        claims: Mapping[str, TopicClaim],
        *,
        source_cluster: str | None = None,
    ) -> None:
        """Let the group know how many partitions of topics are copied; 0 ends one. The rest stays.

        Only what changed is said, and nothing by a worker that is not the head.

        Args:
            widths: see ``width``; those that are known stay as they are.
            claims: where these topics are copied to. One that another flow has listed first is not listed.
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
                    for part in _chunks(sorted(news.items()), LISTED_A_RECORD)
                ]
            )

    async def release(self, keys: Collection[TopicPartition]) -> None:
        """Let the group know that nothing more is written here to partitions, and all that was sent is answered.

        Nothing is said of partitions that no worker waits for. The flow's head is released with them, if it is to be:
        two heads for a moment do no harm.

        Raises: KafkaError; call it again.
        """
        awaited = self._member.view.awaited_of(self._member.id)
        shares = [share for share in [self._coordinator_task, *sorted(map(self._share, keys))] if share in awaited]
        await self._release(shares)

    async def announce(self, identity: ProducerIdentity) -> None:
        """Let the group know of a producer id; returns when it is known, so that writing may begin.

        From here on that producer is fenced as well when this member is evicted.

        Raises: KafkaError.
        """
        writer = Writer(self._flow, identity.transactional_id, identity.producer_id, identity.epoch)
        await self._member.say([Writes(self._member.id, writer)])

    async def _release(self, shares: Sequence[TaskName]) -> None:
        if shares:
            me, generation = self._member.id, self._member.view.generation
            await self._member.say(
                [Released(me, generation, frozenset(part)) for part in _chunks(shares, RELEASED_A_RECORD)]
            )

    def _writing(self, writers: Sequence[Writer]) -> frozenset[int]:
        """Return what members write under in the flow's present life in each of them; ids that tell no life count."""
        lives: dict[str, int] = {}
        named: list[tuple[int, TransactionalId | None]] = []
        for writer in writers:
            if writer.flow == self._flow:
                name = None if writer.transactional_id is None else parse(writer.transactional_id, self._group)
                named.append((writer.producer_id, name))
                if name is not None:
                    lives[name.process] = max(name.attempt, lives.get(name.process, 0))
        return frozenset(
            producer_id for producer_id, name in named if name is None or name.attempt == lives[name.process]
        )

    def _wrote(self, producer_id: int) -> bool:
        """Whether somebody who is no member any more wrote this flow under a producer id."""
        writer, _ = self._member.view.retired.get(producer_id, (None, 0))
        return writer is not None and writer.flow == self._flow

    def _may_run(self, share: TaskName) -> bool:
        return not self._member.is_over and self._member.view.may_run(share, self._member.id)

    def _share(self, key: TopicPartition) -> TaskName:
        return TaskName(self._flow, Kind.SOURCE, *key)


def _chunks(items: Sequence[ItemT], size: int) -> Iterator[Sequence[ItemT]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]

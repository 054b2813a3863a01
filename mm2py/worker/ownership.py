"""Which partitions of a flow this worker may copy just now: what a source connector asks its group, and tells it.

Answers to what a task of Connect learns from its herder's assignment; there a task gets all its partitions when it
starts, and is begun anew for each change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mm2py.flow import Flow
from mm2py.kafka.port import ProducerIdentity
from mm2py.records.control_record import Lead

Key = tuple[str, int]
"""Source topic and partition."""


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


class Ownership(Protocol):
    """One flow's part of the group."""

    @property
    def is_shared(self) -> bool:
        """Whether there may be other workers that copy partitions of the flow."""
        ...

    @property
    def is_head(self) -> bool:
        """Whether this worker is the one that finds topics for the flow, lists their partitions, and keeps remote
        topics in step."""
        ...

    def may_copy(self, key: Key) -> bool:
        """Whether a partition is ours, and nobody else writes to its copy any more."""
        ...

    def speaks_for(self, key: Key) -> bool:
        """Whether it is for us to say what becomes of a partition: it is ours, or nobody's and we are the head."""
        ...

    def mine(self) -> Collection[Key]:
        """Return the partitions that may be copied here, as far as the head has listed them."""
        ...

    def to_release(self) -> Collection[Key]:
        """Return the partitions that the group waits for us to let go."""
        ...

    @property
    def listed(self) -> Mapping[str, int]:
        """How many partitions of each topic the head has listed."""
        ...

    def width(self, topic: str) -> int | None:
        """Return how many partitions a topic had when the flow first copied it, as its head says; those beyond came
        later. None if that is for the flow itself to find out."""
        ...

    def lead(self, topic: str) -> Lead | None:
        """Return where a topic is copied to, as the head has listed it; None if it has not."""
        ...

    def in_the_way(self, topic: str, lead: Lead) -> frozenset[Flow]:
        """Return the flows because of which a topic must not be copied there: they were listed first, and do not want
        to be mixed, or we do not."""
        ...

    @property
    def source_cluster(self) -> str | None:
        """Return the id of the cluster from which the group copies the flow; None if nobody has said so yet."""
        ...

    @property
    def changed(self) -> asyncio.Event:
        """Set when any answer may be another; whoever waits for it clears it first. One waits for it."""
        ...

    @property
    def fates(self) -> Fates:
        """As of now."""
        ...

    def measure(self, bytes_per_s: Mapping[Key, float]) -> None:
        """Tell what our partitions carry just now: the group spreads them by that."""
        ...

    def load_of(self, key: Key) -> float | None:
        """Return what a partition carries, in bytes/s, as its owners have told last; None if nobody has."""
        ...

    async def list_partitions(
        self,
        partitions: Mapping[str, int],
        widths: Mapping[str, int],
        leads: Mapping[str, Lead],
        *,
        source_cluster: str | None = None,
    ) -> None:
        """As the head, let the group know how many partitions of topics are copied; 0 ends one. The rest stays.

        Args:
            widths: see ``width``; those that are known stay as they are.
            leads: where these topics are copied to. One that another flow has listed first is not listed.
            source_cluster: the id of the cluster on which they were found, as far as it has one.
        Raises: KafkaError; call it again.
        """
        ...

    async def release(self, keys: Collection[Key]) -> None:
        """Let the group know that nothing more is written here to partitions, and all that was sent is answered.

        Raises: KafkaError; call it again.
        """
        ...

    async def announce(self, identity: ProducerIdentity) -> None:
        """Let the group know of a producer id; returns when it is known, so that writing may begin.

        Raises: KafkaError.
        """
        ...


class Alone:
    """The ownership of a worker that shares with nobody."""

    is_shared = False
    is_head = True
    source_cluster = None

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.fates = Fates()
        self.listed: Mapping[str, int] = {}

    def may_copy(self, key: Key) -> bool:
        return True

    def speaks_for(self, key: Key) -> bool:
        return True

    def mine(self) -> Collection[Key]:
        return ()

    def to_release(self) -> Collection[Key]:
        return ()

    def width(self, topic: str) -> int | None:
        return None

    def lead(self, topic: str) -> Lead | None:
        return None

    def in_the_way(self, topic: str, lead: Lead) -> frozenset[Flow]:
        return frozenset()

    def measure(self, bytes_per_s: Mapping[Key, float]) -> None:
        """Nobody else wants to know."""

    def load_of(self, key: Key) -> float | None:
        return None

    async def list_partitions(
        self,
        partitions: Mapping[str, int],
        widths: Mapping[str, int],
        leads: Mapping[str, Lead],
        *,
        source_cluster: str | None = None,
    ) -> None:
        """Nobody else wants to know."""

    async def release(self, keys: Collection[Key]) -> None:
        """Nobody else wants to know."""

    async def announce(self, identity: ProducerIdentity) -> None:
        """Nobody else wants to know."""

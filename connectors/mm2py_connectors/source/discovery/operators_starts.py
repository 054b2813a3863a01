"""Starts partitions where an operator or a policy says, whatever was copied before.

MirrorMaker 2 does that with offsets that are altered in its topic. Here a previous producer is fenced first, because
the position that names it is replaced. Then the new position is stored, and copying starts there once.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from mm2py.copying.positions import operators_position
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.list_offsets import EARLIEST, find_offsets
from mm2py.kafka.port import TopicPartition
from mm2py.records.source_offset import StoredPosition
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.recovery.preparation import Prepared


class OperatorsStart(NamedTuple):
    """Where one partition is to start."""

    source_offset: int
    source_topic_id: uuid.UUID | None
    target_topic_id: uuid.UUID | None
    behind: StoredPosition | None = None
    """See ``positions.operators_position``."""


class OperatorsStarts:
    """Sets the starts of partitions of one flow."""

    def __init__(
        self,
        context: FlowContext,
        prepared: Prepared,
        *,
        store: Callable[[Mapping[TopicPartition, StoredPosition]], Awaitable[None]],
    ) -> None:
        """``store`` stores positions; those that are set go to ``prepared.positions`` as well."""
        self._positions = prepared.positions
        self._context = context
        self._flow = context.flow
        self._source = context.source.brokers
        self._target = context.target.brokers
        self._source_id = prepared.source_id
        self._previous = prepared.previous
        self._store = store

    async def put(self, starts: Mapping[TopicPartition, OperatorsStart]) -> None:
        """Store the starts of partitions that are not being copied. Their previous producers must be fenced before."""
        positions = {
            key: operators_position(
                start.source_offset,
                source_cluster=self._source_id,
                source_topic_id=start.source_topic_id,
                target_topic_id=start.target_topic_id,
                target_topic=self._context.settings.renamed(key[0]),
                behind=start.behind,
            )
            for key, start in starts.items()
        }
        await self._store(positions)
        self._positions.update(positions)

    async def log_starts(self, leaders: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        """Return the starts of source logs; partitions whose leaders do not answer are left out."""
        return await find_offsets(self._source, leaders, EARLIEST)

    async def restart(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, TopicMetadata | str]:
        """Let partitions that a gap has stopped start again at the beginning of their present source topics.

        Returns:
            The source topic of each, or why that is not possible.
        Raises: KafkaError.
        """
        names = sorted({name for name, _ in keys})
        upstreams = (await fetch_metadata(self._source, names)).topics
        remotes = (await fetch_metadata(self._target, sorted(map(self._remote_name, names)))).topics
        upstreams = {name: topic for name, topic in upstreams.items() if not topic.error_code}
        # The topic may have fewer partitions than before; one that is added later starts at 0.
        starts = {key: 0 for key in keys if key[0] in upstreams and key[1] not in upstreams[key[0]].partitions}
        there = [key for key in keys if key[0] in upstreams and key not in starts]
        starts |= await self.log_starts({key: upstreams[key[0]].partitions[key[1]].leader for key in there})
        unproven = await self.fence_previous(starts)
        starts = {key: start for key, start in starts.items() if key not in unproven}
        operators: dict[TopicPartition, OperatorsStart] = {}
        for key, start in starts.items():
            remote = remotes.get(self._remote_name(key[0]))
            target_topic_id = None if remote is None or remote.error_code else remote.topic_id
            operators[key] = OperatorsStart(start, upstreams[key[0]].topic_id, target_topic_id)
        await self.put(operators)
        answers: dict[TopicPartition, TopicMetadata | str] = {}
        for key in keys:
            if key in starts:
                answers[key] = upstreams[key[0]]
            elif key in unproven:
                place = f"{self._remote_name(key[0])}-{key[1]} on {self._flow.target}"
                answers[key] = f"previous producers are not fenced in {place} yet; accept it again later."
            else:
                place = f"{key[0]}-{key[1]}"
                answers[key] = f"{place} has no leader on {self._flow.source} that answers; accept it again later."
        return answers

    async def fence_previous(self, keys: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Fence previous producers in the remote partitions of partitions that are to get an operator's position.

        The story: w1 freezes with a request in flight, and the remote partition loses its end. w2 stops there before it
        has fenced w1. An operator accepts the gap, and no position names w1 any more; then its request is stored.

        Returns:
            The partitions where the fence is not proven yet: try again.
        Raises: as ``PreviousProducers.fence_in``.
        """
        keys = list(keys)
        if not keys:
            return set()
        for key in keys:
            self._previous.learn_asked(self._positions.get(key))
        names = {name: self._remote_name(name) for name, _ in keys}
        remotes = (await fetch_metadata(self._target, sorted(names.values()))).topics
        return await self._previous.fence_in_partitions({key: remotes.get(names[key[0]]) for key in keys})

    def _remote_name(self, topic: str) -> str:
        return self._context.settings.remote_topic(topic)

"""Writes the offset syncs of the partitions that this worker copies, in MM2's format.

``mm2py/offsets/sync_rule.py`` says when a sync is due. Batches are written one after the other, so the syncs of a
partition keep their order: a lower one after a higher one would make MM2's readers forget all others of the partition.
If syncs cannot be written, the newest of each partition wait; a missing sync makes translations less exact, but never
wrong. Requests pass the gate of this worker's group also if the topic is on the source, because no fence of the target
stops them there.

Counterpart: OffsetSyncWriter and the producer of MirrorSourceTask.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from mm2py.config.internal_topics import syncs_topic
from mm2py.config.settings import OffsetSyncSettings
from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.partition_errors import BLOCKED_PAUSE_S
from mm2py.errors import FirstErrorGroup
from mm2py.flow import TopicName
from mm2py.kafka import internal_topic
from mm2py.kafka.errors import Backoff, KafkaError
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import TopicPartition
from mm2py.logs import Trouble
from mm2py.offsets.runs import Run
from mm2py.offsets.sync_rule import SyncRule
from mm2py.offsets.sync_store import SLOTS
from mm2py.records.offset_sync import OffsetSync, encode
from mm2py_connectors.source.context import FlowContext

LOOK_EVERY_S: Final = 0.5
"""How often acknowledged records are checked for due syncs."""
LATEST_EVERY_S: Final = 10.0
"""How often partitions without a due sync get one for their newest record."""
LAST_S: Final = 2.0
"""How long a stop waits for the last syncs."""


class OffsetSyncs:
    """Writes the offset syncs of one attempt of a flow; ``run`` does the work."""

    def __init__(
        self,
        context: FlowContext,
        partitions: Mapping[TopicPartition, CopiedPartition],
        take_runs: Callable[[CopiedPartition], list[Run]],
    ) -> None:
        """Make one.

        Args:
            partitions: those that are copied now, by source topic and partition.
            take_runs: returns what was acknowledged of a partition since the last call.
        """
        self._context = context
        self._take_runs = take_runs
        self._partitions = partitions
        self._rules: dict[TopicPartition, SyncRule] = {}
        self._waiting: dict[TopicPartition, deque[tuple[int, int]]] = {}
        """Syncs to be written: (source offset, target offset), for each partition at most as many as readers keep."""
        self._due = asyncio.Event()
        self._idle = asyncio.Event()
        self._latest_at_s = 0.0
        self._writer: TopicWriter | None = None
        self._writes_to: tuple[str, bool] = "", True
        """Topic of the writer, and whether it is on the source."""
        self._trouble = Trouble(
            "offset_syncs",
            clock=context.clock,
            log=context.log,
            effect="groups that fail over read more records again; copying of records does not need them",
        )

    async def run(self) -> None:
        """Find and write due syncs until cancelled. Syncs that wait then are lost."""
        self._latest_at_s = self._context.clock.monotonic() + LATEST_EVERY_S
        async with FirstErrorGroup() as tasks:
            tasks.create_task(self._look_again_and_again(), name="offset syncs due")
            tasks.create_task(self._write_waiting(), name="offset syncs")

    async def close(self) -> None:
        """Let ``run`` write a sync for the newest record of every partition, if that does not take long."""
        self._look(latest=True)
        if self._waiting and not self._trouble.why:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._idle.wait()

    def forget(self, part: CopiedPartition) -> None:
        """Forget a partition that is not copied any more; its newest record gets a sync."""
        self._look_at(part.key, part, latest=True)
        self._rules.pop(part.key, None)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now_s = self._context.clock.monotonic()
            is_latest_due = now_s >= self._latest_at_s
            if is_latest_due:
                self._latest_at_s = now_s + LATEST_EVERY_S
            self._look(latest=is_latest_due)

    def _look(self, *, latest: bool) -> None:
        for key, part in self._partitions.items():
            self._look_at(key, part, latest=latest)

    def _look_at(self, key: TopicPartition, part: CopiedPartition, *, latest: bool) -> None:
        runs, settings = self._take_runs(part), self._context.settings.offset_syncs
        if settings is None:
            self._rules.clear()  # if syncs are switched on again, each partition begins with one
            return
        rule = self._rules.get(key)
        if rule is None:
            if not runs:
                return
            rule = self._rules[key] = SyncRule()
        due = [sync for run in runs for sync in rule.stored(*run, lag_max=settings.lag_max_records)]
        if latest and (newest := rule.latest) is not None:
            due.append(newest)
            rule.named(*newest)
        if due:
            self._waiting.setdefault(key, deque(maxlen=SLOTS)).extend(due)
            self._idle.clear()
            self._due.set()

    async def _write_waiting(self) -> None:
        backoff = Backoff(self._context.rng, first_s=0.2, most_s=5.0)
        self._due.set()  # the checkpoint connector reads the topic before anything is copied
        while True:
            await self._due.wait()
            self._due.clear()
            waiting, self._waiting = self._waiting, {}
            settings = self._context.settings.offset_syncs
            if settings is not None:
                try:
                    await self._write(settings, waiting)
                except KafkaError as error:
                    for key, syncs in waiting.items():
                        self._waiting[key] = deque([*syncs, *self._waiting.get(key, ())], maxlen=SLOTS)
                    self._due.set()
                    self._writer = None
                    self._trouble.note(error, at_once=not error.retriable)
                    await asyncio.sleep(backoff.next_s() if error.retriable else BLOCKED_PAUSE_S)
                    continue
                self._trouble.over()
                backoff.reset()
            if not self._waiting:
                self._idle.set()

    async def _write(
        self, settings: OffsetSyncSettings, waiting: Mapping[TopicPartition, deque[tuple[int, int]]]
    ) -> None:
        now_ms = self._context.clock.wall_ms()
        records = [
            encode(OffsetSync(TopicName(topic), partition, source_offset, target_offset), now_ms)
            for (topic, partition), syncs in waiting.items()
            for source_offset, target_offset in syncs
        ]
        writer = await self._find_writer(settings)
        if records:
            await writer.write({0: records})

    async def _find_writer(self, settings: OffsetSyncSettings) -> TopicWriter:
        if self._writer is not None and self._writes_to == (settings.topic, settings.on_source):
            return self._writer
        context, flow = self._context, self._context.settings
        timeout_s = flow.source_request_timeout_s if settings.on_source else flow.target_request_timeout_s
        wanted = syncs_topic(settings)
        self._writer = await internal_topic.open_writer(
            context.source.brokers if settings.on_source else context.target.brokers,
            wanted.topic,
            wanted.replication_factor,
            setting=wanted.setting,
            made=lambda: context.log.info("offset_syncs.topic_created", topic=settings.topic),
            rng=context.rng,
            timeout_ms=int(timeout_s * 500),
            channel="offset-syncs",
        )
        self._writes_to = settings.topic, settings.on_source
        return self._writer

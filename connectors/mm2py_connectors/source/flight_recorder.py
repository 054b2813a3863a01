"""Writes the flight recorder of one attempt of a flow. Nothing waits for it, and its errors end nothing.

Its records are appended under a plain producer id of its own, so a late record does no harm beside a successor's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.config.internal_topics import recorder_topic
from mm2py.errors import Mm2Error
from mm2py.flight.pending import FlightPending
from mm2py.kafka.errors import Backoff
from mm2py.kafka.internal_topic import TopicWriter, open_writer
from mm2py.logs import Trouble
from mm2py.records.batch import NewRecord
from mm2py.records.standstill import Cause
from mm2py_connectors.source.context import FlowContext

WRITE_EVERY_S: Final = 1.0
WRITE_MOST_S: Final = 30.0
"""How long a write may take before it counts as failed."""
AGAIN_MOST_S: Final = 60.0
"""The longest pause after a failure."""


class NotWritten(Mm2Error):
    """The topic of the flight recorder takes nothing at the moment."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"{topic} takes no record.", remedy=f"Look at the leader of {topic} and its replicas.")


class FlightRecorder:
    """Records what changes in one attempt of a flow. A recorder without ``pending`` records nothing."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._pending: FlightPending | None = context.flight
        self._writer: TopicWriter | None = None
        self._trouble = Trouble(
            "flight_recorder",
            clock=context.clock,
            log=context.log,
            effect="mm2py why --at will not know this time; the topic needs CREATE and WRITE",
        )

    @property
    def is_failing(self) -> bool:
        """Whether it cannot write now."""
        return bool(self._trouble.why)

    def show(self, causes: Mapping[str, Sequence[Cause]]) -> None:
        """Note why topics are not copied now, see ``FlightPending.show``."""
        if self._pending is not None:
            self._pending.show(causes, self._context.clock.wall_ms())

    async def run(self) -> None:
        """Write what changes, until cancelled. Cancelling may lose the changes of the last second."""
        if self._pending is None:
            return
        context = self._context
        backoff = Backoff(context.rng, first_s=1.0, most_s=AGAIN_MOST_S)
        waiting: list[NewRecord] = []
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            if not waiting:
                key = context.producer_name.process.encode()
                waiting = [NewRecord(key, value, at) for at, value in self._pending.take(context.clock.wall_ms())]
            if not waiting:
                continue
            try:
                async with asyncio.timeout(WRITE_MOST_S):
                    if self._writer is None:
                        self._writer = await self._open()
                    await self._writer.write({0: waiting})
            except (Mm2Error, TimeoutError) as error:
                self._writer = None  # a new producer id: records may be there twice, and their times put them in order
                self._trouble.note(
                    error
                    if isinstance(error, Mm2Error)
                    else NotWritten(str(recorder_topic(context.settings).topic.name))
                )
                await asyncio.sleep(backoff.next_s())
            else:
                waiting = []
                backoff.reset()
                self._trouble.over()

    async def _open(self) -> TopicWriter:
        context, wanted = self._context, recorder_topic(self._context.settings)
        return await open_writer(
            context.target.brokers,
            wanted.topic,
            wanted.replication_factor,
            setting=wanted.setting,
            made=lambda: context.log.info("flight_recorder.topic_made", name=str(wanted.topic.name)),
            rng=context.rng,
            timeout_ms=int(context.settings.target_request_timeout_s * 500),
            channel="flight",  # positions do not wait behind it
        )

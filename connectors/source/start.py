"""What must be so before a flow may copy: both clusters answer, no MirrorMaker 2 runs it, positions can be kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from connectors.source.errors import FlowRefused, TableUnusable
from mm2py.clock import Clock
from mm2py.config.keys import OFFSETS_REPLICATION_FACTOR, STATUS_REPLICATION_FACTOR
from mm2py.config.settings import FlowSettings
from mm2py.connector import Side, TopicName
from mm2py.kafka import internal_topic
from mm2py.kafka.errors import Backoff, KafkaError
from mm2py.kafka.port import Brokers
from mm2py.topics.names import InternalTopic

UNREACHABLE_REPORT_S: Final = 5.0

T = TypeVar("T")


class Patience:
    """Asks until it is answered, and says every few seconds that it is still waiting."""

    def __init__(
        self, *, clock: Clock, rng: random.Random, log: FilteringBoundLogger, note: Callable[[str], None]
    ) -> None:
        """``note`` gets the reason of the wait, for the flow's status."""
        self._clock = clock
        self._rng = rng
        self._log = log
        self._note = note

    async def reach(self, side: Side, role: str) -> str | None:
        """Wait until a cluster answers; say every few seconds that it does not."""
        backoff = Backoff(self._rng, most_s=2.0)
        said_at_s = float("-inf")
        while True:
            try:
                cluster_id = await side.identify()
            except KafkaError as error:
                if not error.retriable:
                    raise FlowRefused(error.what, remedy=error.remedy) from error
                self._note(str(error))
                if self._clock.monotonic() - said_at_s >= UNREACHABLE_REPORT_S:
                    said_at_s = self._clock.monotonic()
                    self._log.warning("cluster.unreachable", cluster=side.alias, role=role, why=str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                if said_at_s > float("-inf"):
                    self._log.info("cluster.reached", cluster=side.alias, role=role)
                return cluster_id

    async def until_answered(self, ask: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Repeat a question until it is answered; what no repetition mends is raised."""
        backoff = Backoff(self._rng, most_s=2.0)
        said_at_s = self._clock.monotonic()
        while True:
            try:
                return await ask()
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._note(f"{what}: {error}")
                if self._clock.monotonic() - said_at_s >= UNREACHABLE_REPORT_S:
                    said_at_s = self._clock.monotonic()
                    self._log.warning("flow.waiting", doing=what, why=str(error))
                await asyncio.sleep(backoff.next_s())

    async def accompany(self, work: Coroutine[Any, Any, T], what: str, why: str) -> T:
        """Wait for work that may take as long as it likes; say every few seconds that it is under way, and ``why``."""
        task = asyncio.create_task(work, name=what)
        try:
            while not (await asyncio.wait([task], timeout=UNREACHABLE_REPORT_S))[0]:
                self._note(f"{what}: {why}")
                self._log.warning("flow.waiting", doing=what, why=why)
            return await task
        finally:
            task.cancel()
            await asyncio.wait([task])  # nobody else hears of what it may raise as it ends
            if not task.cancelled():
                task.exception()


async def ensure_offsets_topic(settings: FlowSettings, brokers: Brokers) -> int:
    """Return how many partitions the topic of positions has. Raises: as ``_ensure``."""
    topic = InternalTopic(TopicName(settings.offsets_topic), settings.offsets_topic_partitions)
    factor = (settings.offsets_topic_replication_factor, OFFSETS_REPLICATION_FACTOR.name)
    return await _ensure(settings, topic, factor, brokers, keeps="positions")


async def ensure_status_topic(settings: FlowSettings, brokers: Brokers) -> int:
    """Return how many partitions the topic of gaps has. Raises: as ``_ensure``."""
    topic = InternalTopic(TopicName(settings.status_topic), settings.status_topic_partitions)
    factor = (settings.status_topic_replication_factor, STATUS_REPLICATION_FACTOR.name)
    return await _ensure(settings, topic, factor, brokers, keeps="gaps")


async def _ensure(
    settings: FlowSettings, topic: InternalTopic, factor: tuple[int, str], brokers: Brokers, *, keeps: str
) -> int:
    """Return how many partitions an internal topic has, creating it where it is missing.

    Raises:
        TableUnusable: it cannot be made, or it would lose what it keeps.
        BrokerRefused: it is not there yet; ask again.
    """
    try:
        found = await internal_topic.find_or_make(brokers, topic, factor[0], setting=factor[1])
        await internal_topic.read_settings(brokers, topic)
    except internal_topic.TopicNotMade as error:
        raise TableUnusable(settings.flow, str(topic.name), keeps, error.what, remedy=error.remedy) from error
    except internal_topic.TopicUnsuitable as error:
        raise TableUnusable(settings.flow, str(topic.name), keeps, error.why, remedy=error.remedy) from error
    return len(found.partitions)

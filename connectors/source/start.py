"""What must be so before a flow may copy: both clusters answer, no MirrorMaker 2 runs it, positions can be kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from connectors.source.refusals import FlowRefused, TableUnusable
from mm2py.clock import Clock
from mm2py.config.keys import OFFSETS_REPLICATION_FACTOR, STATUS_REPLICATION_FACTOR
from mm2py.config.settings import FlowSettings
from mm2py.connector import Side
from mm2py.kafka import admin
from mm2py.kafka.admin import NewTopic
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import Backoff

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


@dataclass(frozen=True, slots=True)
class Table:
    """An internal topic of a flow that is kept compacted, and what to say where it cannot be."""

    name: str
    partitions: int
    replication_factor: int
    keeps: str
    setting: str
    """Names the setting for the replication factor."""


def offsets_table(settings: FlowSettings) -> Table:
    """Return the topic that keeps positions."""
    return Table(
        settings.offsets_topic,
        settings.offsets_topic_partitions,
        settings.offsets_topic_replication_factor,
        "positions",
        OFFSETS_REPLICATION_FACTOR.name,
    )


def status_table(settings: FlowSettings) -> Table:
    """Return the topic that keeps gaps, and what operators say to them."""
    return Table(
        settings.status_topic,
        settings.status_topic_partitions,
        settings.status_topic_replication_factor,
        "gaps",
        STATUS_REPLICATION_FACTOR.name,
    )


async def ensure_table(settings: FlowSettings, table: Table, brokers: Brokers) -> int:
    """Return how many partitions an internal topic has, creating it where it is missing.

    Raises:
        TableUnusable: it cannot be made, or it would lose what it keeps.
        BrokerRefused: it is not there yet; ask again.
    """
    name = table.name
    topic = (await fetch_metadata(brokers, [name])).topics.get(name)
    if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        new = NewTopic(name, table.partitions, table.replication_factor, {"cleanup.policy": "compact"})
        refusal = (await admin.create_topics(brokers, [new]))[name]
        if refusal is not None and refusal.code != TOPIC_ALREADY_EXISTS:
            if refusal.retriable:
                raise refusal
            raise TableUnusable(
                settings.flow,
                name,
                table.keeps,
                str(refusal),
                remedy=f"Set {table.setting} to what {settings.target.alias} can hold, grant CREATE,"
                " or create the topic by hand with cleanup.policy=compact.",
            )
        raise BrokerRefused(f"Waiting for {name}", LEADER_NOT_AVAILABLE)
    if topic.error_code or any(part.leader is None for part in topic.partitions.values()):
        code = topic.error_code or LEADER_NOT_AVAILABLE
        raise BrokerRefused(f"Finding the leaders of {name}", code, remedy=f"mm2py needs DESCRIBE on {name}.")
    found = (await admin.describe_topic_configs(brokers, [name], keys=["cleanup.policy"]))[name]
    if not isinstance(found, BrokerRefused):
        policy = next((entry.value for entry in found if entry.name == "cleanup.policy"), None)
        if policy != "compact":
            raise TableUnusable(
                settings.flow,
                name,
                table.keeps,
                f"its cleanup.policy is {policy}",
                remedy=f"Set cleanup.policy=compact on it: with another one {table.keeps} would expire.",
            )
    return len(topic.partitions)

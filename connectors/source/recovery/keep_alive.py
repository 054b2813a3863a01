"""Keeps a flow's transactional ids known to the target, so that a successor can still fence them (C2).

The target forgets an id that no transaction has used for a week, under a living worker as well: data batches of ours
never touch the coordinator. So an empty transaction is begun and aborted now and then, on a topic of its own that holds
nothing but these markers. The epoch stays as it is.
"""

from __future__ import annotations

import asyncio
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.kafka import admin
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.internal_topic import find_or_make
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.topics.internal import fence_topic

EVERY_S: Final = 3600.0
AGAIN_S: Final = 60.0
_EXPIRY_SETTING: Final = "transactional.id.expiration.ms"


class KeepAlive:
    """Uses the ids every hour, or four times within the time after which the target would forget them."""

    def __init__(
        self, target: Brokers, incarnation: Incarnation, *, replication_factor: int, log: FilteringBoundLogger
    ) -> None:
        self._target = target
        self._incarnation = incarnation
        self.replication_factor = replication_factor
        """Of its topic, should it have to be made; may be changed."""
        self._log = log

    async def run(self) -> None:
        """Keep the ids alive until cancelled.

        Raises:
            Fenced, EpochRefused: this life of the flow is over.
        """
        said, failed, pause_s = False, 0, 0.0
        is_due = False
        while self._incarnation.degraded is None:
            try:
                if is_due:
                    await self._use()
                    if said:
                        self._log.info("keepalive.back")
                    said, failed = False, 0
                is_due = True
                pause_s = await self._interval_s()
            except KafkaError as error:
                if not error.worth_asking_again:
                    raise
                failed += 1
                lasts = not error.retriable or failed > 1
                if isinstance(error, BrokerRefused) and lasts and not said:
                    said = True
                    self._log.warning(
                        "keepalive.failing",
                        why=str(error),
                        effect="if it goes on for days, a successor cannot fence this process",
                    )
                pause_s = min(AGAIN_S, pause_s or AGAIN_S)
            await asyncio.sleep(pause_s)

    async def _interval_s(self) -> float:
        brokers = (await fetch_metadata(self._target, [], channel="keepalive")).brokers
        value = (
            await admin.describe_broker_config(self._target, next(iter(brokers)), _EXPIRY_SETTING) if brokers else None
        )
        return EVERY_S if value is None or not value.isdecimal() else min(EVERY_S, int(value) / 4000)

    async def _use(self) -> None:
        found = await find_or_make(
            self._target,
            fence_topic(),
            self.replication_factor,
            setting="offset.storage.replication.factor",
            channel="keepalive",
        )
        await self._incarnation.keep_alive((found.name, 0))

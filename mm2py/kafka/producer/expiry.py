"""How long a cluster remembers what a producer stored: fences and resends rest on it.

Broker fact: producer state expires by record time, C1 (docs/broker-facts.md).
"""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.kafka import admin
from mm2py.kafka.admin import ConfigEntry
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import BROKER_NOT_AVAILABLE
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import Brokers

DEFAULT_PRODUCER_EXPIRY_MS: Final = 86_400_000
PRODUCER_EXPIRY: Final = "producer.id.expiration.ms"


async def find_producer_expiry_ms(brokers: Brokers, log: FilteringBoundLogger) -> int:
    """Return how long the target remembers what a producer stored; Kafka's default where it does not tell.

    Raises:
        KafkaError: no broker answered; ask again if it is ``retriable``. If a day were assumed and the target forgot
            sooner, batches would be stored twice.
    """
    found = await _broker_setting(brokers, PRODUCER_EXPIRY)
    if found is None:  # brokers before 3.4 (KIP-854) go by the other one
        found = await _broker_setting(brokers, "transactional.id.expiration.ms")
        if isinstance(found, str) and found.isdecimal():
            return min(int(found), DEFAULT_PRODUCER_EXPIRY_MS)
    if isinstance(found, str) and found.isdecimal():
        return int(found)
    log.warning(
        "producer_expiry.assumed",
        assumed_ms=DEFAULT_PRODUCER_EXPIRY_MS,
        why=str(found) if isinstance(found, BrokerRefused) else f"brokers answer {found!r} for {PRODUCER_EXPIRY}",
        effect="should the target forget producers sooner, records may be there twice after a lost answer",
        remedy=f"Grant DESCRIBE_CONFIGS on the cluster, or make sure that {PRODUCER_EXPIRY} is not lower there.",
    )
    return DEFAULT_PRODUCER_EXPIRY_MS


async def _broker_setting(brokers: Brokers, key: str) -> str | BrokerRefused | None:
    """Ask one broker after the other until one answers; None if it has no such setting, or hides it."""
    silent: KafkaError | None = None
    for broker in (await fetch_metadata(brokers, [])).brokers:
        try:
            found = await admin.broker_config_entry(brokers, broker, key)
        except KafkaError as error:
            if not error.retriable:
                raise
            silent = error  # it may be down, and still be listed
            continue
        if isinstance(found, BrokerRefused) and found.retriable:
            raise found
        return found.value if isinstance(found, ConfigEntry) else found
    raise silent or BrokerRefused(f"Asking for {key}", BROKER_NOT_AVAILABLE)

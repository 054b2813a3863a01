"""The files of Kafka clients that the older mirrors read: what of them counts here. Pure.

A consumer's file says how the source is reached, a producer's file how the target is. Files of the oldest clients name
``metadata.broker.list`` and ZooKeeper; the first is what ``bootstrap.servers`` is now, the second is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from mm2py.config.properties import PropertyEntry
from mm2py.errors import ConfigError

BOOTSTRAP: Final = "bootstrap.servers"
_OLD_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "metadata.broker.list": BOOTSTRAP,
        "compression.codec": "compression.type",
        "request.required.acks": "acks",
    }
)
_OLD_RESETS: Final[Mapping[str, str]] = MappingProxyType({"smallest": "earliest", "largest": "latest"})
_OF_ALL_CLIENTS: Final = ("sasl.", "ssl.", "security.")
_MEANS_NOTHING: Final = (
    "key.deserializer",
    "value.deserializer",
    "key.serializer",
    "value.serializer",
    "serializer.class",
    "enable.auto.commit",
    "auto.commit.",
    "partition.assignment.strategy",
    "partitioner.class",
    "producer.type",
    "enable.idempotence",
    "max.in.flight.requests.per.connection",
    "retries",
    "acks",
    "exclude.internal.topics",
    "consumer.timeout.ms",
)
"""Settings without a counterpart: bytes are copied as they are, exactly once, and positions are mm2py's own."""


class ClientRole(StrEnum):
    """What a file is for."""

    CONSUMER = "consumer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class ClientFile:
    """What counts of a client's file."""

    bootstrap: str
    """Addresses of brokers; empty: the file has none."""
    group: str
    """The consumer group with which an older mirror has read; empty: none, or not of a consumer."""
    settings: Mapping[str, str]
    """By their names behind the alias of the cluster, as ``consumer.fetch.max.bytes``."""
    left_out: tuple[str, ...]
    """The names of settings that mean nothing here."""

    def __repr__(self) -> str:
        return f"ClientFile({self.bootstrap!r}, {sorted(self.settings)})"  # values may be credentials


NO_FILE: Final = ClientFile("", "", MappingProxyType({}), ())


def read_client_file(entries: Mapping[str, PropertyEntry], name: str, role: ClientRole) -> ClientFile:
    """Return what counts of a client's file.

    Args:
        name: of the file, for messages.
    Raises:
        ConfigError: it names ZooKeeper, or has two lists of brokers.
    """
    zookeeper = [entry for key, entry in entries.items() if key.startswith("zookeeper.")]
    if zookeeper:
        raise ConfigError(
            f"{name}, line {zookeeper[0].line}: {zookeeper[0].key} is refused: clusters are reached by their brokers.",
            remedy=f"Remove what names ZooKeeper, and write {BOOTSTRAP} = HOST:PORT.",
        )
    found: dict[str, str] = {}
    left_out: list[str] = []
    bootstrap = group = ""
    for key, entry in entries.items():
        known = _OLD_NAMES.get(key, key)
        if known == BOOTSTRAP:
            if bootstrap and bootstrap != entry.value:
                raise ConfigError(
                    f"{name}, line {entry.line}: {BOOTSTRAP} and metadata.broker.list differ.",
                    remedy="Keep one of them.",
                )
            bootstrap = entry.value
        elif known == "group.id" and role is ClientRole.CONSUMER:
            group = entry.value.strip()
        elif known.startswith(_OF_ALL_CLIENTS):
            found[known] = entry.value
        elif known.startswith(_MEANS_NOTHING):
            left_out.append(key)
        else:
            value = _OLD_RESETS.get(entry.value, entry.value) if known == "auto.offset.reset" else entry.value
            found[f"{role}.{known}"] = value
    return ClientFile(bootstrap, group, MappingProxyType(found), tuple(left_out))

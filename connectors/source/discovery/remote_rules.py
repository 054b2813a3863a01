"""How each remote topic is to be written to, by what the clusters say of its settings: how large, cleaned or not.

Answers to what MM2 leaves to its producer and the brokers: a batch that the remote topic does not take fails the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from connectors.source.discovery import remote_topics
from mm2py.config.settings import FlowSettings
from mm2py.kafka import admin
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.records.compression import Codec
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.planning.steps import TargetRules

DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588


class RemoteRules:
    """Of one flow. Keeps nothing: partitions keep their own."""

    def __init__(self, settings: FlowSettings, source: Brokers, target: Brokers) -> None:
        self._settings = settings
        self._source = source
        self._target = target

    async def learn(self, settings_of: Mapping[str, Mapping[str, str]], copied: Iterable[CopiedPartition]) -> None:
        """Let partitions that are copied know that settings of their remote topics have changed.

        Args:
            settings_of: the remote topics, with those new values that are known; brokers may not show them yet.
        """
        parts = [part for part in copied if part.target_topic in settings_of]
        upstreams = {part.target_topic: part.source_topic for part in parts}
        rules = await self.of(upstreams, known=settings_of, channel="sync")
        for part in parts:
            found = rules[part.target_topic]
            part.rules = replace(
                part.rules,
                max_message_bytes=found.max_message_bytes,
                cleaned=found.cleaned,
                compacted=found.compacted,
            )

    async def of(
        self,
        upstreams: Mapping[str, str],
        *,
        known: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        channel: str = "control",
    ) -> dict[str, TargetRules]:
        """Return how each remote topic is to be written to.

        Args:
            upstreams: the upstream topic of each remote topic.
            known: settings of remote topics that count more than what the target says of them.
        Raises: KafkaError.
        """
        compression = self._settings.compression
        codec = None if compression is None else int(Codec[compression.upper()])
        names = list(upstreams)
        rules: dict[str, TargetRules] = {}
        for at in range(0, len(names), remote_topics.CHUNK):
            page = names[at : at + remote_topics.CHUNK]
            targets = await admin.describe_topic_configs(
                self._target, page, keys=["max.message.bytes", "cleanup.policy"], channel=channel
            )
            sources = await admin.describe_topic_configs(
                self._source, [upstreams[name] for name in page], keys=["cleanup.policy"], channel=channel
            )
            for name in page:
                ours = {**_values(targets.get(name)), **known.get(name, {})}
                theirs = _values(sources.get(upstreams[name]))
                compacted = "compact" in ours.get("cleanup.policy", "")
                rules[name] = TargetRules(
                    max_message_bytes=int(ours.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
                    compression=codec,
                    cleaned=compacted,
                    compacted=compacted and "compact" not in theirs.get("cleanup.policy", "delete"),
                )
        return rules


def _values(found: object) -> dict[str, str]:
    if isinstance(found, BrokerRefused) or not isinstance(found, list):
        return {}
    return {entry.name: entry.value for entry in found if entry.value is not None}

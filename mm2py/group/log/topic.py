"""The topic of the control log: found or made, and turned down where its settings would make readers judge differently.

Answers to Connect's TopicAdmin and KafkaConfigBackingStore, which make the config topic, or check its cleanup policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.errors import Mm2Error
from mm2py.kafka import admin, internal_topic
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import (
    INVALID_REPLICATION_FACTOR,
    LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.kafka.retry import Reaction
from mm2py.topics.internal import InternalTopic

PARTITION: Final = 0
CHANNEL: Final = "control log"
REPLICAS_WANTED: Final = 3
_MUST_BE: Final[tuple[str, ...]] = ("cleanup.policy", "message.timestamp.type")
"""Settings without which two readers of the log may see different things."""


class ControlLogUnusable(Mm2Error):
    """The target has no control log that workers could agree by, until an operator sees to it."""


class ControlLogMissing(Mm2Error):
    """There is no such topic, and it is not for us to make it."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"There is no {topic}: no worker of this group has run yet.", remedy="")


class ControlTopic:
    """The topic on one target cluster."""

    def __init__(
        self,
        brokers: Brokers,
        topic: InternalTopic,
        *,
        replication_factor: int,
        only_reads: bool = False,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one.

        Args:
            replication_factor: what the file asks for, -1 if it leaves it to us.
            only_reads: for somebody who looks on: nothing is made, and settings are not judged.
        """
        self.name = str(topic.name)
        self._topic = topic
        self._brokers = brokers
        self._replication_factor = replication_factor
        self._only_reads = only_reads
        self._log = log
        self._said: set[str] = set()

    @property
    def rights(self) -> str:
        if self._only_reads:
            return f"mm2py needs DESCRIBE and READ on {self.name}."
        return f"mm2py needs CREATE, DESCRIBE, DESCRIBE_CONFIGS, READ and WRITE on {self.name}."

    @property
    def limits(self) -> str:
        settings = _listed({key: self._topic.configs[key] for key in (*_MUST_BE, "max.message.bytes")})
        return f"Set {settings} on {self.name}."

    async def ensure(self) -> TopicMetadata:
        """Return the topic with a leader, having made it where there is none.

        Raises:
            ControlLogUnusable: it cannot be made, or is no control log.
            ControlLogMissing: it is not there, and we only read.
            BrokerRefused: it has no leader yet, or the target cannot tell just now: ask again.
            KafkaError: as ``Brokers.send``.
        """
        metadata = await fetch_metadata(self._brokers, [self.name], channel=CHANNEL)
        found = metadata.topics.get(self.name)
        if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            if self._only_reads:
                raise ControlLogMissing(self.name)
            found = await self._make(len(metadata.brokers))
        leader_of(found)
        if len(found.partitions) != 1:
            raise ControlLogUnusable(
                f"{self.name} has {len(found.partitions)} partitions: workers would not see the same order.",
                remedy="Stop all workers and delete the topic, mm2py makes it anew; or set another mm2py.group.",
            )
        if self._only_reads:
            return found
        await self._check_settings()
        await self._look_at_replicas(metadata)
        return found

    async def _make(self, brokers: int) -> TopicMetadata:
        factor = self._replication_factor if self._replication_factor > 0 else REPLICAS_WANTED
        factor = max(1, min(factor, brokers))
        in_sync = {"min.insync.replicas": "2" if factor >= REPLICAS_WANTED else "1"}
        try:
            return await internal_topic.find_or_make(
                self._brokers,
                replace(self._topic, configs={**self._topic.configs, **in_sync}),
                factor,
                setting="config.storage.replication.factor",
                made=lambda: self._log.info("control_log.created", topic=self.name, replicas=factor),
                channel=CHANNEL,
            )
        except internal_topic.TopicNotMade as error:
            if error.code == INVALID_REPLICATION_FACTOR:  # a broker has just gone
                raise BrokerRefused(f"Waiting for {self.name}", LEADER_NOT_AVAILABLE) from error
            raise ControlLogUnusable(
                f"The control log cannot be created: {error.what}", remedy=f"{self.rights} {error.remedy}"
            ) from error

    async def _check_settings(self) -> None:
        try:
            has = await internal_topic.read_settings(self._brokers, self._topic, must_be=_MUST_BE, channel=CHANNEL)
        except internal_topic.TopicUnsuitable as error:
            raise ControlLogUnusable(
                f"{self.name} has {_listed(error.wrong)}: its readers would not all see the same records and times.",
                remedy=self._by_hand(error.wrong),
            ) from error
        if isinstance(has, BrokerRefused):
            if has.reaction is not Reaction.DENIED:
                raise has
            self._say_once("control_log.settings_unknown", topic=self.name, why=has.what, remedy=self.rights)
            return  # what matters most is seen in every batch: whether its time is that of the append
        weak = {
            key: value
            for key, value in has.items()
            if (key == "unclean.leader.election.enable" and value != "false")
            or (key == "retention.ms" and value is not None and 0 <= int(value) < int(self._topic.configs[key]))
            or (key == "retention.bytes" and value != "-1")
            or (key == "max.message.bytes" and value is not None and int(value) < int(self._topic.configs[key]))
        }
        if weak:
            self._say_once(
                "control_log.weak_settings", topic=self.name, settings=_listed(weak), remedy=self._by_hand(weak)
            )

    async def _look_at_replicas(self, metadata: ClusterMetadata) -> None:
        count = (await admin.replica_counts(self._brokers, [self.name], channel=CHANNEL)).get(self.name)
        if count is not None and count < REPLICAS_WANTED:
            several = len(metadata.brokers) >= REPLICAS_WANTED
            self._say_once(
                "control_log.few_replicas",
                topic=self.name,
                replicas=count,
                effect="no worker takes over from another while brokers that hold it are away",
                remedy=f"Reassign it to {REPLICAS_WANTED} brokers and set min.insync.replicas=2."
                if several
                else f"The target has {len(metadata.brokers)} broker(s): nothing can be done before it has three.",
            )

    def _by_hand(self, wrong: Mapping[str, str | None]) -> str:
        wanted = ",".join(f"{key}={self._topic.configs[key]}" for key in wrong)
        return f"Set {wanted} on it (kafka-configs.sh --alter --topic {self.name} --add-config {wanted})."

    def _say_once(self, event: str, **what: object) -> None:
        if event not in self._said:
            self._said.add(event)
            self._log.warning(event, **what)


def leader_of(topic: TopicMetadata) -> tuple[BrokerId, int]:
    """Return who leads the log, and in which epoch.

    Raises:
        BrokerRefused: nobody does, or the cluster does not tell us.
    """
    part = topic.partitions.get(PARTITION)
    if topic.error_code or part is None or part.leader is None:
        code = topic.error_code or (part.error_code if part is not None else 0) or LEADER_NOT_AVAILABLE
        raise BrokerRefused(f"Finding the leader of {topic.name}", code)
    return part.leader, part.leader_epoch


def _listed(settings: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())

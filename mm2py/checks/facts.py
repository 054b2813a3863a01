"""What the clusters answered, as values that the judges read. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias
from mm2py.kafka.errors import (
    AuthenticationFailed,
    ForeignCluster,
    KeyMaterialUnusable,
    TicketUnavailable,
    TlsFailed,
    TokenUnavailable,
    UnsupportedVersion,
)
from mm2py.kafka.security.settings import Security
from mm2py.topics.topic_configs import TopicConfigEntry

_PROMISE: Final = re.compile(r"[;,] (?:mm2py|it) keeps trying|(?:^| )mm2py (?:keeps|tries|reconnects|asks)[^.]*\.")
NOT_TOLD: Final = -(1 << 31)
"""What a broker answers in place of operations that it does not tell."""


class Obstacle(StrEnum):
    """Which part of connecting an error is about."""

    ADDRESS = "address"
    FOREIGN = "foreign"
    TLS = "tls"
    LOGIN = "login"
    VERSION = "version"


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Why a question was not answered, for an operator. A check does not keep trying."""

    what: str
    remedy: str
    obstacle: Obstacle = Obstacle.ADDRESS
    code: int = 0
    """The broker's error code; 0: there was no answer."""

    @classmethod
    def of(cls, error: Mm2Error) -> Unanswered:
        """Return an error as a fact."""
        obstacle = Obstacle.ADDRESS
        if isinstance(error, TlsFailed | KeyMaterialUnusable):
            obstacle = Obstacle.TLS
        elif isinstance(error, AuthenticationFailed | TokenUnavailable | TicketUnavailable):
            obstacle = Obstacle.LOGIN
        elif isinstance(error, ForeignCluster):
            obstacle = Obstacle.FOREIGN
        elif isinstance(error, UnsupportedVersion):
            obstacle = Obstacle.VERSION
        return cls(error.what, _without_promise(error.remedy), obstacle, int(getattr(error, "code", 0)))


def _without_promise(remedy: str) -> str:
    """Return a remedy without what a worker does next: the check ends."""
    return _PROMISE.sub("", remedy).strip()


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """What one broker of a cluster answered."""

    broker: int
    address: str
    unanswered: Unanswered | None = None
    """Why it could not be reached at the address that it advertises."""
    versions: Mapping[int, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """The versions of each request that it speaks, by API key."""
    metadata_version: int | None = None
    """The highest ``metadata.version`` that it supports; None: it names none."""
    round_trip_s: float | None = None
    """The shortest of several."""


@dataclass(frozen=True, slots=True)
class BootstrapAnswer:
    """What one address of ``bootstrap.servers`` answered."""

    address: str
    cluster_id: str | None = None
    unanswered: Unanswered | None = None


@dataclass(frozen=True, slots=True)
class ClusterAnswers:
    """What one cluster answered to one user."""

    subject: str
    """How results name it: its alias, and the flow where flows reach it in different ways."""
    alias: ClusterAlias
    security: Security
    principal: str
    """As ``kafka-acls`` takes it; ``User:PRINCIPAL`` if the file does not tell it."""
    certificate_ends_ms: int | None
    """When our own certificate ends; None: there is none, or it cannot be read."""
    bootstrap: tuple[BootstrapAnswer, ...]
    cluster_id: str | None = None
    brokers: tuple[BrokerAnswer, ...] = ()
    broker_settings: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    """Settings of one of its brokers; empty if they may not be read."""
    settings_unread: Unanswered | None = None
    """Why settings of brokers may not be read."""
    operations: frozenset[str] | None = None
    """What the user may do on the cluster; None: it is not told, because DESCRIBE is missing."""
    has_authorizer: bool | None = None
    may_create_topics: bool | None = None
    """CREATE on the cluster, which includes CREATE on all topics; None: not known."""
    silent: Unanswered | None = None
    """Why it did not answer although it could be connected to."""

    @property
    def away(self) -> Unanswered | None:
        """Why nothing can be asked of the cluster; None: it answers."""
        if self.silent is not None:
            return self.silent
        foreign = next((one.unanswered for one in self.bootstrap if one.unanswered and _is_foreign(one)), None)
        if foreign is not None:
            return foreign
        if any(one.unanswered is None for one in self.bootstrap):
            return None
        return next((one.unanswered for one in self.bootstrap), None)

    @property
    def first_address(self) -> str:
        """The address that a command line uses."""
        return self.bootstrap[0].address


def _is_foreign(answer: BootstrapAnswer) -> bool:
    return answer.unanswered is not None and answer.unanswered.obstacle is Obstacle.FOREIGN


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """What a cluster told about one topic."""

    name: str
    is_there: bool
    is_hidden: bool = False
    """DESCRIBE is missing, so it is not told whether the topic exists."""
    partitions: int = 0
    leaderless: tuple[int, ...] = ()
    replicas: int = 0
    """Of the partition that has fewest."""
    operations: frozenset[str] | None = None
    """What the user may do on the topic; None: not told."""
    configs: Mapping[str, TopicConfigEntry] | None = None
    """Some of its settings; None: they were not asked for, or may not be read."""

    def config(self, name: str) -> str | None:
        """Return the value of a setting; None: not known."""
        entry = None if self.configs is None else self.configs.get(name)
        return None if entry is None else entry.value


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """What a cluster told about one consumer group."""

    name: str
    is_denied: bool
    """DESCRIBE is missing."""
    operations: frozenset[str] | None = None
    members: int = 0
    protocol_type: str = ""


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """Where one source partition begins and ends, and from where it is copied."""

    first: int
    last: int
    position: int
    """The next record to copy."""
    old_until: int | None
    """The first record that has more than a quarter of its retention left; None: nothing expires, or not known."""
    is_age_known: bool = True
    """Whether the source told for how long it keeps records, and which of them are old."""


@dataclass(frozen=True, slots=True)
class ClockAnswer:
    """The newest heartbeat in the control log, by the broker's clock, and when ours had seen it or not yet."""

    newest_ms: int
    seen_from_ms: int | None
    """It was not there at this time of ours; None: it was there already when we looked first."""
    seen_until_ms: int
    """It was there at this time of ours."""


@dataclass(frozen=True, slots=True)
class FlowAnswers:
    """What both clusters told about one flow. What depends on a cluster that does not answer is empty."""

    settings: FlowSettings
    source: ClusterAnswers
    target: ClusterAnswers
    selected: tuple[str, ...] = ()
    """The topics of the source that the flow copies."""
    undecided: tuple[str, ...] = ()
    """Topics about which a pattern found no answer in time."""
    hidden: tuple[str, ...] = ()
    """Topics that the file names by their full names, and the source does not show."""
    unmatched: tuple[str, ...] = ()
    """Patterns of ``topics`` that match no topic that the source shows."""
    source_topics: Mapping[str, TopicAnswer] = field(default_factory=lambda: MappingProxyType({}))
    target_topics: Mapping[str, TopicAnswer] = field(default_factory=lambda: MappingProxyType({}))
    """Remote topics and internal topics, also those that do not exist."""
    target_names: frozenset[str] = frozenset()
    """All topics that the target shows."""
    source_groups: Mapping[str, GroupAnswer] = field(default_factory=lambda: MappingProxyType({}))
    target_groups: Mapping[str, GroupAnswer] = field(default_factory=lambda: MappingProxyType({}))
    mm2_only_emits_heartbeats: bool = False
    """A live MirrorMaker 2 of this flow copies nothing."""
    transactional_id_denied: bool | None = None
    """DESCRIBE on the transactional ids of the group is missing; None: not known."""
    filled: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By source topic, the partitions whose remote partitions hold records."""
    unlooked: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By source topic, the partitions whose remote partitions exist, and did not tell whether they hold records."""
    positions_unread: str = ""
    """Why the positions are not known; empty: they are."""
    placed: Mapping[str, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))
    """By source topic, the partitions for which a position is stored."""
    partitions: Mapping[tuple[str, int], PartitionAnswer] = field(default_factory=lambda: MappingProxyType({}))
    """The source partitions for which a position is stored, without those that did not answer."""
    clock: ClockAnswer | None = None
    unread: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By question, why a cluster that answers did not answer it."""

"""The settings of a process: every enabled flow with typed values, units in their names.

Inside of the border settings are these frozen dataclasses; outside they are MirrorMaker 2's properties.
``configuration.py`` makes the one of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mm2py.config.kinds import HostPort
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.security.settings import PLAINTEXT, Security, TlsSettings
from mm2py.secret import Secret
from mm2py.topics.filters import ConfigPropertyFilter, TopicFilter
from mm2py.topics.replication_policy import ReplicationPolicy
from mm2py.topics.selection import CopyModes

SourcePolicy = Literal["stop", "continue", "restart"]
TargetPolicy = Literal["stop", "recopy"]
Election = Literal["log", "zookeeper"]
ExactlyOnce = Literal["disabled", "preparing", "enabled"]


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """One cluster as one flow sees it: where to reach it and how long to wait for its administration."""

    alias: ClusterAlias
    bootstrap_servers: tuple[HostPort, ...]
    request_timeout_s: float
    client_id: str | None
    security: Security = PLAINTEXT


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Everything that one flow may be told. Sizes in bytes, intervals in seconds unless the name says otherwise."""

    flow: Flow
    source: ClusterSettings
    target: ClusterSettings
    policy: ReplicationPolicy
    topic_filter: TopicFilter
    config_filter: ConfigPropertyFilter
    heartbeats_replication: bool
    heartbeats_interval_s: float | None
    """How often heartbeats reach the source, which this flow copies; None: by this file nobody emits any there."""
    replication_factor: int
    """Of new remote topics; -1 leaves it to the target's brokers."""
    refresh_topics_interval_s: float | None
    """None: neither new topics nor new partitions are looked for."""
    sync_topic_configs_interval_s: float | None
    """None: the settings of remote topics are left alone once they are made."""
    sync_topic_configs_dry_run: bool
    sync_topic_acls_interval_s: float | None
    """None: ACLs of topics are not carried over."""
    sync_topic_acls_dry_run: bool
    remote_partitions_max: int
    """No remote topic is made or widened when the flow's remote topics had more partitions then."""
    remote_acls_max: int
    """Nothing is granted on a remote topic when the flow's remote topics had more ACLs then."""
    topics_watch_interval_s: float
    read_committed: bool
    auto_offset_reset: Literal["earliest", "latest", "none"]
    fetch_max_bytes: int
    fetch_partition_max_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    source_request_timeout_s: float
    target_request_timeout_s: float
    linger_s: float
    """How long a partition at the end of its log rests after each read, so that the next one brings more at once."""
    compression: str | None
    """The codec that batches are given; None keeps the one they have."""
    offsets_topic: str
    offsets_topic_partitions: int
    offsets_topic_replication_factor: int
    position_interval_s: float
    status_topic: str
    """Where gaps are kept, and what operators say to them."""
    status_topic_partitions: int
    status_topic_replication_factor: int
    on_source_gap: SourcePolicy | None
    """None: expired records are passed over, anything else stops."""
    on_target_loss: TargetPolicy
    stall_timeout_s: float
    copy_modes: CopyModes
    tasks_max: int | None
    """On so many workers at most its partitions are spread; None: on all."""
    bytes_per_second_max: int | None
    """For the flow; each worker takes as large a part of it as it has partitions."""
    many_to_one: bool
    exactly_once: ExactlyOnce
    """``enabled``: what cannot be fenced or told apart stops instead of degrading. Otherwise it is done as well as it
    can be, and said."""
    quarantines: bool
    """A record that the target refuses is kept in the quarantine topic; else its partition stops there."""
    mm2_group_id: str
    """The group in which a live MirrorMaker 2 would run this flow, on the target."""
    configs_topic: str
    """Where it keeps the settings of its connectors, and mm2py what the workers of a flow share; on the target."""
    configs_topic_replication_factor: int
    group: str


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """The heartbeats of one pair of clusters, which need not be an enabled flow. Only the target is written to."""

    flow: Flow
    target: ClusterSettings
    request_timeout_s: float
    interval_s: float | None
    """None: none are emitted; the topic is made all the same, as MirrorMaker 2 does."""
    replication_factor: int
    """Of the topic, if it has to be made; -1 leaves it to the target's brokers."""
    compression: str | None


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """The ZooKeeper that says who may lead a group."""

    servers: tuple[HostPort, ...]
    chroot: str
    """Empty, or a path that begins with ``/``; it has to exist."""
    digest: Secret | None
    """``user:password``; None: as nobody."""
    set_acl: bool
    """Whether what is created there is for that user alone."""
    tls: TlsSettings | None
    """None: in plain text."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The workers that share the flows into one target cluster: how they find out who leads, and who is gone."""

    target: ClusterAlias
    name: str
    session_timeout_s: float
    """Whoever is silent for so long is taken for dead."""
    heartbeat_interval_s: float
    """At most a third of that."""
    election: Election
    zookeeper: ZooKeeperSettings | None
    """Not None where it is elected through."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What one process is to do. ``refused`` flows are enabled and selected, but must not run."""

    flows: tuple[FlowSettings, ...]
    refused: Mapping[Flow, Mm2Error]
    heartbeats: tuple[HeartbeatSettings, ...]
    """Of every selected pair for which MirrorMaker 2 would run a herder, enabled or only for heartbeats."""
    groups: Mapping[ClusterAlias, GroupSettings]
    """By target cluster, of all selected pairs."""
    memory_max_bytes: int
    warnings: tuple[str, ...]

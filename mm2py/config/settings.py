"""The typed settings of a process: frozen dataclasses with units in their names; ``configuration.py`` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from mm2py.config.kinds import HostPort
from mm2py.config.rest import RestSettings
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import ClusterAlias, Flow, TopicName
from mm2py.kafka.security.settings import PLAINTEXT, Security, TlsSettings
from mm2py.records.gap_record import SourcePolicy, TargetPolicy
from mm2py.records.source_offset import StoredPosition
from mm2py.secret import Secret
from mm2py.topics.filters import CopyModes, GroupFilter, TopicDecision, TopicFilter, should_replicate
from mm2py.topics.names import ReplicationPolicy, remote_name_problem
from mm2py.topics.renaming import RenamingPolicy
from mm2py.topics.replicas import AtMost
from mm2py.topics.topic_configs import ConfigPropertyFilter
from mm2py.transforms.chain import TopicChain, TransformChain

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
class OffsetSyncSettings:
    """How a flow writes offset syncs in MM2's format."""

    topic: str
    on_source: bool
    """Whether the topic lies on the source; else on the target."""
    replication_factor: int
    lag_max_records: int
    """``offset.lag.max``: by how many records the newest sync of a partition may be behind."""


@dataclass(frozen=True, slots=True)
class GroupSyncSettings:
    """How groups are moved on the target to where they may continue."""

    interval_s: float
    follows_rewinds: bool
    """A group that was set back on the source is set back on the target, too."""


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """How a flow emits checkpoints of consumer groups."""

    topic: str
    """On the target."""
    replication_factor: int
    interval_s: float
    group_filter: GroupFilter
    refreshes_groups: bool
    """Whether groups that appear later are included; else only those that exist at the start."""
    group_sync: GroupSyncSettings | None
    """None: nothing is committed on the target."""


@dataclass(frozen=True, slots=True)
class FlowBack:
    """The flow in the other direction, of two of which at most one may be on at any time."""

    flow: Flow
    configs_topic: str
    """Where it is stored whether it is on: a topic on its target, which is this flow's source."""
    standby: bool
    """What the file says of it, see ``FlowSettings.standby``."""


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """All settings of one flow. Sizes in bytes, intervals in seconds unless the name says otherwise."""

    flow: Flow
    source: ClusterSettings
    target: ClusterSettings
    policy: ReplicationPolicy
    topic_filter: TopicFilter
    config_filter: ConfigPropertyFilter
    heartbeats_replication: bool
    heartbeats_interval_s: float | None
    """How often heartbeats, which this flow copies, reach the source; None: by this file none are emitted there."""
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
    """No remote topic is made or widened if the flow's remote topics would then have more partitions than this."""
    remote_acls_max: int
    """Nothing is granted on a remote topic if the flow's remote topics would then have more ACLs than this."""
    topics_watch_interval_s: float
    read_committed: bool
    auto_offset_reset: Literal["earliest", "latest", "none"]
    starting_offsets_group: str
    """The consumer group of the source at whose commits the copy of a partition begins; empty: there is none."""
    fetch_max_bytes: int
    fetch_partition_max_bytes: int
    fetch_alone_max_bytes: int
    """The limit for a partition that is read alone."""
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    client_rack: str
    """The rack of this worker, as in the source's ``broker.rack``; empty: it reads from leaders only."""
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
    """The topic of gaps, and of what operators decide about them."""
    status_topic_partitions: int
    status_topic_replication_factor: int
    on_source_gap: SourcePolicy | None
    """None: expired records are passed over, anything else stops."""
    on_target_loss: TargetPolicy
    stall_timeout_s: float
    copy_modes: CopyModes
    tasks_max: int | None
    """The most workers over which its partitions are spread; None: all."""
    bytes_per_second_max: int | None
    connections_per_broker_max: int
    """For the whole flow; each worker gets a part in proportion to its partitions."""
    many_to_one: bool
    exactly_once: ExactlyOnce
    """``enabled``: a partition that cannot be fenced or reconciled stops. Otherwise it is copied at least once, and
    the status shows this."""
    quarantines: bool
    """A record that the target refuses is kept in the quarantine topic; else its partition stops there."""
    mm2_group_id: str
    """The group in which a live MirrorMaker 2 would run this flow, on the target."""
    configs_topic: str
    """The topic on the target with the settings of MirrorMaker 2's connectors, and those that mm2py's workers share."""
    configs_topic_replication_factor: int
    group: str
    offset_syncs: OffsetSyncSettings | None
    """None: no offset syncs are written."""
    checkpoints: CheckpointSettings | None
    """None: no checkpoints are emitted; they need offset syncs."""
    aliases: tuple[ClusterAlias, ...]
    """The aliases of all clusters of the file."""
    transforms: TransformChain | None = None
    """What is done to records on their way; None: nothing."""
    standby: bool = False
    """The flow is standby until it is turned on, unless something is stored already (``direction_record.py``)."""
    flow_back: FlowBack | None = None
    """The flow that must not be on at the same time; None: there is none."""

    def decision(self, topic: str) -> TopicDecision:
        """Decide whether the flow copies a topic of the source, and if not, why. Raises: PatternTooSlow."""
        decision = should_replicate(
            TopicName(topic),
            policy=self.policy,
            topic_filter=self.topic_filter,
            heartbeats_replication=self.heartbeats_replication,
            target_alias=self.flow.target,
            aliases=self.aliases,
        )
        if decision.replicate and self.renaming is not None:
            self.renaming.rule_of(topic)  # it must be known under which name
        return decision

    def replicates(self, topic: str) -> bool:
        """Return whether the flow copies a topic of the source. Raises: PatternTooSlow."""
        return self.decision(topic).replicate

    def chain_of(self, topic: str) -> TopicChain | None:
        """Return the transforms for the records of a topic of the source; None: there are none.

        Raises: PatternTooSlow.
        """
        return None if self.transforms is None else self.transforms.for_topic(self.remote_topic(topic))

    def remote_topic(self, topic: str) -> str:
        """Return the name of a topic's copy on the target."""
        return str(self.policy.format_remote_topic(self.flow.source, TopicName(topic)))

    @property
    def renaming(self) -> RenamingPolicy | None:
        """The policy, if it has rules that give topics other names (``topics.rename``)."""
        return self.policy if isinstance(self.policy, RenamingPolicy) else None

    def renamed(self, topic: str) -> str | None:
        """Return the name of a topic's copy if rules have changed it; None if they have not."""
        if self.renaming is None:
            return None
        remote = self.remote_topic(topic)
        return None if remote == self.renaming.unrenamed(TopicName(topic)) else remote

    def old_remote(self, topic: str, position: StoredPosition) -> str | None:
        """Return the remote topic that a position of mm2py names, if it is another one now: rules have changed."""
        if position.recopy or position.is_of_mm2 or position.target_topic == self.renamed(topic):
            return None
        plain = self.policy if self.renaming is None else self.renaming.base
        return position.target_topic or str(plain.format_remote_topic(self.flow.source, TopicName(topic)))

    def remote_problem(self, topic: str) -> str | None:
        """Return why a topic's copy cannot have its name, as half a sentence; None if it can."""
        problem = None if self.renaming is None else self.renaming.name_problem(TopicName(topic))
        return problem or remote_name_problem(self.remote_topic(topic))

    def source_topic(self, topic: str, *, is_reverse: bool = False, known: Iterable[str] = ()) -> str:
        """Return a topic's name on the source. With ``is_reverse``, ``topic`` may be its name on the target.

        Args:
            known: topics of the source that are or were copied: rules with patterns are undone only for these.
        Raises:
            ConfigError: the flow does not copy it.
        """
        name, policy = TopicName(topic), self.policy
        upstream = policy.upstream_topic(name) if policy.topic_source(name) == self.flow.source else None
        if self.renaming is not None and is_reverse:
            upstream = self.renaming.upstream_among(name, known)
        for found in (upstream if is_reverse else None, name):
            if found is not None and self.replicates(found):
                return str(found)
        raise ConfigError(f"{self.flow} does not copy {topic!r}.", remedy="Name a topic of the source that it copies.")


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
    """The ZooKeeper that decides which worker leads a group."""

    servers: tuple[HostPort, ...]
    chroot: str
    """Empty, or a path that begins with ``/``; it has to exist."""
    digest: Secret | None
    """``user:password``; None: without a user."""
    set_acl: bool
    """Whether only that user may use the nodes that mm2py creates there."""
    tls: TlsSettings | None
    """None: in plain text."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The workers that share the flows into one target cluster: how they elect a leader, and when a session expires."""

    target: ClusterAlias
    name: str
    session_timeout_s: float
    """The session of a member that has not written for this long has expired."""
    heartbeat_interval_s: float
    """At most a third of ``session_timeout_s``."""
    election: Election
    zookeeper: ZooKeeperSettings | None
    """None unless the leader is elected through ZooKeeper."""
    replication_factor: int = AtMost(3)
    """Of the control log, if it has to be made."""


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
    metrics_partitions_max: int
    """How many partitions of a worker have series of their own on its metrics page."""
    warnings: tuple[str, ...]
    rest: RestSettings

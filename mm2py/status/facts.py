"""What the clusters say about groups and flows. Pure values.

If something cannot be read, another field says why, as a sentence for an operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from mm2py.config.flow_properties import FlowProperties
from mm2py.config.origins import SettingOrigin
from mm2py.config.settings import FlowSettings
from mm2py.dr.journal import JournalEntry
from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.group.membership import GroupState
from mm2py.kafka.port import TopicPartition
from mm2py.records.backfill_record import Backfill
from mm2py.records.connector_config import FlowConfig
from mm2py.records.gap_record import Gap
from mm2py.records.lag_seen import LagSeen
from mm2py.records.operator_request import Target
from mm2py.records.pause_record import Pauses
from mm2py.records.source_offset import StoredPosition
from mm2py.records.standstill import Standstill
from mm2py.status.consumer_groups import ConsumerGroupsReport
from mm2py.topics.filters import WhyNot
from mm2py.topics.retention import Retention
from mm2py.topics.unmatched import Unmatched

UNDECIDED: Final = "undecided"
"""Matching a pattern takes too long, so the topic is not copied."""
LeftOut = WhyNot | Literal["undecided"]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the control log on a target says."""

    target: ClusterAlias
    name: str
    topic: str
    state: GroupState | None
    """The state after the last record; None: see ``unread``, or the topic does not exist."""
    unread: str = ""
    """Why the control log cannot be read."""
    has_grown: bool | None = None
    """Whether records came while we watched the log; None if we did not have to watch it."""


@dataclass(frozen=True, slots=True)
class FlowFacts:
    """What both clusters say of a flow."""

    settings: FlowSettings
    """Those by which the workers run the flow: the stored ones with the addresses of the file, else the file's."""
    positions: Mapping[TopicPartition, StoredPosition] = field(default_factory=dict)
    gaps: Sequence[Gap] = ()
    selected: Mapping[str, int] | None = None
    """The partition counts of the source topics that are selected; None: the source does not answer."""
    hidden: frozenset[str] = frozenset()
    """Copied topics that the user who asks may not describe. It is not known whether they exist."""
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    """The other topics of the source, and the rule that leaves each out. If the source does not answer: only topics
    that the target knows."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The first offsets of source partitions without a position."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The next offsets of source partitions. Under read_committed: the offset of the first open transaction."""
    positions_unread: str = ""
    status_unread: str = ""
    source_unread: tuple[str, ...] = ()
    """Why these cannot be read. For the source, one sentence for each broker that does not answer."""
    stored: FlowConfig | None = None
    """The settings that mm2py has stored."""
    held: Mapping[Kind, Target] = field(default_factory=dict)
    """The connectors that operators have paused or stopped, or that are standby."""
    pauses: Pauses = field(default_factory=Pauses)
    """The topics and partitions that operators have paused."""
    backfills: Sequence[Backfill] = ()
    """Those that run, and those that ended recently."""
    mm2_runs: str = ""
    """A sentence saying that a MirrorMaker 2 runs the flow; empty: none does, or this was not asked."""
    file: FlowProperties = field(default_factory=dict)
    """The same settings as the file has them."""
    origins: Mapping[str, SettingOrigin] = field(default_factory=dict)
    """Where the lists of patterns that the workers use are written, by the names of their settings."""
    standstills: Sequence[Standstill] = ()
    """What workers have stored of topics that they do not copy."""
    unmatched: tuple[Unmatched, ...] = ()
    """Entries of ``topics`` that match nothing, by what the source shows to the user who asks."""
    standing: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    """Partitions with waiting records whose position does not move, with the time at which each moved last."""
    waiting_since_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Timestamps of the oldest waiting records, for partitions where these are known."""
    looked_before: Mapping[TopicPartition, LagSeen] = field(default_factory=dict)
    """Of partitions with waiting records: what a look found that was ten seconds or more before this one."""
    retentions: Mapping[str, Retention | None] = field(default_factory=dict)
    """How long the source keeps the records of the topics that are furthest behind; None: it does not tell."""
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The first offsets of the source partitions that are furthest behind."""
    consumer_groups: ConsumerGroupsReport | None = None
    """None: the flow emits no checkpoints, or see ``consumer_groups_unread``."""
    consumer_groups_unread: str = ""
    config_unread: str = ""
    config_unusable: str = ""
    """Why the stored settings cannot be read, or cannot be used with this file."""
    owner_group: str = ""
    """The group that runs the flow, as stored with the flow; empty if none is stored."""
    recovery: JournalEntry | None = None
    """How the pair of clusters stands, by the target's journal of recoveries; None: no run, or it cannot be read."""

    @property
    def other_group(self) -> str:
        """``owner_group`` if it is not the file's group; else empty."""
        return "" if self.owner_group == self.settings.group else self.owner_group


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that one look found out, at one moment by our own clock."""

    at_ms: int
    clusters: Mapping[ClusterAlias, str]
    """Why a cluster does not answer; empty if it does."""
    groups: Sequence[GroupFacts]
    flows: Sequence[FlowFacts]
    refused: Mapping[Flow, str]
    """Flows that the file enables and that must not run, with the reason."""
    off: Mapping[Flow, FlowConfig] = field(default_factory=dict)
    """The stored settings of flows that the file switches off."""
    off_unread: Mapping[Flow, str] = field(default_factory=dict)
    """Why the stored settings of such a flow cannot be read."""
    off_owners: Mapping[Flow, str] = field(default_factory=dict)
    """Such flows that a group other than the file's runs, and that group."""
    warnings: tuple[str, ...] = ()
    """Doubtful entries of the file, such as misspelt keys."""

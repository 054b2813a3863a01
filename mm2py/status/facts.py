"""What was found out about groups and flows, by asking the clusters only. Pure.

What could not be found out is said beside it, as a sentence for an operator; nothing stands for "unknown" by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mm2py.config.flow_properties import FlowProperties
from mm2py.config.settings import FlowSettings
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.connector_config import FlowConfig
from mm2py.records.source_offset import StoredPosition
from mm2py.records.status_record import Gap
from mm2py.worker.group_state import GroupState

Key = tuple[str, int]
"""Source topic and partition."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the control log on a target says."""

    target: ClusterAlias
    name: str
    topic: str
    state: GroupState | None
    """As of the last record; None: see ``unread``, or the topic is not there."""
    unread: str = ""
    """Why the control log cannot be read."""
    has_grown: bool | None = None
    """Whether records came while we looked on for ``LOOK_ON_S``; None if we did not need to."""


@dataclass(frozen=True, slots=True)
class FlowFacts:
    """What both clusters say of a flow."""

    settings: FlowSettings
    """As the workers run it: what is stored of it, with the addresses of the file; by the file if nothing is."""
    positions: Mapping[Key, StoredPosition] = field(default_factory=dict)
    gaps: Sequence[Gap] = ()
    selected: Mapping[str, int] | None = None
    """How many partitions the source topics have that are selected; None: the source does not tell."""
    starts: Mapping[Key, int] = field(default_factory=dict)
    """The first offset of source partitions; only of those without a position."""
    ends: Mapping[Key, int] = field(default_factory=dict)
    """The next offset of source partitions: that of the first open transaction where only committed ones are read."""
    positions_unread: str = ""
    status_unread: str = ""
    source_unread: tuple[str, ...] = ()
    """Why these cannot be read, each; of the source one sentence for each broker that does not tell."""
    stored: FlowConfig | None = None
    """What mm2py has stored of its settings."""
    file: FlowProperties = field(default_factory=dict)
    """What the file says of the same."""
    config_unread: str = ""
    config_unusable: str = ""
    """Why ``settings`` are not those that are stored: these cannot be read, or not be used with this file."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it, as of a moment of our own clock."""

    at_ms: int
    clusters: Mapping[ClusterAlias, str]
    """Why a cluster does not answer; empty if it does."""
    groups: Sequence[GroupFacts]
    flows: Sequence[FlowFacts]
    refused: Mapping[Flow, str]
    """Flows that the file enables and that must not run, and why."""
    off: Mapping[Flow, FlowConfig] = field(default_factory=dict)
    """What is stored of flows that the file switches off."""
    off_unread: Mapping[Flow, str] = field(default_factory=dict)
    """Why that cannot be read, of those of which it cannot."""

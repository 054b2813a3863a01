"""What a file would do on its clusters: the plan of each flow, as values. Pure.

``mm2py_connectors/source/flow_planner.py`` makes it. MirrorMaker 2 has no plan: it creates and changes at its start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

BROKERS_DEFAULT: Final = -1
"""As a replication factor: the target decides."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A remote topic that would be created."""

    topic: str
    """Its upstream topic, on the source."""
    remote: str
    """Its name, on the target."""
    partitions: int
    replication_factor: int
    """-1: the default of the target's brokers."""
    configs: Mapping[str, str]
    """The settings that it takes over; all others have the defaults of the target."""
    left_out: tuple[str, ...] = ()
    """Settings that it would not get, and why."""


@dataclass(frozen=True, slots=True)
class PlannedPartitions:
    """A remote topic that would get more partitions."""

    topic: str
    remote: str
    has: int
    wants: int


@dataclass(frozen=True, slots=True)
class PlannedConfig:
    """A setting of a remote topic that would change."""

    remote: str
    setting: str
    old: str | None
    """Null: it has the target's default."""
    new: str | None
    """Null: it would be reset to the target's default."""


@dataclass(frozen=True, slots=True)
class PlannedInternal:
    """A topic of mm2py's own that would be created."""

    cluster: str
    name: str
    partitions: int
    replication_factor: int
    """-1: the default of the brokers."""
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlannedRefusal:
    """A topic that would not be copied, or not all of it, until an operator acts."""

    topic: str
    """The name of the flow where workers cannot start it."""
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class PlannedSetting:
    """A setting of the flow that the workers do not run by yet."""

    setting: str
    text: str
    """From and to, in a line; secrets are hidden."""


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """The plan of one flow, or of the heartbeats of one pair of clusters."""

    flow: str
    refused: str = ""
    """Why the flow must not run; empty: it may."""
    unread: tuple[str, ...] = ()
    """What could not be asked, and why: the plan is incomplete."""
    starts: tuple[str, ...] = ()
    """The connectors that would start; none runs now."""
    runs: tuple[str, ...] = ()
    """The connectors that workers run now."""
    held: tuple[str, ...] = ()
    """Connectors that operators have paused or stopped."""
    settings: tuple[PlannedSetting, ...] = ()
    """The settings that would change for the workers of the flow; none where nothing is stored yet."""
    settings_stored: int | None = None
    """The version of the settings that is stored now; null: none is."""
    stores_settings: bool = False
    """The settings of the file would be stored: by ``mm2py apply``, or by the first worker that starts."""
    settings_text: str = ""
    """What is stored now, and what would become of it, in a sentence."""
    topics: int = 0
    """How many topics the flow selects, without those that are refused."""
    begins: tuple[str, ...] = ()
    """Topics that would be copied from now on, into remote topics that are there already."""
    stops: tuple[str, ...] = ()
    """Topics that are copied now and would not be any more; their copies are kept."""
    creates: tuple[PlannedTopic, ...] = ()
    widens: tuple[PlannedPartitions, ...] = ()
    configs: tuple[PlannedConfig, ...] = ()
    configs_only_logged: bool = False
    """``sync.topic.configs.dry.run`` is set: these changes would only be logged."""
    acls: tuple[str, ...] = ()
    """ACLs that the target would get, in words."""
    acls_only_logged: bool = False
    """``sync.topic.acls.dry.run`` is set: they would only be logged."""
    internal: tuple[PlannedInternal, ...] = ()
    refusals: tuple[PlannedRefusal, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many topics of the source the settings leave out, by reason."""
    notes: tuple[str, ...] = ()
    """What an operator should know besides."""
    seen: Mapping[str, str] = field(default_factory=dict)
    """Digests of what was seen, by name: the plan rests on that."""

    @property
    def is_known(self) -> bool:
        """Whether both clusters have answered all that was asked, and nothing refuses the flow."""
        return not self.unread and not self.refused

    @property
    def changes(self) -> bool:
        """Whether something would start, be created or changed, or waits for an operator."""
        return bool(
            self.starts
            or self.stores_settings
            or self.begins
            or self.stops
            or self.creates
            or self.widens
            or (self.configs and not self.configs_only_logged)
            or (self.acls and not self.acls_only_logged)
            or self.internal
            or self.refusals
        )


def digest_of(facts: Any) -> str:
    """Return a hash of facts that JSON can hold: the same for equal facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def is_complete(flows: Sequence[PlannedFlow]) -> bool:
    """Return whether everything that was asked is known, and no flow is refused."""
    return all(one.is_known for one in flows)


def changes_anything(flows: Sequence[PlannedFlow]) -> bool:
    """Return whether any flow has something to do."""
    return any(one.changes for one in flows)

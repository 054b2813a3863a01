"""A mirror as it runs: its clusters, its flows, and the connectors that have their positions. Pure.

Both readers, ``connector_configs.py`` and ``strimzi.py``, make connectors of what they read; here they become flows.

Counterpart: the three connectors of MirrorMaker 2, which a user of Kafka Connect configures one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mm2py.config.kinds import BadValue
from mm2py.config.tables import CONNECTOR
from mm2py.flow import ARROW, ClusterAlias, Flow, Kind
from mm2py.secret import CLIENT_NAMES
from mm2py.takeover.account import AccountedSetting, ProposedSetting, SettingOutcome, nothing, refused
from mm2py.takeover.transforms import accounted_transforms, is_of_transforms

KINDS: Final = (Kind.SOURCE, Kind.CHECKPOINT, Kind.HEARTBEAT)
"""In the order in which their settings count for a flow."""

_OF_BOTH: Final = ("topics", "topic.filter.class", "offset-syncs.topic.location")
_DECIDES_COPY: Final = (*_OF_BOTH, "replication.policy.")
"""What connectors of a flow have in common. Only the first one decides it: the copies have their names already."""
_OF_CHECKPOINTS: Final = (
    "groups",
    "group.filter.class",
    "refresh.groups.",
    "emit.checkpoints.",
    "sync.group.offsets.",
    "checkpoints.topic.",
)
_OF_HEARTBEATS: Final = ("emit.heartbeats.", "heartbeats.topic.")
_OF_SOURCE: Final = (
    "config.properties.",
    "config.property.",
    "use.defaults.from",
    "refresh.topics.",
    "sync.topic.",
    "replication.factor",
    "offset-syncs.topic.replication.factor",
    "offset.lag.max",
    "emit.offset-syncs.",
    "heartbeats.replication.",
    "exactly.once.support",
    "transaction.boundary",
    "tasks.max",
    "topic.creation.",
    "offsets.storage.topic",
    "consumer.poll.timeout.ms",
)
_CLIENTS: Final = ("consumer.", "producer.", "admin.")
_OF_CLIENTS: Final = (*_CLIENTS, *(f"{side}.{client}" for side in ("source", "target") for client in _CLIENTS))
_READ_WITH_REST: Final = "positions are read over the REST of Kafka Connect, wherever they are"


@dataclass(frozen=True, slots=True)
class MirrorConnector:
    """One connector of MirrorMaker 2 on a Connect cluster."""

    name: str
    kind: Kind
    source: str
    target: str
    settings: Sequence[tuple[str, str]] = field(repr=False)
    """Names and values, with credentials."""
    where: str
    """Where its configuration stands."""
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Of settings that stand elsewhere, or under another name: both."""

    def place_of(self, name: str) -> tuple[str, str]:
        """Return where a setting stands, and its name there."""
        return self.places.get(name, (self.where, name))


@dataclass(frozen=True, slots=True)
class RunningFlow:
    """One flow of what runs."""

    flow: Flow
    connectors: Mapping[Kind, str]
    """The names of its connectors on the Connect cluster."""
    offsets_topic: str = ""
    """The topic on the target that has their positions; empty: only the REST of Connect tells them."""
    group: str = ""
    """The group of the Connect workers; empty: not known."""
    stop_command: str = ""
    """How an operator stops them, if the REST of Connect must not; empty: over REST."""


@dataclass(frozen=True, slots=True)
class SecretToFill:
    """A file that the operator has to fill before mm2py runs."""

    path: str
    of: str
    """What belongs into it."""


@dataclass(frozen=True, slots=True)
class WhatRuns:
    """A mirror that runs."""

    said: str
    """What it is, in a few words."""
    clusters: tuple[str, ...]
    flows: tuple[RunningFlow, ...]
    settings: tuple[ProposedSetting | AccountedSetting, ...]
    extra: Mapping[str, tuple[str, str]]
    """What the file needs besides, by key: the value, and why."""
    fills: tuple[SecretToFill, ...] = ()
    notes: tuple[str, ...] = ()


def flow_of_connectors(connectors: Sequence[MirrorConnector]) -> Flow | None:
    """Return the flow of connectors with the same aliases; None: both aliases are the same."""
    one = connectors[0]
    return None if one.source == one.target else Flow(ClusterAlias(one.source), ClusterAlias(one.target))


def by_pair(connectors: Iterable[MirrorConnector]) -> list[list[MirrorConnector]]:
    """Return connectors by their pair of clusters, those of a pair in the order in which they count."""
    found: dict[tuple[str, str], list[MirrorConnector]] = {}
    for one in connectors:
        found.setdefault((one.source, one.target), []).append(one)
    return [sorted(some, key=lambda one: KINDS.index(one.kind)) for some in found.values()]


def why_no_flow(connectors: Sequence[MirrorConnector]) -> Iterator[AccountedSetting]:
    """Yield why the connectors of a pair of clusters are no flow of mm2py."""
    first = connectors[0]
    if first.source == first.target:
        yield refused(
            first.name,
            "target.cluster.alias",
            f"it is {first.source!r}, as source.cluster.alias, and a flow leads from one cluster to another",
            "Take two aliases; with the default policy the copies then have another name.",
        )
    for kind in KINDS:
        same = [one for one in connectors if one.kind is kind]
        if len(same) > 1:
            yield refused(
                same[1].name,
                "connector.class",
                f"{same[0].name} is a {kind} of {first.source}{ARROW}{first.target} already, and a flow has one",
                "Take over the other one alone, after you have merged their topics into it.",
            )
    if first.source != first.target and all(one.kind is Kind.CHECKPOINT for one in connectors):
        yield refused(
            first.name,
            "connector.class",
            "it makes checkpoints of a flow whose source connector is not among what is taken over",
            f"Name the {Kind.SOURCE} of {first.source}{ARROW}{first.target} as well.",
        )


def settings_of_flow(connectors: Sequence[MirrorConnector]) -> Iterator[ProposedSetting | AccountedSetting]:
    """Yield the settings of the connectors of one pair of clusters, in the order in which they count."""
    yield from why_no_flow(connectors)
    for one in connectors:
        yield from _settings_of(one, connectors[0])


def _settings_of(connector: MirrorConnector, first: MirrorConnector) -> Iterator[ProposedSetting | AccountedSetting]:
    """Yield the settings of one connector, each under its key in a settings file.

    Args:
        first: the connector that decides what the flow copies, and under which names.
    """
    decided = {name for name, _ in first.settings}
    flow = f"{connector.source}{ARROW}{connector.target}"
    copies = connector.kind is Kind.SOURCE
    yield from accounted_transforms(connector.settings, connector.place_of, flow, copies=copies)
    for name, value in connector.settings:
        if is_of_transforms(name):
            continue
        place, shown = connector.place_of(name)
        alias, client_setting = _cluster_setting(connector, name)
        if name in {"source.cluster.alias", "target.cluster.alias"}:
            yield AccountedSetting(place, shown, SettingOutcome.RENAMED, to="clusters")
        elif name == "connector.class":
            yield nothing(place, shown, "a flow has all three connectors")
        elif name == "name":
            yield nothing(place, shown, "a flow is called by its clusters; positions are taken from this name")
        elif alias and client_setting in CLIENT_NAMES:
            yield ProposedSetting(place, shown, f"{alias}.{client_setting}", value)
        elif alias:
            side = name.partition(".")[0]
            yield nothing(
                place,
                shown,
                f"MirrorMaker 2 gives its clients only addresses and security of {side}.cluster"
                f" (others are {side}.consumer.NAME, producer.override.NAME)",
            )
        elif name == "clusters" or ARROW in name:
            yield nothing(place, shown, "a connector does not read it, only a file of MirrorMaker 2 has it")
        elif name in CLIENT_NAMES:
            yield nothing(place, shown, f"no client of the connector reads it (that would be source.cluster.{name})")
        elif (why := _why_not_read(connector.kind, name)) is not None:
            yield nothing(place, shown, why)
        elif name.startswith(_DECIDES_COPY) and name not in decided and not _is_default(name, value):
            yield refused(
                place,
                shown,
                f"{first.name} does not have it, and a flow has one value",
                f"Give both connectors the same, or leave it out: --without {shown}.",
            )
        elif name == "offsets.storage.topic":
            yield nothing(place, shown, _READ_WITH_REST)
        else:
            yield ProposedSetting(place, shown, f"{flow}.{name}", value)


def _is_default(name: str, value: str) -> bool:
    """Return whether a setting of connectors has the value that it has by default."""
    key = CONNECTOR.get(name)
    try:
        return key is not None and (key.kind(value) == key.default or key.agrees(value))
    except BadValue:
        return False


def _cluster_setting(connector: MirrorConnector, name: str) -> tuple[str, str]:
    """Return the alias and the name of a setting of a side; two empty texts: it is none."""
    for prefix, alias in (("source.cluster.", connector.source), ("target.cluster.", connector.target)):
        if name.startswith(prefix):
            return alias, name.removeprefix(prefix)
    return "", ""


def _why_not_read(kind: Kind, name: str) -> str | None:
    """Return why a connector of this kind does not read a setting; None: it does, or nobody does."""
    if name.startswith(_OF_CLIENTS) and kind is not Kind.SOURCE and name != "consumer.poll.timeout.ms":
        return "the clients of a flow take the settings of its source connector"
    if name.startswith(_OF_BOTH):
        return None if kind is not Kind.HEARTBEAT else f"a {kind} does not read it"
    for prefixes, reader in (
        (_OF_CHECKPOINTS, Kind.CHECKPOINT),
        (_OF_HEARTBEATS, Kind.HEARTBEAT),
        (_OF_SOURCE, Kind.SOURCE),
    ):
        if name.startswith(prefixes) and kind is not reader:
            return (
                "the tasks of a flow are those of its source connector"
                if name.startswith("tasks.max")
                else f"a {kind} does not read it, a {reader} does"
            )
    return None

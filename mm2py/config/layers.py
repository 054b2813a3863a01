"""Which setting of a file overrides which, by MirrorMaker 2's rules, and the texts of problems with values.

Pure: a map in, a map out, and each value keeps the key and the line it was written in. A test compares this module with
the real classes. All problems of a file are reported at once, by line.

Counterpart: ``MirrorMakerConfig`` (clusterProps, workerConfig, connectorBaseConfig, clusterPairs), the client
configurations of ``MirrorConnectorConfig`` and Connect's producer of a source task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mm2py.config.kinds import BadValue
from mm2py.config.properties import PropertyEntry
from mm2py.config.row import Key
from mm2py.errors import ConfigError
from mm2py.flow import ARROW, Flow
from mm2py.secret import CLIENT_NAMES, shown_key, shown_value

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

PROBLEMS_SHOWN_MAX: Final = 20
FLOWS_SHOWN_MAX: Final = 12


class Unusable(Exception):
    """The list of problems is not empty."""


def all_problems(path: Path, problems: Sequence[str]) -> ConfigError:
    """Return one error that names the problems of a file, in the order of its lines."""
    shown = sorted(problems, key=line_of)[:PROBLEMS_SHOWN_MAX]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    head = f"{path}, " if len(problems) == 1 and problems[0].startswith("line ") else f"{path}: "
    many = f"{len(problems)} problems: " if len(problems) > 1 else ""
    return ConfigError(f"{head}{many}{'; '.join(shown)}.", remedy="")


def bad_value(entry: PropertyEntry, bad: BadValue) -> str:
    """Return the problem text of a value that its setting does not take."""
    why = str(bad) if entry.written is None else bad.unquoted
    return f"line {entry.line}: {shown_key(entry.key)} = {shown_value(entry.key, entry.text)} is {why}"


def add_problem(problems: list[str], problem: str) -> None:
    """Note a problem; if several flows share a setting, it is reported once."""
    if problem not in problems:
        problems.append(problem)


def listed_flows(flows: Sequence[Flow]) -> str:
    """Return flows as problems and warnings name them, the first dozen."""
    shown = ", ".join(map(str, flows[:FLOWS_SHOWN_MAX]))
    return shown if len(flows) <= FLOWS_SHOWN_MAX else f"{shown} and {len(flows) - FLOWS_SHOWN_MAX} more"


def line_of(text: str) -> int:
    """Sort key: the line that a problem names; problems without one come last."""
    line = text.removeprefix("line ").partition(":")[0]
    return int(line) if text.startswith("line ") and line.isdecimal() else 2**31


@dataclass(slots=True)
class Findings:
    """Collects what is wrong with a client's settings.

    ``layer`` has the client's settings, ``own`` mm2py's own for this flow and cluster.
    """

    layer: Layer
    own: Layer
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    counted: set[str] = field(default_factory=set)
    """The settings of ``layer`` that were asked for."""

    def value(self, key: Key[T], layer: Layer | None = None) -> T:
        if layer is None or layer is self.layer:
            self.counted.add(key.name)
        entry = (self.layer if layer is None else layer).get(key.name)
        if entry is None:
            return key.default
        try:
            return key.kind(entry.value)
        except BadValue as bad:  # values of the file are reported elsewhere; options of a login module only here
            self.refuse(f"{origin(entry)} is {bad}")
            return key.default

    def refuse(self, reason: str) -> None:
        self.reasons.append(reason)

    def at(self, *candidates: Key[Any], layer: Layer | None = None) -> str:
        """Return the origin of the first of these settings that is there, or the name of the first."""
        found = self.layer if layer is None else layer
        entry = next((found[key.name] for key in candidates if key.name in found), None)
        return candidates[0].name if entry is None else origin(entry)


def origin(entry: PropertyEntry) -> str:
    """Return a setting as reasons name it, with its line."""
    return shown_key(entry.key) + (f" (line {entry.line})" if entry.line is not None else "")


def named(entry: PropertyEntry) -> str:
    """Return the beginning of a warning about a setting: its line and its key."""
    return (f"line {entry.line}: " if entry.line is not None else "") + shown_key(entry.key)


Layer = Mapping[str, PropertyEntry]

CONNECTOR_PACKAGE = "org.apache.kafka.connect.mirror"
BYTE_ARRAY_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
BYTE_ARRAY_SERIALIZER = "org.apache.kafka.common.serialization.ByteArraySerializer"
CLIENT_PREFIXES = ("producer.", "consumer.", "admin.")

_CONNECTOR_NAMES = (
    # all three connectors
    "admin.timeout.ms enabled forwarding.admin.class metric.reporters replication.policy.class"
    " replication.policy.internal.topic.separator.enabled replication.policy.separator security.protocol"
    " source.cluster.alias target.cluster.alias"
    # Connect's own
    " config.action.reload config.providers connector.class connector.plugin.version errors.log.enable"
    " errors.log.include.messages errors.retry.delay.max.ms errors.retry.timeout errors.tolerance header.converter"
    " header.converter.plugin.version key.converter key.converter.plugin.version name predicates tasks.max"
    " tasks.max.enforce transforms value.converter value.converter.plugin.version"
    # source
    " config.properties.exclude config.property.filter.class consumer.poll.timeout.ms emit.offset-syncs.enabled"
    " heartbeats.replication.enabled metric.names.formats offset-syncs.topic.location"
    " offset-syncs.topic.replication.factor offset.lag.max refresh.topics.enabled refresh.topics.interval.seconds"
    " replication.factor sync.topic.acls.enabled sync.topic.acls.interval.seconds sync.topic.configs.enabled"
    " sync.topic.configs.interval.seconds topic.filter.class topics topics.exclude"
    # checkpoint
    " checkpoints.topic.replication.factor emit.checkpoints.enabled emit.checkpoints.interval.seconds"
    " group.filter.class groups groups.exclude refresh.groups.enabled refresh.groups.interval.seconds"
    " sync.group.offsets.enabled sync.group.offsets.interval.seconds"
    # heartbeat
    " emit.heartbeats.enabled emit.heartbeats.interval.seconds heartbeats.topic.replication.factor"
)
CONNECTOR_NAMES = frozenset(_CONNECTOR_NAMES.split()) | (CLIENT_NAMES - {"bootstrap.servers"})
"""The only settings that a connector takes from the top of the file, by their whole name."""

WORKER_TOP_PREFIXES = (
    "offset.storage",
    "config.storage",
    "status.storage",
    "key.converter",
    "value.converter",
    "header.converter",
    "task",
    "worker",
    "replication.policy",
)
"""Top-level keys with these prefixes override the worker's settings of the target cluster; a dot is not needed."""

# Java's `.` stops at line ends, so a key with one inside is no client key for MirrorMaker 2.
_CLIENT_KEY = re.compile(r"(?:consumer|producer|admin)[^\n\r\x85\u2028\u2029]*")


def cluster_pairs(file: Layer, clusters: Sequence[str]) -> set[tuple[str, str]]:
    """Return the (source, target) pairs for which MirrorMaker 2 runs a herder, enabled or only for heartbeats."""
    everywhere = file.get("emit.heartbeats.enabled")
    pairs = set()
    for source in clusters:
        for target in clusters:
            prefix = f"{source}{ARROW}{target}."
            enabled = file.get(f"{prefix}enabled")
            heartbeats = file.get(f"{prefix}emit.heartbeats.enabled", everywhere)
            if source != target and (
                (enabled is not None and _java_true(enabled.value))
                or heartbeats is None
                or _java_true(heartbeats.value)
            ):
                pairs.add((source, target))
    return pairs


def cluster_props(file: Layer, alias: str) -> dict[str, PropertyEntry]:
    """Return the settings of one cluster, without the alias; those of CLIENT_NAMES are spread over its clients.

    For a client on cluster X ``X.consumer.k`` overrides ``X.k``, which overrides a top-level ``k``; only CLIENT_NAMES.
    """
    props = _stripped(file, f"{alias}.")
    for name in sorted(CLIENT_NAMES):
        if name in props:
            for prefix in CLIENT_PREFIXES:
                props.setdefault(prefix + name, props[name])
    for name in sorted(CLIENT_NAMES):
        if name in file:
            for prefix in (*CLIENT_PREFIXES, ""):
                props.setdefault(prefix + name, file[name])
    return props


def worker_config(file: Layer, flow: Flow) -> dict[str, PropertyEntry]:
    """Return the settings of the Connect worker that runs a flow: those of its target cluster, and some of the top.

    A flow's own ``A->B.k`` never gets here. Expressions like ``${file:...}`` stay as they are written.
    """
    props = cluster_props(file, flow.target)
    for key, entry in file.items():
        if key.startswith((*WORKER_TOP_PREFIXES, "config.providers")):
            props[key] = entry
    for key, value in (
        ("client.id", str(flow)),
        ("group.id", f"{flow.source}-mm2"),
        ("offset.storage.topic", f"mm2-offsets.{flow.source}.internal"),
        ("status.storage.topic", f"mm2-status.{flow.source}.internal"),
        ("config.storage.topic", f"mm2-configs.{flow.source}.internal"),
        ("key.converter", BYTE_ARRAY_CONVERTER),
        ("value.converter", BYTE_ARRAY_CONVERTER),
        ("header.converter", BYTE_ARRAY_CONVERTER),
    ):
        props.setdefault(key, PropertyEntry(value, key))
    return props


def connector_config(file: Layer, flow: Flow, connector: str = "MirrorSourceConnector") -> dict[str, PropertyEntry]:
    """Return the settings of one connector of a flow; ``A->B.k`` overrides everything else."""
    props = {
        key: entry
        for key, entry in file.items()
        if key in CONNECTOR_NAMES or key.startswith(("config.providers", "replication.policy"))
    }
    for side, alias in (("source", flow.source), ("target", flow.target)):
        for key, entry in cluster_props(file, alias).items():
            props[f"{side}.{key}" if _CLIENT_KEY.fullmatch(key) else f"{side}.cluster.{key}"] = entry
    for key, value in (
        ("name", connector),
        ("connector.class", f"{CONNECTOR_PACKAGE}.{connector}"),
        ("source.cluster.alias", flow.source),
        ("target.cluster.alias", flow.target),
    ):
        props.setdefault(key, PropertyEntry(value, key))
    props.update(_stripped(file, f"{flow}."))
    props.setdefault("enabled", PropertyEntry("false", "enabled"))
    return props


def client_config(connector: Layer, side: str, client: str) -> dict[str, PropertyEntry]:
    """Return the settings of a client that a connector makes for itself.

    Args:
        connector: what connector_config returned.
        side: ``source`` or ``target``.
        client: ``consumer``, ``producer`` or ``admin``. The producer here writes offset syncs; records are
            written by the one of data_producer_config.
    Returns:
        ``source.cluster.k`` (CLIENT_NAMES only), then ``consumer.k``, then ``source.consumer.k``; the later wins.
        So a cluster's ``A.consumer.k`` beats the flow's ``A->B.consumer.k``.
    """
    props = {k: entry for k, entry in _stripped(connector, f"{side}.cluster.").items() if k in CLIENT_NAMES}
    props.update(_stripped(connector, f"{client}."))
    props.update(_stripped(connector, f"{side}.{client}."))
    if client == "consumer":
        props["enable.auto.commit"] = PropertyEntry("false", "enable.auto.commit")
        props.setdefault("auto.offset.reset", PropertyEntry("earliest", "auto.offset.reset"))
    return props


def data_producer_config(worker: Layer, connector: Layer) -> dict[str, PropertyEntry]:
    """Return the settings of the producer that writes the copied records, which is Connect's and not the flow's.

    ``B.producer.k`` sets it, ``A->B.producer.override.k`` overrides that; ``A->B.producer.k`` does not reach it.
    """
    props = {
        key: PropertyEntry(value, key)
        for key, value in (
            ("key.serializer", BYTE_ARRAY_SERIALIZER),
            ("value.serializer", BYTE_ARRAY_SERIALIZER),
            ("max.block.ms", str(2**63 - 1)),
            ("enable.idempotence", "false"),
            ("acks", "all"),
            ("max.in.flight.requests.per.connection", "1"),
            ("delivery.timeout.ms", str(2**31 - 1)),
        )
    }
    if "bootstrap.servers" in worker:
        props["bootstrap.servers"] = worker["bootstrap.servers"]
    props.update(_stripped(worker, "producer."))
    props.update(_stripped(connector, "producer.override."))
    return props


@dataclass(frozen=True, slots=True)
class FlowLayers:
    """All the maps that mm2py reads one flow from."""

    connector: Layer
    worker: Layer
    consumer: Layer
    """The settings of the client that reads records from the source."""
    producer: Layer
    """The settings of the client that writes them to the target."""
    source_admin: Layer
    target_admin: Layer


def flow_layers(file: Layer, flow: Flow) -> FlowLayers:
    connector = connector_config(file, flow)
    worker = worker_config(file, flow)
    return FlowLayers(
        connector,
        worker,
        consumer=client_config(connector, "source", "consumer"),
        producer=data_producer_config(worker, connector),
        source_admin=client_config(connector, "source", "admin"),
        target_admin=client_config(connector, "target", "admin"),
    )


def _stripped(layer: Layer, prefix: str) -> dict[str, PropertyEntry]:
    cut = len(prefix)
    return {key[cut:]: entry for key, entry in layer.items() if key.startswith(prefix) and len(key) > cut}


def _java_true(text: str) -> bool:
    """``Boolean.parseBoolean``: no trimming, no complaint."""
    return text.lower() == "true"

"""A resource KafkaMirrorMaker2 of Strimzi: what its operator makes of it. Pure.

The operator makes a Connect cluster and its connectors ``A->B.MirrorSourceConnector``. Both layouts are read: the one
of ``v1`` with ``target`` and ``mirrors[].source``, and the one of ``v1beta2`` with ``connectCluster`` and
``clusters[]``. Values of Secrets are not in the resource: the settings file refers to files that the operator of the
mirror fills.

Counterpart: KafkaMirrorMaker2Connectors of Strimzi's cluster operator.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mm2py.errors import ConfigError
from mm2py.flow import ARROW, Kind
from mm2py.secret import CLIENT_NAMES
from mm2py.takeover.account import AccountedSetting, ProposedSetting, SettingOutcome, nothing, refused
from mm2py.takeover.connector_configs import Value, extra_settings, provider_settings, text_of, unknown_providers
from mm2py.takeover.what_runs import (
    MirrorConnector,
    RunningFlow,
    SecretToFill,
    WhatRuns,
    by_pair,
    flow_of_connectors,
    settings_of_flow,
    why_no_flow,
)

SECRETS: Final = "/etc/mm2py/secrets"
"""Where the files of secrets are, as with the Helm chart."""
KIND: Final = "KafkaMirrorMaker2"
OLD_GROUP: Final = "mirrormaker2-cluster"
"""The group of the workers, and the beginning of the names of their topics, that v1beta2 takes by default."""
_STORAGES: Final = ("config", "offset", "status")
_OWN_TOPICS: Final = "mm2py keeps its own topics, named as those of a dedicated MirrorMaker 2"
_REFERENCE: Final = re.compile(r"\$\{(?:strimzisecrets|secrets|configmaps):([^}:]*):([^}:]*)\}")

_OF_PODS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "version": "there is no Kafka Connect",
        "image": "mm2py has an image of its own",
        "replicas": "start as many workers as you need, with the same file",
        "resources": "the Helm chart of mm2py has its own",
        "jvmOptions": "there is no JVM",
        "jmxOptions": "there is no JVM",
        "logging": "mm2py takes --log-level",
        "metricsConfig": "metrics of mm2py need no rules",
        "metrics": "metrics of mm2py need no rules",
        "tracing": "mm2py sends no traces",
        "template": "the Helm chart of mm2py has its own",
        "livenessProbe": "the Helm chart of mm2py has its own",
        "readinessProbe": "the Helm chart of mm2py has its own",
        "rack": "write A.consumer.client.rack to read from followers nearby",
        "clientRackInitImage": "write A.consumer.client.rack to read from followers nearby",
        "externalConfiguration": "mount its Secrets for mm2py, if settings refer to them",
        "plugins": "mm2py runs no plug-ins",
    }
)
_OF_CONNECTORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "autoRestart": "mm2py tries again by itself",
        "listOffsets": "positions are taken from the offsets topic",
        "alterOffsets": "positions are taken from the offsets topic",
        "version": "there are no plug-ins",
        "pause": "it is about the connector; pause a flow of mm2py with mm2py pause",
        "state": "it is about the connector; pause a flow of mm2py with mm2py pause",
    }
)
_SASL: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "plain": ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        "scram-sha-256": ("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule"),
        "scram-sha-512": ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    }
)


class _StrimziPart(BaseModel):
    """A part of the resource; fields that no reader knows are kept, and refused by name."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    @property
    def unknown(self) -> Mapping[str, Any]:
        return self.model_extra or {}


class _SecretKey(_StrimziPart):
    secret: str = Field(alias="secretName")
    certificate: str | None = None
    pattern: str | None = None
    password: str | None = None
    key: str | None = None


class _Authentication(_StrimziPart):
    type: str
    username: str | None = None
    password_secret: _SecretKey | None = Field(None, alias="passwordSecret")
    certificate_and_key: _SecretKey | None = Field(None, alias="certificateAndKey")
    sasl: bool | None = None
    config: Mapping[str, Value] = Field(default_factory=dict)


class _TrustedTls(_StrimziPart):
    trusted: list[_SecretKey] = Field(default_factory=list, alias="trustedCertificates")


class _StrimziCluster(_StrimziPart):
    alias: str
    bootstrap: str = Field(alias="bootstrapServers")
    group: str | None = Field(None, alias="groupId")
    config_topic: str | None = Field(None, alias="configStorageTopic")
    offset_topic: str | None = Field(None, alias="offsetStorageTopic")
    status_topic: str | None = Field(None, alias="statusStorageTopic")
    tls: _TrustedTls | None = None
    authentication: _Authentication | None = None
    config: Mapping[str, Value] = Field(default_factory=dict)


class _StrimziConnector(_StrimziPart):
    tasks_max: int | None = Field(None, alias="tasksMax")
    config: Mapping[str, Value] = Field(default_factory=dict)


class _StrimziMirror(_StrimziPart):
    source: _StrimziCluster | None = None
    source_cluster: str | None = Field(None, alias="sourceCluster")
    target_cluster: str | None = Field(None, alias="targetCluster")
    source_connector: _StrimziConnector | None = Field(None, alias="sourceConnector")
    checkpoint_connector: _StrimziConnector | None = Field(None, alias="checkpointConnector")
    heartbeat_connector: _StrimziConnector | None = Field(None, alias="heartbeatConnector")
    topics: str | None = Field(None, alias="topicsPattern")
    topics_exclude: str | None = Field(None, alias="topicsExcludePattern")
    topics_blacklist: str | None = Field(None, alias="topicsBlacklistPattern")
    groups: str | None = Field(None, alias="groupsPattern")
    groups_exclude: str | None = Field(None, alias="groupsExcludePattern")
    groups_blacklist: str | None = Field(None, alias="groupsBlacklistPattern")


class _StrimziSpec(_StrimziPart):
    target: _StrimziCluster | None = None
    connect_cluster: str | None = Field(None, alias="connectCluster")
    clusters: list[_StrimziCluster] = Field(default_factory=list)
    mirrors: list[_StrimziMirror]


class _StrimziName(_StrimziPart):
    name: str
    namespace: str | None = None


class _StrimziResource(_StrimziPart):
    metadata: _StrimziName
    spec: _StrimziSpec


@dataclass(slots=True)
class _StrimziReading:
    """What is found in a resource, step by step."""

    secrets: str
    settings: list[ProposedSetting | AccountedSetting] = field(default_factory=list)
    fills: dict[str, str] = field(default_factory=dict)

    def secret(self, name: str, key: str, what: str = "") -> str:
        """Return a reference to a value of a Secret, and note that the operator has to fill it."""
        file = f"{name}.{key}"
        self.fills[f"{self.secrets}/{file}"] = what or f"key {key} of Secret {name}"
        return f"${{secrets:{self.secrets}:{file}}}"

    def with_references(self, value: str) -> str:
        """Return a value whose references to Secrets refer to files."""
        return _REFERENCE.sub(lambda found: self.secret(found[1].rpartition("/")[2], found[2]), value)

    def refuse_unknown(self, place: str, part: _StrimziPart, known: Mapping[str, str]) -> None:
        for name in part.unknown:
            why = known.get(name)
            self.settings.append(
                refused(place, name, "mm2py does not know this field of the resource")
                if why is None
                else nothing(place, name, why)
            )


def read_strimzi(documents: Sequence[Any], where: str, secrets: str = SECRETS) -> WhatRuns:
    """Return what a resource runs.

    Args:
        documents: of the file, as JSON types; exactly one is a resource of the kind.
        where: the file, for messages.
        secrets: the folder of the files with secrets.
    Raises:
        ConfigError: there is no such resource, or it is not one.
    """
    ours = [one for one in documents if isinstance(one, dict) and one.get("kind") == KIND]
    if len(ours) != 1:
        raise ConfigError(
            f"{where} holds {len(ours)} resources of the kind {KIND}.",
            remedy="Save one of them: kubectl get kafkamirrormaker2 NAME -o yaml.",
        )
    version = str(ours[0].get("apiVersion", "")).rpartition("/")[2]
    if version not in {"v1", "v1beta2"}:
        raise ConfigError(f"{where} is of apiVersion {version!r}.", remedy="mm2py reads v1 and v1beta2.")
    try:
        resource = _StrimziResource.model_validate(ours[0])
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))  # the value may be a credential
        raise ConfigError(
            f"{where}: {place} is missing, or not what Strimzi has there.", remedy="Is it whole?"
        ) from None
    return _what_runs(resource, where, secrets)


def _what_runs(resource: _StrimziResource, where: str, secrets: str) -> WhatRuns:
    spec, found = resource.spec, _StrimziReading(secrets)
    target, target_place = _target(spec, where)
    found.refuse_unknown("spec", spec, _OF_PODS)
    if spec.connect_cluster is not None:
        found.settings.append(AccountedSetting("spec", "connectCluster", SettingOutcome.RENAMED, to="clusters"))
    group, offsets_topic = _worker_settings(target, target_place, is_old=spec.target is None, found=found)
    connectors: list[MirrorConnector] = []
    for at, mirror in enumerate(spec.mirrors):
        place = f"spec.mirrors[{at}]"
        found.refuse_unknown(place, mirror, {})
        source, source_place = _source(spec, mirror, place, where)
        connectors += _connectors(mirror, place, (source, source_place), (target, target_place), found)
    stop = _stop_command(resource.metadata)
    flows: list[RunningFlow] = []
    for some in by_pair(connectors):
        found.settings += settings_of_flow(some)
        for one in some:
            found.settings += unknown_providers(one)
        flow = flow_of_connectors(some)
        if flow is not None and not any(why_no_flow(some)):
            names = {one.kind: one.name for one in some}
            flows.append(RunningFlow(flow, names, offsets_topic, group, stop))
    if not connectors:
        raise ConfigError(f"{where} has no connector in spec.mirrors.", remedy="Is it whole?")
    extra = extra_settings(connectors)
    if group == OLD_GROUP:
        extra[f"{target.alias}.group.id"] = (group, "Strimzi's default: no worker starts while it has members")
    values = [value for one in connectors for _, value in one.settings]
    values += [one.value for one in found.settings if isinstance(one, ProposedSetting)]
    extra |= provider_settings(values)
    return WhatRuns(
        f"{KIND} {resource.metadata.name}",
        tuple(dict.fromkeys([*(one.source for one in connectors), target.alias])),
        tuple(flows),
        tuple(found.settings),
        extra,
        tuple(SecretToFill(path, of) for path, of in found.fills.items()),
    )


def _stop_command(name: _StrimziName) -> str:
    space = f" -n {shlex.quote(name.namespace)}" if name.namespace else ""
    change = shlex.quote('{"spec":{"replicas":0}}')
    return f"kubectl patch kafkamirrormaker2 {shlex.quote(name.name)}{space} --type merge -p {change}"


def _target(spec: _StrimziSpec, where: str) -> tuple[_StrimziCluster, str]:
    if spec.target is not None:
        return spec.target, "spec.target"
    return _named(spec, spec.connect_cluster, "spec.connectCluster", where)


def _source(spec: _StrimziSpec, mirror: _StrimziMirror, place: str, where: str) -> tuple[_StrimziCluster, str]:
    if mirror.source is not None:
        return mirror.source, f"{place}.source"
    return _named(spec, mirror.source_cluster, f"{place}.sourceCluster", where)


def _named(spec: _StrimziSpec, alias: str | None, place: str, where: str) -> tuple[_StrimziCluster, str]:
    for at, cluster in enumerate(spec.clusters):
        if cluster.alias == alias:
            return cluster, f"spec.clusters[{at}]"
    raise ConfigError(f"{where}: {place} names {alias!r}, which is not in spec.clusters.", remedy="Is it whole?")


def _worker_settings(target: _StrimziCluster, place: str, *, is_old: bool, found: _StrimziReading) -> tuple[str, str]:
    """Note the settings of the workers; return their group and their offsets topic."""
    config = {name: text_of(value) for name, value in target.config.items() if value is not None}
    topics = {"config": target.config_topic, "offset": target.offset_topic, "status": target.status_topic}
    if target.group is not None:
        found.settings.append(ProposedSetting(place, "groupId", f"{target.alias}.group.id", target.group))
    for storage, topic in topics.items():
        if topic is not None:
            found.settings.append(nothing(place, f"{storage}StorageTopic", _OWN_TOPICS))
    for name, value in config.items():
        if name in {f"{storage}.storage.topic" for storage in _STORAGES}:
            found.settings.append(nothing(f"{place}.config", name, _OWN_TOPICS))
        else:
            key = f"{target.alias}.{name}"
            found.settings.append(ProposedSetting(f"{place}.config", name, key, found.with_references(value)))
    group = target.group or config.get("group.id") or (OLD_GROUP if is_old else "")
    old_topic = f"{OLD_GROUP}-offsets" if is_old else ""
    return group, topics["offset"] or config.get("offset.storage.topic") or old_topic


def _connectors(
    mirror: _StrimziMirror,
    place: str,
    source: tuple[_StrimziCluster, str],
    target: tuple[_StrimziCluster, str],
    found: _StrimziReading,
) -> Iterator[MirrorConnector]:
    """Yield the connectors that the operator makes of a mirror."""
    patterns = dict(_patterns(mirror))
    wanted = (
        (Kind.SOURCE, "sourceConnector", mirror.source_connector, ("topics",)),
        (Kind.CHECKPOINT, "checkpointConnector", mirror.checkpoint_connector, ("topics", "groups")),
        (Kind.HEARTBEAT, "heartbeatConnector", mirror.heartbeat_connector, ()),
    )
    for name, (field_name, _) in patterns.items():
        if not any(connector is not None and name.startswith(reads) for _, _, connector, reads in wanted):
            found.settings.append(nothing(place, field_name, "no connector of the mirror reads it"))
    for kind, field_name, connector, reads in wanted:
        if connector is None:
            continue
        at = f"{place}.{field_name}"
        found.refuse_unknown(at, connector, _OF_CONNECTORS)
        settings: dict[str, str] = {}
        places: dict[str, tuple[str, str]] = {}
        for side, (cluster, cluster_place) in (("source", source), ("target", target)):
            for name, value, stands_at in _cluster_settings(cluster, cluster_place, side, found):
                settings[f"{side}.cluster.{name}"] = value
                places[f"{side}.cluster.{name}"] = stands_at
        for option, written in connector.config.items():
            if option in patterns:
                found.settings.append(nothing(f"{at}.config", option, f"{patterns[option][0]} counts in its place"))
            elif written is not None:
                settings[option] = found.with_references(text_of(written))
                places[option] = (f"{at}.config", option)
        if connector.tasks_max is not None:
            settings["tasks.max"] = str(connector.tasks_max)
            places["tasks.max"] = (at, "tasksMax")
        for of_pattern, (pattern_name, pattern) in patterns.items():
            if of_pattern.startswith(reads):
                settings[of_pattern] = pattern
                places[of_pattern] = (place, pattern_name)
        named = f"{source[0].alias}{ARROW}{target[0].alias}.{kind}"
        yield MirrorConnector(named, kind, source[0].alias, target[0].alias, tuple(settings.items()), at, places)


def _patterns(mirror: _StrimziMirror) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the settings that the patterns of a mirror set: the name, then the field and its value."""
    for name, field_name, value in (
        ("topics", "topicsPattern", mirror.topics),
        ("topics.exclude", "topicsBlacklistPattern", mirror.topics_blacklist),
        ("topics.exclude", "topicsExcludePattern", mirror.topics_exclude),
        ("groups", "groupsPattern", mirror.groups),
        ("groups.exclude", "groupsBlacklistPattern", mirror.groups_blacklist),
        ("groups.exclude", "groupsExcludePattern", mirror.groups_exclude),
    ):
        if value is not None:
            yield name, (field_name, value)


Placed = tuple[str, str, tuple[str, str]]
"""The name of a setting, its value, and where it stands under which name."""


def _cluster_settings(cluster: _StrimziCluster, place: str, side: str, found: _StrimziReading) -> Iterator[Placed]:
    """Yield what the operator gives connectors of a cluster."""
    found.refuse_unknown(place, cluster, {})
    yield "bootstrap.servers", cluster.bootstrap, (place, "bootstrapServers")
    yield from _security(cluster, place, found)
    for name, value in cluster.config.items():
        if value is not None and (side == "source" or name in CLIENT_NAMES):
            yield name, found.with_references(text_of(value)), (f"{place}.config", name)


def _security(cluster: _StrimziCluster, place: str, found: _StrimziReading) -> Iterator[Placed]:
    login, tls = cluster.authentication, cluster.tls
    is_sasl = login is not None and (login.type in _SASL or bool(login.sasl))
    if login is not None or tls is not None:
        transport = "PLAINTEXT" if tls is None else "SSL"
        protocol = f"SASL_{transport}" if is_sasl else transport
        yield "security.protocol", protocol, (place, "authentication" if tls is None else "tls")
    if tls is not None:
        found.refuse_unknown(f"{place}.tls", tls, {})
    if tls is not None and tls.trusted:
        at = (f"{place}.tls", "trustedCertificates")
        yield "ssl.truststore.type", "PEM", at
        yield "ssl.truststore.certificates", "\n".join(_certificate(one, found) for one in tls.trusted), at
    if login is None:
        return
    at = (place, "authentication")
    pair, password = login.certificate_and_key, login.password_secret
    if login.type == "tls" and pair is not None:
        yield "ssl.keystore.type", "PEM", at
        yield "ssl.keystore.certificate.chain", found.secret(pair.secret, pair.certificate or "user.crt"), at
        yield "ssl.keystore.key", found.secret(pair.secret, pair.key or "user.key"), at
    elif login.type in _SASL and password is not None and login.username is not None:
        mechanism, module = _SASL[login.type]
        secret = found.secret(password.secret, password.password or "password")
        yield "sasl.mechanism", mechanism, at
        yield "sasl.jaas.config", f'{module} required username="{login.username}" password="{secret}";', at
    elif login.type == "custom":
        for name, value in login.config.items():
            if value is not None:
                yield name, found.with_references(text_of(value)), (f"{place}.authentication.config", name)
    else:
        found.settings.append(
            refused(
                *at,
                f"mm2py takes no logins of the type {login.type} out of a resource",
                f"Write {cluster.alias}.sasl.* into the file yourself (docs/security.md), and add --without"
                " authentication.",
            )
        )
        return
    found.refuse_unknown(f"{place}.authentication", login, {})


def _certificate(one: _SecretKey, found: _StrimziReading) -> str:
    if one.certificate is not None:
        return found.secret(one.secret, one.certificate)
    what = f"all certificates {one.pattern or '*.crt'} of Secret {one.secret}, one behind the other"
    return found.secret(one.secret, "ca.crt", what)

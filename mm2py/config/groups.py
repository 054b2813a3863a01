"""The group of workers for each target cluster: how it elects its leader, and its session time-out.

These settings belong to a target cluster. ``session.timeout.ms`` and ``heartbeat.interval.ms`` are those of
MirrorMaker 2's worker into that cluster, with other defaults. Those of ZooKeeper have the names that Kafka's brokers
had for theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mm2py.config.kinds import (
    BadValue,
    Ensemble,
    Key,
    Status,
    Table,
    boolean,
    ensemble,
    integer,
    java_trim,
    table_of,
    topic_name_part,
)
from mm2py.config.layers import Findings, Layer, add_problem, bad_value, named
from mm2py.config.properties import Entry
from mm2py.config.security.keys import SECURITY
from mm2py.config.security.tls import read_tls
from mm2py.config.settings import Election, GroupSettings, ZooKeeperSettings
from mm2py.connector import ClusterAlias
from mm2py.kafka.security.settings import TlsSettings
from mm2py.secret import Secret
from mm2py.topics.replicas import AtMost

Value = Callable[[Layer, Key[Any]], Any]
"""Reads one setting out of a layer, and keeps what is wrong with it."""
_SSL_NOT_ENABLED = (
    "set, and the connection would be in plain text: write zookeeper.ssl.client.enable = true, or remove it"
)


def election(text: str) -> Election:
    match java_trim(text):
        case "log":
            return "log"
        case "zookeeper":
            return "zookeeper"
    raise BadValue("not one of log, zookeeper")


def digest(text: str) -> Secret:
    user, colon, password = java_trim(text).partition(":")
    if not user or not colon or not password:
        raise BadValue("not user:password")
    return Secret(java_trim(text))


REPLICATION_FACTOR = integer(1, 2**15 - 1, or_minus_one=True)
INTERNAL_REPLICATION_FACTOR: Key[int | None] = Key("internal.topics.replication.factor", REPLICATION_FACTOR, None)
"""Of all internal topics that have no setting of their own."""
GROUP = Key("mm2py.group", topic_name_part, "mm2py")
SESSION_TIMEOUT = Key("session.timeout.ms", integer(100), 3000)
"""10000 in MirrorMaker 2."""
HEARTBEAT_INTERVAL = Key("heartbeat.interval.ms", integer(10), 500)
"""3000 in MirrorMaker 2."""
LEADER_ELECTION: Key[Election] = Key("leader.election", election, "log")

ZOOKEEPER_CONNECT: Key[Ensemble | None] = Key("zookeeper.connect", ensemble, None)
ZOOKEEPER_DIGEST: Key[Secret | None] = Key("zookeeper.auth.digest", digest, None)
ZOOKEEPER_SET_ACL = Key("zookeeper.set.acl", boolean, True)
ZOOKEEPER_SSL = Key("zookeeper.ssl.client.enable", boolean, False)
ZOOKEEPER_TLS: Table = table_of(
    replace(key, name=f"zookeeper.{key.name}")
    for key in SECURITY.values()
    if key.name.startswith("ssl.") and key.status is Status.WORKS
)

ZOOKEEPER: Table = table_of(
    ZOOKEEPER_CONNECT, ZOOKEEPER_DIGEST, ZOOKEEPER_SET_ACL, ZOOKEEPER_SSL, ZOOKEEPER_TLS.values()
)
OWN: tuple[Key[Any], ...] = (GROUP, INTERNAL_REPLICATION_FACTOR, LEADER_ELECTION, *ZOOKEEPER.values())
"""Only mm2py has them: at the top, or for a target."""
WORKER: tuple[Key[int], ...] = (SESSION_TIMEOUT, HEARTBEAT_INTERVAL)
"""For a target only, as in MirrorMaker 2."""


class GroupsReading:
    """One pass over the target clusters of a file; collects problems and warnings."""

    def __init__(self, file: Layer, value: Value, problems: list[str]) -> None:
        self.warnings: list[str] = []
        self._file = file
        self._value = value
        self._problems = problems

    def groups(self, targets: Sequence[ClusterAlias]) -> dict[ClusterAlias, GroupSettings]:
        layers = {target: self._layer(target) for target in dict.fromkeys(targets)}
        groups = {target: self._group(target, layer) for target, layer in layers.items()}
        used = {entry.key for target, layer in layers.items() if groups[target].zookeeper for entry in layer.values()}
        for target, layer in layers.items():
            if groups[target].election == "log":
                self._tell_idle(layer, used)
        return groups

    def _layer(self, target: ClusterAlias) -> dict[str, Entry]:
        """The cluster's before the top of the file; MirrorMaker 2's own count for the cluster only, as there."""
        names = [(f"{target}.{key.name}", key.name) for key in (*OWN, *WORKER)]
        layer = {key.name: self._file[key.name] for key in OWN if key.name in self._file}
        layer.update({name: self._file[written] for written, name in names if written in self._file})
        return layer

    def _group(self, target: ClusterAlias, layer: Layer) -> GroupSettings:
        session_timeout_ms = self._value(layer, SESSION_TIMEOUT)
        heartbeat_interval_ms = self._value(layer, HEARTBEAT_INTERVAL)
        if heartbeat_interval_ms * 3 > session_timeout_ms:
            self._refuse_interval(target, layer, heartbeat_interval_ms, session_timeout_ms)
        election = self._value(layer, LEADER_ELECTION)
        group = self._value(layer, GROUP)
        if election == "zookeeper" and group in (".", ".."):
            text = "no name for a node of ZooKeeper (write another)"
            add_problem(self._problems, bad_value(layer[GROUP.name], BadValue(text)))
        return GroupSettings(
            target,
            group,
            session_timeout_s=session_timeout_ms / 1000,
            heartbeat_interval_s=heartbeat_interval_ms / 1000,
            election=election,
            zookeeper=self._zookeeper(target, layer) if election == "zookeeper" else None,
            replication_factor=self._value(layer, INTERNAL_REPLICATION_FACTOR) or AtMost(3),
        )

    def _refuse_interval(self, target: str, layer: Layer, interval_ms: int, timeout_ms: int) -> None:
        way_out = (
            f"a worker must be able to miss two heartbeats: write {target}.heartbeat.interval.ms = {timeout_ms // 3}"
            f" or less, or {target}.session.timeout.ms = {interval_ms * 3} or more"
        )
        interval = layer.get(HEARTBEAT_INTERVAL.name)
        if interval is not None:
            text = f"more than a third of session.timeout.ms, which is {timeout_ms} ({way_out})"
            add_problem(self._problems, bad_value(interval, BadValue(text)))
        else:
            text = f"less than three times heartbeat.interval.ms, which is {interval_ms} ({way_out})"
            add_problem(self._problems, bad_value(layer[SESSION_TIMEOUT.name], BadValue(text)))

    def _zookeeper(self, target: ClusterAlias, layer: Layer) -> ZooKeeperSettings | None:
        """Return None if there is a problem with it; the problem is added to the list."""
        asked_for = layer[LEADER_ELECTION.name]
        ensemble = self._value(layer, ZOOKEEPER_CONNECT)
        if ZOOKEEPER_CONNECT.name not in layer:
            text = (
                "not enough: zookeeper.connect is missing"
                f" (write {target}.zookeeper.connect = host:2181,host:2181/chroot)"
            )
            add_problem(self._problems, bad_value(asked_for, BadValue(text)))
        digest = self._value(layer, ZOOKEEPER_DIGEST)
        tls = self._tls(target, layer)
        if digest is not None and tls is None:
            entry = layer[ZOOKEEPER_DIGEST.name]
            self.warnings.append(
                f"{named(entry)} goes to ZooKeeper in plain text: anyone who listens can read the password; set"
                " zookeeper.ssl.client.enable"
            )
        set_acl = self._value(layer, ZOOKEEPER_SET_ACL)
        return None if ensemble is None else ZooKeeperSettings(ensemble.servers, ensemble.chroot, digest, set_acl, tls)

    def _tls(self, target: ClusterAlias, layer: Layer) -> TlsSettings | None:
        ssl_layer = {name.removeprefix("zookeeper."): layer[name] for name in ZOOKEEPER_TLS if name in layer}
        if not self._value(layer, ZOOKEEPER_SSL):
            for name, entry in ssl_layer.items():
                if not _is_default(ZOOKEEPER_TLS[f"zookeeper.{name}"], entry):
                    add_problem(self._problems, bad_value(entry, BadValue(_SSL_NOT_ENABLED)))
            return None
        found = Findings(ssl_layer, {})
        tls = read_tls(found, ssl_layer)
        self.warnings += found.warnings
        for reason in found.reasons:
            add_problem(self._problems, f"zookeeper of {target}: {reason}")
        return tls

    def _tell_idle(self, layer: Layer, used: set[str]) -> None:
        for name, key in ZOOKEEPER.items():
            entry = layer.get(name)
            if entry is not None and entry.key not in used and not _is_default(key, entry):
                self.warnings.append(
                    f"{named(entry)} has no effect: the leader is elected through the control log; write"
                    " leader.election = zookeeper, or remove it"
                )


def _is_default(key: Key[Any], entry: Entry) -> bool:
    try:
        return bool(key.kind(entry.value) == key.default)
    except BadValue:  # reported elsewhere
        return True

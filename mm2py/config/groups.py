"""The group of workers for each target cluster: how it elects its leader, and its session time-out.

These settings belong to a target cluster. ``session.timeout.ms`` and ``heartbeat.interval.ms`` are those of
MirrorMaker 2's worker into that cluster, with other defaults. The settings for ZooKeeper have the names that Kafka's
brokers used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mm2py.config import keys
from mm2py.config.kinds import BadValue, Ensemble, boolean, ensemble, integer, java_trim, topic_name_part
from mm2py.config.layers import Findings, Layer, add_problem, bad_value, named
from mm2py.config.properties import PropertyEntry
from mm2py.config.row import AT_TOP_AND_TARGET, BY_WORKER, Key, Section, Status, Table, table_of
from mm2py.config.security.keys import SECURITY
from mm2py.config.security.tls import read_tls
from mm2py.config.settings import Election, GroupSettings, ZooKeeperSettings
from mm2py.flow import ClusterAlias
from mm2py.kafka.security.settings import TlsSettings
from mm2py.secret import Secret
from mm2py.topics.replicas import AtMost

Value = Callable[[Layer, Key[Any]], Any]
"""Reads one setting from a layer, and notes what is wrong with it."""
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


GROUP_OF_WORKERS = Section(
    "the group of workers",
    (
        "The group is all processes that divide the flows into B among them. Its name and the way of election"
        " have to be the same in the file of each process: a worker that elects in another way than a running one"
        " is refused. To change it, stop all of them first."
    ),
)
GROUP = GROUP_OF_WORKERS.row(
    "mm2py.group",
    topic_name_part,
    "mm2py",
    readers=AT_TOP_AND_TARGET,
    field="group",
    at="B.",
    text=(
        "Name of the group, and part of the names under which its processes write to B. One group runs a flow: a"
        " process that names another group is refused the flow as long as a live process of the first one runs it."
        " Except for the next two, only mm2py has the settings of this section. Write them at the top or for the"
        " target."
    ),
)
SESSION_TIMEOUT = GROUP_OF_WORKERS.row(
    "session.timeout.ms",
    integer(100),
    3000,
    readers=BY_WORKER,
    at="B.",
    text=(
        "Milliseconds without a heartbeat after which a worker counts as dead, and milliseconds between two"
        " heartbeats. The second is at most a third of the first. As in MirrorMaker 2 they are written for the"
        " target; its own defaults are 10000 and 3000. Workers may have different values, for example while one"
        " file after the other is changed. If the others send heartbeats less often than a dead worker did, they"
        " notice its death a few of their heartbeats later."
    ),
)
"""10000 in MirrorMaker 2."""
HEARTBEAT_INTERVAL = GROUP_OF_WORKERS.row("heartbeat.interval.ms", integer(10), 500, readers=BY_WORKER, at="B.")
"""3000 in MirrorMaker 2."""
LEADER_ELECTION: Key[Election] = GROUP_OF_WORKERS.row(
    "leader.election",
    election,
    "log",
    readers=AT_TOP_AND_TARGET,
    lines=(
        "#B.leader.election = log",
        "##B.leader.election = zookeeper",
    ),
    text=(
        "The election backend: log, a topic of mm2py's own on B, or zookeeper, which needs the package kazoo (pip"
        " install 'mm2py[zookeeper]')."
    ),
)
ZOOKEEPER_CONNECT: Key[Ensemble | None] = GROUP_OF_WORKERS.row(
    "zookeeper.connect",
    ensemble,
    None,
    readers=AT_TOP_AND_TARGET,
    lines=("##B.zookeeper.connect = z1.example:2181,z2.example:2181,z3.example:2181/mirror",),
    text=(
        "Where ZooKeeper is. Behind the last server there may be a node below which mm2py stays; it has to exist."
        " ZooKeeper itself bounds sessions to 2 to 20 of its ticks, 4000 to 40000 milliseconds unless its"
        " tickTime, minSessionTimeout or maxSessionTimeout say otherwise. With a session.timeout.ms below that the"
        " next leader is elected later; do not set it above."
    ),
)
ZOOKEEPER_DIGEST: Key[Secret | None] = GROUP_OF_WORKERS.row(
    "zookeeper.auth.digest",
    digest,
    None,
    readers=AT_TOP_AND_TARGET,
    lines=("##B.zookeeper.auth.digest = mirror:change-it",),
    text=(
        "User and password for its scheme `digest`. Only that user may use what mm2py creates there, unless"
        " zookeeper.set.acl is false. Without a user everyone may."
    ),
)
ZOOKEEPER_SET_ACL = GROUP_OF_WORKERS.row("zookeeper.set.acl", boolean, True, readers=AT_TOP_AND_TARGET, at="B.")
ZOOKEEPER_SSL = GROUP_OF_WORKERS.row(
    "zookeeper.ssl.client.enable",
    boolean,
    False,
    readers=AT_TOP_AND_TARGET,
    lines=(
        "#B.zookeeper.ssl.client.enable = false",
        "##B.zookeeper.ssl.client.enable = true",
    ),
    text="Use TLS. The others are as in the section on secured connections.",
)
GROUP_OF_WORKERS.example(
    "",
    "#B.zookeeper.ssl.truststore.type = JKS",
    "##B.zookeeper.ssl.truststore.location = /etc/mm2py/truststore.p12",
    "##B.zookeeper.ssl.truststore.password = change-it",
    "#B.zookeeper.ssl.keystore.type = JKS",
    "##B.zookeeper.ssl.keystore.location = /etc/mm2py/keystore.p12",
    "##B.zookeeper.ssl.keystore.password = change-it",
    "#B.zookeeper.ssl.endpoint.identification.algorithm = https",
    "#B.zookeeper.ssl.enabled.protocols = TLSv1.2, TLSv1.3",
    "##B.zookeeper.ssl.cipher.suites = TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256",
)
GROUP_OF_WORKERS.example(
    "Certificates and key as PEM in the file itself, here for another target.",
    "##A.leader.election = zookeeper",
    "##A.zookeeper.connect = z1.example:2182",
    "##A.zookeeper.ssl.client.enable = true",
    "##A.zookeeper.ssl.truststore.type = PEM",
    "##A.zookeeper.ssl.keystore.type = PEM",
    "##A.zookeeper.ssl.truststore.certificates = -----BEGIN CERTIFICATE----- MIIB... -----END CERTIFICATE-----",
    "##A.zookeeper.ssl.keystore.certificate.chain = -----BEGIN CERTIFICATE----- MIIB... -----END CERTIFICATE-----",
    "##A.zookeeper.ssl.keystore.key = -----BEGIN ENCRYPTED PRIVATE KEY----- MIIB..."
    " -----END ENCRYPTED PRIVATE KEY-----",
    "##A.zookeeper.ssl.key.password = change-it",
)

ZOOKEEPER_TLS: Table = table_of(
    replace(
        key,
        name=f"zookeeper.{key.name}",
        readers=AT_TOP_AND_TARGET,
        text=f"As `{key.name}`, for connections to ZooKeeper.",
    )
    for key in SECURITY.values()
    if key.name.startswith("ssl.") and key.status is Status.WORKS
)

for _key in ZOOKEEPER_TLS.values():
    GROUP_OF_WORKERS.add(_key)

ZOOKEEPER: Table = table_of(
    ZOOKEEPER_CONNECT, ZOOKEEPER_DIGEST, ZOOKEEPER_SET_ACL, ZOOKEEPER_SSL, ZOOKEEPER_TLS.values()
)
OWN: tuple[Key[Any], ...] = (GROUP, keys.INTERNAL_REPLICATION_FACTOR, LEADER_ELECTION, *ZOOKEEPER.values())
"""Settings that only mm2py has, at the top or for a target."""
WORKER: tuple[Key[int], ...] = (SESSION_TIMEOUT, HEARTBEAT_INTERVAL)
"""For a target only, as in MirrorMaker 2."""


def group_layer(file: Layer, target: ClusterAlias) -> dict[str, PropertyEntry]:
    """Return the settings of a group: the cluster's override the top of the file. Those that MirrorMaker 2 also has
    count only for the cluster, as in MirrorMaker 2."""
    names = [(f"{target}.{key.name}", key.name) for key in (*OWN, *WORKER)]
    layer = {key.name: file[key.name] for key in OWN if key.name in file}
    layer.update({name: file[written] for written, name in names if written in file})
    return layer


class GroupsReading:
    """One pass over the target clusters of a file; collects problems and warnings."""

    def __init__(self, file: Layer, value: Value, problems: list[str]) -> None:
        self.warnings: list[str] = []
        self._file = file
        self._value = value
        self._problems = problems

    def groups(self, targets: Sequence[ClusterAlias]) -> dict[ClusterAlias, GroupSettings]:
        layers = {target: group_layer(self._file, target) for target in dict.fromkeys(targets)}
        groups = {target: self._group(target, layer) for target, layer in layers.items()}
        used = {entry.key for target, layer in layers.items() if groups[target].zookeeper for entry in layer.values()}
        for target, layer in layers.items():
            if groups[target].election == "log":
                self._tell_idle(layer, used)
        return groups

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
            replication_factor=self._value(layer, keys.INTERNAL_REPLICATION_FACTOR) or AtMost(3),
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


def _is_default(key: Key[Any], entry: PropertyEntry) -> bool:
    try:
        return bool(key.kind(entry.value) == key.default)
    except BadValue:  # reported elsewhere
        return True

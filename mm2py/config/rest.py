"""Where a worker serves REST, metrics and its health, and who may ask there. Pure.

Counterpart: ``listeners``, ``admin.listeners`` and ``listeners.https.*`` of Kafka Connect's worker. MirrorMaker 2's
dedicated mode serves only its own processes there. The users and their roles are in a file of their own
(``rest/mm2py_rest/access/users.py``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, Literal, cast

from mm2py.config.kinds import BadValue, boolean, one_of, string, strings
from mm2py.config.layers import Findings, Layer, add_problem, bad_value, named
from mm2py.config.properties import PropertyEntry
from mm2py.config.row import BY_FAMILY, BY_FILE, Key, Section
from mm2py.config.security.keys import SECURITY
from mm2py.config.security.tls import read_tls
from mm2py.kafka.security.settings import TlsSettings

_LISTENER: Final = re.compile(r"(https?)://(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-._]*)):([0-9]{1,5})/?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen at."""

    host: str
    """A name or an IP address; empty: all interfaces."""
    port: int
    """0: any free port."""
    is_tls: bool = False
    for_probes: bool = False
    """One of ``admin.listeners``, which serves the health and the metrics of the worker, and nothing else."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False

    def host_overlaps(self, other: Listener) -> bool:
        """Whether both would listen at the same address, given the same port."""
        everywhere = {"", "0.0.0.0", "::"}  # noqa: S104
        return self.host.lower() == other.host.lower() or not everywhere.isdisjoint({self.host, other.host})

    @property
    def without_port(self) -> str:
        """Scheme and host, which are the same for each worker of a machine."""
        return f"{'https' if self.is_tls else 'http'}://{self.host}"

    def of_worker(self, number: int) -> Listener:
        """Return where worker 1, 2, ... of one machine listens: at this port, at the next one, and so on."""
        return replace(self, port=self.port + number - 1 if self.port else 0)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


def listeners(text: str) -> tuple[Listener, ...]:
    """A list of ``http://host:port``; an empty one serves nothing."""
    found = tuple(map(_listener, strings(text)))
    ports = [(one.host, one.port) for one in found if one.port]
    if len(set(ports)) < len(ports):
        raise BadValue("wrong: an address is there twice")
    return found


def _listener(text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise BadValue("write http://host:port, as in http://127.0.0.1:8083", at=text)
    scheme, bracketed, plain, port = match.groups()
    if int(port) > 65535:
        raise BadValue("the port is not from 0 to 65535", at=text)
    return Listener(bracketed or plain, int(port), scheme.lower() == "https")


def hosts(text: str) -> tuple[str, ...]:
    """A list of names by which clients call this worker."""
    found = strings(text)
    if any(re.fullmatch(r"[0-9a-zA-Z._-]+", host) is None for host in found):
        raise BadValue("no list of names; write them without a port, as in mirror.example.org")
    return tuple(host.lower() for host in found)


ClientAuth = Literal["none", "requested", "required"]
DEFAULT: Final = (Listener("127.0.0.1", 8083),)
REST = Section("REST, metrics and health")
LISTENERS: Key[tuple[Listener, ...]] = REST.row(
    "listeners",
    listeners,
    DEFAULT,
    readers=BY_FILE,
    text=(
        "Where each worker serves them: http://host:port or https://host:port, separated by commas, for the whole"
        " file. Port 0 takes any free port; with --workers N, the second worker listens at the next port, and so"
        " on. An empty list serves nothing. Without this line a worker whose port is taken copies all the same;"
        " with it, it does not start.\n"
        "Where other machines reach it, only /health, /live and /ready are served unless there are TLS and users."
        " See docs/rest-access.md."
    ),
)
ADMIN_LISTENERS: Key[tuple[Listener, ...]] = REST.row(
    "admin.listeners",
    listeners,
    (),
    readers=BY_FILE,
    lines=("##admin.listeners = http://0.0.0.0:8084",),
    text=(
        "Listeners for probes and Prometheus: they serve /health, /live, /ready and /metrics to all who reach them,"
        " and nothing else."
    ),
)
HTTPS: Key[str] = REST.row(
    "listeners.https.",
    string,
    "",
    readers=BY_FAMILY,
    lines=(
        "##listeners.https.ssl.keystore.type = PKCS12",
        "##listeners.https.ssl.keystore.location = /etc/mm2py/rest.p12",
        "##listeners.https.ssl.keystore.password = change-it",
        "##listeners.https.ssl.truststore.type = PEM",
        "##listeners.https.ssl.truststore.location = /etc/mm2py/clients-ca.pem",
    ),
    text=(
        "The certificate of https listeners and its key: any ssl setting of Kafka's clients, behind this prefix."
        " Without any, the ssl settings at the top of the file count. The second prefix is that of"
        " admin.listeners."
    ),
)
ADMIN_HTTPS: Key[str] = REST.row(
    "admin.listeners.https.",
    string,
    "",
    readers=BY_FAMILY,
    lines=(
        "##admin.listeners.https.ssl.keystore.type = PEM",
        "##admin.listeners.https.ssl.keystore.location = /etc/mm2py/probes.pem",
    ),
)
CLIENT_AUTH: Key[str] = REST.row(
    "ssl.client.auth",
    one_of("none", "requested", "required", any_case=True),
    "none",
    readers=BY_FILE,
    text=(
        "Whether clients of https listeners show a certificate (none, requested, required); mostly behind the prefix."
    ),
)
REST.example("", "##listeners.https.ssl.client.auth = requested")
USERS_FILE: Key[str] = REST.row(
    "rest.users.file",
    string,
    "",
    readers=BY_FILE,
    lines=("##rest.users.file = /etc/mm2py/rest.users",),
    text=(
        "Users, what proves them, and their roles, one a line; read again when it changes. Only its owner may"
        " write to it. See docs/rest-access.md."
    ),
)
TOKEN_FILE: Key[str] = REST.row(
    "rest.token.file",
    string,
    "",
    readers=BY_FILE,
    lines=("##rest.token.file = /var/lib/mm2py/rest.token",),
    text=(
        "The file of the token that changes take where there is no users' file; the worker makes it, for its own"
        " user alone. Without this line it is rest.token in $RUNTIME_DIRECTORY, else in $XDG_STATE_HOME/mm2py,"
        " else in ~/.local/state/mm2py."
    ),
)
ANONYMOUS_MAY: Key[str] = REST.row(
    "rest.anonymous.may",
    one_of("read", "change"),
    "read",
    readers=BY_FILE,
    text=(
        "What may be done without a proof where there is no users' file: read or change. With change every local"
        " user may delete offsets and change flows."
    ),
)
HOSTS: Key[tuple[str, ...]] = REST.row(
    "rest.hosts",
    hosts,
    (),
    readers=BY_FILE,
    lines=("##rest.hosts = mirror.example.org",),
    text=(
        "Names by which clients call the workers, besides addresses, localhost, the host's name and those in listeners."
    ),
)
INSECURE = REST.row(
    "rest.insecure",
    boolean,
    False,
    readers=BY_FILE,
    text=(
        "Serve all of REST without TLS or users wherever listeners say. All who reach it may read; changes take"
        " the token."
    ),
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The TLS of listeners."""

    settings: TlsSettings
    client_auth: ClientAuth = "none"


class Exposure(Enum):
    """What a listener serves, and to whom."""

    EVERYONE = auto()
    """All of it to all who reach it, as Connect does."""
    READERS = auto()
    """All of it to all who reach it, for reading; changes take the token of this machine."""
    USERS = auto()
    """To users, by their roles; the health to all."""
    HEALTH = auto()
    """The health and nothing else: other machines reach it, and the protection of the rest is missing."""
    PROBES = auto()
    """Health and metrics, to all who reach it: one of ``admin.listeners``."""


@dataclass(frozen=True, slots=True)
class RestSettings:
    """How a worker serves REST."""

    listeners: tuple[Listener, ...] = DEFAULT
    """Those of ``admin.listeners`` are the last ones."""
    is_explicit: bool = False
    """The file names them: then a port that is taken is an error. Otherwise the worker copies without REST."""
    tls: ServerTls | None = None
    """The TLS of listeners with ``https``."""
    probes_tls: ServerTls | None = None
    """The same for ``admin.listeners``."""
    users_file: Path | None = None
    token_file: Path | None = None
    """The token file, if the settings file names one; see ``mm2py/rest_token.py``."""
    anonymous_may_change: bool = False
    hosts: tuple[str, ...] = ()
    """Names by which clients call this worker, besides its own and those of its listeners."""
    is_insecure: bool = False

    def tls_of(self, listener: Listener) -> ServerTls | None:
        """Return the TLS of a listener; None: it speaks plain HTTP."""
        if not listener.is_tls:
            return None
        return self.probes_tls if listener.for_probes else self.tls

    def exposure(self, listener: Listener) -> Exposure:
        """Return what a listener serves. Beyond loopback, all of it takes TLS and users, or ``rest.insecure``."""
        if listener.for_probes:
            return Exposure.PROBES
        if self.users_file is not None:
            is_safe = listener.is_loopback or listener.is_tls or self.is_insecure
            return Exposure.USERS if is_safe else Exposure.HEALTH
        if not listener.is_loopback and not self.is_insecure:
            return Exposure.HEALTH
        return Exposure.EVERYONE if self.anonymous_may_change else Exposure.READERS

    @property
    def takes_token(self) -> bool:
        """Whether a listener asks for the token of this machine."""
        return any(self.exposure(listener) is Exposure.READERS for listener in self.listeners)

    def missing(self, listener: Listener) -> str:
        """Return what to do so that a listener serves more than the health, as an order."""
        wanted = []
        if not listener.is_tls:
            wanted.append("https:// in listeners with a certificate in listeners.https.ssl.keystore.location")
        if self.users_file is None:
            wanted.append("rest.users.file")
        return f"Set {' and '.join(wanted)}; or set rest.insecure=true if only friends can reach it"


def read_rest(file: Layer, problems: list[str], warnings: list[str]) -> RestSettings:
    """Read how REST is served.

    Args:
        problems: wrong settings are added to it.
        warnings: listeners that are open too far, or not open, are added to it.
    """

    def value(key: Key[Any]) -> Any:
        entry = file.get(key.name)
        try:
            return key.default if entry is None else key.kind(entry.value)
        except BadValue as bad:
            assert entry is not None  # noqa: S101
            add_problem(problems, bad_value(entry, bad))
            return key.default

    served: tuple[Listener, ...] = value(LISTENERS)
    probes: tuple[Listener, ...] = tuple(replace(one, for_probes=True) for one in value(ADMIN_LISTENERS))
    ports = [(one.host, one.port) for one in (*served, *probes) if one.port]
    if len(set(ports)) < len(ports):
        add_problem(problems, f"{_named(file, ADMIN_LISTENERS)} has an address that listeners has, too")
    tls, probes_tls = None, None
    if any(one.is_tls for one in served):
        tls = _tls(file, (HTTPS,), LISTENERS, problems, warnings)
    if any(one.is_tls for one in probes):
        probes_tls = _tls(file, (ADMIN_HTTPS, HTTPS), ADMIN_LISTENERS, problems, warnings)
    users_file, token_file = value(USERS_FILE), value(TOKEN_FILE)
    settings = RestSettings(
        (*served, *probes),
        is_explicit=LISTENERS.name in file,
        tls=tls,
        probes_tls=probes_tls,
        users_file=Path(users_file) if users_file else None,
        token_file=Path(token_file) if token_file else None,
        anonymous_may_change=value(ANONYMOUS_MAY) == "change",
        hosts=value(HOSTS),
        is_insecure=value(INSECURE),
    )
    for listener in served:
        where = f"{_named(file, LISTENERS)}: other machines can reach {listener}"
        match settings.exposure(listener):
            case Exposure.HEALTH:
                remedy = _lower(settings.missing(listener))
                warnings.append(f"{where}, so only /health, /live and /ready are served there; {remedy}")
            case Exposure.READERS if not listener.is_loopback:
                seen = "" if listener.is_tls else "; who listens on the network sees the token"
                warnings.append(f"{where}, and all who do may read, because rest.insecure is true{seen}")
            case Exposure.EVERYONE:
                who = "every user of this machine" if listener.is_loopback else "every machine that reaches it"
                warnings.append(
                    f"{_named(file, ANONYMOUS_MAY)} is change: at {listener} {who} may delete offsets and change flows,"
                    " without a proof"
                )
            case Exposure.USERS if not listener.is_loopback and not listener.is_tls:
                warnings.append(
                    f"{where} without TLS, because rest.insecure is true: who listens on the network sees passwords"
                )
    return settings


def _tls(
    file: Layer, families: tuple[Key[str], ...], key: Key[Any], problems: list[str], warnings: list[str]
) -> ServerTls:
    """Read ``listeners.https.*``; without any of these ``ssl.*``, as Connect does."""
    layers = [
        {name.removeprefix(family.name): entry for name, entry in file.items() if name.startswith(family.name)}
        for family in families
    ]
    layer: Mapping[str, PropertyEntry] = next(
        filter(None, layers), {name: entry for name, entry in file.items() if name.startswith("ssl.")}
    )
    unknown = [entry for name, entry in layer.items() if name not in SECURITY and name != CLIENT_AUTH.name]
    warnings += [f"{named(entry)} is not known" for entry in unknown]
    found = Findings(layer, {})
    settings = read_tls(found, layer)
    client_auth = found.value(CLIENT_AUTH)
    if settings.keys is None:
        found.refuse(f"{_named(file, key)} has https, and no certificate (set {families[0].name}ssl.keystore.location)")
    if client_auth != "none" and settings.trust is None:
        found.refuse(
            f"{found.at(CLIENT_AUTH)} asks clients for certificates, and nothing says whose are good (set"
            f" {families[0].name}ssl.truststore.location)"
        )
    for reason in found.reasons:
        add_problem(problems, reason)
    return ServerTls(settings, cast("ClientAuth", client_auth))


def _named(file: Layer, key: Key[Any]) -> str:
    return named(file[key.name]) if key.name in file else key.name


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]

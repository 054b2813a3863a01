"""The security of one client, out of its settings: typed where it can be used, and why not where it cannot.

Answers to what Kafka's clients check when they are made (SslFactory, LoginManager, SaslClientAuthenticator). Texts of
single settings are judged by ``security_keys.py``; here it is what goes together. Whatever asks for more than mm2py has
refuses its flow: a connection that is less secure than the file asks for is never made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from mm2py.config.kinds import BadValue, Key, Status
from mm2py.config.layers import FlowLayers, Layer
from mm2py.config.problems import Findings, named, origin
from mm2py.config.secrets import shown_key
from mm2py.config.security import keys
from mm2py.config.security.sasl import read_sasl
from mm2py.config.security.tls import read_tls
from mm2py.flow import Flow
from mm2py.kafka.security.settings import PLAINTEXT, Protocol, Security


@dataclass(frozen=True, slots=True)
class SecurityReading:
    """``reasons`` say why the flow must not run, ``warnings`` what its operator should know."""

    security: Security = PLAINTEXT
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_security(layer: Layer, own: Layer) -> SecurityReading:
    """Read the security of a client.

    Args:
        layer: the client's settings, as ``layers.py`` returns them.
        own: mm2py's own settings for this flow and cluster.
    """
    found = Findings(layer, own)
    security = _security(found)
    if found.reasons:
        return SecurityReading(reasons=tuple(dict.fromkeys(found.reasons)))
    _warn_of_idle(found, security)
    return SecurityReading(security, warnings=tuple(dict.fromkeys(found.warnings)))


def unused_told(alias: str, role: str, used: Layer, other: Layer) -> list[str]:
    """Name the settings that another client of a cluster has otherwise than the one whose settings count.

    Args:
        role: ``consumer`` or ``producer``: whose settings count.
        used: its settings.
        other: those of the admin client, or of the worker.
    """
    told = []
    for name in sorted(keys.SECURITY):
        entry = other.get(name)
        if entry is None or entry.line is None:
            continue
        counting = used.get(name)
        if counting is None or counting.value != entry.value:
            instead = f"; {shown_key(counting.key)} (line {counting.line}) counts" if counting is not None else ""
            told.append(
                f"line {entry.line}: {shown_key(entry.key)} is not used: all connections to {alias} are made with the"
                f" security of its {role}{instead}"
            )
    return told


@dataclass(frozen=True, slots=True)
class SidesReading:
    """The security of both sides of a flow."""

    source: Security
    target: Security
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def read_sides(flow: Flow, layers: FlowLayers, source_own: Layer, target_own: Layer) -> SidesReading:
    """Read the security of the client that reads records and of the one that writes them: they stand for their side."""
    source, target = read_security(layers.consumer, source_own), read_security(layers.producer, target_own)
    unused = [
        *unused_told(flow.source, "consumer", layers.consumer, layers.source_admin),
        *unused_told(flow.target, "producer", layers.producer, layers.target_admin),
        *unused_told(flow.target, "producer", layers.producer, layers.worker),
    ]
    return SidesReading(
        source.security,
        target.security,
        tuple(dict.fromkeys(source.reasons + target.reasons)),
        tuple(dict.fromkeys([*source.warnings, *target.warnings, *unused])),
    )


def _warn_of_idle(found: Findings, security: Security) -> None:
    """Name what was set for this cluster and counts for nothing; what stands at the top may count elsewhere."""
    idle = [
        found.layer[key.name]
        for key in keys.SECURITY.values()
        if key.status is Status.WORKS and key.name in found.layer and key.name not in found.counted
        if found.layer[key.name].key != key.name and not _says_the_default(key, found.layer[key.name].value)
    ]
    because = f"security.protocol is {security.protocol}"
    if security.sasl is not None:
        because += f" and sasl.mechanism {security.sasl.mechanism}"
    for entry in idle:
        found.warnings.append(f"{named(entry)} does nothing, because {because}")


def _says_the_default(key: Key[Any], text: str) -> bool:
    try:
        return bool(key.kind(text) == key.default)
    except BadValue:
        return True  # told as a problem of the file


def _security(found: Findings) -> Security:
    protocol = cast("Protocol", found.value(keys.SECURITY_PROTOCOL))
    if keys.SECURITY_PROTOCOL.name not in found.layer:
        stray = next((found.layer[name] for name in sorted(keys.SECURITY) if name in found.layer), None)
        if stray is not None:
            found.refuse(
                f"{origin(stray)} asks for security, and security.protocol is not set (write SSL, SASL_SSL or"
                " SASL_PLAINTEXT; if plain text is meant, as it is for MirrorMaker 2, write PLAINTEXT)"
            )
        return PLAINTEXT
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    for name, key in keys.SECURITY.items():
        entry = found.layer.get(name)
        if entry is not None and key.status is Status.REFUSED and not key.agrees(entry.value):
            found.refuse(f"{origin(entry)} does not work yet ({key.note})")
    tls = read_tls(found, found.layer) if protocol.endswith("SSL") else None
    sasl = read_sasl(found) if protocol.startswith("SASL") else None
    if protocol == "SASL_PLAINTEXT":
        where = found.at(keys.SECURITY_PROTOCOL)
        if found.value(keys.SASL_REQUIRE_TLS, found.own):
            found.refuse(
                f"{where} is SASL_PLAINTEXT, and {found.at(keys.SASL_REQUIRE_TLS, layer=found.own)} forbids SASL"
                " without TLS (use SASL_SSL)"
            )
        shows = "the password" if sasl is not None and sasl.mechanism == "PLAIN" else "what authenticates us"
        shows = "the token" if sasl is not None and sasl.mechanism == "OAUTHBEARER" else shows
        found.warnings.append(
            f"{named(found.layer[keys.SECURITY_PROTOCOL.name])} is SASL_PLAINTEXT: whoever listens on the network"
            f" sees the records and {shows}; use SASL_SSL"
        )
    return Security(protocol, tls, sasl)

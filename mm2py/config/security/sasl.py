"""The security of one client from its settings: typed settings if they can be used, else the reasons why not.

``keys.py`` judges the text of each setting; this module judges whether they fit together. If settings ask for more than
mm2py has, their flow is refused: a connection that is less secure than the file asks for is never made.

Counterpart: what Kafka's clients check when they are made (SslFactory, LoginManager, SaslClientAuthenticator).
"""

from __future__ import annotations

import ipaddress
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mm2py.config.kinds import BadValue
from mm2py.config.layers import Findings, FlowLayers, Layer, named, origin
from mm2py.config.properties import PropertyEntry
from mm2py.config.row import Key, Status
from mm2py.config.security import jaas, keys
from mm2py.config.security.kerberos import EXAMPLE, read_kerberos
from mm2py.config.security.tls import read_tls
from mm2py.flow import Flow
from mm2py.kafka.security.sasl import HASHES, extension_problem
from mm2py.kafka.security.settings import (
    PLAINTEXT,
    KerberosCredential,
    Mechanism,
    PasswordCredential,
    Protocol,
    RefreshSettings,
    SaslSettings,
    Security,
    TlsSettings,
    TokenEndpoint,
    TokenFile,
)
from mm2py.secret import Secret, shown_key

_MODULES: Mapping[str, str] = {
    "PLAIN": jaas.PLAIN,
    "OAUTHBEARER": jaas.OAUTHBEARER,
    "GSSAPI": jaas.KERBEROS,
    **dict.fromkeys(HASHES, jaas.SCRAM),
}
_Credential = PasswordCredential | TokenEndpoint | TokenFile | KerberosCredential
_PASSWORD_OPTIONS = frozenset({"username", "password"})
_TOKEN_OPTIONS = frozenset({"clientId", "clientSecret", "scope"})
_TLS_OPTIONS = frozenset(
    key.name for key in keys.SECURITY.values() if key.status is Status.WORKS and key.name.startswith("ssl.")
)


def read_sasl(found: Findings) -> SaslSettings | None:
    """Return how the client authenticates; None if there are reasons not to."""
    mechanism = found.value(keys.MECHANISM)
    if mechanism not in _MODULES:
        found.refuse(f"{found.at(keys.MECHANISM)} is none that mm2py has (use {_listed(_MODULES)})")
        return None
    module = _login_module(found, mechanism)
    if found.reasons:
        return None
    if mechanism == "OAUTHBEARER":
        credential: _Credential | None = _token_source(found, module)
    elif mechanism == "GSSAPI":
        assert module is not None  # noqa: S101  (_login_module refused)
        credential = _kerberos(found, module)
    else:
        credential = _password(found, module)
    return SaslSettings(cast("Mechanism", mechanism), credential) if credential is not None else None


def _login_module(found: Findings, mechanism: str) -> jaas.LoginModule | None:
    text = found.value(keys.JAAS_CONFIG)
    wanted = _MODULES[mechanism]
    if not text:
        if mechanism != "OAUTHBEARER":
            example = EXAMPLE if mechanism == "GSSAPI" else f'{wanted} required username="..." password="...";'
            found.refuse(f"{_by_default(found)}sasl.jaas.config is not set (write {example})")
        return None
    where = found.at(keys.JAAS_CONFIG)
    try:
        module = jaas.parse_jaas(text)
    except jaas.BadJaas as bad:
        found.refuse(f"{where} {bad}")
        return None
    if module.name != wanted:
        found.refuse(
            f"{_by_default(found)}{where} has {module.name.rpartition('.')[2]}, and sasl.mechanism is {mechanism}"
            f" (write {wanted})"
        )
    return module


def _by_default(found: Findings) -> str:
    if keys.MECHANISM.name in found.layer:
        return ""
    return f"{found.at(keys.SECURITY_PROTOCOL)} asks for SASL, and sasl.mechanism is not set: its default is GSSAPI; "


def _kerberos(found: Findings, module: jaas.LoginModule) -> KerberosCredential | None:
    unknown = set(module.options) - jaas.KERBEROS_FLAGS - jaas.KERBEROS_TEXTS
    _refuse_options(found, found.at(keys.JAAS_CONFIG), module, unknown)
    return read_kerberos(found, module)


def _password(found: Findings, module: jaas.LoginModule | None) -> PasswordCredential | None:
    assert module is not None  # noqa: S101  (_login_module refused)
    where = found.at(keys.JAAS_CONFIG)
    options = dict(module.options)
    if options.pop("tokenauth", Secret("false")).reveal().lower() != "false":
        found.refuse(f"{where} asks for delegation tokens, which do not work yet (remove tokenauth)")
    _refuse_options(found, where, module, set(options) - _PASSWORD_OPTIONS)
    missing = [name for name in sorted(_PASSWORD_OPTIONS) if not options.get(name)]
    if missing:
        found.refuse(f"{where} has no {' and no '.join(missing)}")
    if any("\0" in value.reveal() for value in options.values()):
        found.refuse(f"{where} has a NUL in user name or password, which no mechanism can send")
    if found.reasons:
        return None
    return PasswordCredential(options["username"].reveal(), options["password"])


def _token_source(found: Findings, module: jaas.LoginModule | None) -> TokenEndpoint | TokenFile | None:
    where = found.at(keys.JAAS_CONFIG)
    options = dict(module.options) if module is not None else {}
    if any(name.startswith("unsecuredLogin") for name in options):
        found.refuse(
            f"{where} asks for unsecured tokens, which mm2py does not make (set sasl.oauthbearer.token.endpoint.url)"
        )
        return None
    extensions = {name: options.pop(name).reveal() for name in list(options) if name.startswith("extension_")}
    for name, value in extensions.items():
        problem = extension_problem(name.removeprefix("extension_"), value)
        if problem is not None and module is not None:
            found.refuse(f"{where}: its option {module.shown(name)} {problem}")
    plain_extensions = tuple((name.removeprefix("extension_"), value) for name, value in extensions.items())
    tls = _endpoint_tls(found, {name: options.pop(name) for name in list(options) if name in _TLS_OPTIONS})
    _refuse_options(found, where, module, set(options) - _TOKEN_OPTIONS)
    url = found.value(keys.TOKEN_ENDPOINT_URL)
    if not url:
        found.refuse(
            "sasl.oauthbearer.token.endpoint.url is not set (name the https address of a token server, or"
            " a file:///path with a token)"
        )
        return None
    return _source_at(found, url, options, tls, plain_extensions)


def _source_at(
    found: Findings, url: str, options: Mapping[str, Secret], tls: TlsSettings, extensions: tuple[tuple[str, str], ...]
) -> TokenEndpoint | TokenFile | None:
    url_at = found.at(keys.TOKEN_ENDPOINT_URL)
    parts = _split(url)
    if parts is None or parts.username is not None or parts.fragment or "\\" in url:
        found.refuse(f"{url_at} is no address of a token server (write https://host/path, or file:///path)")
        return None
    if parts.scheme == "file":
        path = urllib.parse.unquote(parts.path)
        if parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path or parts.query:
            found.refuse(f"{url_at} is no name of a file (write file:///path)")
        return TokenFile(Path(path), extensions)
    if not f"{parts.path}{parts.query}".isascii():
        found.refuse(f"{url_at} has a character beyond ASCII behind its host (write it as %XX)")
    _check_scheme(found, url_at, parts)
    return _endpoint(found, url, options, tls, extensions)


def _check_scheme(found: Findings, url_at: str, parts: urllib.parse.SplitResult) -> None:
    if parts.scheme not in ("http", "https") or not parts.hostname:
        found.refuse(f"{url_at} is no address of a token server (write https://host/path, or file:///path)")
    elif parts.scheme == "http":
        is_here = _is_loopback(parts.hostname)
        if not found.value(keys.OAUTH_ALLOW_HTTP, found.own):
            way_out = f", or say that it is meant with {keys.OAUTH_ALLOW_HTTP.name} = true" if is_here else ""
            found.refuse(
                f"{url_at} is http, which would show the client's secret to anyone who listens (use https{way_out})"
            )
        elif not is_here:
            allowed_at = found.at(keys.OAUTH_ALLOW_HTTP, layer=found.own)
            found.refuse(f"{url_at} is http, which {allowed_at} allows on the same machine only (use https)")
        else:
            found.warnings.append(
                f"{named(found.layer[keys.TOKEN_ENDPOINT_URL.name])} is http: anyone who listens on this machine sees"
                " the client's secret; use https"
            )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _endpoint(
    found: Findings, url: str, options: Mapping[str, Secret], tls: TlsSettings, extensions: tuple[tuple[str, str], ...]
) -> TokenEndpoint | None:
    old_id = options.get("clientId")
    client_id = found.value(keys.OAUTH_CLIENT_ID) or (old_id.reveal() if old_id is not None else "")
    client_secret = found.value(keys.OAUTH_CLIENT_SECRET) or options.get("clientSecret")
    old_scope = options.get("scope")
    scope = found.value(keys.OAUTH_SCOPE) or (old_scope.reveal() if old_scope is not None else "")
    for key, value in ((keys.OAUTH_CLIENT_ID, client_id), (keys.OAUTH_CLIENT_SECRET, client_secret)):
        if not value:
            found.refuse(f"{key.name} is not set, and a token server asks for it")
    if found.reasons or not client_secret:
        return None
    return TokenEndpoint(
        url,
        client_id,
        client_secret,
        scope or None,
        url_encode=found.value(keys.OAUTH_URL_ENCODE),
        tls=tls,
        connect_timeout_s=found.value(keys.LOGIN_CONNECT_TIMEOUT) / 1000,
        read_timeout_s=found.value(keys.LOGIN_READ_TIMEOUT) / 1000,
        backoff_s=found.value(keys.LOGIN_BACKOFF) / 1000,
        backoff_most_s=found.value(keys.LOGIN_BACKOFF_MAX) / 1000,
        refresh=RefreshSettings(
            found.value(keys.REFRESH_WINDOW_FACTOR),
            found.value(keys.REFRESH_WINDOW_JITTER),
            found.value(keys.REFRESH_MIN_PERIOD),
            found.value(keys.REFRESH_BUFFER),
        ),
        extensions=extensions,
    )


def _endpoint_tls(found: Findings, options: Mapping[str, Secret]) -> TlsSettings:
    """Read the TLS of the token server. As in Kafka, options of the login module set it."""
    base = found.layer.get(keys.JAAS_CONFIG.name)
    line = base.line if base is not None else None
    layer = {
        name: PropertyEntry(value.reveal(), f"{name} in sasl.jaas.config", line) for name, value in options.items()
    }
    return read_tls(found, layer, may_skip_host_names=False)


def _refuse_options(found: Findings, where: str, module: jaas.LoginModule | None, unknown: set[str]) -> None:
    if module is not None and unknown:
        names = ", ".join(module.shown(name) for name in module.options if name in unknown)
        found.refuse(f"{where} has options that do nothing here: {names} (remove them)")


def _listed(names: Mapping[str, str]) -> str:
    return ", ".join(sorted(names))


def _split(url: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port, (parts.hostname or "").encode("idna")  # as opening a connection does with it
    except ValueError:  # UnicodeError is one
        return None
    return parts if url.isprintable() and " " not in url else None


@dataclass(frozen=True, slots=True)
class SecurityReading:
    """``reasons`` say why the flow must not run, ``warnings`` what its operator should know."""

    security: Security = PLAINTEXT
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()
    """The settings of the client that were asked for; under its protocol the others do nothing."""


def read_security(layer: Layer, own: Layer) -> SecurityReading:
    """Read the security of a client.

    Args:
        layer: the client's settings, as ``layers.py`` returns them.
        own: mm2py's own settings for this flow and cluster.
    """
    found = Findings(layer, own)
    security = _security(found)
    used = frozenset(found.counted)
    if found.reasons:
        return SecurityReading(reasons=tuple(dict.fromkeys(found.reasons)), used=used)
    _warn_of_idle(found, security)
    return SecurityReading(security, warnings=tuple(dict.fromkeys(found.warnings)), used=used)


def unused_told(alias: str, role: str, used: Layer, other: Layer) -> list[str]:
    """Name the settings that differ between another client of a cluster and the client whose settings count.

    Args:
        role: ``consumer`` or ``producer``: the client whose settings count.
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
    """Read the security of both sides: that of the client that reads records, and of the client that writes them."""
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
    """Name settings of this cluster that have no effect. Those at the top of the file may have an effect elsewhere."""
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
        return True  # reported as a problem of the file


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
        shows = "" if sasl is not None and sasl.mechanism == "GSSAPI" else f" and {shows}"
        found.warnings.append(
            f"{named(found.layer[keys.SECURITY_PROTOCOL.name])} is SASL_PLAINTEXT: anyone who listens on the network"
            f" sees the records{shows}; use SASL_SSL"
        )
    return Security(protocol, tls, sasl)
